"""Spark drivers as processes of their own: started, watched, led into traps, killed, started again."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from evidence.harness.crash import COMMIT_STARTS, DRIVER, FOLDER, kill_driver
from evidence.harness.query import BEGUN, Settings
from spark_kafka_sink.transactions.crash_points import POINTS, VARIABLE
from tests.patience import PATIENCE_S, eventually

_REPOSITORY = Path(__file__).resolve().parents[2]


class Traps:
    """The traps in a folder, as the one who sets them sees them."""

    def __init__(self, folder):
        self._folder = folder
        self._count = 0

    @property
    def environment(self):
        """For the Spark driver."""
        path = os.pathsep.join((str(_REPOSITORY / "evidence/harness/held"), str(_REPOSITORY)))
        return {
            VARIABLE: "evidence.harness.crash:hook",
            FOLDER: str(self._folder),
            "PYTHONPATH": path,
        }

    def set(self, trap):
        """Set a trap; its name."""
        assert trap.point in (*POINTS, COMMIT_STARTS), trap.point
        self._count += 1
        name = f"{self._count:04}"
        hidden = self._folder / f".{name}"
        hidden.write_text(json.dumps(trap._asdict()), encoding="utf-8")
        hidden.rename(self._folder / f"{name}.trap")
        return name

    def sprung(self, name):
        """Which process reached the trap first, and when; None if nobody has."""
        path = self._folder / f"{name}.sprung"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def release(self, name):
        """Let a process that is held go on."""
        (self._folder / f"{name}.released").touch()

    def clear(self):
        """Take away every trap that nobody has reached."""
        for path in self._folder.glob("*.trap"):
            path.unlink(missing_ok=True)


IN_ONE_JVM = "local[2,2]"
"""A master with two task slots, that tries a task twice."""


class SparkDriver:
    """The same query in one Spark driver after the other. ``folder`` must not hold another one.

    options, conf: of the sink, of Spark; what is changed in them holds from the next start on.
    """

    def __init__(self, folder, options, rows_per_batch, records, checkpoint, **conf):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.traps = Traps(folder)
        self.metrics = folder / "metrics.jsonl"
        self.log = folder / "driver.log"
        self.options = {"metrics.log": "false", "metrics.path": str(self.metrics), **options}
        self.conf = {"spark.master": IN_ONE_JVM, **conf}
        self._stop = folder / "stop"
        self._settings = Settings(
            self.options,
            self.conf,
            str(checkpoint),
            rows_per_batch,
            records,
            str(self._stop),
        )
        self._process = None
        self.starts = 0
        self._events = []
        self._events_end = 0
        self._committed = -1
        self._lock = threading.Lock()

    # --- life ----------------------------------------------------------------------------------

    def start(self):
        """Returns at once; the one before it must be dead."""
        assert not self.is_running
        self._stop.unlink(missing_ok=True)
        self._stop.with_suffix(BEGUN).unlink(missing_ok=True)
        (self.folder / DRIVER).unlink(missing_ok=True)
        path = self.folder / "query.json"
        settings = self._settings._replace(conf=self.conf)
        path.write_text(json.dumps(settings._asdict()), encoding="utf-8")
        environment = {
            **os.environ,
            **self.traps.environment,
            "PYSPARK_PYTHON": sys.executable,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evidence.harness.query", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=_REPOSITORY,
                start_new_session=True,
            )
        self.starts += 1

    @property
    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout_s=PATIENCE_S):
        """Wait for its end; the exit status, negative for a signal."""
        return self._process.wait(timeout_s)

    def kill(self):
        """SIGKILL for Python and JVM, at no particular point."""
        if not kill_driver(self.folder) and self._process is not None:
            self._process.kill()  # it has no working JVM yet
        self.wait()

    def begin_stop(self):
        """Let the query end; returns when Spark has begun to stop it."""
        self._stop.touch()
        begun = self._stop.with_suffix(BEGUN)
        assert eventually(lambda: begun.exists() or not self.is_running, PATIENCE_S), self.tail()

    def stop(self):
        """Let the query end; the exit status."""
        self._stop.touch()
        return self.wait()

    def clean_up(self):
        """Leave none of its processes behind, nor of those before it."""
        self.kill()
        for process in psutil.process_iter(["environ"]):
            environment = process.info["environ"] or {}
            if environment.get(FOLDER) == str(self.folder):
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue

    # --- what it does --------------------------------------------------------------------------

    def events(self):
        """The sink's lines about micro-batches that were committed, or aborted."""
        self._read_events()
        return list(self._events)

    def _read_events(self):
        """Those since the last time: this is asked a hundred times a second."""
        with self._lock:
            if not self.metrics.exists() or self.metrics.stat().st_size == self._events_end:
                return
            with self.metrics.open("rb") as file:
                file.seek(self._events_end)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._events_end += len(whole)
            for line in whole.splitlines():
                event = json.loads(line)
                self._events.append(event)
                if event["event"] == "commit":
                    self._committed = max(self._committed, event["batch_id"])

    @property
    def committed(self):
        """The number of the latest committed micro-batch, -1 before the first."""
        self._read_events()
        return self._committed

    def await_committed(self, batch_id, timeout_s=PATIENCE_S):
        """Wait until a micro-batch is committed. Raises if the driver ends, or time is up."""
        deadline = time.monotonic() + timeout_s
        while self.committed < batch_id:
            assert self.is_running, f"the driver ended:\n{self.tail()}"
            assert time.monotonic() < deadline, f"still at {self.committed}:\n{self.tail()}"
            time.sleep(0.02)

    def await_sprung(self, name, timeout_s=PATIENCE_S):
        """Wait until a trap is reached."""
        assert eventually(
            lambda: self.traps.sprung(name) is not None or not self.is_running, timeout_s
        ), f"trap {name} not reached:\n{self.tail()}"
        sprung = self.traps.sprung(name)
        assert sprung is not None, f"the driver ended before trap {name}:\n{self.tail()}"
        return sprung

    def text(self):
        """Everything that its lives have logged."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def tail(self):
        return self.text()[-3000:]
