"""Points in time and durations, as operators and errors tell them."""

from __future__ import annotations

from datetime import datetime, timezone


def time_of(timestamp_ms: int) -> str:
    """``2026-03-01T12:00:00Z``; a dash for none."""
    if timestamp_ms <= 0:
        return "-"
    moment = datetime.fromtimestamp(timestamp_ms // 1000, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def duration_of(duration_ms: int) -> str:
    """The two largest units: ``3 min 20 s``. Clocks that differ do not make it negative."""
    seconds = max(0, duration_ms) // 1000
    units = ((seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"))
    told = [*units, (seconds % 60, "s")]
    while len(told) > 1 and told[0][0] == 0:
        told.pop(0)
    return " ".join(f"{n} {unit}" for at, (n, unit) in enumerate(told[:2]) if n or at == 0)
