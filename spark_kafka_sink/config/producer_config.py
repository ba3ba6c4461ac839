"""List the producer's options, parse them, and check the rules that span several keys.

Names are Kafka's. Defaults are the Java client's unless a sink that writes in bulk needs others.
``TopicCreation`` holds the settings for missing topics that the sink creates.

Source: ``ProducerConfig``, ``CommonClientConfigs``, ``ClientUtils.parseAndValidateAddresses``,
``Utils.HOST_PORT_PATTERN`` of Kafka 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.config.config_def import (
    KAFKA_PREFIX,
    REQUIRED,
    ConfigDef,
    ConfigKey,
    at_least,
    between,
    choice,
    flag,
    minus_one_or,
    one_of,
    one_of_or_own,
)
from spark_kafka_sink.config.config_providers import without_config_providers
from spark_kafka_sink.config.security_config import BEFORE_ADDRESS, SecurityConfig, parse_security
from spark_kafka_sink.config.security_keys import SECURITY_CONFIG

_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<plain>[^\[\]:]+)):(?P<port>[0-9]+)")
_MAX_PORT = 65535


def parse_bootstrap_servers(text: str, option: str = "bootstrap.servers") -> list[tuple[str, int]]:
    """Return the hosts and ports of ``"host:port,[::1]:9092"`` in order, without duplicates.

    A protocol before an address, as in ``SASL_SSL://host:9092``, is ignored, as in Java.

    Raises ConfigError, which names the ``option`` and the entry, if an entry is not ``host:port``.
    """
    entries = [entry.strip() for entry in text.split(",")]
    addresses = [_parse_address(entry, option) for entry in entries if entry]
    if not addresses:
        raise ConfigError(
            f"{option} names no broker: expected host:port,host:port", code="OPTION-010"
        )
    return list(dict.fromkeys(addresses))


def _parse_address(entry: str, option: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(entry, _start(entry))
    if match is None or "/" in match[0] or any(character.isspace() for character in entry):
        raise ConfigError(
            f"{option}: '{entry}' is not host:port{_hint(entry[_start(entry) :])}",
            code="OPTION-010",
        )
    port = int(match["port"])
    if not 0 < port <= _MAX_PORT:
        raise ConfigError(
            f"{option}: '{entry}' has a port outside 1 to {_MAX_PORT}", code="OPTION-010"
        )
    return match["bracketed"] or match["plain"], port


def _start(entry: str) -> int:
    """Return the index at which the address begins."""
    match = BEFORE_ADDRESS.match(entry)
    return 0 if match is None else match.end()


def _hint(entry: str) -> str:
    """Return the most likely mistake in ``entry``."""
    if "/" in entry:
        return ": a broker address has no path"
    if any(character in entry for character in "; \t\n"):
        return ": separate addresses with commas"
    if entry.count(":") > 1 and "[" not in entry:
        return ": write an IPv6 address in brackets, like [::1]:9092"
    if ":" not in entry.rpartition("]")[2]:
        return f": the port is missing, write {entry}:9092 if the broker uses Kafka's usual port"
    if entry.startswith(":"):
        return ": the host is missing"
    return ": the port must be a number"


BROKER_DEFAULT = -1
# The protocol counts replicas in 16 bits.
MAX_REPLICAS = 2**15 - 1
replicas_problem = minus_one_or(between(1, MAX_REPLICAS))


class TopicCreation(NamedTuple):
    """The ``topic.creation.*`` options. BROKER_DEFAULT leaves a number to the brokers (KIP-464).

    enabling_option, replicas_option: options that request the topic and set its replicas, for
    messages
    """

    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: tuple[tuple[str, str], ...] = ()
    enabling_option: str = "topic.creation.enable"
    replicas_option: str = "topic.creation.replication.factor"


def parse_topic_configs(text: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of ``"retention.ms=1000,cleanup.policy=compact,delete"``.

    An item without ``=`` belongs to the preceding value. Raises ConfigError if no value precedes.
    """
    pairs: list[tuple[str, str]] = []
    for item in text.split(","):
        name, separator, value = item.strip().partition("=")
        if separator and name.strip():
            pairs.append((name.strip(), value.strip()))
        elif pairs and name:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{name}")
        elif name or separator:
            raise ConfigError(
                f"topic.creation.configs: '{item.strip()}' is not name=value", code="OPTION-003"
            )
    return tuple(pairs)


# A tebibyte. A larger value is a typing error, which would otherwise show only in the tasks.
_MAX_BUFFER_MEMORY = 1 << 40
# 16 of the smallest pages into which the buffer is divided.
MIN_BUFFER_MEMORY = 1 << 16
ACKS_ALL = -1
PARTITIONERS = ("default", "round-robin", "murmur3", "crc32")
_own_or_known = one_of_or_own("callable", *PARTITIONERS)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}
_DNS_LOOKUPS = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")
_INT_MAX = 2**31 - 1


PRODUCER_CONFIG = ConfigDef(
    KAFKA_PREFIX,
    ConfigKey("bootstrap.servers", "list", REQUIRED).about("""
        First brokers to contact, as host:port. The client learns the rest of the cluster from them.
        > Set it always. Name several brokers, because one may be unavailable."""),
    ConfigKey("acks", "string", "all", one_of(*ACKS)).about("""
        Brokers that must store a record before it counts as written: 0 none, 1 the leader, all (-1)
        every in-sync replica. Idempotence needs all.
        > Set 1 or 0 only if records may be lost."""),
    ConfigKey("batch.size", "int", 131072, at_least(0)).about("""
        Bytes of a record batch after compression, estimated while rows arrive. A larger record gets
        a batch of its own.
        > Increase it if the brokers are the limit. If they keep up, more than 262144 gains nothing.
        > Differs from 16384: A task writes in bulk: larger batches cost less to compress, send and
        store."""),
    ConfigKey("linger.ms", "long", 5, at_least(0)).about("""
        Pause of the input after which batches that are not full are sent. While rows arrive, a
        batch waits to be filled for at most a second, or for kafka.linger.ms if that is longer. The
        end of a task sends all batches.
        > Increase it only if the input pauses often and batches are small.
        > Differs: Java counts from the first record of a batch."""),
    ConfigKey("buffer.memory", "long", 33554432, between(0, _MAX_BUFFER_MEMORY)).about("""
        Bytes of a task for records that are not acknowledged. If they are used up, the task waits
        for the brokers, at most kafka.max.block.ms. Values below 65536 count as 65536.
        > Increase it only to bridge longer pauses of a broker. Decrease it if executors lack
        memory."""),
    ConfigKey("max.block.ms", "long", 60000, at_least(0)).about("""
        Longest wait of a task for buffer memory or for a topic's metadata.
        > Increase it if topics or leaders appear late."""),
    ConfigKey("max.request.size", "int", 1048576, at_least(0)).about("""
        Largest produce request and largest record, in bytes before compression.
        > For larger records, increase it together with the topic's max.message.bytes."""),
    ConfigKey("request.timeout.ms", "int", 30000, at_least(0)).about("""
        Longest wait for a broker's answer. After it the client closes the connection and retries
        the request.
        > Increase it if brokers answer late, because of slow disks or replicas."""),
    ConfigKey("delivery.timeout.ms", "int", 120000, at_least(0)).about("""
        Time from a finished batch to its acknowledgement, with all retries. After it the task
        fails. At least kafka.linger.ms + kafka.request.timeout.ms.
        > Increase it to survive longer outages.
        > Differs: Java counts from the arrival of a record."""),
    ConfigKey("retries", "int", _INT_MAX, between(0, _INT_MAX)).about("""
        Retries of a batch after a retriable error.
        > Leave it: kafka.delivery.timeout.ms limits the time."""),
    ConfigKey("retry.backoff.ms", "long", 100, at_least(0)).about("""
        Pause before the first retry. It doubles with each further one.
        > Increase it if retries burden the brokers."""),
    ConfigKey("retry.backoff.max.ms", "long", 1000, at_least(0)).about("""
        Longest pause before a retry.
        > Increase it if retries burden the brokers."""),
    ConfigKey("max.in.flight.requests.per.connection", "int", 5, at_least(1)).about("""
        Requests to one broker without an answer. At most 5 with idempotence. Without idempotence,
        more than 1 can reorder records.
        > Leave it; without idempotence, set 1 to keep the order."""),
    flag("enable.idempotence", True).about("""
        Lets brokers recognise a repeated batch, so that the producer's retries neither duplicate
        nor reorder records. Needs kafka.acks=all and kafka.retries.
        > Set false only if brokers before Kafka 2.8 do not grant IDEMPOTENT_WRITE."""),
    ConfigKey("compression.type", "string", "none", one_of(*CODECS)).about("""
        Codec of record batches: none, gzip, snappy, lz4 or zstd.
        > Set lz4 or zstd to send and store fewer bytes."""),
    ConfigKey("compression.gzip.level", "int", -1, minus_one_or(between(1, 9))).about("""
        1 (fast) to 9 (small), -1 for the default. Levels up to 3, and the default, use ISA-L's
        faster deflate.
        > Change it only after a measurement."""),
    ConfigKey("compression.lz4.level", "int", 9, between(1, 17)).about("""
        9 is LZ4's fast compressor, as in the Java client. Any other level is LZ4 HC.
        > Change it only after a measurement."""),
    ConfigKey("compression.zstd.level", "int", 3, between(-131072, 22)).about("""
        Negative (fast) to 22 (small).
        > Change it only after a measurement."""),
    flag("partitioner.ignore.keys", False).about("""
        Spreads records over partitions regardless of their keys.
        > Set it if a few keys have most records, and their order does not matter."""),
    choice(
        "partitioner", "default", PARTITIONERS, one_of_or_own("callable", *PARTITIONERS)
    ).about("""
        Partition of rows that name none. default: murmur2 of the key, sticky without a key, as in
        Java. round-robin. murmur3: mmh3 of the key. crc32: librdkafka's consistent_random.
        `package.module:callable`: docs/your-own-code.md.
        > Change it if partitions must match those of another client, or follow your own rule.
        > Differs from partitioner.class: A Java class cannot run here."""),
    flag("partitioner.adaptive.partitioning.enable", True).about("""
        Rows without a key prefer partitions whose brokers have fewer waiting batches.
        > Set false if partitions must get equal shares."""),
    ConfigKey("partitioner.availability.timeout.ms", "long", 0, at_least(0)).about("""
        Rows without a key avoid partitions whose broker has kept batches waiting for this long. 0:
        never.
        > Set it if one slow broker holds up tasks."""),
    flag("partitioner.rack.aware", False).about("""
        Rows without a key go to partitions whose leader is in kafka.client.rack, and to all while
        that rack has no leader (KIP-1123): docs/racks.md. Rows with a key never move.
        > Set it if traffic between zones costs money."""),
    ConfigKey("metadata.max.age.ms", "long", 300000, at_least(0)).about("""
        Time after which a task refreshes cluster metadata without an error, and after which the
        driver checks the cluster again. The next job or micro-batch uses new partitions at once.
        > Increase it on large clusters."""),
    ConfigKey("metadata.max.idle.ms", "long", 300000, at_least(5000)).about("""
        Time without a row after which a topic's metadata is dropped.
        > Increase it if a task writes to a topic less often."""),
    choice("metadata.recovery.strategy", "rebootstrap", ("rebootstrap", "none")).about("""
        rebootstrap asks kafka.bootstrap.servers again if no known broker can be reached; none does
        not.
        > Set none if those addresses may lead to another cluster."""),
    ConfigKey("metadata.recovery.rebootstrap.trigger.ms", "long", 300000, at_least(0)).about("""
        Time without metadata after which the client asks kafka.bootstrap.servers again.
        > Decrease it if brokers often get new addresses."""),
    flag("metadata.cluster.check.enable", True).about("""
        Lets brokers reject a connection for another cluster or broker (KIP-1242). No effect on
        brokers before Kafka 4.4, or with kafka.metadata.recovery.strategy=none.
        > Leave it."""),
    ConfigKey("client.dns.lookup", "string", _DNS_LOOKUPS[0], one_of(*_DNS_LOOKUPS)).about("""
        use_all_dns_ips tries all addresses of a name, each 250 ms after the one before. The other
        value replaces bootstrap addresses by their canonical names.
        > Set resolve_canonical_bootstrap_servers_only for Kerberos."""),
    ConfigKey("transaction.timeout.ms", "int", 60000, at_least(1)).about("""
        Time after which brokers abort an open transaction. It must exceed any batch, and the
        driver's restart in the middle of a commit. Only for exactly-once.
        > Decrease it if the brokers' transaction.max.timeout.ms is less.
        > Differs: With exactly-once the default is 900000."""),
    ConfigKey("client.id", "string", "pykafka-sink").about("""
        Name of the client in the brokers' logs, metrics and quotas.
        > Change it if quotas or metrics must separate queries.
        > Differs from producer-N: Tasks are short: with a number per producer, each would be
        another client for quotas."""),
    ConfigKey("connections.max.idle.ms", "long", 540000).about("""
        Closes a connection after this time without use. -1: never.
        > Set it below the idle limit of a firewall or load balancer."""),
    ConfigKey("reconnect.backoff.ms", "long", 50, at_least(0)).about("""
        Pause before a lost connection is tried again. It doubles with each failure.
        > Increase it if reconnecting clients burden the brokers."""),
    ConfigKey("reconnect.backoff.max.ms", "long", 1000, at_least(0)).about("""
        Longest pause before a lost connection is tried again.
        > Increase it if reconnecting clients burden the brokers."""),
    ConfigKey("socket.connection.setup.timeout.ms", "long", 10000, at_least(1)).about("""
        Time limit for TCP and TLS of a new connection. It doubles with each failure.
        > Increase it for slow networks."""),
    ConfigKey("socket.connection.setup.timeout.max.ms", "long", 30000, at_least(1)).about("""
        Longest time limit for a new connection.
        > Increase it for very slow networks."""),
    ConfigKey("send.buffer.bytes", "int", -1, at_least(-1)).about("""
        TCP send buffer. -1: the operating system decides.
        > Set it only after a measurement over a long distance.
        > Differs from 131072: The operating system adapts the buffer to the connection, which saves
        CPU and time."""),
    ConfigKey("receive.buffer.bytes", "int", 32768, at_least(-1)).about("""
        TCP receive buffer. -1: the operating system decides.
        > Leave it: the answers of brokers are small."""),
    flag("allow.auto.create.topics", True).about("""
        Asks brokers to create missing topics, which they do with auto.create.topics.enable.
        > Set false to reject a missing topic and see existing topics with similar names.
        > Differs: The Java producer always asks; Kafka's consumer has this option."""),
    flag("enable.metrics.push", True).about("""
        Pushes metrics of each task's producer to brokers that have a plugin and a subscription for
        them (KIP-714).
        > Set false to push nothing."""),
    ConfigKey("client.rack", "string", "", takes_references=True).about("""
        Rack or zone of a task, for kafka.partitioner.rack.aware and pushed metrics. Each task
        resolves ${env:AZ} or ${file:/path:key} on its own machine: docs/racks.md.
        > Set it if zones matter."""),
)


_MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Parsed and checked configuration; fields are Kafka's keys with dots as underscores.

    acks: ACKS_ALL, 0 or 1. enable_idempotence: after the rules that span several keys.
    buffer_memory: bytes, raised to MIN_BUFFER_MEMORY if the option is smaller.
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
    partitioner_rack_aware: bool
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    metadata_cluster_check_enable: bool
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
    allow_auto_create_topics: bool
    enable_metrics_push: bool
    client_rack: str
    # security.protocol, ssl.*, sasl.*
    security: SecurityConfig = SecurityConfig()
    # The following are not Kafka's keys.
    # The sink's options ``topic.creation.*``. None: brokers may create topics.
    topic_creation: TopicCreation | None = None
    # max.bytes.per.second.per.task. None: no limit.
    max_bytes_per_second: int | None = None
    # transaction.log.topic with exactly-once; rows for this topic are rejected.
    decision_log: str | None = None

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> ProducerConfig:
        """Parse Kafka's keys and textual values. Raises ConfigError."""
        values = without_config_providers(values)
        security = {name: text for name, text in values.items() if name in SECURITY_CONFIG.keys}
        others = {name: text for name, text in values.items() if name not in security}
        parsed = PRODUCER_CONFIG.parse(others)
        servers = ",".join(parsed["bootstrap_servers"])
        parsed["bootstrap_servers"] = tuple(
            parse_bootstrap_servers(servers, "kafka.bootstrap.servers")
        )
        parsed["acks"] = ACKS[parsed["acks"]]
        parsed["buffer_memory"] = max(parsed["buffer_memory"], MIN_BUFFER_MEMORY)
        if "reconnect.backoff.max.ms" not in values and "reconnect.backoff.ms" in values:
            # As CommonClientConfigs.postProcessReconnectBackoffConfigs: a constant pause.
            parsed["reconnect_backoff_max_ms"] = parsed["reconnect_backoff_ms"]
        _check_idempotence(parsed, values)
        _check_delivery_timeout(parsed, values)
        return cls(**parsed, security=parse_security(security))

    @property
    def compression_level(self) -> int | None:
        """Return the level of the chosen codec; None for codecs without levels."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level


def _check_idempotence(parsed: dict[str, Any], originals: Mapping[str, str]) -> None:
    """Disable idempotence if acks or retries forbid it; raise ConfigError if the user enabled it.

    Source: ``ProducerConfig.postProcessAndValidateIdempotenceConfigs``, KIP-679.
    """
    if not parsed["enable_idempotence"]:
        return
    for is_allowed, problem in (
        (
            parsed["retries"] != 0,
            "Must set kafka.retries to non-zero when using the idempotent producer.",
        ),
        (
            parsed["acks"] == ACKS_ALL,
            "Must set kafka.acks to all in order to use the idempotent producer. "
            "Otherwise we cannot guarantee idempotence.",
        ),
    ):
        if not is_allowed and "enable.idempotence" in originals:
            raise ConfigError(problem, code="OPTION-011")
        parsed["enable_idempotence"] &= is_allowed
    in_flight = parsed["max_in_flight_requests_per_connection"]
    if parsed["enable_idempotence"] and in_flight > _MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
        raise ConfigError(
            "To use the idempotent producer, kafka.max.in.flight.requests.per.connection must be "
            f"set to at most {_MAX_IN_FLIGHT_FOR_IDEMPOTENCE}. Current value is {in_flight}. "
            "Lower it, or set kafka.enable.idempotence=false",
            code="OPTION-011",
        )


def _check_delivery_timeout(parsed: dict[str, Any], originals: Mapping[str, str]) -> None:
    """Raise a default that is too short; reject a short delivery.timeout.ms that the user set.

    Source: ``KafkaProducer.configureDeliveryTimeout``.
    """
    minimum_ms = min(parsed["linger_ms"] + parsed["request_timeout_ms"], _INT_MAX)
    if parsed["delivery_timeout_ms"] >= minimum_ms:
        return
    if "delivery.timeout.ms" in originals:
        raise ConfigError(
            "kafka.delivery.timeout.ms should be equal to or larger than kafka.linger.ms + "
            "kafka.request.timeout.ms",
            code="OPTION-012",
        )
    parsed["delivery_timeout_ms"] = minimum_ms
