"""What is watched during a week: processes, files and scrapes; lines of logs and of metrics.

Lines get the time of this process, because the clocks of those that write them may jump.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import psutil

from evidence.harness.standalone import children_of, name_of
from evidence.week.alarms import ELECTION, Alarm
from evidence.week.workloads import WORKLOADS
from spark_kafka_sink.metrics.line import batch_duration_ms
from spark_kafka_sink.metrics.reading import LineTail
from spark_kafka_sink.tools.report_advice import line_findings

SAMPLE_EVERY_S = 10.0
SCRAPED = "max_over_time(up[60s])"
"""Whether one of the latest scrapes was answered: many may be late on a busy machine."""
_MIB = 1 << 20
_CODE = re.compile(r"\[PKS-([A-Z]+-\d{3})\]")
_ELECTED = re.compile(r"\] Leader \S+ .*starts at leader epoch [1-9]")
"""A broker leads a partition that another one led, or itself before."""
_BACK = re.compile(r" is back, after (\d+) s")
KEPT_BY_SPARK = {
    "driver, Python": ("threads", "descriptors", "sockets"),
    "driver, JVM": ("descriptors", "sockets"),
}
"""What grows by one with each query that has ended, whatever the sink: docs/known-issues.md."""
_WARNINGS = ("WARNING", "ERROR", "CRITICAL")


class TextTail:
    """The new whole lines of files that grow. It keeps none open: executors leave hundreds of logs."""

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

    samples: a dictionary for each process, with ``role`` and ``pid``; counts: of files, with the
    fewest micro-batches that a stream has committed; alarms; lines: of metrics
    committed: rows and dead letters by workload, as lines about commits have them
    elections: looks in which brokers say that they lead other partitions, as events of a schedule
    errors: why a look was not complete
    """

    def __init__(self, world):
        self._world = world
        self.samples: list[dict[str, Any]] = []
        self.counts: list[dict[str, Any]] = []
        self.alarms: list[Alarm] = []
        self.elections: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.lines = 0
        self.committed: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.scrapes = {"asked": 0, "answered": 0}
        self.same_rack = {"bytes": 0, "of": 0}
        self._texts = TextTail()
        self._ended_queries = 0
        self._metrics = LineTail(str(world.metrics), from_end=False)
        self._ended = threading.Event()
        self._began = time.monotonic()
        self._since = self._now = time.time()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()

    def stop(self):
        """Look for the last time."""
        self._ended.set()
        self._thread.join()
        self._do(self._read_texts)

    def has_seen(self, is_it, since):
        """Whether such an alarm was raised after a moment."""
        return any(is_it(alarm) for alarm in list(self.alarms) if alarm.at >= since)

    def _run(self):
        while not self._ended.is_set():
            for step in (self._read_texts, self._sample_processes, self._count_files, self._scrape):
                self._do(step)
            self._ended.wait(SAMPLE_EVERY_S)

    def _do(self, step):
        """A week goes on without a look that fails, and is not good then."""
        try:
            step()
        except Exception as error:
            self.errors.append(f"{step.__name__}: {error!r}"[:500])

    @property
    def _minute(self):
        return round((time.monotonic() - self._began) / 60, 3)

    # --- texts ---------------------------------------------------------------------------------

    def _read_texts(self):
        self._since, self._now = self._now, time.time()
        world = self._world
        executors = world.spark.folder.glob("work-*/*/*/stderr")
        for line in self._texts.read([*world.spark.folder.glob("driver-*.log"), *executors]):
            self._add_log_line(line)
        for line in self._texts.read([world.driver.folder / "failures.jsonl"]):
            self._add_failure(json.loads(line))
        for line in self._metrics.read():
            self._add_metrics_line(line)
        brokers = [world.kafka.log_file(number) for number in world.proxies]
        self._add_elections(self._texts.read(brokers))

    def _add_failure(self, failure):
        self._ended_queries += WORKLOADS[failure["workload"]].kind != "batch"
        self._add("failure", failure["error"], failure["workload"])

    def _add_elections(self, lines):
        """Brokers move leaders after a fault, at any time later, and if a heartbeat is late."""
        elected = sum(_ELECTED.search(line) is not None for line in lines)
        if elected:
            lasted_s = round(self._now - self._since, 1)
            event = {"fault": ELECTION, "at": round(self._since, 1), "partitions": elected}
            self.elections.append({**event, "lasted_s": lasted_s, "recovered_s": 0.0})

    def _add(self, where, text, workload="", code=None, lasted_s=0.0):
        if code is None:
            found = _CODE.search(text)
            code = found[1] if found else ""
        # What a line tells may have happened when its batch began.
        since = self._since - lasted_s
        back = _BACK.search(text)
        if back:  # the alarm is about an outage, whose begin may be long ago
            since = min(since, self._now - int(back[1]) - SAMPLE_EVERY_S)
        self.alarms.append(Alarm(self._now, since, where, code, text, workload))

    def _add_log_line(self, text):
        try:
            line = json.loads(text) if text.startswith("{") else {}
        except ValueError:
            line = {}
        if line.get("level") in _WARNINGS:
            self._add("log", str(line.get("message", line.get("metrics"))))
        elif not line and _CODE.search(text):
            self._add("task", text)  # Spark's own line about an attempt that failed

    def _add_metrics_line(self, line):
        self.lines += 1
        workload = self._workload_of(line)
        for finding in line_findings(line):
            self._add("page", finding.text, workload, finding.kind, batch_duration_ms(line) / 1000)
        if line["event"] == "commit" and "replay" not in line:
            committed = self.committed[workload]
            committed["rows"] += line.get("records_acknowledged") or 0
            committed["dead_letters"] += sum((line.get("dead_letters") or {}).values())
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
        for role, process in self._processes():
            try:
                with process.oneshot():
                    sample = {
                        "role": role,
                        "pid": process.pid,
                        "minute": self._minute,
                        "age": round((time.time() - process.create_time()) / 60, 3),
                        "mib": round(process.memory_info().rss / _MIB, 2),
                        "threads": process.num_threads(),
                    }
                links = [p.readlink() for p in Path(f"/proc/{process.pid}/fd").iterdir()]
            except (psutil.Error, OSError):
                continue  # it has just ended
            sample["descriptors"] = len(links)
            sample["sockets"] = sum(str(link).startswith("socket:") for link in links)
            for figure in KEPT_BY_SPARK.get(role, ()):
                sample[figure] -= self._ended_queries
            self.samples.append(sample)

    def _processes(self):
        """Yield roles and processes; any of these may end at this moment."""
        if self._world.driver.is_running:
            try:
                parent = psutil.Process(self._world.driver.process.pid)
            except psutil.NoSuchProcess:
                return
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

    def _count_files(self):
        folders = (self._world.small_disk, self._world.python_files)
        files = sum(len(names) for folder in folders for _, _, names in os.walk(folder))
        committed = self._world.committed()
        streams = [w.name for w in self._world.workloads if w.kind != "batch"]
        batches = min((committed[name] for name in streams), default=-1)
        self.counts.append({"minute": self._minute, "files": files, "batches": batches})

    def _scrape(self):
        """Prometheus must have found figures at one of its latest attempts."""
        if self._world.prometheus is None or self._world.driver.is_finishing:
            return
        self.scrapes["asked"] += 1
        up = self._world.prometheus.ask(SCRAPED)
        if up and up[0]["value"][1] == "1":
            self.scrapes["answered"] += 1
        elif self.scrapes["answered"]:  # before, it may not have begun
            self._add("scrape", "no scrape of the latest minute was answered", code="unanswered")


def _workers(executor):
    try:
        return executor.python_workers()
    except psutil.Error:
        return []
