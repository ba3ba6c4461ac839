"""Exactly-once delivery: the driver's side of transactions. See docs/exactly-once.md."""
