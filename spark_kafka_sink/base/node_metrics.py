"""What a client and one broker have exchanged, in numbers that can be added up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, fields

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.latencies import Latencies, add, observe

MAXIMA = ("request_max_bytes", "request_latency_max_ms")
"""Of several tasks the largest one, where all others add up."""


@dataclass(slots=True)
class NodeMetrics:
    """Counters of one broker, of one task or of many.

    requests, outgoing_bytes, responses, incoming_bytes: of all kinds, before encryption
    request_max_bytes: of the largest request
    connections_created, connections_closed: that were connected; connections: that are now
    produce_responses: produce requests that were answered; request_latency_ms (all together),
    request_latency_max_ms and latencies (how often which) are theirs
    throttle_time_ms: that the answers to produce requests asked for
    record_retries: records whose request failed here, and that were sent again
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
        # Without the names of fields: a driver holds the messages of all tasks.
        return NodeMetrics, (*(getattr(self, name) for name in _NUMBERS), self.latencies)

    def sent(self, size_bytes: int) -> None:
        """Count one request."""
        self.requests += 1
        self.outgoing_bytes += size_bytes
        self.request_max_bytes = max(self.request_max_bytes, size_bytes)

    def connected(self) -> None:
        """Count a connection."""
        self.connections_created += 1
        self.connections += 1

    def disconnected(self) -> None:
        """It is no more."""
        self.connections_closed += 1
        self.connections -= 1

    def answered(self, latency_ms: int, throttle_time_ms: int) -> None:
        """Count one answer to a produce request."""
        self.produce_responses += 1
        self.request_latency_ms += latency_ms
        self.request_latency_max_ms = max(self.request_latency_max_ms, latency_ms)
        self.throttle_time_ms += throttle_time_ms
        observe(self.latencies, latency_ms)

    def add(self, other: NodeMetrics) -> None:
        """Merge what another task has exchanged with the same broker."""
        for name in _NUMBERS:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, theirs) if name in MAXIMA else mine + theirs)
        add(self.latencies, other.latencies)

    def reset(self) -> None:
        """Count anew. Connections stay."""
        for name in _NUMBERS:
            if name != "connections":
                setattr(self, name, 0)
        self.latencies = {}


_NUMBERS = tuple(f.name for f in fields(NodeMetrics) if f.name != "latencies")

NodesMetrics = dict[int, NodeMetrics]
"""By the broker's id; addresses of ``bootstrap.servers`` have negative ones."""


def total_of(nodes: Iterable[NodeMetrics]) -> NodeMetrics:
    """All of them together."""
    total = NodeMetrics()
    for node in nodes:
        total.add(node)
    return total
