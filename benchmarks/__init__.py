"""Paired runs of this sink and its peers."""
