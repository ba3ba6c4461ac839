"""The versions of Kafka whose brokers are run."""

WITH_ZOOKEEPER = ("2.1.1", "2.8.2", "3.0.2")
WITH_KRAFT = ("3.3.2", "3.9.1", "4.1.2", "4.3.0")
VERSIONS = (*WITH_ZOOKEEPER, *WITH_KRAFT)
TOO_OLD_FOR_TRANSACTIONS = ("2.1.1", "2.8.2")
"""They cannot tell what became of a transaction, which exactly-once needs."""
