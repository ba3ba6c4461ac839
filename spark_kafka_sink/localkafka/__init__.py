"""A real Apache Kafka from its own jars, for the demo, tests and users' own tests.

Needs Java 17 and pyspark. It installs nothing, and leaves only downloaded jars behind.
"""

from spark_kafka_sink.localkafka.cluster import LocalKafka
from spark_kafka_sink.localkafka.jars import fetch_jars
from spark_kafka_sink.localkafka.registry import LocalRegistry
from spark_kafka_sink.localkafka.security import AUTHORIZER, LocalOAuth, LocalSecurity
from spark_kafka_sink.localkafka.settings import (
    DEFAULT_VERSION,
    FAST_FAILOVER,
    KNOWN_VERSIONS,
    LocalKafkaError,
)

__all__ = [
    "AUTHORIZER",
    "DEFAULT_VERSION",
    "FAST_FAILOVER",
    "KNOWN_VERSIONS",
    "LocalKafka",
    "LocalKafkaError",
    "LocalOAuth",
    "LocalRegistry",
    "LocalSecurity",
    "fetch_jars",
]
