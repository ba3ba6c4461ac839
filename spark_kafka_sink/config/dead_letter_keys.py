"""The table of ``errors.*``: rows that cannot be written become dead letters.

Source of the names: Kafka Connect (KIP-298).
"""

from __future__ import annotations

from spark_kafka_sink.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    in_usual_case,
    non_empty,
    one_of,
)
from spark_kafka_sink.config.topic_creation import BROKER_DEFAULT, problem_of_replicas

TOLERATE_NONE = "none"
TOLERATE_ALL = "all"
DEFAULT_MAX_RATIO = 0.01

DEAD_LETTER_KEYS = (
    ConfigKey(
        "errors.tolerance",
        ConfigType.STRING,
        TOLERATE_NONE,
        one_of(TOLERATE_NONE, TOLERATE_ALL),
        Importance.MEDIUM,
        "What happens with a row that cannot be written, such as one that is too large: none fails "
        "the task, all writes the row to errors.deadletterqueue.topic.name, as a dead letter: "
        "docs/dead-letters.md.",
        convert=in_usual_case(TOLERATE_NONE, TOLERATE_ALL),
    ),
    ConfigKey(
        "errors.deadletterqueue.topic.name",
        ConfigType.STRING,
        None,
        non_empty,
        Importance.MEDIUM,
        "The topic of dead letters; required for errors.tolerance=all. Created if it is missing, "
        "with topic.creation.partitions.",
    ),
    ConfigKey(
        "errors.deadletterqueue.topic.replication.factor",
        ConfigType.INT,
        BROKER_DEFAULT,
        problem_of_replicas,
        Importance.MEDIUM,
        "Replicas of that topic when it is created. -1: the brokers' default.replication.factor, "
        "which needs Kafka 2.4 or newer. Kafka Connect's default is 3.",
    ),
    ConfigKey(
        "errors.deadletterqueue.context.headers.enable",
        ConfigType.BOOLEAN,
        True,
        None,
        Importance.MEDIUM,
        "Whether a dead letter says in headers, __connect.errors.*, why it is one and where it was "
        "to go. Without them replay needs --cause unknown and --to-topic. Kafka Connect's default "
        "is false.",
    ),
    ConfigKey(
        "errors.deadletterqueue.max.ratio",
        ConfigType.DOUBLE,
        DEFAULT_MAX_RATIO,
        between(0, 1),
        Importance.MEDIUM,
        "Which part of a task's rows may be dead letters, rounded up to whole rows: with more the "
        "task fails, and says how many there are of each cause.",
    ),
    ConfigKey(
        "errors.deadletterqueue.max.rows",
        ConfigType.LONG,
        None,
        at_least(0),
        Importance.LOW,
        "How many dead letters a task may have at most, whatever their ratio: the task fails as "
        "soon as there are more.",
    ),
    ConfigKey(
        "errors.log.enable",
        ConfigType.BOOLEAN,
        False,
        None,
        Importance.LOW,
        "Log, in the task, each time there are dead letters, how many of each cause, with an "
        "example of each. Keys, values and headers are not logged.",
    ),
)

_SENT_AGAIN = (
    "records are sent again for kafka.delivery.timeout.ms, and a task as Spark's settings say"
)
NAMES_OF_CONNECT = {
    "errors.log.include.messages": "keys, values and headers are not logged. The dead letter has "
    "them: pykafka-sink dead-letters show",
    "errors.retry.timeout": _SENT_AGAIN,
    "errors.retry.delay.max.ms": _SENT_AGAIN,
}
"""The other names of KIP-298, in lower case, and why they are not there."""
