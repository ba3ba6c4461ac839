"""Serve Prometheus from the user's own process, in which queries are started.

The process that commits belongs to Spark and may be another for each batch, so Prometheus cannot
find it. Therefore the lines come through the file ``metrics.path``, which is read when Prometheus
asks. A StreamingQueryListener adds Spark's progress of the queries that write to this file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Lock
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
