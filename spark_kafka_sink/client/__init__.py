"""Blocking clients of a cluster: metadata, topics, coordinators."""
