"""What is watched during a week: processes, files and producer ids; lines of logs and of metrics.

Lines get the time of this process, because the clocks of those that write them may jump.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from spark_kafka_sink.metrics.reading import LineTail
from spark_kafka_sink.tools.report_advice import line_findings
from tests.clusters.standalone import children_of, name_of

SAMPLE_EVERY_S = 10.0
IDS_EVERY = 18  # samples: a tool of Kafka takes seconds of CPU
_MIB = 1 << 20
_CODE = re.compile(r"\[PKS-([A-Z]+-\d{3})\]")


class Alarm(NamedTuple):
    """A warning or an error. where: log, failure (a write that ended) or page (a finding).

    code: as ``TXN-027``, a finding's kind, or empty; workload: if it is known
    """

    at: float
    where: str
    code: str
    text: str
    workload: str = ""


class TextTail:
    """The new whole lines of files that grow."""

    def __init__(self):
        self._ends: dict[Path, int] = {}

    def read(self, paths):
        for path in paths:
            try:
                with path.open("rb") as file:
                    file.seek(self._ends.get(path, 0))
                    new = file.read()
            except FileNotFoundError:
                continue
            whole = new[: new.rfind(b"\n") + 1]
            self._ends[path] = self._ends.get(path, 0) + len(whole)
            yield from whole.decode(errors="replace").splitlines()


class Watch:
    """Looks every ten seconds, from ``start`` to ``stop``.

    samples: a dictionary for each process, with ``role`` and ``pid``; counts: of files and
    producer ids; alarms; lines: commits and aborts by workload
    """

    def __init__(self, world):
        self._world = world
        self.samples: list[dict[str, Any]] = []
        self.counts: list[dict[str, Any]] = []
        self.alarms: list[Alarm] = []
        self.lines = 0
        self.scrapes = {"asked": 0, "answered": 0}
        self.same_rack = {"bytes": 0, "of": 0}
        self._logs, self._failures = TextTail(), TextTail()
        self._metrics = LineTail(str(world.metrics), from_end=False)
        self._ended = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: Exception | None = None

    def start(self):
        self._thread.start()

    def stop(self):
        """Look for the last time. Raises what has ended the watching."""
        self._ended.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        self._read_texts()

    def _run(self):
        try:
            number = 0
            while not self._ended.is_set():
                self._read_texts()
                self._sample_processes()
                self._count(number)
                number += 1
                self._ended.wait(SAMPLE_EVERY_S)
        except Exception as error:
            self.error = error

    # --- texts ---------------------------------------------------------------------------------

    def _read_texts(self):
        now, world = time.time(), self._world
        logs = [world.driver.log, *world.spark.folder.glob("work-*/*/*/stderr")]
        for line in self._logs.read(logs):
            if line.startswith("{"):
                self._add_log_line(now, line)
        for line in self._failures.read([world.driver.folder / "failures.jsonl"]):
            failure = json.loads(line)
            text = failure["error"]
            code = _CODE.search(text)
            found = code[1] if code else ""
            self.alarms.append(Alarm(now, "failure", found, text, failure["workload"]))
        for line in self._metrics.read():
            self._add_metrics_line(now, line)

    def _add_log_line(self, now, text):
        try:
            line = json.loads(text)
        except ValueError:
            return
        if line.get("level") in ("WARNING", "ERROR", "CRITICAL"):
            message = str(line.get("message", line.get("metrics")))
            code = _CODE.search(message)
            self.alarms.append(Alarm(now, "log", code[1] if code else "", message))

    def _add_metrics_line(self, now, line):
        self.lines += 1
        workload = self._workload_of(line)
        for finding in line_findings(line):
            self.alarms.append(Alarm(now, "page", finding.kind, finding.text, workload))
        if workload == "racks":
            self.same_rack["bytes"] += line["metrics"].get("same_rack_bytes", 0)
            self.same_rack["of"] += line["metrics"].get("compressed_bytes", 0)

    def _workload_of(self, line):
        """By its topics: batches and functions have no name of a query."""
        for workload in self._world.workloads:
            if set(line.get("topics") or ()) & set(workload.topics):
                return workload.name
        return ""

    # --- figures -------------------------------------------------------------------------------

    def _sample_processes(self):
        minute = (time.monotonic() - self._began) / 60
        for role, process in self._processes():
            try:
                with process.oneshot():
                    sample = {
                        "role": role,
                        "pid": process.pid,
                        "minute": round(minute, 3),
                        "age": round((time.time() - process.create_time()) / 60, 3),
                        "mib": round(process.memory_info().rss / _MIB, 2),
                        "threads": process.num_threads(),
                    }
                links = [p.readlink() for p in Path(f"/proc/{process.pid}/fd").iterdir()]
            except (psutil.Error, FileNotFoundError, PermissionError):
                continue  # it has just ended
            sample["descriptors"] = len(links)
            sample["sockets"] = sum(str(link).startswith("socket:") for link in links)
            self.samples.append(sample)

    def _processes(self):
        driver = self._world.driver.process
        if driver is not None and driver.poll() is None:
            parent = psutil.Process(driver.pid)
            yield "driver, Python", parent
            for child in children_of(parent):
                role = "driver, JVM" if name_of(child) == "java" else "driver, Python below the JVM"
                yield role, child
        for executor in self._executors():
            yield "executor, JVM", executor.process
            for worker in _workers(executor):
                yield "executor, Python worker", worker

    def _executors(self):
        try:
            return self._world.spark.executors()
        except (psutil.Error, RuntimeError):
            return []  # a worker of Spark is killed, or started, at this moment

    def _count(self, number):
        minute = round((time.monotonic() - self._began) / 60, 3)
        files = sum(len(names) for _, _, names in os.walk(self._world.small_disk))
        count = {"minute": minute, "files": files}
        if self._world.prometheus is not None:
            self.scrapes["asked"] += 1
            up = self._world.prometheus.ask("up")
            self.scrapes["answered"] += bool(up) and up[0]["value"][1] == "1"
        topic = next((t for t in ("week-avro", "week-writer") if t in self._world.topics), None)
        if topic is not None and number % IDS_EVERY == IDS_EVERY - 1:
            count["producer_ids"] = self._producer_ids(topic)
        self.counts.append(count)

    def _producer_ids(self, topic):
        """How many ids a broker remembers for one partition; None while the tool fails."""
        place = ("--topic", topic, "--partition", "0")
        try:
            shown = self._world.run_tool("TransactionsCommand", "describe-producers", *place)
        except Exception:
            return None
        return len([line for line in shown.splitlines() if line[:1].isdigit()])


def _workers(executor):
    try:
        return executor.python_workers()
    except psutil.Error:
        return []
