"""The producer's configuration, parsed, with the rules that go across keys.

Source: ``ProducerConfig`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.bootstrap import parse_bootstrap_servers
from spark_kafka_sink.config.producer_keys import (
    ACKS,
    ACKS_ALL,
    LEAST_MEMORY,
    PRODUCER_CONFIG,
)
from spark_kafka_sink.config.reference_providers import without_providers
from spark_kafka_sink.config.security_config import SecurityConfig
from spark_kafka_sink.config.security_keys import SECURITY_CONFIG
from spark_kafka_sink.config.security_rules import parse_security
from spark_kafka_sink.config.topic_creation import TopicCreation

_MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Parsed and checked configuration; Kafka's keys with dots as underscores.

    acks: ACKS_ALL, 0 or 1. enable_idempotence: after the rules across keys. buffer_memory: at least
    LEAST_MEMORY, whatever was given.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    acks: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    max_in_flight_requests_per_connection: int
    enable_idempotence: bool
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner_ignore_keys: bool
    partitioner: str
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    client_dns_lookup: str
    transaction_timeout_ms: int
    client_id: str
    connections_max_idle_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    enable_metrics_push: bool
    client_rack: str
    # security.protocol, ssl.*, sasl.*
    security: SecurityConfig = SecurityConfig()
    # Nor this: the sink's options ``topic.creation.*``. None: brokers may create topics.
    topic_creation: TopicCreation | None = None
    # Nor this: max.bytes.per.second.per.task; None: there is no limit.
    max_bytes_per_second: int | None = None
    # Nor this: transaction.log.topic with exactly-once, which no row may go to.
    decision_log: str | None = None

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> ProducerConfig:
        """From Kafka's keys and textual values. Raises ConfigError."""
        values = without_providers(values)
        secured = {name: text for name, text in values.items() if name in SECURITY_CONFIG.keys}
        others = {name: text for name, text in values.items() if name not in secured}
        parsed = PRODUCER_CONFIG.parse(others)
        servers = parsed["bootstrap_servers"]
        parsed["bootstrap_servers"] = tuple(
            parse_bootstrap_servers(",".join(servers), "kafka.bootstrap.servers")
        )
        parsed["acks"] = ACKS[parsed["acks"]]
        parsed["buffer_memory"] = max(parsed["buffer_memory"], LEAST_MEMORY)
        if "reconnect.backoff.max.ms" not in values and "reconnect.backoff.ms" in values:
            # As CommonClientConfigs.postProcessReconnectBackoffConfigs: a constant pause was meant.
            parsed["reconnect_backoff_max_ms"] = parsed["reconnect_backoff_ms"]
        _check_idempotence(parsed, values)
        _check_delivery_timeout(parsed, values)
        return cls(**parsed, security=parse_security(secured))

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen codec; None for codecs without levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


def _check_idempotence(parsed: dict[str, Any], given: Mapping[str, str]) -> None:
    """Idempotence gives way to acks and retries that forbid it, unless it was asked for.

    Source: ``ProducerConfig.postProcessAndValidateIdempotenceConfigs``, KIP-679.
    """
    if not parsed["enable_idempotence"]:
        return
    is_asked_for = "enable.idempotence" in given
    if parsed["retries"] == 0:
        if is_asked_for:
            raise ConfigError(
                "Must set kafka.retries to non-zero when using the idempotent producer."
            )
        parsed["enable_idempotence"] = False
    if parsed["acks"] != ACKS_ALL:
        if is_asked_for:
            raise ConfigError(
                "Must set kafka.acks to all in order to use the idempotent producer. "
                "Otherwise we cannot guarantee idempotence."
            )
        parsed["enable_idempotence"] = False
    in_flight = parsed["max_in_flight_requests_per_connection"]
    if parsed["enable_idempotence"] and in_flight > _MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
        raise ConfigError(
            "To use the idempotent producer, kafka.max.in.flight.requests.per.connection must be "
            f"set to at most {_MAX_IN_FLIGHT_FOR_IDEMPOTENCE}. Current value is {in_flight}."
        )


def _check_delivery_timeout(parsed: dict[str, Any], given: Mapping[str, str]) -> None:
    """Source: ``KafkaProducer.configureDeliveryTimeout``."""
    least = min(parsed["linger_ms"] + parsed["request_timeout_ms"], _INT_MAX)
    if parsed["delivery_timeout_ms"] >= least:
        return
    if "delivery.timeout.ms" in given:
        raise ConfigError(
            "kafka.delivery.timeout.ms should be equal to or larger than kafka.linger.ms + "
            "kafka.request.timeout.ms"
        )
    parsed["delivery_timeout_ms"] = least
