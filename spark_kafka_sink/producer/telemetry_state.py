"""What a producer tells brokers of (KIP-714), and the states of that.

Source: ``ClientTelemetryState``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.model import PreparedTransaction
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.metrics import TaskTotals


class State(Enum):
    """What is next, or under way."""

    SUBSCRIPTION_NEEDED = auto()
    SUBSCRIPTION_IN_PROGRESS = auto()
    PUSH_NEEDED = auto()
    PUSH_IN_PROGRESS = auto()
    TERMINATING_PUSH_NEEDED = auto()
    TERMINATING_PUSH_IN_PROGRESS = auto()
    TERMINATED = auto()


IN_PROGRESS = frozenset(
    (
        State.SUBSCRIPTION_IN_PROGRESS,
        State.PUSH_IN_PROGRESS,
        State.TERMINATING_PUSH_IN_PROGRESS,
    )
)
TERMINATING = frozenset((State.TERMINATING_PUSH_NEEDED, State.TERMINATING_PUSH_IN_PROGRESS))


class Watched(NamedTuple):
    """What there is to tell of.

    buffer_bytes: ``buffer.memory`` as it is; transaction: the one that is written in
    """

    totals: TaskTotals
    client: NetworkClient
    metadata: Metadata
    accumulator: RecordAccumulator
    buffer_bytes: int
    clock: Clock
    transaction: Callable[[], PreparedTransaction | None]
