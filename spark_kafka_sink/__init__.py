"""pykafka-sink: Spark DataFrames and streams into Apache Kafka, without a jar."""

__version__ = "0.1.0"
