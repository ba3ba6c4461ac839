"""The parent's side of the keeper process."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.environment import child_environment
from spark_kafka_sink.localkafka.errors import LocalKafkaError

_MODULE = "spark_kafka_sink.localkafka.keeper"
_CLOSE_TIMEOUT_S = 60
_WAIT_SLICE_MS = 100
_READ_BYTES = 65536


class KeeperClient:
    """Starts a keeper, and processes through it. Methods may be called from several threads.

    ``folder``: the data folder, which the keeper removes at the end.
    """

    def __init__(self, parent_folder: Path) -> None:
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._next_id = 1
        self._clock = SystemClock()
        # A session of its own: Ctrl-C in a terminal reaches this process only, which then decides.
        # The pipe's ends are not inherited by programs that this process starts (PEP 446).
        # Python puts the working directory first on the module path: not wherever we happen to be.
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(self._owner_pid), str(parent_folder.absolute())],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        try:
            self.folder = Path(self._receive(0)["folder"])
        except BaseException:
            self._close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, name: str, argv: Sequence[str], stdout: Path, stderr: Path) -> int:
        """Start a process and return its id. Its output is appended to the files."""
        files = {"stdout": str(stdout), "stderr": str(stderr)}
        return int(self._request(do="start", name=name, argv=list(argv), **files))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        self._request(do="signal", name=name, number=int(number))

    def wait(self, names: Sequence[str], timeout_ms: int) -> dict[str, int]:
        """Exit codes of those ``names`` that have ended. Waits for the first."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        while True:
            left_ms = max(0, deadline_ms - self._clock.now_ms())
            # In slices: another thread's signal must not wait until a process ends.
            slice_ms = min(left_ms, _WAIT_SLICE_MS)
            codes = self._request(do="wait", names=list(names), timeout_ms=slice_ms)
            if codes or slice_ms == left_ms:
                return {name: int(code) for name, code in codes.items()}

    def close(self) -> None:
        """End the keeper with all that it started. A forked child of the owner does nothing."""
        if os.getpid() == self._owner_pid:
            self._close()
            shutil.rmtree(self.folder, ignore_errors=True)  # if the keeper was itself killed

    def _close(self) -> None:
        with suppress(OSError):
            self._stdin.close()
        self._drain()
        # Normally all have ended by now. The group outlives a keeper that was itself killed, and
        # its id cannot belong to another group before wait().
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._stdout.close()

    def _drain(self) -> None:
        """Wait until the keeper has closed its end, which it does last."""
        descriptor = self._stdout.fileno()
        while select.select([descriptor], [], [], _CLOSE_TIMEOUT_S)[0]:
            if not os.read(descriptor, _READ_BYTES):
                return

    def _request(self, **command: Any) -> Any:
        if os.getpid() != self._owner_pid:
            raise LocalKafkaError(f"this LocalKafka belongs to process {self._owner_pid}")
        with self._lock:
            request_id = self._next_id
            self._next_id += 1
            line = json.dumps({"id": request_id, **command}) + "\n"
            try:
                self._stdin.write(line.encode())
                self._stdin.flush()
            except (OSError, ValueError) as error:
                raise LocalKafkaError(f"the keeper process has ended: {error}") from error
            return self._receive(request_id)

    def _receive(self, request_id: int) -> Any:
        """The answer to a request; answers to interrupted earlier ones are dropped."""
        for line in iter(self._stdout.readline, b""):
            answer = json.loads(line)
            if answer["id"] == request_id:
                if "error" in answer:
                    raise LocalKafkaError(f"keeper process: {answer['error']}")
                return answer["result"]
        raise LocalKafkaError("the keeper process ended unexpectedly, and the brokers with it")
