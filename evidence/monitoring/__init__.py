"""Prometheus itself and its push gateway, with what the sink tells them."""
