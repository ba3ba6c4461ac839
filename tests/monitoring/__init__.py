"""Prometheus itself, its push gateway and node_exporter, with what the sink tells them."""
