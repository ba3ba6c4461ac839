"""Rows of typed columns as bytes: JSON and Avro."""
