"""The process that runs a LocalKafka's JVMs, and ends them when its parent has ended.

::

    python -m spark_kafka_sink.localkafka.supervisor PARENT_PID FOLDER

The supervisor creates a data folder inside FOLDER, reads commands as JSON lines from stdin and
answers each on stdout. When stdin ends, when its parent process changes, or at SIGTERM, it kills
every process that it started, paused ones too. Then it removes the data folder and exits. No end of
the parent prevents that: SIGKILL closes the pipe as well. If a forked child of the parent still
holds the pipe's other end, the changed parent id shows the parent's death. On Linux the kernel
kills the JVMs even if the supervisor itself dies.

Commands: ``start`` (name, argv, stdout, stderr) -> pid; ``signal`` (name, number) -> null;
``wait`` (names, timeout_ms) -> exit codes of ended processes, as soon as one has ended.
Source of the idea: testcontainers' Ryuk.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from spark_kafka_sink.base.clock import SystemClock

_IDLE_S = 0.25
_WAITING_S = 0.01
_KILL_TIMEOUT_S = 30
_READ_BYTES = 65536
_PR_SET_PDEATHSIG = 1
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class ProcessSupervisor:
    """Serves one parent process until it ends."""

    def __init__(self, parent_pid: int, folder: Path) -> None:
        self._parent_pid = parent_pid
        self._folder = folder
        self._clock = SystemClock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._received = bytearray()
        # A pending ``wait``: its request, the names, and its deadline.
        self._wait: tuple[int, list[str], int] | None = None

    def run(self) -> None:
        """Serve commands until the parent ends."""
        self._answer(0, {"folder": str(self._folder)})
        while os.getppid() == self._parent_pid:
            timeout = _IDLE_S if self._wait is None else _WAITING_S
            readable, _, _ = select.select([sys.stdin.fileno()], [], [], timeout)
            if readable and not self._read():
                return
            for process in self._processes.values():
                process.poll()
            self._answer_wait()

    def _read(self) -> bool:
        """Handle the input that has arrived; return False at the end of stdin."""
        data = os.read(sys.stdin.fileno(), _READ_BYTES)
        self._received += data
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            self._handle(json.loads(line))
        return bool(data)

    def _handle(self, command: dict[str, Any]) -> None:
        self._wait = None  # the parent was interrupted while it waited for the answer
        request_id = command["id"]
        try:
            if command["do"] == "start":
                self._answer(request_id, self._start(command))
            elif command["do"] == "signal":
                self._processes[command["name"]].send_signal(command["number"])
                self._answer(request_id, None)
            else:
                deadline_ms = self._clock.now_ms() + command["timeout_ms"]
                self._wait = (request_id, command["names"], deadline_ms)
        except (OSError, KeyError) as error:
            self._answer(request_id, f"{type(error).__name__}: {error}", "error")

    def _start(self, command: dict[str, Any]) -> int:
        with open(command["stdout"], "ab") as stdout, open(command["stderr"], "ab") as stderr:
            process = subprocess.Popen(
                command["argv"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=self._folder,
                preexec_fn=None if _LIBC is None else _die_with(os.getpid()),
            )
        self._processes[command["name"]] = process
        return process.pid

    def _answer_wait(self) -> None:
        if self._wait is None:
            return
        request_id, names, deadline_ms = self._wait
        codes = {name: self._processes[name].returncode for name in names}
        ended = {name: code for name, code in codes.items() if code is not None}
        if ended or self._clock.now_ms() >= deadline_ms:
            self._answer(request_id, ended)
            self._wait = None

    def _answer(self, request_id: int, content: Any, kind: str = "result") -> None:
        os.write(
            sys.stdout.fileno(), json.dumps({"id": request_id, kind: content}).encode() + b"\n"
        )

    def end(self) -> None:
        """Kill every process and remove the data folder."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            # A system call that cannot be interrupted ends the process when it returns.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def _die_with(supervisor_pid: int) -> Any:
    """Return a function for the child between fork and exec: the child dies with the supervisor."""

    def ask() -> None:
        assert _LIBC is not None
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor_pid:
            os._exit(1)  # the supervisor died before the request to the kernel

    return ask


def main() -> None:
    """Run a supervisor. Arguments: the parent's process id, the folder for the data folder."""
    for number in _ENDING_SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))
    folder = Path(tempfile.mkdtemp(prefix="pykafka-sink-kafka-", dir=sys.argv[2]))
    supervisor = ProcessSupervisor(int(sys.argv[1]), folder)
    try:
        supervisor.run()
    except BrokenPipeError:
        pass  # the parent ended before it read the answer
    finally:
        for number in _ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        supervisor.end()


if __name__ == "__main__":
    main()
