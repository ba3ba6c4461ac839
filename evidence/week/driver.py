"""The input of all streams, and the Spark driver that writes it."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq

from evidence.harness.standalone import kill_all_of
from evidence.week.workloads import ROWS_PER_FILE
from tests.patience import PATIENCE_S, eventually


class Feed:
    """Writes a file of ids every few seconds: the input of all streams."""

    def __init__(self, folder, seconds_per_file):
        self.folder = folder
        self._seconds_per_file = seconds_per_file
        folder.mkdir()
        self.rows = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()

    def stop(self):
        """Return how many ids were written: from 0 on, each once."""
        self._ended.set()
        self._thread.join()
        return self.rows

    def _run(self):
        for number in itertools.count():
            ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
            hidden = self.folder / f".{number:07}.parquet"
            pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), hidden)
            hidden.rename(self.folder / f"{number:07}.parquet")
            self.rows = ids.stop
            if self._ended.wait(self._seconds_per_file):
                return


class Driver:
    """The Spark application of all workloads: started, killed, started again."""

    def __init__(self, world):
        self._world = world
        self.folder = world.folder / "driver"
        self.folder.mkdir()
        self._finish = self.folder / "finish"
        self.process = None
        self.starts = 0

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def is_finishing(self):
        """Whether it was asked to end."""
        return self._finish.exists()

    def start(self):
        """Return at once. It ends with this process and with the cluster."""
        (self.folder / "started").unlink(missing_ok=True)
        path = self.folder / "settings.json"
        path.write_text(json.dumps(self._world.settings()._asdict()), encoding="utf-8")
        self.starts += 1
        program = [sys.executable, "-m", "evidence.week.program", str(path)]
        self.process = self._world.spark.launch(
            self._name,
            ["env", f"--chdir={self._world.code}", *program],
            {**os.environ, **self._world.environment, **self._world.clock.environment},
        )

    def has_started(self):
        """Wait until it runs, or has ended again."""
        eventually(lambda: (self.folder / "started").exists() or not self.is_running)
        return self.is_running

    def await_started(self):
        assert self.has_started(), self.text()[-3000:]

    def kill(self):
        """SIGKILL for Python, its JVM and all processes of the driver."""
        if self.process is not None:
            kill_all_of(self.process)

    def finish(self):
        """Let it write what is left of the input; return its exit status.

        None if it was killed because nothing was committed any more.
        """
        self._finish.touch()
        committed, deadline = {}, 0.0
        while self.is_running:
            if (now := self._world.committed()) != committed:
                committed, deadline = now, time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline:
                self.kill()
                return None
            time.sleep(0.5)
        return self.process.returncode

    @property
    def _name(self):
        return f"driver-{self.starts}"

    def text(self):
        """What the latest one has written to stdout and stderr."""
        return self._world.spark.log(self._name)

    def failures(self):
        """The writes that failed and were started again."""
        path = self.folder / "failures.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]
