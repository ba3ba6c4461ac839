"""One module per Kafka API: its request, its response, and the structures inside them."""
