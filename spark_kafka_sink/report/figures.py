"""Numbers as people read them."""

from __future__ import annotations

from datetime import datetime, timezone

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: float) -> str:
    """A whole number, its thousands apart."""
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes in the largest unit of which there is at least one."""
    for unit in _BYTES:
        if abs(number) < 1024 or unit == _BYTES[-1]:
            break
        number /= 1024
    return f"{number:,.0f} {unit}" if unit == "B" or number >= 100 else f"{number:,.1f} {unit}"


def duration(ms: float) -> str:
    """Milliseconds, in the unit that suits them."""
    if ms < 1000:
        return f"{ms:,.0f} ms"
    seconds = ms / 1000
    if seconds < 120:
        return f"{seconds:,.1f} s"
    minutes = seconds / 60
    return f"{minutes:,.1f} min" if minutes < 120 else f"{minutes / 60:,.1f} h"


def percent(share: float) -> str:
    """A share of 1."""
    return f"{100 * share:.0f} %"


def moment(time_ms: float) -> str:
    """Milliseconds since 1970, in UTC."""
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"


def left_out(texts: int) -> str:
    """Return what is said of texts in a file of metrics that cannot be read as lines of it."""
    if texts == 1:
        return "1 text left out: no line of this sink"
    return f"{count(texts)} texts left out: no lines of this sink"
