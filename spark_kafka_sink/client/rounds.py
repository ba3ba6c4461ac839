"""Calls to several nodes that are waited for together."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.protocol.schema import Message, Request

SILENT_MS = 250
"""After how long without an answer others are asked: the same, or whether it is still theirs."""


class Call(NamedTuple):
    """A request for one node. ``at_most_version``: the highest version it may be sent in."""

    node: Node
    request: Request
    at_most_version: int | None = None


@dataclass(slots=True)
class Asked:
    """A call that was sent. until_ms: when its connection is given up; is_open: it is awaited."""

    call: Call
    until_ms: int
    is_open: bool = True
    answer: Message | None = None


class Round:
    """Calls that are waited for together, by position.

    waiting: those that are not sent yet, by node; look_ms: when silent nodes are looked for next
    """

    def __init__(self, calls: Sequence[Call], now_ms: int) -> None:
        self.calls = calls
        self.waiting: dict[Node, deque[int]] = {}
        for position, call in enumerate(calls):
            self.waiting.setdefault(call.node, deque()).append(position)
        self.sent: dict[int, Asked] = {}
        self.look_ms = now_ms + SILENT_MS
        self._missing = {node: len(positions) for node, positions in self.waiting.items()}

    @property
    def open(self) -> list[Asked]:
        return [asked for asked in self.sent.values() if asked.is_open]

    def answers(self) -> list[Message | None]:
        """In the order of the calls."""
        sent = (self.sent.get(position) for position in range(len(self.calls)))
        return [None if asked is None else asked.answer for asked in sent]

    def silent(self) -> list[int]:
        """Calls of nodes that have answered none since this was asked last."""
        missing: dict[Node, list[int]] = {}
        for node, positions in self.waiting.items():
            missing.setdefault(node, []).extend(positions)
        for position, asked in self.sent.items():
            if asked.is_open:
                missing.setdefault(asked.call.node, []).append(position)
        before = self._missing
        self._missing = {node: len(positions) for node, positions in missing.items()}
        return [
            p for node, found in missing.items() if before.get(node) == len(found) for p in found
        ]

    def leave(self, positions: Collection[int]) -> None:
        """Do not wait for these any longer."""
        for node, waiting in list(self.waiting.items()):
            self.waiting[node] = deque(p for p in waiting if p not in positions)
            if not self.waiting[node]:
                del self.waiting[node]
        for position in positions:
            if position in self.sent:
                self.sent[position].is_open = False
