"""Rows of typed columns as bytes: JSON, Avro and Protobuf."""
