"""Figures of this sink beside those of Kafka's Java producer, for the same work."""
