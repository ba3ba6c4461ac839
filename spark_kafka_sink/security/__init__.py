"""Stores of certificates and keys, SASL mechanisms, and where their credentials come from."""
