"""OpenLineage events of a query or job, made of the lines of its batches.

A run is one run of a streaming query, or one write of a batch job. Spark may commit each
micro-batch in another process, so a file per run of a query holds what its next event says: its
name is made of Spark's run id, which all micro-batches have. The file ends with the run.

Kafka's datasets are named as OpenLineage's Spark integration names them, so that both meet: the
namespace is the first address of kafka.bootstrap.servers, the name is the topic. Types of columns
have the names that this integration gives them. Events hold names and counts, no data, no error
text and nothing of the options but addresses and names.

The client, the Python package openlineage-python, has its own configuration. It is imported by the
process that sends (``spark/lineage.py``) and nowhere else.

Source: OpenLineage's specification 2-0-2; ``KafkaBootstrapServerResolver`` and ``PlanUtils`` of
its Spark integration.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID, uuid4, uuid5

from spark_kafka_sink import __version__
from spark_kafka_sink.base.machine import read_owned_file, write_private
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.metrics.line import Line, was_stopped

# --- events --------------------------------------------------------------------------------------

Event = dict[str, Any]

START, RUNNING, COMPLETE, FAIL, ABORT = "START", "RUNNING", "COMPLETE", "FAIL", "ABORT"
RUNNING_INTERVAL_MS = 60_000
"""A query sends RUNNING at most once in this time."""
MOST_TOPICS = 100
"""Topics of one run that its events name."""

_PARENT = ("parentRunId", "parentJobNamespace", "parentJobName")
_ROOT = ("rootParentRunId", "rootParentJobNamespace", "rootParentJobName")
_PREFIX = "spark.openlineage."
RUN_ID_PROPERTY = "spark.jobGroup.id"
"""Spark names the job group of a query's micro-batches after the run of the query."""
PARENT_PROPERTIES = tuple(_PREFIX + name for name in (*_PARENT, *_ROOT))
"""Spark's properties that name the run which has started this program, and the first of all."""

_PRODUCER = f"pkg:pypi/pykafka-sink@{__version__}"
_NAMESPACE_VARIABLE = "OPENLINEAGE_NAMESPACE"


def _facet(version: str, name: str, **values: Any) -> dict[str, Any]:
    url = f"https://openlineage.io/spec/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": _PRODUCER, "_schemaURL": url, **values}


def _as_uuid(text: str | None) -> UUID | None:
    with suppress(ValueError):
        return None if text is None else UUID(text)
    return None


def _parent(properties: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the facet of the parent run; None unless its id and its job's names are all set."""

    def of(names: Sequence[str]) -> dict[str, Any] | None:
        run_id, namespace, name = (properties.get(_PREFIX + one) for one in names)
        found = _as_uuid(run_id)
        if found is None or namespace is None or name is None:
            return None
        return {"run": {"runId": str(found)}, "job": {"namespace": namespace, "name": name}}

    parent, root = of(_PARENT), of(_ROOT)
    if parent is None:
        return None
    return _facet("1-2-0", "ParentRunFacet", **parent, **({} if root is None else {"root": root}))


@dataclass
class Run:
    """A run, as its events describe it.

    servers: the first bootstrap address, as ``host:port``; topic: None if a column names topics
    fields: the written columns, as the facet of the schema has them
    query_id, checkpoint, owner: what a later process knows a query by; owner: of all processes of
        one driver that commit
    run_id, parent: set by ``OpenRuns.take``
    written: acknowledged records and bytes, by topic, of all committed batches
    time_ms, sent_at_ms: of the last batch, and of the last RUNNING; since 1970
    """

    job: dict[str, Any]
    servers: str
    topic: str | None
    dead_letter_topic: str | None
    fields: list[dict[str, Any]]
    query_id: str | None
    checkpoint: str | None
    owner: str | None
    run_id: str = ""
    parent: dict[str, Any] | None = None
    written: dict[str, list[int]] = field(default_factory=dict)
    time_ms: int = 0
    sent_at_ms: int = 0

    def add(self, topics: Mapping[str, Mapping[str, int]]) -> None:
        """Add the records and bytes of a committed batch."""
        for topic, figures in topics.items():
            if topic in self.written or len(self.written) < MOST_TOPICS:
                counts = self.written.setdefault(topic, [0, 0])
                counts[0] += figures["records"]
                counts[1] += figures["compressed_bytes"]

    def event(self, kind: str, time_ms: int) -> Event:
        """Return an event; all but START have the counts until now."""
        time = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
        named = (self.topic, self.dead_letter_topic)
        topics = dict.fromkeys([*(topic for topic in named if topic is not None), *self.written])
        return {
            "eventType": kind,
            "eventTime": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "producer": _PRODUCER,
            "run": {
                "runId": self.run_id,
                "facets": {} if self.parent is None else {"parent": self.parent},
            },
            "job": self.job,
            "outputs": [self._output(topic, kind) for topic in list(topics)[:MOST_TOPICS]],
        }

    def _output(self, topic: str, kind: str) -> dict[str, Any]:
        output: dict[str, Any] = {"namespace": f"kafka://{self.servers}", "name": topic}
        if topic != self.dead_letter_topic and self.fields:
            facet = _facet("1-2-0", "SchemaDatasetFacet", fields=self.fields)
            output["facets"] = {"schema": facet}
        if kind != START:
            name = "OutputStatisticsOutputDatasetFacet"
            rows, size = self.written.get(topic, (0, 0))
            facet = _facet("1-0-2", name, rowCount=rows, size=size)
            output["outputFacets"] = {"outputStatistics": facet}
        return output


def job_of(line: Line) -> dict[str, Any]:
    """Return the job of a line. Its name is known in each process, even if all tasks failed."""
    name = line.get("query_name") or line.get("topic") or "topics"
    kind = "STREAMING" if "batch_id" in line else "BATCH"
    facet = _facet("2-0-4", "JobTypeJobFacet", processingType=kind, integration="SPARK")
    return {
        "namespace": os.environ.get(_NAMESPACE_VARIABLE) or "default",
        "name": f"{line['client_id']}.{name}",
        "facets": {"jobType": facet},
    }


def events_of(run: Run, line: Line, is_new: bool, is_query: bool) -> Iterator[Event]:
    """Add a batch to its run, and yield the events that are due."""
    now_ms = run.time_ms = line["time_ms"]
    is_commit = line["event"] == "commit"
    if is_commit and "replay" not in line:
        run.add(line.get("topics", {}))
    if is_new:
        planned_at_ms: int | None = line.get("planning_started_at_ms")
        yield run.event(START, now_ms if planned_at_ms is None else planned_at_ms)
    if not is_commit:
        yield run.event(ABORT if was_stopped(line) else FAIL, now_ms)
    elif not is_query:
        yield run.event(COMPLETE, now_ms)
    elif not 0 <= now_ms - run.sent_at_ms < RUNNING_INTERVAL_MS:
        run.sent_at_ms = now_ms
        yield run.event(RUNNING, now_ms)


# --- runs that are open --------------------------------------------------------------------------

_MAX_AGE_MS = 7 * 24 * 3600 * 1000
"""A query without a batch for so long begins another run here."""


class OpenRuns:
    """The open runs of queries: a file of this user's for each, in a private folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(
        self, run: Run, line: Line, origin: Mapping[str, str]
    ) -> tuple[Path | None, list[Event]]:
        """Add a batch to its run; return the file of a query's run, and the events that are due.

        run: a new one, used if there is none; the function completes it
        origin: ``RUN_ID_PROPERTY`` and ``PARENT_PROPERTIES``, as far as they are known

        Raises OSError.
        """
        spark_run_id = _as_uuid(origin.get(RUN_ID_PROPERTY))
        path = None
        if "batch_id" in line and spark_run_id is not None:
            run.run_id = str(uuid5(spark_run_id, f"{run.job['namespace']}/{run.job['name']}"))
            path = self._folder / f"{spark_run_id}.{run.run_id}.json"
        elif "batch_id" in line:  # all tasks have failed: it is the query that the options describe
            described = (run.job, run.checkpoint, run.owner)
            same = [p for p, r in self._all() if (r.job, r.checkpoint, r.owner) == described]
            path = same[0] if len(same) == 1 else None
        known = None if path is None else _load(path)
        events: list[Event] = []
        if known is None:
            run.run_id = run.run_id or str(uuid4())
            run.parent = _parent(origin)
            events += self._end_earlier(run, line["time_ms"])
        events += events_of(known or run, line, known is None, path is not None)
        if path is not None and line["event"] == "commit":
            write_private(path, json.dumps(asdict(known or run)))
        elif path is not None:
            path.unlink(missing_ok=True)
        return path, events

    def end(self, spark_run_id: str, kind: str, time_ms: int) -> Iterator[tuple[Path, Event]]:
        """Forget the open runs of a query's run; yield the file and the last event of each."""
        for path, run in self._all(spark_run_id):
            path.unlink(missing_ok=True)
            yield path, run.event(kind, time_ms)

    def _end_earlier(self, run: Run, now_ms: int) -> Iterator[Event]:
        """Abort earlier runs of the same query, whose end no process has seen; forget old files."""
        for path, other in self._all():
            is_same = run.query_id == other.query_id and run.job == other.job
            if is_same or now_ms - other.time_ms > _MAX_AGE_MS:
                path.unlink(missing_ok=True)
                log_of(path).unlink(missing_ok=True)
            if is_same:
                yield other.event(ABORT, other.time_ms)

    def _all(self, spark_run_id: str = "*") -> Iterator[tuple[Path, Run]]:
        for path in sorted(self._folder.glob(f"{spark_run_id}.*.json")):
            run = _load(path)
            if run is not None:
                yield path, run


def log_of(path: Path) -> Path:
    """Return the file beside a run's file that is for the processes that send its events."""
    return path.with_suffix(".log")


def _load(path: Path) -> Run | None:
    """Return the run of a file; None without one that this version can read."""
    try:
        return Run(**json.loads(read_owned_file(path)))
    except (OSError, ValueError, TypeError):
        return None


# --- sending -------------------------------------------------------------------------------------

_NOT_CONFIGURED = (
    "no backend is configured: set OPENLINEAGE_URL for the driver, or name a transport in "
    "openlineage.yml"
)


def send(events: Sequence[Event], timeout_s: float) -> str | None:
    """Send events by the client that the environment configures; return the problem, or None."""
    outcome = [f"no answer within {timeout_s:g} s"]

    def run() -> None:
        try:
            outcome[:] = [_send(events, timeout_s)]
        except Exception as error:
            outcome[:] = [redacted(f"{type(error).__name__}: {error}")]

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return outcome[0] or None


def _send(events: Sequence[Event], timeout_s: float) -> str:
    """Return the problem, or an empty text. Raises errors of the client and of its transport."""
    from openlineage.client import OpenLineageClient, event_v2

    log = logging.getLogger("openlineage")
    log.addHandler(logging.NullHandler())  # its warning about the console comes below
    client = OpenLineageClient()
    if client.transport.kind == "console":
        if not (client.config.transport or {}).get("type"):
            return _NOT_CONFIGURED
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.INFO)
    for event in events:
        client.emit(
            event_v2.RunEvent(
                eventType=event_v2.RunState[event["eventType"]],
                eventTime=event["eventTime"],
                producer=event["producer"],
                run=event_v2.Run(**event["run"]),
                job=event_v2.Job(**event["job"]),
                inputs=[],
                outputs=[event_v2.OutputDataset(**output) for output in event["outputs"]],
            )
        )
    client.close(timeout_s)
    return ""
