"""OpenLineage events of jobs and queries, made of the lines of their batches.

A run is a batch job, or one run of a query as far as it writes to one topic. A batch that fails is
a run of its own. Spark may commit each micro-batch in another process, so a file for each run of a
query has its counts and its last event. Events have names and counts, no data and no error's text.

A process of its own sends, which outlives the one that commits and cannot delay or fail a commit.
It leaves what went wrong in a file, and the driver's next commit logs that. It alone imports the
client, openlineage-python, which has its own configuration.

Source: OpenLineage's specification 2-0-2, and names of datasets of its integration for Spark.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from threading import Thread
from typing import Any
from uuid import UUID, uuid4, uuid5

from spark_kafka_sink import __version__
from spark_kafka_sink.base import machine
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import KafkaSinkError, sentence, warn
from spark_kafka_sink.base.model import format_address
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.config.sink_keys import LINEAGE_PROPERTIES
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics.line import Line, was_stopped

logger = logging.getLogger(__name__)

_CODE = "METRICS-012"
RUNNING_INTERVAL_MS = 60_000
MOST_TOPICS = 100
MOST_SENDING = 8  # processes of each process that commits
TIMEOUT_S = 60.0  # of a process that sends

_RUN_ID, *_PARENT = LINEAGE_PROPERTIES
_PRODUCER = f"pkg:pypi/pykafka-sink@{__version__}"

_Counts = dict[str, list[int]]  # acknowledged records and bytes by topic


def _facet(version: str, name: str, **values: Any) -> dict[str, Any]:
    url = f"https://openlineage.io/spec/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": _PRODUCER, "_schemaURL": url, **values}


def _as_uuid(text: str | None) -> UUID | None:
    try:
        return None if text is None else UUID(text)
    except ValueError:
        return None


def _parent(origin: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the facet of the parent run, by name; empty unless all its properties are set."""
    run_id, namespace, name = map(origin.get, _PARENT)
    if _as_uuid(run_id) is None or not namespace or not name:
        return {}
    job = {"namespace": namespace, "name": name}
    return {"parent": _facet("1-2-0", "ParentRunFacet", run={"runId": run_id}, job=job)}


def _job(line: Line) -> dict[str, Any]:
    parts = line["client_id"], line.get("query_name"), line.get("topic", "topics")
    kind = "STREAMING" if "batch_id" in line else "BATCH"
    facet = _facet("2-0-4", "JobTypeJobFacet", processingType=kind, integration="SPARK")
    namespace, facets = os.environ.get("OPENLINEAGE_NAMESPACE") or "default", {"jobType": facet}
    return {"namespace": namespace, "name": ".".join(filter(None, parts)), "facets": facets}


def _counts(options: SinkOptions, line: Line, before: _Counts) -> _Counts:
    """Return the counts with those of a batch. before: empty at first"""
    named = options.topic, getattr(options.dead_letters, "topic", None)
    counts = before or {topic: [0, 0] for topic in named if topic is not None}
    for topic, figures in ({} if "replay" in line else line.get("topics", {})).items():
        if topic in counts or len(counts) < MOST_TOPICS:
            records, size = counts.get(topic, (0, 0))
            counts[topic] = [records + figures["records"], size + figures["compressed_bytes"]]
    return counts


def _output(options: SinkOptions, topic: str, counts: list[int] | None) -> dict[str, Any]:
    server = format_address(*options.producer.bootstrap_servers[0])
    output: dict[str, Any] = {"namespace": f"kafka://{server}", "name": topic}
    if options.written_columns and topic != getattr(options.dead_letters, "topic", None):
        fields = [{"name": name, "type": kind} for name, kind in options.written_columns]
        output["facets"] = {"schema": _facet("1-2-0", "SchemaDatasetFacet", fields=fields)}
    if counts is not None:
        name, (rows, size) = "OutputStatisticsOutputDatasetFacet", counts
        facet = _facet("1-0-2", name, rowCount=rows, size=size)
        output["outputFacets"] = {"outputStatistics": facet}
    return output


def _at(kind: str, time_ms: int) -> dict[str, Any]:
    time = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    return {"eventType": kind, "eventTime": time.isoformat(timespec="milliseconds")}


def due_events(
    options: SinkOptions, line: Line, origin: Mapping[str, str | None], files: str
) -> list[dict[str, Any]]:
    """Add a batch to its run; return the events that are due. Raises OSError.

    origin: ``LINEAGE_PROPERTIES``, as far as they are known
    files: how paths of the driver's files begin
    """
    job, now_ms, is_commit = _job(line), line["time_ms"], line["event"] == "commit"
    spark_run = _as_uuid(origin.get(_RUN_ID)) if is_commit and "batch_id" in line else None
    if is_commit and "batch_id" in line and spark_run is None:
        return []  # no partition, or a job group of the user's
    where = f"{options.producer.bootstrap_servers[0]} {job['name']}"
    run_id = uuid4() if spark_run is None else uuid5(spark_run, where)
    run = {"runId": str(run_id), "facets": _parent(origin)}
    common = {"producer": _PRODUCER, "run": run, "job": job}

    def event(kind: str, time_ms: int, counts: _Counts | None) -> dict[str, Any]:
        found = dict.fromkeys(_counts(options, line, {})) if counts is None else counts
        outputs = [_output(options, topic, count) for topic, count in found.items()]
        return {**common, **_at(kind, time_ms), "outputs": outputs}

    begun_ms: Any = line.get("planning_started_at_ms", now_ms)
    if spark_run is None:
        kind = "COMPLETE" if is_commit else "ABORT" if was_stopped(line) else "FAIL"
        counts = _counts(options, line, {}) if is_commit else None
        return [event("START", begun_ms, None), event(kind, now_ms, counts)]
    path = Path(f"{files}.{spark_run}.{run_id}.json")
    try:
        kept, events = json.loads(machine.read_owned_file(path)), []
    except FileNotFoundError:
        kept, events = {"counts": {}, "sent_at_ms": 0}, [event("START", begun_ms, None)]
    kept["counts"] = _counts(options, line, kept["counts"])
    kept["event"] = running = event("RUNNING", now_ms, kept["counts"])
    if not 0 <= now_ms - kept["sent_at_ms"] < RUNNING_INTERVAL_MS:
        kept["sent_at_ms"] = now_ms
        events.append(running)
    machine.write_private(path, json.dumps(kept))
    return events


# --- in the process that commits, and in the user's -----------------------------------------------


def report_lineage(options: SinkOptions, line: Line, origin: str | None, driver_id: int) -> None:
    """Have the events sent that are due after a batch. Raises nothing: its records are in Kafka.

    origin: as JSON, if it is known; driver_id: of a process that ends with the driver, the same in
    all that commit
    """
    with _harmless():
        files = _files_of(driver_id)
        problem = Path(f"{files}.problem")
        text = machine.read_owned_file(problem).decode() if problem.exists() else ""
        if text:
            machine.write_private(problem, "")  # it stays, and no other is logged
            _warn(text)
        _send(due_events(options, line, json.loads(origin or "{}"), files), problem)


def end_runs(spark_run: str, kind: str) -> None:
    """Send the last events of a run of a query. Raises nothing."""
    with _harmless():
        files, events = _files_of(os.getpid()), []
        for path in Path(files).parent.glob(f"*.{spark_run}.*.json"):
            last = json.loads(machine.read_owned_file(path))["event"]
            path.unlink()
            events.append({**last, **_at(kind, SystemClock().timestamp_ms())})
        _send(events, Path(f"{files}.problem"))


@contextmanager
def _harmless() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _folder_in.cache_clear()  # it may have been removed
        logger.debug("lineage", exc_info=True)
        _warn(reason_of(error))


@cache  # once in this process
def _warn(problem: str) -> None:
    text = f"lineage events are not sent: {problem}. Batches go on, and these events are lost"
    warn(logger, _CODE, text)


def _files_of(driver_id: int) -> str:
    return f"{_folder_in(gettempdir())}/{machine.process_identity(driver_id) or driver_id}"


@cache  # because a search among many temporary files takes long
def _folder_in(_: str) -> Path:
    """Return this user's folder, without the files of drivers that have ended."""
    folder = machine.private_folder("lineage")
    for path in folder.iterdir():
        driver = path.name.partition(".")[0]
        number = driver.partition("-")[0]
        if not number.isdigit() or machine.process_identity(int(number)) != driver:
            path.unlink(missing_ok=True)
    return folder


_sending: list[subprocess.Popen[bytes]] = []


def _send(events: Sequence[dict[str, Any]], problem: Path) -> None:
    """Start a process that sends, and leaves a problem in that file. Raises OSError."""
    ended = [process.poll() for process in _sending]
    _sending[:] = [process for process, code in zip(_sending, ended) if code is None]
    if any(ended):  # before it could leave a problem
        _warn("a process that was to send them has failed")
    if not events:
        return
    if len(_sending) >= MOST_SENDING:
        text = f"{MOST_SENDING} processes are still sending earlier ones"
        raise KafkaSinkError(text, code=_CODE)
    with TemporaryFile() as file:
        file.write(json.dumps(events).encode())
        file.seek(0)
        # It must not hold a caller's pipe.
        streams = {"stdin": file, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = machine.start_process(__name__, str(problem), str(TIMEOUT_S), **streams)
    _sending.append(process)


# --- in the process that sends -------------------------------------------------------------------


def main() -> None:
    """Send the events of standard input; leave a problem in a file.

    The arguments are the file and the limit in s.
    """
    path, timeout_s = Path(sys.argv[1]), float(sys.argv[2])
    problems = [f"no answer within {timeout_s:g} s"]
    thread = Thread(target=_emit, args=(problems,), daemon=True)
    thread.start()
    thread.join(timeout_s)
    try:
        if problems and not path.exists():
            machine.write_private(path, problems[0])
    finally:
        os._exit(0)  # the client's threads may hang


def _emit(problems: list[str]) -> None:
    """Send by the client that the environment configures; set the problem."""
    try:
        from openlineage.client import OpenLineageClient
        from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState

        client = OpenLineageClient()
        if client.transport.kind == "console":
            text = "set OPENLINEAGE_URL or a transport that is not the console"
            raise KafkaSinkError(text, code=_CODE)
        for event in json.load(sys.stdin):
            event["eventType"] = RunState[event["eventType"]]
            event["run"], event["job"] = Run(**event["run"]), Job(**event["job"])
            event["outputs"] = [OutputDataset(**output) for output in event["outputs"]]
            client.emit(RunEvent(**event))
        client.close()
        problems.clear()
    except Exception as error:
        problems[:] = [reason_of(error)]


def reason_of(error: BaseException) -> str:
    """Return the classes of an error and its first cause, HTTP's status, and the system's words.

    Other texts of the client and of its transport may quote keys and passwords.
    """
    if isinstance(error, KafkaSinkError):
        return redacted(sentence(error))
    cause, status = error, getattr(getattr(error, "response", None), "status_code", "")
    for _ in range(9):
        cause = cause.__cause__ or cause.__context__ or cause
    second = None if cause is error else type(cause).__name__
    words = cause.strerror if isinstance(cause, OSError) else None
    found = f"{type(error).__name__} {status}".rstrip(), second, words
    return redacted(": ".join(filter(None, found)))
