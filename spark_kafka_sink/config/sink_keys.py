"""The table of the sink's own options.

Producer options have the prefix ``kafka.`` and a table of their own, ``producer_keys``.
"""

from __future__ import annotations

from spark_kafka_sink.config.config_def import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    in_usual_case,
    non_empty,
    one_of,
)
from spark_kafka_sink.config.dead_letter_keys import DEAD_LETTER_KEYS
from spark_kafka_sink.config.format_keys import FORMAT_KEYS
from spark_kafka_sink.config.metrics_keys import METRICS_KEYS
from spark_kafka_sink.config.registry_keys import REGISTRY_KEYS
from spark_kafka_sink.config.topic_creation import (
    BROKER_DEFAULT,
    MOST_REPLICAS,
    problem_of_replicas,
)

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
NONE = "none"


def _number_of(value: int) -> str | None:
    return None if value == BROKER_DEFAULT or value >= 1 else "must be -1 or at least 1"


_LOG_LEVELS = ("debug", "info", "warning", "error")
SINK_OPTIONS = ConfigDef(
    [
        ConfigKey(
            "topic",
            ConfigType.STRING,
            None,
            None,
            Importance.HIGH,
            "Topic of all rows. Overrides the topic column.",
        ),
        ConfigKey(
            "includeheaders",
            ConfigType.BOOLEAN,
            False,
            None,
            Importance.LOW,
            "Accepted as Spark's own sink accepts it, and without effect as there: a headers "
            "column is written whenever it exists.",
        ),
        ConfigKey(
            "delivery.guarantee",
            ConfigType.STRING,
            AT_LEAST_ONCE,
            one_of(AT_LEAST_ONCE, EXACTLY_ONCE, NONE),
            Importance.HIGH,
            "What is promised when Spark repeats a task: docs/delivery.md. exactly-once: each row "
            "once for read_committed consumers, with transactions; needs Kafka 3.0 and "
            "transactional.id.prefix. none: kafka.acks is 0 unless it is given, nothing is "
            "waited for.",
            convert=in_usual_case(AT_LEAST_ONCE, EXACTLY_ONCE, NONE),
        ),
        ConfigKey(
            "transactional.id.prefix",
            ConfigType.STRING,
            None,
            non_empty,
            Importance.HIGH,
            "Begins the transactional ids of a query, and must be its own: the same after a "
            "restart, another one for each query. Required for exactly-once, without effect "
            "otherwise.",
        ),
        ConfigKey(
            "write.id",
            ConfigType.STRING,
            None,
            non_empty,
            Importance.MEDIUM,
            "Name of what writes, for a batch write with exactly-once: a write with the same "
            "write.id and a write.version that was written before, or a lower one, is dropped. For "
            "jobs that are run again, and for foreachBatch.",
        ),
        ConfigKey(
            "write.version",
            ConfigType.LONG,
            None,
            at_least(0),
            Importance.MEDIUM,
            "Number of this write of write.id. It only grows, as that of the micro-batch in "
            "foreachBatch does.",
        ),
        ConfigKey(
            "transaction.log.topic",
            ConfigType.STRING,
            "pykafka-sink-transactions",
            non_empty,
            Importance.MEDIUM,
            "The compacted topic in which drivers write down what they decide. Created if it is "
            "missing; queries may share it. Only for exactly-once.",
        ),
        ConfigKey(
            "transaction.log.missing",
            ConfigType.STRING,
            "refuse",
            one_of("refuse", "accept"),
            Importance.MEDIUM,
            "What happens when the decision log has no record of transactional.id.prefix although "
            "the query is not new: refuse, as the log may be lost, or accept, for one start, to "
            "move a query from at-least-once to exactly-once.",
        ),
        ConfigKey(
            "transaction.replay",
            ConfigType.STRING,
            "compare",
            one_of("compare", "drop"),
            Importance.MEDIUM,
            "What happens with a micro-batch that comes again after it was committed: compare, "
            "which drops the same rows and stops the query for other ones, or drop, for a query "
            "whose rows are not the same each time. Only for exactly-once.",
        ),
        ConfigKey(
            "transaction.log.replication.factor",
            ConfigType.INT,
            3,
            between(1, MOST_REPLICAS),
            Importance.MEDIUM,
            "Replicas of transaction.log.topic when it is created; fewer are refused. 1 for a "
            "cluster of one broker, where decisions are lost with its disk. Its "
            "min.insync.replicas is 2, or 1 with one replica; fewer are refused.",
        ),
        ConfigKey(
            "topic.creation.enable",
            ConfigType.BOOLEAN,
            False,
            None,
            Importance.MEDIUM,
            "Create topics that do not exist, with the options below, instead of leaving it to the "
            "brokers' auto.create.topics.enable.",
        ),
        ConfigKey(
            "topic.creation.partitions",
            ConfigType.INT,
            BROKER_DEFAULT,
            _number_of,
            Importance.MEDIUM,
            "Partitions of a topic that is created. -1: the brokers' num.partitions, which "
            "needs Kafka 2.4 or newer.",
        ),
        ConfigKey(
            "topic.creation.replication.factor",
            ConfigType.INT,
            BROKER_DEFAULT,
            problem_of_replicas,
            Importance.MEDIUM,
            "Replicas of a topic that is created. -1: the brokers' default.replication.factor, "
            "which needs Kafka 2.4 or newer.",
        ),
        ConfigKey(
            "topic.creation.configs",
            ConfigType.STRING,
            "",
            None,
            Importance.LOW,
            "Configuration of a topic that is created, as name=value, separated by commas, e.g. "
            "retention.ms=86400000,min.insync.replicas=2.",
        ),
        ConfigKey(
            "preflight.timeout.ms",
            ConfigType.INT,
            6000,
            at_least(1),
            Importance.LOW,
            "How long each step of the check on the driver, before the first task, may take: a "
            "token or ticket, where one is needed; a broker of kafka.bootstrap.servers; one at the "
            "addresses that the brokers advertise; the topic option's topic, which may have to be "
            "created.",
        ),
        ConfigKey(
            "max.bytes.per.second.per.task",
            ConfigType.LONG,
            None,
            at_least(1),
            Importance.MEDIUM,
            "How many bytes of record batches, compressed, a task sends in a second. A query sends "
            "at most that times its slots. What waits for the limit does not expire. Consider "
            "quotas of the brokers and maxOffsetsPerTrigger first. By default there is no limit.",
        ),
        ConfigKey(
            "interceptors",
            ConfigType.LIST,
            [],
            None,
            Importance.MEDIUM,
            "Your own code that gets the rows, as package.module:Class, separated by commas. "
            "Methods, each optional: on_send(arrow_batch) returns the Arrow batch to write, with "
            "the same columns; on_acknowledgement(summary) gets a dictionary with what the task "
            "has written, after everything is acknowledged.",
        ),
        ConfigKey(
            "log.level",
            ConfigType.STRING,
            None,
            one_of(*_LOG_LEVELS),
            Importance.LOW,
            "From which level on the sink logs, on the driver and in tasks; info where nobody has "
            "set up Python's logging, else what that says. All queries of a process share it.",
            convert=in_usual_case(*_LOG_LEVELS),
        ),
        ConfigKey(
            "log.format",
            ConfigType.STRING,
            "text",
            one_of("text", "json"),
            Importance.LOW,
            "text, or json: each line is a JSON document with time, level, logger and message, or "
            "in place of the message the line of metrics. Where the application has set up "
            "Python's logging, its own format counts.",
        ),
        *FORMAT_KEYS,
        *REGISTRY_KEYS,
        *METRICS_KEYS,
        *DEAD_LETTER_KEYS,
    ]
)
