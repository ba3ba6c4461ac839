"""All checks, in the order in which a job would meet the problems."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import (
    BootstrapError,
    BrokerError,
    ConfigError,
    KafkaSinkError,
    UnsupportedVersionError,
)
from spark_kafka_sink.check import cluster, rows, topics
from spark_kafka_sink.check.finding import Finding, Outcome, failed, passed, unknown, warned
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.producer_config import ACKS_ALL, ProducerConfig
from spark_kafka_sink.config.sink_keys import NONE, MetricsOutputs
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics.outputs import check_outputs
from spark_kafka_sink.security.security import Security


def _metrics_outputs(outputs: MetricsOutputs) -> Iterator[Finding]:
    """Check the outputs besides the log, if any. Sends nothing to them."""
    places = {
        "metrics.path": outputs.path,
        "metrics.prometheus.push.url": outputs.push_url,
        "metrics.otlp": outputs.otlp,
    }
    given = [name for name, place in places.items() if place is not None]
    if not given:
        return
    try:
        check_outputs(outputs)
    except ConfigError as error:
        yield failed("metrics", str(error))
    else:
        yield passed("metrics", f"{', '.join(given)}: as far as can be known before there are any")


def all_checks(options: SinkOptions, writes: bool, time: Clock) -> Iterator[Finding]:
    """Yield findings as they come. ``writes``: also write one test record.

    Each wait takes at most ``preflight.timeout.ms``. A failure that makes all later checks
    impossible ends them.
    """
    config, timeout_ms = options.producer, options.preflight_timeout_ms
    yield passed("options", _told(options))
    for note in options.notes:
        yield warned("options", note)
    yield from _metrics_outputs(options.metrics)
    yield from rows.formats(options)
    yield from rows.schemas(options)
    hosts = [host for host, _ in config.bootstrap_servers]
    try:
        Security.of(config.security).prepare(timeout_ms, hosts)
        admin = AdminClient.of(config, time, timeout_ms)
    except KafkaSinkError as error:
        yield failed("login", str(error))
        return
    with admin:
        reached = yield from _reach(admin, options)
        if not reached:
            return
        yield from _asked(admin, options, time)
    if writes and options.topic is not None:
        yield from topics.write_record(config, options.topic, time)


def _reach(admin: AdminClient, options: SinkOptions) -> Generator[Finding, None, bool]:
    """Yield findings; return True if any address of the options leads to a cluster."""
    timeout_ms = options.preflight_timeout_ms
    found = list(cluster.bootstrap_addresses(admin, options.producer.security, timeout_ms))
    yield from found
    if not any(finding.outcome is Outcome.PASSED for finding in found):
        return False
    found = list(cluster.broker_addresses(admin, timeout_ms))
    yield from found
    return any(finding.outcome is Outcome.PASSED for finding in found)


def _asked(admin: AdminClient, options: SinkOptions, time: Clock) -> Iterator[Finding]:
    timeout_ms = options.preflight_timeout_ms
    yield from cluster.clock_difference(admin, time, timeout_ms)
    if options.topic is None:
        yield unknown("topic", "no option topic: the rows name theirs", "give one with --topic")
    else:
        yield from topics.topic(admin, options.topic, options.producer, timeout_ms)
        yield from cluster.permissions_on_topic(admin, options.topic, ("WRITE",), timeout_ms)
    if options.dead_letters is not None:
        letters = options.dead_letters
        yield from topics.dead_letters(admin, letters, options.producer, timeout_ms)
        yield from cluster.permissions_on_topic(admin, letters.topic, ("WRITE",), timeout_ms)
    if options.exactly_once is not None:
        yield from cluster.exactly_once(admin, options.exactly_once, timeout_ms)
    yield from _quotas(admin, options.producer, timeout_ms)


def _quotas(admin: AdminClient, config: ProducerConfig, timeout_ms: int) -> Iterator[Finding]:
    subject = "quotas"
    try:
        found = cluster.granted_quotas(admin, config, timeout_ms)
    except cluster.NotToldError as error:
        yield unknown(subject, str(error), "it needs DESCRIBE_CONFIGS on the cluster")
    except (UnsupportedVersionError, BrokerError, BootstrapError) as error:
        yield unknown(subject, f"not told: {error}")
    else:
        for quota in found:
            values = (f"{name}={value:g}" for name, value in quota.values.items())
            yield warned(f"quota of {quota.entity}", ", ".join(values))
        if not found:
            yield passed(subject, f"none for kafka.client.id {config.client_id}")


_GUARANTEES = {NONE: "delivery.guarantee=none"}
"""Texts for guarantees whose name alone is unclear."""


def _told(options: SinkOptions) -> str:
    """Return the effective options by name."""
    config = options.producer
    guarantee = _GUARANTEES.get(options.delivery_guarantee, options.delivery_guarantee)
    acks = {ACKS_ALL: "all"}.get(config.acks, str(config.acks))
    idempotence = str(config.enable_idempotence).lower()
    return (
        f"{guarantee}, kafka.acks={acks}, kafka.enable.idempotence={idempotence}, "
        f"kafka.compression.type={config.compression_type}"
    )
