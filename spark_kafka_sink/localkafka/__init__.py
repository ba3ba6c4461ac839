"""A real Apache Kafka from its own jars, for demo, tests and users' own tests.

Needs Java 17 and pyspark; nothing is installed, and nothing stays behind except downloaded jars.
"""

from spark_kafka_sink.localkafka.cluster import LocalKafka
from spark_kafka_sink.localkafka.errors import LocalKafkaError
from spark_kafka_sink.localkafka.jars import fetch_jars
from spark_kafka_sink.localkafka.security import AUTHORIZER, LocalOAuth, LocalSecurity
from spark_kafka_sink.localkafka.settings import DEFAULT_VERSION, FAST_FAILOVER, KNOWN_VERSIONS

__all__ = [
    "AUTHORIZER",
    "DEFAULT_VERSION",
    "FAST_FAILOVER",
    "KNOWN_VERSIONS",
    "LocalKafka",
    "LocalKafkaError",
    "LocalOAuth",
    "LocalSecurity",
    "fetch_jars",
]
