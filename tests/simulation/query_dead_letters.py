"""Lives of a query in which some rows cannot be written: what they are, and what becomes of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from spark_kafka_sink.columns import dead_letters as headers
from spark_kafka_sink.columns.dead_letters import NULL_KEY, REFUSED, TOO_LARGE
from spark_kafka_sink.config.sink_keys import TopicLimits
from spark_kafka_sink.config.sink_options import SinkOptions
from tests import twin
from tests.simulation.cluster import SimCluster
from tests.simulation.refusing import refusing

TOPIC = "dead"
OPTIONS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": TOPIC,
    "errors.deadletterqueue.max.ratio": "1",
    "kafka.max.request.size": "3000",
    "kafka.batch.size": "200",
}
_TOO_LARGE_BYTES = 4000
_ID_BYTES = 6

Row = tuple[bytes | None, bytes]


def has_dead_letters(seed: int) -> bool:
    """Chosen apart from everything else of a life: others stay as they are."""
    return random.Random(f"dead letters of {seed}").random() < 0.3


def with_topic_limits(options: SinkOptions) -> SinkOptions:
    """As planning on the driver finds out: the topic is compacted."""
    if options.dead_letters is None:
        return options
    return replace(
        options,
        dead_letters=options.dead_letters._replace(data_topic_limits=TopicLimits(None, True)),
    )


class Refusing:
    """Brokers that refuse some rows: in half of the lives from the beginning, in a quarter from some
    moment on, in a quarter until then.
    """

    def __init__(self, seed: int, cluster: SimCluster) -> None:
        rng = random.Random(f"refusals of {seed}")
        self._clock = cluster.scheduler.clock
        self._is_on = rng.random() < 0.75
        self.changes = rng.random() < 0.5 or not self._is_on
        self._changes_ms = self._clock.ms + rng.choice((50, 500, 5000))
        refuse = refusing(self._refuses, is_told=rng.random() < 0.7)
        cluster.on_validate = lambda topic, batch: refuse(topic, batch) if self.is_on else None

    @property
    def is_on(self) -> bool:
        has_changed = self.changes and self._clock.ms >= self._changes_ms
        return self._is_on is not has_changed

    @staticmethod
    def _refuses(topic: str, record: twin.Record) -> bool:
        return topic == "out" and fault_of(id_of(record)) == REFUSED


def fault_of(row_id: int) -> str | None:
    """What is wrong with a row, if anything is."""
    if row_id % 5 == 3:
        return TOO_LARGE
    if row_id % 7 == 2:
        return NULL_KEY
    return REFUSED if row_id % 3 == 1 else None


def spoilt(rows: Iterable[tuple[bytes, bytes]]) -> list[Row]:
    """The same rows, some of which cannot be written."""
    found: list[Row] = []
    for key, value in rows:
        fault = fault_of(int(value))
        long = value.ljust(_TOO_LARGE_BYTES) if fault == TOO_LARGE else value
        found.append((None if fault == NULL_KEY else key, long))
    return found


def id_of(record: twin.Record) -> int:
    """Of a row, also where its value was cut off."""
    assert record.value is not None
    return int(record.value[:_ID_BYTES])


def problems(
    good: Iterable[twin.Record], dead: Iterable[twin.Record], refusing: Refusing | None
) -> Iterable[str]:
    """Rows that are where they must not be, and dead letters of a wrong cause.

    What brokers refuse only at times may be here or there.
    """
    if refusing is None:
        return
    free = {None, REFUSED} if refusing.changes else {None}
    for record in good:
        if fault_of(id_of(record)) not in free:
            yield f"row {id_of(record)} is no dead letter"
    for record in dead:
        cause = dict(record.headers).get(headers.CAUSE, b"").decode()
        if cause != fault_of(id_of(record)):
            yield f"row {id_of(record)} is a dead letter for {cause}"
