"""When brokers have asked for a pause, as a quota is used up: time that is not waited in vain.

A broker answers at once, with ``throttle_time_ms``, and reads nothing more from the connection
until that is over (KIP-219). What waits for the end of a pause is not late: it does not expire, and
neither does the wait for memory that it holds. The Java client lets both expire.
"""

from __future__ import annotations


class BrokerPauses:
    """Pauses of all brokers, as far back as somebody may ask.

    latest_end_ms: when the last of those that are known ends
    """

    def __init__(self) -> None:
        self.latest_end_ms = 0
        self._by_node: dict[int, list[tuple[int, int]]] = {}

    def note(self, node_id: int, from_ms: int, until_ms: int) -> None:
        """A broker asks for a pause. One that begins before the end of another goes on with it."""
        pauses = self._by_node.setdefault(node_id, [])
        if pauses and from_ms <= pauses[-1][1]:
            from_ms, before_ms = pauses.pop()
            until_ms = max(until_ms, before_ms)
        pauses.append((from_ms, until_ms))
        self.latest_end_ms = max(self.latest_end_ms, until_ms)

    @property
    def has_any(self) -> bool:
        """Whether somebody may have to ask."""
        return any(self._by_node.values())

    def between(self, node_id: int, since_ms: int, now_ms: int) -> list[tuple[int, int]]:
        """What of the time between the two was a pause of this broker: from when until when."""
        return [
            (max(from_ms, since_ms), min(until_ms, now_ms))
            for from_ms, until_ms in self._by_node.get(node_id, ())
            if from_ms < now_ms and until_ms > since_ms
        ]

    def forget_before(self, at_ms: int) -> None:
        """Nobody will ask about the time before ``at_ms`` any more."""
        for pauses in self._by_node.values():
            while pauses and pauses[0][1] < at_ms:
                del pauses[0]
