"""What one check has found."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """Only FAILED makes a check fail. UNKNOWN: the brokers do not tell this principal."""

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """subject: what was looked at; text: what was found; cure: what to do about it, if anything."""

    outcome: Outcome
    subject: str
    text: str
    cure: str = ""


def passed(subject: str, text: str) -> Finding:
    """As it should be."""
    return Finding(Outcome.PASSED, subject, text)


def failed(subject: str, text: str, cure: str = "") -> Finding:
    """A job would fail, or wait for what does not come."""
    return Finding(Outcome.FAILED, subject, text, cure)


def warned(subject: str, text: str, cure: str = "") -> Finding:
    """A job runs, perhaps not as it was meant."""
    return Finding(Outcome.WARNED, subject, text, cure)


def unknown(subject: str, text: str, cure: str = "") -> Finding:
    """Not found out."""
    return Finding(Outcome.UNKNOWN, subject, text, cure)
