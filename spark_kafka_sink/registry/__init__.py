"""A schema registry that speaks Confluent's REST API, asked by the driver alone."""
