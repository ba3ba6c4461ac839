"""Tells a Prometheus push gateway of a batch: for jobs that are over before they are scraped."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, push_to_gateway

from spark_kafka_sink.metrics.exposition import Exposition
from spark_kafka_sink.metrics.names import Values

_TIMEOUT_S = 3

_pushed: dict[tuple[str, str], Exposition] = {}
"""What this process has told which gateway of which job: totals go on."""


def push(url: str, job: str, line: Values) -> None:
    """Add one batch and replace what the gateway has of ``job``. Raises OSError."""
    exposition = _pushed.setdefault((url, job), Exposition())
    exposition.add(line)
    registry = CollectorRegistry()
    registry.register(exposition)
    push_to_gateway(url, job, registry, timeout=_TIMEOUT_S)
