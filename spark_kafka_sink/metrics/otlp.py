"""Lines as OpenTelemetry's metrics and traces, sent by OpenTelemetry's exporters over OTLP/HTTP.

The sending thread imports this module, because loading the package opentelemetry takes 250 ms.

Metrics have the names that Kafka's clients use to push them to brokers (KIP-714). Metrics that
Java's producers do not have are named ``pykafka_sink.…``; Prometheus' translation of OpenTelemetry
names turns them into those of ``metrics/names.py``. Sums and histograms are deltas of one batch.
Totals would need a process that lives as long as the query, but Spark may commit each batch in
another process.

A trace covers one batch: the driver's work, the tasks' work, and the slowest task. Span names are
few, as OpenTelemetry asks; an attribute identifies the batch.

Source: OpenTelemetry's data model of metrics; ``TelemetryMetricNamingConvention`` of Kafka;
OpenTelemetry's semantic conventions for messaging, and for exceptions.
"""

from __future__ import annotations

import base64
import logging
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from http.client import HTTPException
from io import BytesIO
from threading import current_thread
from typing import Any, NamedTuple, Optional, Union
from urllib.parse import SplitResult, unquote, urlsplit

import requests
from google.protobuf.message import DecodeError
from opentelemetry.context import attach, set_value
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk import resources
from opentelemetry.sdk.metrics import Exemplar, export
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.sdk.version import __version__ as sdk_version
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from requests.structures import CaseInsensitiveDict

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import warn
from spark_kafka_sink.base.http import Response, TruncatedResponseError
from spark_kafka_sink.base.kafka_metrics import Values, count_up_to
from spark_kafka_sink.base.machine import FileState, file_state
from spark_kafka_sink.base.text import redacted, redacted_url
from spark_kafka_sink.config.sink_keys import (
    IN_CLEAR_TEXT,
    OTLP_METRICS,
    OTLP_TRACES,
    OtlpOutput,
    sentence_on_clear_text,
)
from spark_kafka_sink.metrics import push
from spark_kafka_sink.metrics.background import THREAD_NAME, FailureLog
from spark_kafka_sink.metrics.names import OWN_METRICS, TASK_PARTS, labels_of, measurements
from spark_kafka_sink.metrics.outputs import otlp_timeout_s, short_timeouts
from spark_kafka_sink.metrics.push import Push

# --- resource ------------------------------------------------------------------------------------

DEFAULT_SERVICE = "pykafka-sink"
_RESOURCE_ATTRIBUTES = {
    "query_id": "pykafka_sink.query.id",
    "query_name": "pykafka_sink.query.name",
    "application_id": "spark.application.id",
}


def resource_of(line: Values, service_name: str | None) -> Resource:
    """Return the resource of a line. service_name: the option; it overrides the environment."""
    attributes = {
        name: str(line[field]) for field, name in _RESOURCE_ATTRIBUTES.items() if field in line
    }
    if service_name is not None:
        attributes[resources.SERVICE_NAME] = service_name
    return _process_resource().merge(Resource(attributes))


@cache
def _process_resource() -> Resource:
    """Return the resource attributes of the environment and of this library.

    The library's ``Resource.create`` is not used: newer versions add a random service.instance.id
    for each process. Spark may commit each batch in another process, so each batch would look like
    another instance.
    """
    default = Resource(
        {
            resources.TELEMETRY_SDK_LANGUAGE: "python",
            resources.TELEMETRY_SDK_NAME: "opentelemetry",
            resources.TELEMETRY_SDK_VERSION: sdk_version,
            resources.SERVICE_NAME: DEFAULT_SERVICE,
        }
    )
    return default.merge(OTELResourceDetector().detect())


# --- intervals of a line, in ns since 1970 -------------------------------------------------------

_NS_PER_MS = 1_000_000


class Interval(NamedTuple):
    """Time of a span or of a sum, in ns since 1970."""

    started_ns: int
    ended_ns: int


def _interval(started_ms: float, length_ms: float) -> Interval:
    """Return an interval in whole milliseconds, rounded down to keep the order of one clock.

    If the clocks of two machines put the end before the start, the interval is empty.
    """
    started_ns = int(started_ms) * _NS_PER_MS
    return Interval(started_ns, max(started_ns, int(started_ms + length_ms) * _NS_PER_MS))


def intervals_of(line: Values) -> dict[str, Interval]:
    """Return the known times of a batch by name.

    batch: all of it; if clocks differ, the widest
    planning, commit: the driver's time before and after the tasks; commit includes aborting
    tasks: from the start of the first task with rows to the end of the last
    flush: from the first task's wait for acknowledgements to the end of the last
    task: of the slowest task, which ends within ``tasks``
    """
    found: dict[str, Interval] = {}
    if "planning_started_at_ms" in line:
        found["planning"] = _interval(line["planning_started_at_ms"], line["planning_ms"])
    if "started_at_ms" in line:
        tasks = found["tasks"] = _interval(line["started_at_ms"], line["elapsed_ms"])
        if "flush_started_at_ms" in line:
            found["flush"] = Interval(line["flush_started_at_ms"] * _NS_PER_MS, tasks.ended_ns)
    if "commit_started_at_ms" in line:
        started_ms = line["commit_started_at_ms"]
        found["commit"] = _interval(started_ms, line["time_ms"] - started_ms)
    ended_ns = line["time_ms"] * _NS_PER_MS
    whole = Interval(
        min((part.started_ns for part in found.values()), default=ended_ns),
        max([ended_ns, *(part.ended_ns for part in found.values())]),
    )
    if "tasks" in found and line.get("slowest_tasks"):
        slowest = line["slowest_tasks"][0]
        task = _interval(slowest["started_at_ms"], slowest["task_ms"])
        found["task"] = task._replace(ended_ns=min(task.ended_ns, found["tasks"].ended_ns))
    return {"batch": whole, **found}


# --- metrics -------------------------------------------------------------------------------------

LATENCY = "pykafka_sink.request_latency"
_LATENCY_DOC = "Produce requests by how long they took until the answer"
_KAFKA = "org.apache.kafka"
_OWN_PREFIX, _OWN_DOMAIN = "pykafka_sink_", "pykafka_sink."
_SECONDS = "_seconds"
_DELTA = export.AggregationTemporality.DELTA
_DOUBLINGS = range(18)

_Number = Union[int, float]


_Description = tuple[str, str, str, bool]
"""Name, doc and unit of a metric, and whether its values add up."""


def metrics_of(
    line: Values, exemplar: Exemplar | None, has_exponential: bool
) -> list[export.Metric]:
    """Return all metrics of one line.

    exemplar: the slowest produce request of the slowest task
    has_exponential: report latencies in buckets that grow by the eighth root of 2, as in the line;
    otherwise buckets grow by 2
    """
    interval = intervals_of(line)["batch"]
    client = labels_of(line)
    points: dict[_Description, list[export.NumberDataPoint]] = {}
    for described, labels, value in _numbers(line):
        attributes = {**client, **labels}
        point = export.NumberDataPoint(attributes, interval.started_ns, interval.ended_ns, value)
        points.setdefault(described, []).append(point)
    metrics = [
        export.Metric(
            name, doc, unit, export.Sum(of_it, _DELTA, True) if is_total else export.Gauge(of_it)
        )
        for (name, doc, unit, is_total), of_it in points.items()
    ]
    if "histogram" in line.get("request_latency", {}):
        data = _histogram(line, interval, client, exemplar, has_exponential)
        metrics.append(export.Metric(LATENCY, _LATENCY_DOC, "ms", data))
    return metrics


def telemetry_name(group: str, name: str) -> str:
    """Return the name under which Kafka's clients push a metric of a group."""
    return f"{_KAFKA}.{group}.{name}".replace("-", ".").replace(".metrics.", ".", 1)


def _numbers(line: Values) -> Iterator[tuple[_Description, Mapping[str, str], _Number]]:
    for one in measurements(line):
        name, is_total = telemetry_name(one.group, one.metric.name), one.metric.is_total
        described = (name, one.doc, "", is_total)
        yield described, one.labels, round(one.value) if is_total else float(one.value)
    for own in OWN_METRICS:
        name = own.name.removesuffix("_total")
        unit = "s" if name.endswith(_SECONDS) else ""
        name = _OWN_DOMAIN + name.removesuffix(_SECONDS).removeprefix(_OWN_PREFIX)
        described = (name, own.doc, unit, own.is_total)
        for labels, value in own.values(line):
            yield described, labels, float(value) if unit or not own.is_total else round(value)


def _histogram(
    line: Values,
    interval: Interval,
    client: Mapping[str, str],
    exemplar: Exemplar | None,
    is_exponential: bool,
) -> export.ExponentialHistogram | export.Histogram:
    """Return the line's histogram; its bucket indices mean the same in OpenTelemetry."""
    recorded = line["request_latency"]["histogram"]
    counts = {int(index): count for index, count in recorded["counts"].items()}
    total = sum(counts.values())
    # The protocol makes the minimum optional, and the library's types require it.
    values: dict[str, Any] = {
        "attributes": client,
        "start_time_unix_nano": interval.started_ns,
        "time_unix_nano": interval.ended_ns,
        "count": total,
        "sum": float(line["metrics"]["request_latency_ms"]),
        "min": None,
        "max": float(line["metrics"]["request_latency_max_ms"]),
        "exemplars": [] if exemplar is None else [exemplar],
    }
    if not is_exponential:
        up_to = [count_up_to(counts, doublings) for doublings in _DOUBLINGS]
        values["bucket_counts"] = [more - less for less, more in zip([0, *up_to], [*up_to, total])]
        values["explicit_bounds"] = [float(2**doublings) for doublings in _DOUBLINGS]
        return export.Histogram([export.HistogramDataPoint(**values)], _DELTA)
    first = min(counts)
    dense = export.Buckets(first, [counts.get(index, 0) for index in range(first, max(counts) + 1)])
    values.update(scale=recorded["scale"], zero_count=0, flags=0)
    point = export.ExponentialHistogramDataPoint(
        positive=dense, negative=export.Buckets(0, []), **values
    )
    return export.ExponentialHistogram([point], _DELTA)


# --- a trace -------------------------------------------------------------------------------------

_ABORT = "abort"
_IDS = RandomIdGenerator()
_BATCH_FIELDS = (
    *("event", "batch_id", "tasks", "failed_tasks", "failed_attempts", "transactions", "replay"),
    *("note", "longest_wait_ms", "longest_wait_cause"),
)
_COMMIT_FIELDS = ("commit_ms", "oldest_transaction_ms", "decided_for_ms", "transactions")


class Trace(NamedTuple):
    """The spans of a batch. exemplar: the slowest task's slowest produce request, or None."""

    spans: list[ReadableSpan]
    exemplar: Exemplar | None


class _TraceBuilder:
    """Builds the spans of all intervals that the line has times for."""

    def __init__(self, line: Values, resource: Resource, scope: InstrumentationScope) -> None:
        self._line = line
        self._resource = resource
        self._scope = scope
        trace_id = line.get("trace_id")
        self._trace_id = _IDS.generate_trace_id() if trace_id is None else int(trace_id, 16)
        self._is_abort = line["event"] == _ABORT
        self._spans: list[ReadableSpan] = []

    def trace(self) -> Trace:
        line, times = self._line, intervals_of(self._line)
        more = self._messaging_attributes(line.get("records_acknowledged", 0))
        if len(line.get("topics", {})) == 1:
            more["messaging.destination.name"] = next(iter(line["topics"]))
        name = "micro-batch" if "batch_id" in line else "job"
        root = self._add(name, times["batch"], None, _picked(line, _BATCH_FIELDS), more)
        exemplar = None
        if "planning" in times:
            self._add("planning", times["planning"], root, _picked(line, ("planning_ms",)))
        if "tasks" in times:
            parts = _picked(line["metrics"], (*(f"{part}_ms" for part in TASK_PARTS), "task_ms"))
            tasks = self._add("tasks", times["tasks"], root, parts)
            if "flush" in times:
                self._add("flush", times["flush"], root, _picked(line["metrics"], ("ack_wait_ms",)))
            if "task" in times:
                exemplar = self._add_slowest_task(times["task"], tasks)
        if "commit" in times:
            name = _ABORT if self._is_abort else "commit"
            self._add(name, times["commit"], root, _picked(line, _COMMIT_FIELDS))
        return Trace(self._spans, exemplar)

    def _messaging_attributes(self, records: int) -> dict[str, str | int]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.client.id": str(self._line.get("client_id", "")),
            "messaging.batch.message_count": int(records),
        }

    def _add_slowest_task(self, when: Interval, tasks: SpanContext) -> Exemplar | None:
        slowest = self._line["slowest_tasks"][0]
        own = {f"task.{name}": value for name, value in slowest.items() if name != "started_at_ms"}
        more = self._messaging_attributes(slowest["records"])
        context = self._add("task", when, tasks, own, more)
        waited_ns = int(slowest["ack_wait_ms"]) * _NS_PER_MS
        flush = when._replace(started_ns=max(when.started_ns, when.ended_ns - waited_ns))
        self._add("task flush", flush, context, {})
        latency_ms = slowest.get("request_latency_max_ms")
        if not latency_ms:
            return None
        where = {"task": slowest["task"], "host": slowest["host"]}
        ids = {"span_id": context.span_id, "trace_id": context.trace_id}
        return Exemplar(where, float(latency_ms), when.ended_ns, **ids)

    def _add(
        self,
        name: str,
        when: Interval,
        parent: SpanContext | None,
        own: dict[str, Any],
        more: dict[str, str | int] | None = None,
    ) -> SpanContext:
        """Add a span. own: attributes, without the prefix of the sink's own names."""
        context = SpanContext(
            self._trace_id, _IDS.generate_span_id(), False, TraceFlags(TraceFlags.SAMPLED)
        )
        is_failed = parent is None and self._is_abort
        span = ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            {**{_OWN_DOMAIN + key: value for key, value in own.items()}, **(more or {})},
            events=self._events(when) if parent is None else (),
            kind=SpanKind.PRODUCER if name == "task" else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, abort_reason(self._line)) if is_failed else Status(),
            start_time=when.started_ns,
            end_time=when.ended_ns,
            instrumentation_scope=self._scope,
        )
        self._spans.append(span)
        return context

    def _events(self, when: Interval) -> list[Event]:
        error = self._line.get("error")
        if error is None:
            return []
        kind, _, message = error.partition(": ")
        attributes = {"exception.type": kind, "exception.message": message}
        return [Event("exception", attributes, when.ended_ns)]


def _picked(fields: Values, names: Iterable[str]) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def abort_reason(line: Values) -> str:
    """Return the reason of the abort, as far as Spark reports it to the sink."""
    if "error" in line:
        return str(line["error"])
    failed, tasks = line.get("failed_tasks"), line.get("tasks")
    if failed:
        return f"{failed} of {tasks} tasks failed: Spark's log has their errors"
    if tasks is not None:
        return "no task failed, but the commit did, or Spark gave the batch up: see its log"
    return "Spark does not tell why"


# --- exporting -----------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_VARIABLES = "OTEL_EXPORTER_OTLP_"
_ENDPOINT = "metrics.otlp.endpoint"
_DEFAULT_ENDPOINT = "http://localhost:4318"
_TEMPORALITY = f"{_VARIABLES}METRICS_TEMPORALITY_PREFERENCE"
_HISTOGRAM = f"{_VARIABLES}METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
_PROTOCOLS = tuple(f"{_VARIABLES}{of}PROTOCOL" for of in ("", "METRICS_", "TRACES_"))
_PROTOBUF = "application/x-protobuf"
_HEADER_LOGGER = "opentelemetry.util.re"
_EXPORTERS = {OTLP_METRICS: OTLPMetricExporter, OTLP_TRACES: OTLPSpanExporter}
_AFTER_THE_REQUEST = (TimeoutError, TruncatedResponseError, HTTPException)
"""Errors after which a receiver may have the whole request."""
_RESPONSES: dict[str, Any] = {
    OTLP_METRICS: ExportMetricsServiceResponse,
    OTLP_TRACES: ExportTraceServiceResponse,
}


ReadHeaders = Callable[[], Optional[Mapping[str, str]]]
"""Returns headers by name, None for those of the environment. Raises ConfigError."""
_EVERY_REQUESTS = {"Content-Type": _PROTOBUF}
"""The headers of every request. Without any, an exporter may take the environment's."""


class OtlpExporter:
    """Exports lines to one OTLP endpoint.

    headers: called for each request, so that no replaced or removed credential is sent
    """

    def __init__(self, output: OtlpOutput, headers: ReadHeaders) -> None:
        # If the process traces its own HTTP requests, leave these requests out.
        attach(set_value("suppress_instrumentation", True))
        for exporter in _EXPORTERS.values():
            logging.getLogger(exporter.__module__).addFilter(_filter_exporter_logs)
        logging.getLogger(_HEADER_LOGGER).addFilter(_filter_header_logs)
        _warn_ignored_variables()
        for note in short_timeouts(output):
            warn(logger, "METRICS-006", note)
        for note in _notes_on_clear_text(output):
            warn(logger, IN_CLEAR_TEXT, note)
        self._output = output
        self._scope = InstrumentationScope("spark_kafka_sink", __version__)
        self._has_exponential = os.environ.get(_HISTOGRAM, "") != "explicit_bucket_histogram"
        self._signals = {signal: _Signal(signal, output, headers) for signal in output.signals}

    def send(self, line: Values, lost: int) -> None:
        """Export a line. lost: lines of this process that were dropped from a full queue."""
        resource = resource_of(line, self._output.service_name)
        exemplar = None
        if OTLP_TRACES in self._signals:
            trace = _TraceBuilder(line, resource, self._scope).trace()
            exemplar = trace.exemplar
            self._signals[OTLP_TRACES].send(trace.spans, lost)
        if OTLP_METRICS in self._signals:
            metrics = metrics_of(line, exemplar, self._has_exponential)
            of_scope = export.ScopeMetrics(self._scope, metrics, "")
            of_resource = export.ResourceMetrics(resource, [of_scope], "")
            self._signals[OTLP_METRICS].send(export.MetricsData([of_resource]), lost)


def endpoint_of(output: OtlpOutput, signal: str) -> str:
    """Return the endpoint with the signal's path, or the variable for this signal unchanged."""
    base = output.endpoint
    if base is None:
        of_signal = os.environ.get(f"{_VARIABLES}{signal.upper()}_ENDPOINT")
        if of_signal:
            return of_signal
        base = os.environ.get(f"{_VARIABLES}ENDPOINT") or _DEFAULT_ENDPOINT
    return f"{base.rstrip('/')}/v1/{signal}"


def _notes_on_clear_text(output: OtlpOutput) -> set[str]:
    """Return notes on credentials over http, if a variable gives them or the endpoint."""
    if output.headers is not None and output.endpoint is not None:
        return set()  # the options' own note
    found: set[str | None] = set()
    for signal in output.signals:
        endpoint = endpoint_of(output, signal)
        of_signal = f"{_VARIABLES}{signal.upper()}_HEADERS"
        given = [name for name in (of_signal, f"{_VARIABLES}HEADERS") if os.environ.get(name)]
        if output.headers is not None:
            given = ["metrics.otlp.headers"]
        elif "@" in endpoint:
            given = ["user and password"]
        found |= {sentence_on_clear_text(name, endpoint) for name in given[:1]}
    return {note for note in found if note is not None}


class _Signal:
    """Exports metrics or traces, and logs when that starts failing and when it recovers."""

    def __init__(self, name: str, output: OtlpOutput, headers: ReadHeaders) -> None:
        endpoint = endpoint_of(output, name)
        self._session = _Session(_RESPONSES[name], headers)
        self._exporter: Any = _EXPORTERS[name](
            endpoint=endpoint,
            headers=None if output.headers is None else _EVERY_REQUESTS,
            timeout=otlp_timeout_s(output, name),
            session=self._session,
        )
        where = redacted_url(endpoint)
        self._failure_log = FailureLog(
            f"metrics.otlp: cannot send {name} to {where}",
            f"metrics.otlp: {name} are sent to {where} again; those of {{batches}} batch(es) are "
            "lost",
        )

    def send(self, data: Any, lost: int) -> None:
        """Export the data; data that cannot be sent is lost."""
        self._session.problem = None
        try:
            is_sent = self._exporter.export(data).name == "SUCCESS"
            problem = None if is_sent else "the exporter does not tell why"
        except Exception as error:  # each version of the library raises other errors
            problem = push.problem_of_error(error)
        self._failure_log.record_outcome(self._session.problem or problem, lost)


class _Session(requests.Session):
    """Sends the exporter's requests by ``push``, and keeps the last one's problem.

    A session of the library requests unpacks answers of any size, and its timeout starts again with
    each byte. The exporter reports only success or failure.
    """

    def __init__(self, response: Any, own_headers: ReadHeaders) -> None:
        super().__init__()
        self._own_headers = own_headers
        self.problem: str | None = None
        self._response = response
        self.headers.clear()  # such as Accept-Encoding: gzip

    def request(  # type: ignore[override]
        self, method: str, url: str, data: bytes = b"", **options: Any
    ) -> requests.Response:
        """Send a request without following redirects, which would pass its headers on to others.

        Raises requests.ConnectionError, after which exporters try again; requests.RequestException,
        after which they do not, if the receiver may have the whole request. Sums are deltas, which
        it would add twice.
        """
        self.problem = None
        headers = CaseInsensitiveDict({**self.headers, **(options.get("headers") or {})})
        try:
            headers.update(self._own_headers() or {})
            parts = urlsplit(url)
            headers.update(_user_info(parts))
            context = None
            if parts.scheme == "https":
                verify, cert = (options.get(name) for name in ("verify", "cert"))
                context = _context(verify or self.verify, cert or self.cert)
            request = Push(parts, method, dict(headers), data, _ENDPOINT)
            answer = push.send(request, context, options["timeout"])
        except (OSError, HTTPException) as error:
            self.problem = push.problem_of_error(error)
            may_have_arrived = isinstance(error, _AFTER_THE_REQUEST)
            kind = requests.RequestException if may_have_arrived else requests.ConnectionError
            raise kind(self.problem) from None
        except Exception as error:  # for example ConfigError for a proxy
            self.problem = push.problem_of_error(error)
            raise
        self.problem = push.problem_of_answer(answer) or self._partial_rejection(answer)
        return _exporters_response(answer)

    def _partial_rejection(self, answer: Response) -> str | None:
        """Return the receiver's message about the part that it has rejected."""
        if not answer.body or answer.content_type != _PROTOBUF:
            return None
        try:
            rejection = self._response.FromString(answer.body).partial_success
        except DecodeError:
            return f"HTTP {answer.status} with a body that is no answer of OTLP"
        refused = next((value for field, value in rejection.ListFields() if field.number == 1), 0)
        message = f"{refused} of them are refused: {redacted(rejection.error_message)}"
        return message if refused else None


def _user_info(url: SplitResult) -> dict[str, str]:
    """Return the header for user and password of a URL, which only a variable may have."""
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _context(verify: bool | str, cert: str | tuple[str, str] | None) -> ssl.SSLContext:
    """Return what an endpoint is trusted by: a file or folder, or the library's authorities."""
    path = verify if isinstance(verify, str) else requests.utils.DEFAULT_CA_BUNDLE_PATH
    own = (cert,) if isinstance(cert, str) else cert or ()
    return _read_context(path, own, tuple(_state(name) for name in (path, *own)))


def _state(name: str) -> FileState:
    try:
        return file_state(name)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file of certificates {name}") from None


@lru_cache(maxsize=4)
def _read_context(
    path: str, own: tuple[str, ...], _states: tuple[FileState, ...]
) -> ssl.SSLContext:
    is_folder = os.path.isdir(path)
    context = ssl.create_default_context(
        cafile=None if is_folder else path, capath=path if is_folder else None
    )
    if own:
        context.load_cert_chain(*own)
    return context


def _exporters_response(answer: Response) -> requests.Response:
    """Return what exporters look at; they may log the reason, and this process has its own log."""
    response = requests.Response()
    response.status_code = answer.status
    response.raw = BytesIO()
    if answer.retry_after_ms:
        response.headers["Retry-After"] = str(-(-answer.retry_after_ms // 1000))
    return response


def _filter_exporter_logs(record: logging.LogRecord) -> bool:
    """Drop the exporters' logs of the sending thread: the sink logs each failure once itself."""
    return current_thread().name != THREAD_NAME


def _filter_header_logs(_: logging.LogRecord) -> bool:
    """Replace the sending thread's logs of headers in variables, because they quote the header."""
    if current_thread().name != THREAD_NAME:
        return True
    warn(
        logger,
        "METRICS-005",
        f"a header in {_VARIABLES}HEADERS, or in the variable of a signal, has no effect: it is "
        "not as name=value. Parts are separated by commas, and values are encoded as in URLs",
    )
    return False


def _warn_ignored_variables() -> None:
    """Log a warning for each of OpenTelemetry's variables that has no effect."""
    if os.environ.get(_TEMPORALITY, "delta").lower() == "cumulative":
        warn(
            logger,
            "METRICS-005",
            f"{_TEMPORALITY}=cumulative has no effect: each batch's metrics are deltas, for the "
            "next batch may be committed by another process. A collector adds them up with its "
            "processor deltatocumulative",
        )
    for name in _PROTOCOLS:
        if os.environ.get(name, "http/protobuf") != "http/protobuf":
            warn(
                logger,
                "METRICS-005",
                f"{name}={os.environ[name]} has no effect: metrics.otlp.* sends http/protobuf, to "
                "the collector's port 4318 by default",
            )
