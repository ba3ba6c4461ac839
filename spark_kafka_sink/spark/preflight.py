"""Checks on the driver before the first task: brokers answer, the topic is there, leaders can be
reached at the address they advertise. In seconds, and with the cause.

Spark plans every micro-batch anew, in processes that it reuses: a passed check is remembered there
for ``metadata.max.age.ms``. Once it has passed, brokers that are briefly away no longer fail the
query here: the tasks wait for them, within ``delivery.timeout.ms``.
"""

from __future__ import annotations

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.errors import BootstrapError, TopicError, advice_for, error_for_code
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.client.topics import create_missing
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.protocol.messages.metadata import MetadataResponse
from spark_kafka_sink.spark.commit import ensure_log_handler, logger

_REACH_TIMEOUT_MS = 6_000
_TOPIC_TIMEOUT_MS = 5_000

# When each combination of cluster and topic was last found in order, in this process.
_passed_at_ms: dict[tuple[object, ...], int] = {}


def check_cluster(options: SinkOptions, clock: Clock | None = None) -> None:
    """Raise what would otherwise be found out slowly, and in every task.

    Raises BootstrapError when no broker can be reached, TopicError when the ``topic`` option names
    one that does not exist after the brokers were asked to create it.
    """
    clock = SystemClock() if clock is None else clock
    key = (options.producer.bootstrap_servers, options.topic)
    passed_at_ms = _passed_at_ms.get(key)
    now_ms = clock.now_ms()
    if passed_at_ms is not None and now_ms - passed_at_ms < options.producer.metadata_max_age_ms:
        return
    if passed_at_ms is None:
        for note in options.notes:
            ensure_log_handler()
            logger.warning(note)
    try:
        _check(options, clock)
    except BootstrapError as error:
        if passed_at_ms is None:
            raise
        ensure_log_handler()
        logger.warning(f"{error}; the tasks will wait for the brokers")
        return
    _passed_at_ms[key] = clock.now_ms()


def _check(options: SinkOptions, clock: Clock) -> None:
    config = options.producer
    with AdminClient.of(config, clock) as admin:
        brokers = admin.metadata([], False, admin.deadline_in(_REACH_TIMEOUT_MS))
        _check_advertised(admin, brokers)
        if options.topic is not None:
            timeout_ms = min(_TOPIC_TIMEOUT_MS, config.max_block_ms)
            deadline_ms = admin.deadline_in(timeout_ms)
            creation = config.topic_creation
            described = admin.metadata([options.topic], creation is None, deadline_ms)
            if creation is not None and _is_missing(described):
                create_missing(admin, [options.topic], creation)
                # A topic that was just created is not known to every broker yet.
                described = admin.metadata([options.topic], True, admin.deadline_in(timeout_ms))
            _check_topic(options.topic, described)


def _check_advertised(admin: AdminClient, response: MetadataResponse) -> None:
    """The bootstrap address may work where the brokers' own addresses do not."""
    nodes = [Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers]
    try:
        admin.await_any(nodes, admin.deadline_in(_REACH_TIMEOUT_MS))
    except BootstrapError as error:
        raise BootstrapError(
            f"kafka.bootstrap.servers answers, but no broker can be reached at the address that "
            f"it advertises: {error}. Check advertised.listeners of the brokers, and that these "
            "names and ports can be reached from here"
        ) from error


def _is_missing(response: MetadataResponse) -> bool:
    errors = [error_for_code(topic.error_code).name for topic in response.topics]
    return "UNKNOWN_TOPIC_OR_PARTITION" in errors


def _check_topic(topic: str, response: MetadataResponse) -> None:
    for described in response.topics:
        error = error_for_code(described.error_code)
        if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
            raise TopicError(
                f"topic '{topic}' does not exist, and the brokers did not create it when asked: "
                "create it, or allow auto.create.topics.enable on the brokers; if it does exist, "
                "the principal may not DESCRIBE it"
            )
        if described.error_code and error.name != "LEADER_NOT_AVAILABLE":
            raise TopicError(f"topic '{topic}': {error}: {advice_for(error)}")
