"""Simulated brokers refuse some records of a batch, and say which (KIP-467), or do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests import twin

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

    def validate(topic: str, batch: twin.RecordBatch) -> Refusal | None:
        rows = {n: f"not number {n}" for n, r in enumerate(batch.records) if rule(topic, r)}
        if not rows:
            return None
        told = dict([*rows.items()][:most]) if is_told else {}
        return Refusal(error, f"{len(rows)} record(s) refused.", told)

    return validate
