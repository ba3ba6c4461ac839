"""The result of one check."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """A check fails only with FAILED. UNKNOWN: the brokers do not answer this principal."""

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """A finding. subject: what was checked; text: the result; cure: what to do, if anything."""

    outcome: Outcome
    subject: str
    text: str
    cure: str = ""


def passed(subject: str, text: str) -> Finding:
    """Return a finding of a check that passed."""
    return Finding(Outcome.PASSED, subject, text)


def failed(subject: str, text: str, cure: str = "") -> Finding:
    """Return a finding with which a job would fail, or wait in vain."""
    return Finding(Outcome.FAILED, subject, text, cure)


def warned(subject: str, text: str, cure: str = "") -> Finding:
    """Return a finding with which a job runs, perhaps not as intended."""
    return Finding(Outcome.WARNED, subject, text, cure)


def unknown(subject: str, text: str, cure: str = "") -> Finding:
    """Return a finding of a check without a result."""
    return Finding(Outcome.UNKNOWN, subject, text, cure)
