"""Where the metrics of batches go, besides the log: the options ``metrics.*``, parsed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_kafka_sink.base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class MetricsOutputs:
    """path: a local file, or the URI of a folder, that gets each line

    max_bytes, backups: a local file that would be larger is renamed, and so many of these are kept;
    0 bytes: never
    prometheus_path: a local file in Prometheus' format
    push_url, push_job: a push gateway, and under which job it is told
    """

    path: str | None = None
    max_bytes: int = 0
    backups: int = 5
    prometheus_path: str | None = None
    push_url: str | None = None
    push_job: str = "pykafka-sink"

    @classmethod
    def of(cls, sink: Mapping[str, Any]) -> MetricsOutputs:
        """From the parsed table of the sink's options."""
        return cls(
            sink["metrics_path"],
            sink["metrics_path_max_bytes"],
            sink["metrics_path_backups"],
            sink["metrics_prometheus_path"],
            sink["metrics_prometheus_push_url"],
            sink["metrics_prometheus_push_job"],
        )

    @property
    def needs_prometheus(self) -> bool:
        """Whether the Python package prometheus_client is needed."""
        return self.prometheus_path is not None or self.push_url is not None
