"""The input of all streams, and the Spark driver that writes it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.patience import PATIENCE_S, eventually
from tests.week.workloads import ROWS_PER_FILE

REPOSITORY = Path(__file__).resolve().parents[2]


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
        self.log = self.folder / "driver.log"
        self.process = None
        self.starts = 0

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        """Return at once."""
        (self.folder / "started").unlink(missing_ok=True)
        path = self.folder / "settings.json"
        path.write_text(json.dumps(self._world.settings()._asdict()), encoding="utf-8")
        environment = {**os.environ, **self._world.environment}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.week.program", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        self.starts += 1

    def await_started(self):
        assert eventually(lambda: (self.folder / "started").exists() or not self.is_running)
        assert self.is_running, self.text()[-3000:]

    def kill(self):
        """SIGKILL for Python, its JVM and all processes of the driver."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()

    def finish(self):
        """Let it write what is left of the input; return its exit status, None if it does not end."""
        (self.folder / "finish").touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(2 * PATIENCE_S)
        self.kill()
        return None

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def failures(self):
        """The writes that failed and were started again."""
        return lines_of(self.folder / "failures.jsonl")


def lines_of(path):
    """Return the JSON documents of a file, one in each line; none without the file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]
