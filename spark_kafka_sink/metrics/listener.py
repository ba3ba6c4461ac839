"""Serve Prometheus from the user's own process, in which queries are started.

The process that commits belongs to Spark and may be another for each batch, so Prometheus cannot
find it. Therefore the lines come through the file ``metrics.path``, which is read when Prometheus
asks. A StreamingQueryListener adds Spark's progress of the queries that write to this file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_kafka_sink.metrics.prometheus import Exposition, Family
from spark_kafka_sink.metrics.reading import LineTail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


class QueryMetricsCollector:
    """Lines and Spark's progress, joined: a collector of the library's registry."""

    def __init__(self, path: str) -> None:
        self._lines = LineTail(path, from_end=True)
        self._exposition = Exposition()
        self._lock = Lock()
        self._names: dict[str, str] = {}
        self._writing: dict[str, str] = {}
        self._ended: set[str] = set()
        self._progress: deque[Any] = deque(maxlen=_MOST_WAITING)

    def note_started(self, query_id: str, name: str | None) -> None:
        """Record that a query has started."""
        with self._lock:
            self._ended.discard(query_id)
            if name:
                self._names[query_id] = name

    def note_ended(self, query_id: str) -> None:
        """Record that a query has ended."""
        with self._lock:
            self._ended.add(query_id)

    def note_progress(self, progress: Any) -> None:
        """Record Spark's StreamingQueryProgress of one micro-batch."""
        with self._lock:
            if progress.name:
                self._names[str(progress.id)] = progress.name
            self._progress.append(progress)

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
        exposition = self._exposition
        exposition.add_total(ROWS, _DOCS[ROWS], labels, progress.numInputRows)
        for name, rate in (
            (INPUT_RATE, progress.inputRowsPerSecond),
            (PROCESSED_RATE, progress.processedRowsPerSecond),
        ):
            exposition.set_gauge(name, _DOCS[name], labels, rate)
        for phase, duration_ms in progress.durationMs.items():
            of_phase = {**labels, "phase": phase}
            exposition.add_total(PHASES, _DOCS[PHASES], of_phase, duration_ms / 1000)


class _QueryListener(StreamingQueryListener):
    """Passes Spark's events of queries on. Spark gives the methods' names."""

    def __init__(self, joined: QueryMetricsCollector) -> None:
        super().__init__()
        self._joined = joined

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self._joined.note_started(str(event.id), event.name)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._joined.note_progress(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Ignore it: nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._joined.note_ended(str(event.id))


class MetricsServer:
    """An HTTP server that answers Prometheus until ``close``.

    port: the TCP port that the server listens on
    """

    def __init__(self, spark: SparkSession, path: str, port: int, host: str) -> None:
        joined = QueryMetricsCollector(path)
        registry = CollectorRegistry()
        registry.register(joined)
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port
        self._spark = spark
        self._listener = _QueryListener(joined)
        spark.streams.addListener(self._listener)

    def close(self) -> None:
        """Stop the server, and stop listening to Spark."""
        self._spark.streams.removeListener(self._listener)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
