"""Stores of certificates and keys, SASL mechanisms, and the sources of their credentials."""
