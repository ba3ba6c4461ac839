"""Which nodes keep batches waiting, for ``partitioner.availability.timeout.ms``.

Source: ``RecordAccumulator.NodeLatencyStats``; KIP-794.
"""

from __future__ import annotations

_NEVER = 0


class NodeLatency:
    """For each node: since when batches are ready for it that it could not take."""

    def __init__(self, availability_timeout_ms: int) -> None:
        self._timeout_ms = availability_timeout_ms
        self._waiting_since_ms: dict[int, int] = {}
        self.slow_nodes: frozenset[int] = frozenset()
        """Nodes that have kept batches waiting for longer than the timeout."""

    def note(self, node_id: int, could_send: bool, now_ms: int) -> None:
        """A batch is ready for the node, which could take it now or could not."""
        if self._timeout_ms == _NEVER:
            return
        if could_send:
            self._waiting_since_ms.pop(node_id, None)
            is_slow = False
        else:
            since_ms = self._waiting_since_ms.setdefault(node_id, now_ms)
            is_slow = now_ms - since_ms > self._timeout_ms
        if is_slow != (node_id in self.slow_nodes):
            self.slow_nodes = self.slow_nodes ^ {node_id}
