"""The table of the producer's keys: Kafka's names, and the Java client's defaults unless a sink
that writes in bulk needs others.

Source: ``ProducerConfig``, ``CommonClientConfigs`` of Kafka 4.3.
"""

from __future__ import annotations

from spark_kafka_sink.config.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    in_usual_case,
    one_of,
)

# A tebibyte: more is a typing error, and would be found out in the tasks only.
_MOST_MEMORY = 1 << 40
# 16 of the smallest pages that the buffer is cut into.
LEAST_MEMORY = 1 << 16
KAFKA_PREFIX = "kafka."
ACKS_ALL = -1
PARTITIONERS = ("default", "round-robin", "murmur3", "crc32")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1}
_INT_MAX = 2**31 - 1

BOOLEAN, INT, LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
STRING, LIST = ConfigType.STRING, ConfigType.LIST
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _gzip_level(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "must be -1 or between 1 and 9"


def _partitioner(value: str) -> str | None:
    if value in PARTITIONERS or ":" in value:
        return None
    return f"must be one of {', '.join(PARTITIONERS)}, or package.module:callable"


PRODUCER_CONFIG = ConfigDef(
    [
        ConfigKey(
            "bootstrap.servers",
            LIST,
            REQUIRED,
            None,
            HIGH,
            "Brokers to begin with, as host:port, separated by commas. The rest of the cluster is "
            "learned from them.",
        ),
        ConfigKey(
            "acks",
            STRING,
            "all",
            one_of(*ACKS),
            LOW,
            "Who must have a record before it counts as written: 0 nobody, 1 the leader, all (-1) "
            "every in-sync replica. Idempotence needs all.",
            convert=in_usual_case(*ACKS),
        ),
        ConfigKey(
            "batch.size",
            INT,
            131072,
            at_least(0),
            MEDIUM,
            "Bytes of a record batch as it is sent, that is, after compression (estimated while "
            "rows are appended). A single larger record makes a batch of its own.",
            16384,
            "A task writes in bulk: eight times fewer batches to compress, send and store.",
        ),
        ConfigKey(
            "linger.ms",
            LONG,
            5,
            at_least(0),
            MEDIUM,
            "How long the input may pause before batches that are not full are sent. While rows "
            "keep coming, a batch waits to be filled, for at most a second (or "
            "kafka.linger.ms, if longer); at the end of the task everything goes at once.",
        ),
        ConfigKey(
            "buffer.memory",
            LONG,
            33554432,
            between(0, _MOST_MEMORY),
            HIGH,
            "Bytes for records that are not acknowledged yet. When they are used up, the task "
            "waits for the brokers, at most kafka.max.block.ms. Less than 65536 is taken as 65536.",
        ),
        ConfigKey(
            "max.block.ms",
            LONG,
            60000,
            at_least(0),
            MEDIUM,
            "How long a task waits for buffer memory, or for the metadata of a topic.",
        ),
        ConfigKey(
            "max.request.size",
            INT,
            1048576,
            at_least(0),
            MEDIUM,
            "Largest produce request, and with it the largest record, in bytes before compression. "
            "The topic's max.message.bytes must allow it too.",
        ),
        ConfigKey(
            "request.timeout.ms",
            INT,
            30000,
            at_least(0),
            MEDIUM,
            "How long to wait for a broker's answer before the connection is given up and the "
            "request retried.",
        ),
        ConfigKey(
            "delivery.timeout.ms",
            INT,
            120000,
            at_least(0),
            MEDIUM,
            "From a batch being finished to its acknowledgement, retries included. When it has "
            "passed, the task fails. At least kafka.linger.ms + kafka.request.timeout.ms.",
        ),
        ConfigKey(
            "retries",
            INT,
            _INT_MAX,
            between(0, _INT_MAX),
            HIGH,
            "How often a batch is sent again after a retriable error. Leave it, and bound the time "
            "with kafka.delivery.timeout.ms.",
        ),
        ConfigKey(
            "retry.backoff.ms",
            LONG,
            100,
            at_least(0),
            LOW,
            "Pause before the first retry; doubles with each further one.",
        ),
        ConfigKey(
            "retry.backoff.max.ms",
            LONG,
            1000,
            at_least(0),
            LOW,
            "Longest pause before a retry.",
        ),
        ConfigKey(
            "max.in.flight.requests.per.connection",
            INT,
            5,
            at_least(1),
            LOW,
            "Requests to one broker that wait for their answer. At most 5 with idempotence; "
            "without it, more than 1 may reorder records when a request is retried.",
        ),
        ConfigKey(
            "enable.idempotence",
            BOOLEAN,
            True,
            None,
            LOW,
            "Let brokers recognise a batch that is sent again, so that the producer's own retries "
            "neither double nor reorder records. Needs kafka.acks=all and kafka.retries.",
        ),
        ConfigKey(
            "compression.type",
            STRING,
            "none",
            one_of(*CODECS),
            HIGH,
            "Codec of record batches: none, gzip, snappy, lz4 or zstd.",
            convert=in_usual_case(*CODECS),
        ),
        ConfigKey(
            "compression.gzip.level",
            INT,
            -1,
            _gzip_level,
            MEDIUM,
            "1 (fast) to 9 (small), -1 for the default. Levels up to 3, and the default, use "
            "ISA-L's much faster deflate.",
        ),
        ConfigKey(
            "compression.lz4.level",
            INT,
            9,
            between(1, 17),
            MEDIUM,
            "9 is LZ4's fast compressor, as in the Java client; any other level is LZ4 HC.",
        ),
        ConfigKey(
            "compression.zstd.level",
            INT,
            3,
            between(-131072, 22),
            MEDIUM,
            "Negative (fast) to 22 (small).",
        ),
        ConfigKey(
            "partitioner.ignore.keys",
            BOOLEAN,
            False,
            None,
            MEDIUM,
            "Spread records over partitions regardless of their key.",
        ),
        ConfigKey(
            "partitioner",
            STRING,
            "default",
            _partitioner,
            MEDIUM,
            "How rows without an explicit partition find one: default (murmur2 of the key, sticky "
            "without key, as the Java producer), round-robin, murmur3 (mmh3 of the key), crc32 (as "
            "librdkafka's consistent_random), or package.module:callable, which gets the Arrow "
            "columns key and value and the number of partitions, and returns an int32 Arrow array.",
            "partitioner.class",
            "A Java class cannot run here.",
            in_usual_case(*PARTITIONERS),
        ),
        ConfigKey(
            "partitioner.adaptive.partitioning.enable",
            BOOLEAN,
            True,
            None,
            LOW,
            "Rows without key prefer partitions whose brokers keep up: those with fewer batches "
            "waiting.",
        ),
        ConfigKey(
            "partitioner.availability.timeout.ms",
            LONG,
            0,
            at_least(0),
            LOW,
            "Rows without key avoid partitions whose broker has kept batches waiting for so long. "
            "0: never.",
        ),
        ConfigKey(
            "metadata.max.age.ms",
            LONG,
            300000,
            at_least(0),
            LOW,
            "After how long cluster metadata is refreshed although nothing has failed.",
        ),
        ConfigKey(
            "metadata.max.idle.ms",
            LONG,
            300000,
            at_least(5000),
            LOW,
            "After how long without a row a topic's metadata is forgotten.",
        ),
        ConfigKey(
            "metadata.recovery.strategy",
            STRING,
            "rebootstrap",
            one_of("rebootstrap", "none"),
            LOW,
            "Whether kafka.bootstrap.servers is asked again when no known broker can be reached.",
            convert=in_usual_case("rebootstrap", "none"),
        ),
        ConfigKey(
            "metadata.recovery.rebootstrap.trigger.ms",
            LONG,
            300000,
            at_least(0),
            LOW,
            "After how long without metadata kafka.bootstrap.servers is asked again in any case.",
        ),
        ConfigKey(
            "client.dns.lookup",
            STRING,
            "use_all_dns_ips",
            one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
            MEDIUM,
            "use_all_dns_ips tries all addresses of a name in turn; "
            "resolve_canonical_bootstrap_servers_only replaces each bootstrap address by the "
            "canonical names behind it, as Kerberos needs.",
        ),
        ConfigKey(
            "transaction.timeout.ms",
            INT,
            60000,
            at_least(1),
            LOW,
            "How long the brokers wait for a transaction to end before they abort it: longer than "
            "any batch, and than the driver may be away in the middle of a commit. Only for "
            "exactly-once delivery, where it is 900000 unless it is given.",
        ),
        ConfigKey(
            "client.id",
            STRING,
            "pykafka-sink",
            None,
            MEDIUM,
            "Name of the client in the broker's logs, metrics and quotas.",
            "producer-N",
            "Tasks are short: with a number per producer, each would be another client for quotas.",
        ),
        ConfigKey(
            "connections.max.idle.ms",
            LONG,
            540000,
            None,
            MEDIUM,
            "Close a connection that was not used for so long. -1: never.",
        ),
        ConfigKey(
            "reconnect.backoff.ms",
            LONG,
            50,
            at_least(0),
            LOW,
            "Pause before a lost connection is tried again; doubles with each failure.",
        ),
        ConfigKey(
            "reconnect.backoff.max.ms",
            LONG,
            1000,
            at_least(0),
            LOW,
            "Longest pause before a lost connection is tried again.",
        ),
        ConfigKey(
            "socket.connection.setup.timeout.ms",
            LONG,
            10000,
            at_least(1),
            MEDIUM,
            "How long a connection may take to be set up: TCP, the handshake of TLS, SASL. "
            "Doubles with each failure.",
        ),
        ConfigKey(
            "socket.connection.setup.timeout.max.ms",
            LONG,
            30000,
            at_least(1),
            MEDIUM,
            "Longest time a connection may take to be set up.",
        ),
        ConfigKey(
            "send.buffer.bytes",
            INT,
            -1,
            at_least(-1),
            MEDIUM,
            "TCP send buffer. -1: the operating system decides.",
            131072,
            "The operating system lets it grow with the connection: a request of 1 MiB goes out "
            "in fewer pieces, which saves a fifth of a task's CPU, and distance costs less time.",
        ),
        ConfigKey(
            "receive.buffer.bytes",
            INT,
            32768,
            at_least(-1),
            MEDIUM,
            "TCP receive buffer. -1: the operating system decides.",
        ),
        ConfigKey(
            "enable.metrics.push",
            BOOLEAN,
            True,
            None,
            LOW,
            "Push metrics of each task's producer to the brokers, where they have a plugin that "
            "takes them and a subscription that asks for them (KIP-714). Others are asked nothing.",
        ),
        ConfigKey(
            "client.rack",
            STRING,
            "",
            None,
            LOW,
            "Rack or zone of the executors, which pushed metrics are labelled with. Nothing else "
            "depends on it.",
        ),
    ],
    KAFKA_PREFIX,
)
