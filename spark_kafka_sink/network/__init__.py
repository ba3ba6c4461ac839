"""Connections to brokers, and the client that sends requests over these connections."""
