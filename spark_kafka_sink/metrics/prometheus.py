"""Lines as metrics of Prometheus, under jmx_exporter's names of a Java producer's metrics.

Example: the attribute record-send-total of the MBean
``kafka.producer:type=producer-metrics,client-id=c``. Without rules, jmx_exporter names it
``kafka_producer_producer_metrics_record_send_total{client_id="c"}``. Metrics that Java does not
have are named ``pykafka_sink_…``. The library prometheus_client formats the text.

A push gateway receives the metrics of jobs that end before Prometheus scrapes them.

:func:`listen` serves Prometheus from the user's own process, in which queries are started. The
process that commits belongs to Spark and may be another for each batch, so Prometheus cannot find
it. Therefore the lines come through the file ``metrics.path``, which is read when Prometheus asks.
A StreamingQueryListener adds Spark's progress of the queries that write to this file.
"""

from __future__ import annotations

import ssl
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from threading import Lock
from typing import TYPE_CHECKING, Any, Union
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, push_to_gateway, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_kafka_sink.base.kafka_metrics import Values, count_up_to
from spark_kafka_sink.base.text import redacted_url
from spark_kafka_sink.metrics import push
from spark_kafka_sink.metrics.background import FailureLog
from spark_kafka_sink.metrics.line import Line
from spark_kafka_sink.metrics.names import OWN_METRICS, labels_of, measurements
from spark_kafka_sink.metrics.push import Push
from spark_kafka_sink.metrics.reading import LineTail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# --- exposition ----------------------------------------------------------------------------------

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]
"""One time series: one line of the text."""
Family = Union[CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily]

LATENCY = "pykafka_sink_request_latency_seconds"
_LATENCY_DOC = "Produce requests by how long they took until the answer"
_DOUBLINGS = range(0, 18)
_INFINITY = "+Inf"
_DOMAIN = "kafka_producer"


class Exposition:
    """Sums of all lines: a collector of the library's registry."""

    def __init__(self) -> None:
        self._totals: dict[Series, float] = defaultdict(float)
        self._gauges: dict[Series, float] = {}
        self._docs: dict[str, str] = {}
        self._histograms: dict[Labels, Counter[str]] = defaultdict(Counter)
        self._latency_sums: dict[Labels, float] = defaultdict(float)

    def add(self, line: Values, query: str = "") -> None:
        """Add one batch. ``query``: name of its query; by default the name in the line."""
        labels = labels_of(line, query)
        for own in OWN_METRICS:
            note = self.add_total if own.is_total else self.set_gauge
            for more, value in own.values(line):
                note(own.name, own.doc, {**labels, **more}, value)
        for one in measurements(line):
            note = self.add_total if one.metric.is_total else self.set_gauge
            name = prometheus_name(one.group, one.metric.name)
            note(name, one.doc, {**labels, **one.labels}, one.value)
        self._add_latencies(line, labels)

    def _add_latencies(self, line: Values, labels: Mapping[str, str]) -> None:
        histogram = line.get("request_latency", {}).get("histogram")
        if histogram is None:
            return
        counts = {int(index): count for index, count in histogram["counts"].items()}
        key = _key(labels)
        for doublings in _DOUBLINGS:
            bound = str(2**doublings / 1000)
            self._histograms[key][bound] += count_up_to(counts, doublings)
        self._histograms[key][_INFINITY] += sum(counts.values())
        self._latency_sums[key] += line["metrics"]["request_latency_ms"] / 1000

    def set_gauge(self, name: str, doc: str, labels: Mapping[str, str], value: float) -> None:
        """Set a gauge."""
        self._docs[name] = doc
        self._gauges[name, _key(labels)] = value

    def add_total(self, name: str, doc: str, labels: Mapping[str, str], value: float) -> None:
        """Add to a total."""
        self._docs[name] = doc
        self._totals[name, _key(labels)] += value

    def collect(self) -> Iterator[Family]:
        """Yield all metric families, for the registry."""
        yield from self._families(self._totals, CounterMetricFamily)
        yield from self._families(self._gauges, GaugeMetricFamily)
        if self._histograms:
            yield self._latency_family()

    def _latency_family(self) -> HistogramMetricFamily:
        """Return one family for all label sets: Prometheus rejects two families of one name."""
        names_of_labels = [name for name, _ in next(iter(self._histograms))]
        family = HistogramMetricFamily(LATENCY, _LATENCY_DOC, labels=names_of_labels)
        for key, buckets in self._histograms.items():
            counts = [*buckets.items()]
            family.add_metric([value for _, value in key], counts, self._latency_sums[key])
        return family

    def _families(self, series: Mapping[Series, float], kind: Any) -> Iterator[Family]:
        by_name: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for (name, labels), value in series.items():
            by_name[name].append((labels, value))
        for name, samples in by_name.items():
            family = kind(name, self._docs[name], labels=[label for label, _ in samples[0][0]])
            for labels, value in samples:
                family.add_metric([text for _, text in labels], value)
            yield family


def prometheus_name(group: str, name: str) -> str:
    """Return jmx_exporter's name of an attribute of a Kafka MBean, without rules."""
    return f"{_DOMAIN}_{group}_{name}".replace("-", "_")


def _key(labels: Mapping[str, str]) -> Labels:
    """Return the same key for the same labels, whatever their order."""
    return tuple(sorted(labels.items()))


# --- push gateway --------------------------------------------------------------------------------


_PUSH_URL = "metrics.prometheus.push.url"


class PushGatewayExporter:
    """Pushes to one gateway, under one job. Totals count over the life of this process."""

    def __init__(self, url: str, job: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._url = url
        self._job = job
        self._exposition = Exposition()
        self._registry = CollectorRegistry()
        self._registry.register(self._exposition)
        where = redacted_url(url)
        self._failure_log = FailureLog(
            f"{_PUSH_URL}: cannot push to {where}", f"{_PUSH_URL}: {where} takes metrics again"
        )

    def send(self, line: Line, lost: int) -> None:
        """Add one batch, and replace the job's metrics at the gateway."""
        self._exposition.add(line)
        problem = None
        try:
            push_to_gateway(self._url, self._job, self._registry, handler=self._handler)
        except (OSError, HTTPException, ValueError) as error:
            problem = push.problem_of_error(error)
        self._failure_log.record_outcome(problem, lost)

    def _handler(
        self, url: str, method: str, timeout: float | None, headers: Any, data: bytes
    ) -> Callable[[], None]:
        """Return a function that sends the library's request."""

        def send() -> None:
            parts = urlsplit(url)
            context = ssl.create_default_context() if parts.scheme == "https" else None
            request = Push(parts, method, dict(headers), data, _PUSH_URL)
            problem = push.problem_of_answer(push.send(request, context, self._timeout_s))
            if problem is not None:
                raise OSError(problem)

        return send


# --- the listener in the user's process ----------------------------------------------------------

_MOST_WAITING = 1000
ROWS = "pykafka_sink_query_input_rows_total"
INPUT_RATE = "pykafka_sink_query_input_rows_per_second"
PROCESSED_RATE = "pykafka_sink_query_processed_rows_per_second"
PHASES = "pykafka_sink_query_phase_seconds_total"
ACTIVE = "pykafka_sink_query_active"
_DOCS = {
    ROWS: "numInputRows of Spark's progress",
    INPUT_RATE: "inputRowsPerSecond of Spark's last progress",
    PROCESSED_RATE: "processedRowsPerSecond of Spark's last progress",
    PHASES: "durationMs of Spark's progress, by phase; triggerExecution has all others in it",
    ACTIVE: "1 while the query runs, 0 when it has ended",
}


class QueryMetricsCollector(StreamingQueryListener):
    """Lines and Spark's progress, joined: a collector of the library's registry.

    Spark gives the methods' names.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._lines = LineTail(path, from_end=True)
        self._exposition = Exposition()
        self._lock = Lock()
        self._names: dict[str, str] = {}
        self._writing: dict[str, str] = {}
        self._ended: set[str] = set()
        self._progress: deque[Any] = deque(maxlen=_MOST_WAITING)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Record that a query has started."""
        with self._lock:
            self._ended.discard(str(event.id))
            if event.name:
                self._names[str(event.id)] = event.name

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Record Spark's progress of one micro-batch."""
        progress = event.progress
        with self._lock:
            if progress.name:
                self._names[str(progress.id)] = progress.name
            self._progress.append(progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Ignore it: nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Record that a query has ended."""
        with self._lock:
            self._ended.add(str(event.id))

    def collect(self) -> Iterator[Family]:
        """Yield all metric families as of now."""
        with self._lock:
            for line in self._lines.read():
                query_id = line.get("query_id")
                name = self._names.get(query_id, "") if query_id else ""
                self._exposition.add(line, name)
                if query_id:
                    self._writing[query_id] = name or str(line.get("query_name") or query_id)
            self._take_progress()
            for query_id, query in self._writing.items():
                is_active = float(query_id not in self._ended)
                self._exposition.set_gauge(ACTIVE, _DOCS[ACTIVE], {"query": query}, is_active)
            families = list(self._exposition.collect())
        yield from families

    def _take_progress(self) -> None:
        """Take the progress of queries that write here; keep the rest until a line names them."""
        waiting: list[Any] = []
        for progress in self._progress:
            query = self._writing.get(str(progress.id))
            if query is None:
                waiting.append(progress)
            else:
                self._add(progress, {"query": query})
        self._progress = deque(waiting, maxlen=_MOST_WAITING)

    def _add(self, progress: Any, labels: dict[str, str]) -> None:
        total, gauge = self._exposition.add_total, self._exposition.set_gauge
        total(ROWS, _DOCS[ROWS], labels, progress.numInputRows)
        gauge(INPUT_RATE, _DOCS[INPUT_RATE], labels, progress.inputRowsPerSecond)
        gauge(PROCESSED_RATE, _DOCS[PROCESSED_RATE], labels, progress.processedRowsPerSecond)
        for phase, duration_ms in progress.durationMs.items():
            total(PHASES, _DOCS[PHASES], {**labels, "phase": phase}, duration_ms / 1000)


class MetricsServer:
    """An HTTP server that answers Prometheus until ``close``.

    port: the TCP port that the server listens on
    """

    def __init__(self, spark: SparkSession, path: str, port: int, host: str) -> None:
        self._collector = QueryMetricsCollector(path)
        registry = CollectorRegistry()
        registry.register(self._collector)
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port
        self._spark = spark
        spark.streams.addListener(self._collector)

    def close(self) -> None:
        """Stop the server, and stop listening to Spark."""
        self._spark.streams.removeListener(self._collector)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
