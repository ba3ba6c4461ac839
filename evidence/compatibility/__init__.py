"""What was run with which Spark, Python and Kafka, and the document that is made from it."""
