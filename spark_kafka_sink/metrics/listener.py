"""Serves Prometheus from the user's own process, in which queries are started.

The process that commits is Spark's, and may be another one for each batch: nobody could find it.
So lines come through the file ``metrics.path``, read when Prometheus asks; what Spark says of its
queries comes through a StreamingQueryListener, and is told of those queries that write here.
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
from spark_kafka_sink.metrics.reading import FollowedLines

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


class JoinedMetrics:
    """Lines and Spark's progress, together. A collector of the library's registry."""

    def __init__(self, path: str) -> None:
        self._lines = FollowedLines(path, from_end=True)
        self._exposition = Exposition()
        self._lock = Lock()
        self._names: dict[str, str] = {}
        self._writing: dict[str, str] = {}
        self._ended: set[str] = set()
        self._progress: deque[Any] = deque(maxlen=_MOST_WAITING)

    def note_started(self, query_id: str, name: str | None) -> None:
        """A query was started."""
        with self._lock:
            self._ended.discard(query_id)
            if name:
                self._names[query_id] = name

    def note_ended(self, query_id: str) -> None:
        """A query has ended."""
        with self._lock:
            self._ended.add(query_id)

    def note_progress(self, progress: Any) -> None:
        """Spark's StreamingQueryProgress of one micro-batch."""
        with self._lock:
            if progress.name:
                self._names[str(progress.id)] = progress.name
            self._progress.append(progress)

    def collect(self) -> Iterator[Family]:
        """All families, of now."""
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
        """Of queries that are known to write here; others may turn out to."""
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
    """What Spark tells of its queries. Names of methods are Spark's."""

    def __init__(self, joined: JoinedMetrics) -> None:
        super().__init__()
        self._joined = joined

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self._joined.note_started(str(event.id), event.name)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._joined.note_progress(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._joined.note_ended(str(event.id))


class Listening:
    """An HTTP server that answers Prometheus, until ``close``.

    port: where it listens
    """

    def __init__(self, spark: SparkSession, path: str, port: int, host: str) -> None:
        joined = JoinedMetrics(path)
        registry = CollectorRegistry()
        registry.register(joined)
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port
        self._spark = spark
        self._listener = _QueryListener(joined)
        spark.streams.addListener(self._listener)

    def close(self) -> None:
        """Stop listening, to Spark and to Prometheus."""
        self._spark.streams.removeListener(self._listener)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Listening:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
