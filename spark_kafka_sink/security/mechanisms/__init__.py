"""SASL mechanisms: each is a conversation of bytes, without I/O of its own."""
