"""Prometheus' text format, for what is written after each batch.

``prometheus_client.generate_latest`` says the same, byte for byte, in 2.5 ms of CPU for a batch of
three brokers: it checks and escapes each name and label each time. Here that is done once for each
series.

Source: "Exposition formats", text format 0.0.4, of Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from prometheus_client.utils import floatToGoString

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]
"""Name, labels, value."""

_MOST_SERIES = 10_000


def family_text(name: str, doc: str, kind: str, samples: Iterable[Sample]) -> Iterator[str]:
    """The lines of one family. ``name``, ``doc``: of counters with ``_total``."""
    escaped = doc.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n"
    for sample, labels, value in samples:
        number: str = floatToGoString(value)  # type: ignore[no-untyped-call]
        yield f"{_series(sample, labels)} {number}\n"


@lru_cache(_MOST_SERIES)
def _series(name: str, labels: Labels) -> str:
    if not labels:
        return name
    told = (f'{label}="{_escaped(value)}"' for label, value in sorted(labels))
    return f"{name}{{{','.join(told)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
