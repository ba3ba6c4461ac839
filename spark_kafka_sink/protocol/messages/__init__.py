"""Kafka's messages: each API with its request, its response, and the structures inside them."""
