"""Sends by OpenTelemetry's own exporters, and tells the log when that fails, and when no longer.

Imported by the thread that sends, as it loads the exporters.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from threading import current_thread
from typing import Any

import requests
from opentelemetry.context import attach, set_value
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from spark_kafka_sink import __version__
from spark_kafka_sink.base.printable import shown, shown_url
from spark_kafka_sink.config.metrics_keys import OTLP_METRICS, OTLP_TRACES
from spark_kafka_sink.config.metrics_outputs import OtlpOutput
from spark_kafka_sink.metrics.background import THREAD_NAME
from spark_kafka_sink.metrics.names import Values
from spark_kafka_sink.metrics.otlp.points import metrics_of
from spark_kafka_sink.metrics.otlp.resource import resource_of
from spark_kafka_sink.metrics.otlp.sending import short_timeouts, timeout_s_of
from spark_kafka_sink.metrics.otlp.spans import trace_of
from spark_kafka_sink.metrics.told import Told

logger = logging.getLogger(__name__)

_VARIABLES = "OTEL_EXPORTER_OTLP_"
_DEFAULT_ENDPOINT = "http://localhost:4318"
_TEMPORALITY = f"{_VARIABLES}METRICS_TEMPORALITY_PREFERENCE"
_HISTOGRAM = f"{_VARIABLES}METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
_PROTOCOLS = tuple(f"{_VARIABLES}{of}PROTOCOL" for of in ("", "METRICS_", "TRACES_"))
_PROTOBUF = "application/x-protobuf"
_EXPORTERS = {OTLP_METRICS: OTLPMetricExporter, OTLP_TRACES: OTLPSpanExporter}
_RESPONSES: dict[str, Any] = {
    OTLP_METRICS: ExportMetricsServiceResponse,
    OTLP_TRACES: ExportTraceServiceResponse,
}


class Exporting:
    """Of one place where lines go."""

    def __init__(self, output: OtlpOutput, headers: Mapping[str, str] | None) -> None:
        # Where the process' own requests are traced: not these.
        attach(set_value("suppress_instrumentation", True))
        for exporter in _EXPORTERS.values():
            logging.getLogger(exporter.__module__).addFilter(_is_of_another_thread)
        _tell_what_has_no_effect()
        for sentence in short_timeouts(output):
            logger.warning(sentence)
        self._output = output
        self._scope = InstrumentationScope("spark_kafka_sink", __version__)
        self._has_exponential = os.environ.get(_HISTOGRAM, "") != "explicit_bucket_histogram"
        self._signals = {signal: _Signal(signal, output, headers) for signal in output.signals}

    def send(self, line: Values, lost: int) -> None:
        """lost: lines of this process that were not sent, as too many waited"""
        resource = resource_of(line, self._output.service_name)
        exemplar = None
        if OTLP_TRACES in self._signals:
            trace = trace_of(line, resource, self._scope)
            exemplar = trace.exemplar
            self._signals[OTLP_TRACES].send(trace.spans, lost)
        if OTLP_METRICS in self._signals:
            metrics = metrics_of(line, exemplar, self._has_exponential)
            of_scope = ScopeMetrics(self._scope, metrics, "")
            of_resource = ResourceMetrics(resource, [of_scope], "")
            self._signals[OTLP_METRICS].send(MetricsData([of_resource]), lost)


def endpoint_of(output: OtlpOutput, signal: str) -> str:
    """With the signal's path, but for a variable that is for this signal alone."""
    base = output.endpoint
    if base is None:
        of_signal = os.environ.get(f"{_VARIABLES}{signal.upper()}_ENDPOINT")
        if of_signal:
            return of_signal
        base = os.environ.get(f"{_VARIABLES}ENDPOINT") or _DEFAULT_ENDPOINT
    return f"{base.rstrip('/')}/v1/{signal}"


class _Signal:
    """Metrics or traces: what was told of sending them."""

    def __init__(self, name: str, output: OtlpOutput, headers: Mapping[str, str] | None) -> None:
        endpoint = endpoint_of(output, name)
        self._session = _Session(_RESPONSES[name])
        self._exporter: Any = _EXPORTERS[name](
            endpoint=endpoint,
            headers=None if headers is None else dict(headers),
            timeout=timeout_s_of(output, name),
            session=self._session,
        )
        where = shown_url(endpoint)
        self._told = Told(
            f"metrics.otlp: cannot send {name} to {where}",
            f"metrics.otlp: {name} are sent to {where} again; those of {{batches}} batch(es) are "
            "lost",
        )

    def send(self, data: Any, lost: int) -> None:
        """What fails is lost."""
        self._told.note(self._problem_of(lambda: self._exporter.export(data)), lost)

    def _problem_of(self, export: Callable[[], Any]) -> str | None:
        self._session.problem = None
        try:
            result = export()
        except Exception as error:  # of whatever version of the library
            return self._session.problem or why(error)
        is_sent = result.name == "SUCCESS"
        return self._session.problem or (None if is_sent else "the exporter does not tell why")


class _Session(requests.Session):
    """Notes what came of the last request: the exporter only tells whether it was successful."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.problem: str | None = None
        self._response = response

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """Redirects are not followed: they would take a request's headers elsewhere. What verifies
        certificates is said with each request: else REQUESTS_CA_BUNDLE would win.
        """
        self.problem = None
        options = {"verify": self.verify, **options, "allow_redirects": False}
        try:
            answer = super().request(*args, **options)
        except Exception as error:  # a file of certificates that is missing is an OSError
            self.problem = why(error)
            raise
        if answer.status_code >= 300:
            self.problem = shown(f"HTTP {answer.status_code} {answer.reason}".strip())
        else:
            self.problem = self._refused(answer)
        return answer

    def _refused(self, answer: requests.Response) -> str | None:
        """What the receiver says of the part that it has not taken."""
        if not answer.content or answer.headers.get("Content-Type") != _PROTOBUF:
            return None
        told = self._response.FromString(answer.content).partial_success
        refused = next((value for field, value in told.ListFields() if field.number == 1), 0)
        return f"{refused} of them are refused: {shown(told.error_message)}" if refused else None


def why(error: BaseException) -> str:
    """What the operating system says, if it does: what is around it has addresses of objects."""
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    cause = error
    while cause.__cause__ or cause.__context__:
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    return str(getattr(cause, "strerror", None) or cause or type(cause).__name__)


def _is_of_another_thread(record: logging.LogRecord) -> bool:
    """What the exporters log here is told in other words, once."""
    return current_thread().name != THREAD_NAME


def _tell_what_has_no_effect() -> None:
    """Of OpenTelemetry's variables."""
    if os.environ.get(_TEMPORALITY, "delta").lower() == "cumulative":
        logger.warning(
            f"{_TEMPORALITY}=cumulative has no effect: each batch's metrics are deltas, for the "
            "next batch may be committed by another process. A collector adds them up with its "
            "processor deltatocumulative"
        )
    for name in _PROTOCOLS:
        if os.environ.get(name, "http/protobuf") != "http/protobuf":
            logger.warning(
                f"{name}={os.environ[name]} has no effect: metrics.otlp.* sends http/protobuf, to "
                "the collector's port 4318 by default"
            )
