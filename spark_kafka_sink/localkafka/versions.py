"""Which versions of Apache Kafka a LocalKafka can run."""

from __future__ import annotations

import re

from spark_kafka_sink.localkafka.errors import LocalKafkaError

DEFAULT_VERSION = "4.3.0"
KNOWN_VERSIONS = ("3.3.2", "3.9.1", "4.0.2", "4.1.2", "4.3.0")
"""Those that the project's own tests run."""
_OLDEST = (3, 3)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)", re.ASCII)


def check_version(version: str) -> str:
    """``version`` itself. Raises LocalKafkaError if it is no version, or too old."""
    match = _VERSION.fullmatch(version)
    known = ", ".join(KNOWN_VERSIONS)
    if match is None:
        raise LocalKafkaError(
            f"'{version}' is not a version of Apache Kafka, such as {DEFAULT_VERSION}. "
            f"Known to work: {known}"
        )
    if (int(match[1]), int(match[2])) < _OLDEST:
        raise LocalKafkaError(
            f"Apache Kafka {version} is too old to be run here, which needs 3.3 or newer. "
            f"Known to work: {known}"
        )
    return version
