"""Where the metrics of batches go, besides the log: the options ``metrics.*``, parsed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.metrics_keys import METRICS_KEYS, OTLP_SIGNALS, OTLP_TRACES

_OTLP = "metrics.otlp."
_PATH = "metrics.path"
BACKUPS = 5
"""How many renamed files of ``metrics.path`` are kept."""
_PUSH_URL, _PUSH_JOB = "metrics.prometheus.push.url", "metrics.prometheus.push.job"


@dataclass(frozen=True, slots=True)
class OtlpOutput:
    """Where OpenTelemetry's signals go. What is None comes from the environment's variables."""

    endpoint: str | None = None
    headers: Secret | None = None
    signals: tuple[str, ...] = OTLP_SIGNALS
    service_name: str | None = None
    timeout_ms: int | None = None

    @classmethod
    def of(cls, sink: Mapping[str, Any]) -> OtlpOutput | None:
        """From the parsed table of the sink's options; None if it was not asked for."""
        is_enabled = sink["metrics_otlp_enable"]
        if is_enabled is None:
            is_enabled = sink["metrics_otlp_endpoint"] is not None
        if not is_enabled:
            return None
        return cls(
            sink["metrics_otlp_endpoint"],
            sink["metrics_otlp_headers"],
            tuple(sink["metrics_otlp_signals"]),
            sink["metrics_otlp_service_name"],
            sink["metrics_otlp_timeout_ms"],
        )


@dataclass(frozen=True, slots=True)
class MetricsOutputs:
    """path: a local file, or the URI of a folder, that gets each line

    max_bytes: a local file that would be larger is renamed, and ``BACKUPS`` are kept; 0: never
    push_url, push_job: a push gateway, and under which job it is told
    otlp: None unless it was asked for
    """

    path: str | None = None
    max_bytes: int = 0
    push_url: str | None = None
    push_job: str = "pykafka-sink"
    otlp: OtlpOutput | None = None

    @classmethod
    def of(cls, sink: Mapping[str, Any]) -> MetricsOutputs:
        """From the parsed table of the sink's options."""
        return cls(
            sink["metrics_path"],
            sink["metrics_path_max_bytes"],
            sink["metrics_prometheus_push_url"],
            sink["metrics_prometheus_push_job"],
            OtlpOutput.of(sink),
        )

    @property
    def has_traces(self) -> bool:
        """Whether a trace of each batch is sent."""
        return self.otlp is not None and OTLP_TRACES in self.otlp.signals


def notes_on_outputs(outputs: MetricsOutputs, own: Iterable[str]) -> Iterator[str]:
    """Sentences about options without the effect that was meant. ``own``: names that were given."""
    names = {key.name for key in METRICS_KEYS if key.name.startswith(_OTLP)}
    for name in own:
        if outputs.otlp is None and name in names and not name.endswith(".enable"):
            yield f"option '{name}' has no effect without metrics.otlp.enable=true"
        elif outputs.path is None and name.startswith(f"{_PATH}."):
            yield f"option '{name}' has no effect without {_PATH}"
        elif outputs.push_url is None and name == _PUSH_JOB:
            yield f"option '{name}' has no effect without {_PUSH_URL}"
