"""Check the cluster on the driver before the first task, within seconds.

Brokers must answer, the topic must exist, and brokers must be reachable at their advertised
addresses.

Spark plans every micro-batch again, in processes that it ends after a minute without work. A
process without an earlier check may therefore plan for a stream that has run for weeks. Transient
errors, such as unavailable brokers, must not end such a stream: they are logged, and the tasks wait
for ``max.block.ms`` and ``delivery.timeout.ms``. A batch write fails at once, and so does a stream
that certainly has no committed micro-batch.

The topics' limits for dead letters are read here too, so that all tasks of a batch and all their
attempts find the same faults in a row.

A successful check is valid for ``metadata.max.age.ms``. Partitions may be added and topics
recreated meanwhile, so the topics of a plan are asked for again: ``topics.py``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.errors import (
    BootstrapError,
    BrokerError,
    ConfigError,
    CredentialsUnavailableError,
    KafkaSinkError,
    TopicError,
    advice_for,
    broker_code,
    coded,
    error_for_code,
    error_named,
    sentence,
    warn,
)
from spark_kafka_sink.base.model import Node, PlannedTopic, TopicsPlan
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.config.producer_config import TopicCreation
from spark_kafka_sink.config.sink_keys import DeadLetterConfig, TopicLimits
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics.outputs import check_outputs
from spark_kafka_sink.network.admin import (
    AdminClient,
    check_idempotence,
    configs_of,
    create_missing,
    similar_topics,
)
from spark_kafka_sink.protocol.messages.topics import TOPIC_RESOURCE, MetadataResponse
from spark_kafka_sink.security.security import Security
from spark_kafka_sink.spark.topics import ask_for_topics, topics_of
from spark_kafka_sink.spark.worker import ensure_log_handler

_SIZE = "max.message.bytes"
_POLICY = "cleanup.policy"


def with_topic_limits(
    admin: AdminClient, config: DeadLetterConfig, topic: str | None, deadline_ms: int
) -> DeadLetterConfig:
    """Return ``config`` with the limits of ``topic``, if an option names it, and of its own topic.

    Limits are unknown if this principal may not describe the topics' settings.

    Raises ConfigError if the topic of dead letters is compacted.
    """
    own = _limits_of(admin, config.topic, deadline_ms)
    if own.needs_key:
        raise ConfigError(
            f"topic '{config.topic}', of errors.deadletterqueue.topic.name, is compacted: dead "
            "letters without a key would be refused, and others take each other's place. Set "
            f"{_POLICY}=delete, or name another topic",
            code="DEADLETTER-009",
        )
    if topic is None:
        return config._replace(own_topic_limits=own)
    data = _limits_of(admin, topic, deadline_ms)
    return config._replace(own_topic_limits=own, data_topic_limits=data)


def _limits_of(admin: AdminClient, topic: str, deadline_ms: int) -> TopicLimits:
    node = admin.any_node(deadline_ms)
    configs = configs_of(admin, node, TOPIC_RESOURCE, topic, [_SIZE, _POLICY], deadline_ms)
    size = configs.get(_SIZE)
    policies = [policy.strip() for policy in configs.get(_POLICY, "").split(",")]
    return TopicLimits(None if size is None else int(size), "compact" in policies)


logger = logging.getLogger(__name__)

_LOCAL_SCHEME = "file:"


class _Found(NamedTuple):
    """Results of a check: the topics' limits for dead letters, and the topics of options."""

    letters: DeadLetterConfig | None
    topics: Mapping[str, PlannedTopic]


# Time of this process's last successful check, by all that it depends on.
_passed_at_ms: dict[tuple[object, ...], int] = {}
# The topics' limits for dead letters, as that check found them.
_letters_with_limits: dict[tuple[object, ...], DeadLetterConfig | None] = {}
# Jobs ask each time. A query with a short trigger sends no more than one request a second.
_TOPICS_MAX_AGE_MS = 1_000
# The topics, as last described, and when.
_topics_at_ms: dict[tuple[object, ...], tuple[Mapping[str, PlannedTopic], int]] = {}
# Notes that this process has logged.
_noted: set[str] = set()


def log_notes(options: SinkOptions) -> None:
    """Log notes on options without effect, once per process, not for each micro-batch."""
    log_once(options.notes, "OPTION-018")


def log_once(notes: Iterable[str], code: str = "", level: int = logging.WARNING) -> None:
    """Log the notes that this process has not logged yet. code: of notes without one"""
    for note in notes:
        if note not in _noted:
            _noted.add(note)
            ensure_log_handler()
            logger.log(level, coded(note, code))


def query_text(options: SinkOptions, query: str | None) -> str:
    """Return topic and query in words, for messages that come once per query.

    query: its id, used if the options have neither name nor checkpoint
    """
    topic = "the topic column" if options.topic is None else f"topic '{options.topic}'"
    if options.query_name is not None:
        return f"{topic}, query '{options.query_name}'"
    if options.checkpoint is not None:
        return f"{topic}, query with checkpoint '{redacted(options.checkpoint)}'"
    return topic if query is None else f"{topic}, query {query}"


def check_metrics_outputs(options: SinkOptions, is_stream: bool) -> None:
    """Raise ConfigError if metrics cannot be written to the outputs in ``metrics.*``.

    For a stream that may have committed before, the commits log such errors instead.
    """
    if not is_stream or is_known_as_new(options.checkpoint):
        check_outputs(options.metrics)


def check_cluster(options: SinkOptions, is_stream: bool, clock: Clock | None = None) -> SinkOptions:
    """Check the cluster; return the options with the plan of topics and limits for dead letters.

    Raises BootstrapError if no broker can be reached. Raises CredentialsUnavailableError if no
    token or ticket is available within ``preflight.timeout.ms``. Raises ConfigError if the brokers
    cannot do what the options need. Raises TopicError if the topic in ``topic`` does not exist
    after the brokers were asked to create it. Raises BrokerError for another error code. Transient
    errors are only logged after a successful check in this process, or if ``is_stream`` and the
    stream may have committed before.
    """
    clock = SystemClock() if clock is None else clock
    producer = options.producer
    asked = producer.bootstrap_servers, producer.security, options.topic, options.dead_letters
    key = (*asked, options.needs_producer_ids)
    passed_at_ms = _passed_at_ms.get(key)
    now_ms = clock.now_ms()
    if passed_at_ms is not None and now_ms - passed_at_ms < producer.metadata_max_age_ms:
        topics, at_ms = _topics_at_ms[key]
        if not is_stream or now_ms - at_ms >= _TOPICS_MAX_AGE_MS:
            topics = ask_for_topics(producer, _topic_names(options), clock)
            _topics_at_ms[key] = topics, now_ms
        return _with(options, _Found(_letters_with_limits[key], topics))
    try:
        found = _check(options, clock)
    except KafkaSinkError as error:
        may_be_running = is_stream and not is_known_as_new(options.checkpoint)
        if not _is_transient(error) or (passed_at_ms is None and not may_be_running):
            raise
        _log_wait(f"{error}; the tasks will wait for the brokers", error.code)
        return _with(options, _Found(_letters_with_limits.get(key), {}))
    _letters_with_limits[key] = found.letters
    _topics_at_ms[key] = found.topics, now_ms
    # Last, because other threads then use what was found.
    _passed_at_ms[key] = clock.now_ms()
    return _with(options, found)


def _topic_names(options: SinkOptions) -> list[str]:
    named = options.topic, None if options.dead_letters is None else options.dead_letters.topic
    return [topic for topic in named if topic is not None]


def _with(options: SinkOptions, found: _Found) -> SinkOptions:
    plan = TopicsPlan(uuid.uuid4().hex, found.topics)
    letters = options.dead_letters if found.letters is None else found.letters
    return replace(options, topics_plan=plan, dead_letters=letters)


def is_known_as_new(checkpoint: str | None) -> bool:
    """Return True if the stream with this checkpoint has certainly committed no micro-batch yet.

    Spark does not report this. It writes ``offsets/0`` before it plans, and ``commits/0`` at the
    end of the first micro-batch. Only a checkpoint in the driver's own file system can be inspected
    here; for others the answer is False.
    """
    if checkpoint is None:
        return False
    if checkpoint.startswith(_LOCAL_SCHEME):
        checkpoint = "/" + checkpoint.removeprefix(_LOCAL_SCHEME).lstrip("/")
    return _has_batches(Path(checkpoint, "offsets")) and not _has_batches(
        Path(checkpoint, "commits")
    )


def _has_batches(folder: Path) -> bool:
    """Return True if the folder has a file for a micro-batch; False if it is unreadable."""
    try:
        return any(file.name.isdigit() for file in folder.iterdir())
    except OSError:
        return False


def _is_transient(error: KafkaSinkError) -> bool:
    """Return True if a retry of the check may succeed without a change of configuration."""
    if isinstance(error, (BrokerError, TopicError)):
        return error.error is not None and error.error.retriable
    return isinstance(error, (BootstrapError, CredentialsUnavailableError))


def _check(options: SinkOptions, clock: Clock) -> _Found:
    config = options.producer
    # Prepare with the short timeout: an unavailable token issuer is reported as fast as brokers.
    hosts = [host for host, _ in config.bootstrap_servers]
    Security.of(config.security).prepare(options.preflight_timeout_ms, hosts)
    with AdminClient.of(config, clock) as admin:
        admin.gives_up_on_other_protocols = True
        brokers = _brokers(admin, options.preflight_timeout_ms)
        if options.needs_producer_ids:
            check_idempotence(admin, admin.deadline_in(options.preflight_timeout_ms))
        _check_advertised(admin, brokers, options.preflight_timeout_ms)
        topics: dict[str, PlannedTopic] = {}
        if options.topic is not None:
            topics.update(_check_named(admin, options, options.topic, config.topic_creation))
        if options.dead_letters is None:
            return _Found(None, topics)
        letters = options.dead_letters
        topics.update(_check_named(admin, options, letters.topic, letters.creation))
        deadline_ms = admin.deadline_in(options.preflight_timeout_ms)
        return _Found(with_topic_limits(admin, letters, options.topic, deadline_ms), topics)


# A healthy cluster answers sooner, so no healthy start logs a wait.
_LOGGED_AFTER_MS = 1_000


def _await_any(
    admin: AdminClient, nodes: Sequence[Node], timeout_ms: int, what: str = "", code: str = ""
) -> None:
    """Wait for a node that is reachable. Raises BootstrapError without one.

    what, code: for the log in front of the reason, and in place of its code
    """
    deadline_ms = admin.deadline_in(timeout_ms)
    logged_ms = min(deadline_ms, admin.deadline_in(_LOGGED_AFTER_MS))
    try:
        admin.await_any(nodes, logged_ms)
    except BootstrapError as error:
        left_ms = deadline_ms - admin.now_ms()
        if left_ms <= 0 or admin.now_ms() < logged_ms:
            raise
        text = f"{what}{sentence(error)}: they are tried for {left_ms / 1000:.0f} s more"
        _log_wait(text, code or error.code)
        admin.await_any(nodes, deadline_ms)


def _log_wait(text: str, code: str) -> None:
    ensure_log_handler()
    warn(logger, code, text)


def _brokers(admin: AdminClient, timeout_ms: int) -> MetadataResponse:
    deadline_ms = admin.deadline_in(timeout_ms)
    try:
        _await_any(admin, admin.bootstrap_nodes, timeout_ms)
        return admin.metadata([], False, deadline_ms)
    except BootstrapError as error:
        raise unreachable(error) from None


def unreachable(error: BootstrapError, what: str = "") -> BootstrapError:
    """Return ``error`` with what to do, and with ``what`` cannot be done."""
    return BootstrapError(
        f"{what}{sentence(error)}. Check that the brokers run, and that kafka.bootstrap.servers "
        "has addresses of their listeners that can be reached from the driver",
        code=error.code,
    )


def _check_advertised(admin: AdminClient, response: MetadataResponse, timeout_ms: int) -> None:
    """Raise BootstrapError if no broker is reachable at its advertised address."""
    nodes = [Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers]
    code = "CONNECT-010"
    what = (
        "kafka.bootstrap.servers answers, but no broker can be reached at the address that it "
        "advertises: "
    )
    try:
        _await_any(admin, nodes, timeout_ms, what, code)
    except BootstrapError as error:
        raise BootstrapError(
            f"{what}{sentence(error)}. Check advertised.listeners of the brokers, and that these "
            "names and ports can be reached from here",
            code=code,
        ) from error


def _check_named(
    admin: AdminClient, options: SinkOptions, topic: str, creation: TopicCreation | None
) -> Mapping[str, PlannedTopic]:
    """Check and return a topic that an option names. creation: None if brokers may create it"""
    timeout_ms = min(options.preflight_timeout_ms, options.producer.max_block_ms)
    described = admin.metadata([topic], False, admin.deadline_in(timeout_ms))
    if not _is_missing(described):
        _check_topic(topic, described)
        return topics_of(described)
    if creation is not None:
        create_missing(admin, [topic], creation, options.preflight_timeout_ms)
    if creation is not None or options.producer.allow_auto_create_topics:
        # Not every broker knows a new topic at once.
        deadline_ms = admin.deadline_in(timeout_ms)
        logged_ms = min(deadline_ms, admin.deadline_in(_LOGGED_AFTER_MS))
        described = admin.metadata([topic], True, logged_ms)
        left_ms = deadline_ms - admin.now_ms()
        if _is_missing(described) and left_ms > 0:
            text = f"topic '{topic}' does not exist, and the brokers have not created it yet"
            _log_wait(f"{text}: they are asked for {left_ms / 1000:.0f} s more", "TOPIC-001")
            described = admin.metadata([topic], True, deadline_ms)
    if _is_missing(described):
        raise _missing_error(admin, options, topic)
    _check_topic(topic, described)
    if creation is None:
        log_once([_creation_warning(topic, _similar(admin, topic, timeout_ms))], "TOPIC-006")
    return topics_of(described)


def _missing_error(admin: AdminClient, options: SinkOptions, topic: str) -> TopicError:
    if options.producer.allow_auto_create_topics:
        problem = ", and the brokers did not create it when asked"
        cure = "create it, or allow auto.create.topics.enable on the brokers"
    else:
        problem = ", and kafka.allow.auto.create.topics=false forbids its creation"
        cure = "create it, or correct its name"
    similar = _similar(admin, topic, options.preflight_timeout_ms)
    return TopicError(
        f"topic '{topic}' does not exist{problem}: {cure}; if it does exist, the principal may "
        f"not DESCRIBE it{similar}",
        error_named("UNKNOWN_TOPIC_OR_PARTITION"),
        code="TOPIC-001",
    )


def _creation_warning(topic: str, similar: str) -> str:
    return (
        f"topic '{topic}' did not exist, and the brokers created it just now, because this write "
        f"asked for it{similar}. If the name is a typing error, delete the topic; "
        "kafka.allow.auto.create.topics=false rejects missing topics"
    )


def _similar(admin: AdminClient, topic: str, timeout_ms: int) -> str:
    """Return a part of a message that names similar topics; empty if there is none."""
    try:
        names = similar_topics(admin, topic, admin.deadline_in(timeout_ms))
    except KafkaSinkError:
        return ""  # the message must not wait for what is only advice
    return f". Topics with similar names: {', '.join(names)}" if names else ""


def _is_missing(response: MetadataResponse) -> bool:
    errors = [error_for_code(topic.error_code).name for topic in response.topics]
    return "UNKNOWN_TOPIC_OR_PARTITION" in errors


def _check_topic(topic: str, response: MetadataResponse) -> None:
    for described in response.topics:
        error = error_for_code(described.error_code)
        if described.error_code and error.name != "LEADER_NOT_AVAILABLE":
            text = f"topic '{topic}': {error}: {advice_for(error)}"
            raise TopicError(text, error, code=broker_code(error))
