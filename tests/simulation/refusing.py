"""Simulated brokers refuse some records of a batch, and say which (KIP-467), or do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests import twin
from tests.simulation.time import SimClock

TOLD_AT_MOST = 3


class Refusal(NamedTuple):
    """rows: what is said of which record, by its number in the batch"""

    error: str
    message: str
    rows: dict[int, str]


Validator = Callable[[str, twin.RecordBatch], "Refusal | None"]
Rule = Callable[[str, twin.Record], bool]


def refusing(
    rule: Rule, error: str = "INVALID_RECORD", is_told: bool = True, most: int = TOLD_AT_MOST
) -> Validator:
    """A broker that takes no batch with a record of which ``rule`` is true.

    is_told: whether it says which; most: of how many at the most
    """

    what = "timestamp" if error == "INVALID_TIMESTAMP" else "number"

    def validate(topic: str, batch: twin.RecordBatch) -> Refusal | None:
        rows = {n: f"not {what} {n}" for n, r in enumerate(batch.records) if rule(topic, r)}
        if not rows:
            return None
        told = dict([*rows.items()][:most]) if is_told else {}
        return Refusal(error, f"{len(rows)} record(s) refused.", told)

    return validate


@dataclass
class RefusingBrokers:
    """Of a life in which brokers refuse some records of topic ``t``, by their numbers.

    begins_after_ms: a topic's settings change while it is written to
    values: what the task got back
    """

    every: int
    begins_after_ms: int
    is_told: bool
    values: list[bytes] = field(default_factory=list)

    @classmethod
    def choose(cls, rng: random.Random) -> RefusingBrokers | None:
        """None for most lives."""
        if rng.random() < 0.7:
            return None
        return cls(rng.choice((2, 7, 50)), rng.choice((0, 0, 200, 2000)), rng.random() < 0.7)

    def refuses(self, value: bytes | None) -> bool:
        """While they do."""
        return value is not None and int(value[:6]) % self.every == 1

    def validator(self, clock: SimClock) -> Validator:
        """For a cluster that begins now."""
        begins_ms = clock.ms + self.begins_after_ms
        refuse = refusing(
            lambda topic, r: topic == "t" and self.refuses(r.value), is_told=self.is_told
        )
        return lambda topic, batch: refuse(topic, batch) if clock.ms >= begins_ms else None
