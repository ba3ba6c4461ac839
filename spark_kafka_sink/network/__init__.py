"""Sockets, and requests over them."""
