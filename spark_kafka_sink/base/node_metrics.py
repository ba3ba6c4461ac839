"""Counters of a client's exchange with one broker, which can be added up.

Latencies are counted in buckets. They grow by a factor of the eighth root of 2, so each quantile is
accurate within 4.5 %. They equal those of OpenTelemetry's exponential histograms of scale 3 and of
Prometheus' native histograms of schema 3: bucket ``index`` has the values above
``2 ** (index / 8)``, up to and including ``2 ** ((index + 1) / 8)``.

Source: OpenTelemetry's data model of metrics, "ExponentialHistogram"; DDSketch (Masson, Rim, Lee).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from math import ceil, log2
from operator import attrgetter

from spark_kafka_sink.base.model import dataclass

SCALE = 3
_PER_DOUBLING = 2**SCALE

Latencies = dict[int, int]
"""Bucket's index -> number of values. Values of 0 and 1 are both in bucket -1, because the clock's
resolution is a millisecond."""


def observe(latencies: Latencies, value_ms: int) -> None:
    """Count one value, in milliseconds."""
    index = ceil(log2(value_ms) * _PER_DOUBLING) - 1 if value_ms > 1 else -1
    latencies[index] = latencies.get(index, 0) + 1


def add(latencies: Latencies, others: Mapping[int, int]) -> None:
    """Add the counts of ``others``."""
    for index, count in others.items():
        latencies[index] = latencies.get(index, 0) + count


def upper_bound_ms(index: int) -> float:
    """Return the largest value of a bucket."""
    bound: float = 2.0 ** ((index + 1) / _PER_DOUBLING)
    return bound


def count_up_to(latencies: Mapping[int, int], doublings: int) -> int:
    """Return the number of values up to ``2 ** doublings`` ms; exact, as a bucket ends there."""
    return sum(n for index, n in latencies.items() if index < doublings * _PER_DOUBLING)


def quantile_ms(latencies: Mapping[int, int], share: float) -> float | None:
    """Return the quantile ``share``, from 0 to 1; None without values.

    It is the geometric middle of its bucket, or the whole number in a bucket with just one.
    """
    wanted = share * sum(latencies.values())
    counted = 0
    for index in sorted(latencies):
        counted += latencies[index]
        if counted >= wanted:
            return _middle_ms(index)
    return None


def _middle_ms(index: int) -> float:
    upper, lower = upper_bound_ms(index), upper_bound_ms(index - 1)
    if index < 0:
        return 1.0
    largest = int(upper + 1e-9)
    if largest - 1 <= lower:
        return float(largest)
    middle: float = (upper * lower) ** 0.5
    return round(middle, 1)


MAXIMA = ("request_max_bytes", "request_latency_max_ms")
"""Fields whose maximum over tasks counts; all other fields add up."""


@dataclass(slots=True)
class NodeMetrics:
    """Counters of one broker, of one task or of many.

    requests, outgoing_bytes, responses, incoming_bytes: of all kinds, before encryption
    request_max_bytes: of the largest request
    connections_created, connections_closed: successful connections, and those closed since
    connections: open now
    produce_responses: answered produce requests, counted in the next three fields
    request_latency_ms, request_latency_max_ms, latencies: sum, maximum and histogram
    throttle_time_ms: sum of the pauses that the responses to produce requests ask for
    record_retries: records sent again because their request failed at this broker
    """

    requests: int = 0
    outgoing_bytes: int = 0
    request_max_bytes: int = 0
    responses: int = 0
    incoming_bytes: int = 0
    connections_created: int = 0
    connections_closed: int = 0
    connections: int = 0
    produce_responses: int = 0
    request_latency_ms: int = 0
    request_latency_max_ms: int = 0
    throttle_time_ms: int = 0
    record_retries: int = 0
    latencies: Latencies = field(default_factory=dict)

    def __reduce__(self) -> tuple[object, ...]:
        # Omit the names of fields, because a driver holds the messages of all tasks.
        return NodeMetrics, (*_numbers(self), self.latencies)

    def copy(self) -> NodeMetrics:
        """Return a copy, which a client does not go on counting in."""
        kept = NodeMetrics(*_numbers(self))
        kept.latencies = dict(self.latencies)
        return kept

    def sent(self, size_bytes: int) -> None:
        """Count one request."""
        self.requests += 1
        self.outgoing_bytes += size_bytes
        self.request_max_bytes = max(self.request_max_bytes, size_bytes)

    def connected(self) -> None:
        """Count a new connection."""
        self.connections_created += 1
        self.connections += 1

    def disconnected(self) -> None:
        """Count a closed connection."""
        self.connections_closed += 1
        self.connections -= 1

    def record_produce_response(self, latency_ms: int, throttle_time_ms: int) -> None:
        """Count one response to a produce request."""
        self.produce_responses += 1
        self.request_latency_ms += latency_ms
        self.request_latency_max_ms = max(self.request_latency_max_ms, latency_ms)
        self.throttle_time_ms += throttle_time_ms
        observe(self.latencies, latency_ms)

    def add(self, other: NodeMetrics) -> None:
        """Add the counters of another task for the same broker."""
        for name in _NUMBERS:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, theirs) if name in MAXIMA else mine + theirs)
        add(self.latencies, other.latencies)

    def reset(self) -> None:
        """Set all counters to 0. Connections stay."""
        for name in _NUMBERS:
            if name != "connections":
                setattr(self, name, 0)
        self.latencies = {}


_NUMBERS = tuple(f.name for f in fields(NodeMetrics) if f.name != "latencies")
_numbers = attrgetter(*_NUMBERS)

NodesMetrics = dict[int, NodeMetrics]
"""Broker's id -> metrics; addresses of ``bootstrap.servers`` have negative ids."""


def sum_of(nodes: Iterable[NodeMetrics]) -> NodeMetrics:
    """Return the sum over all nodes."""
    total = NodeMetrics()
    for node in nodes:
        total.add(node)
    return total
