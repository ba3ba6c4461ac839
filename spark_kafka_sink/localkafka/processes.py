"""The processes of a local Kafka: brokers and Kafka's Java programs, run by the supervisor."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import uuid
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import Any

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.machine import child_environment, write_private
from spark_kafka_sink.localkafka import settings
from spark_kafka_sink.localkafka.jars import Step, fetch_jars, find_java_for_kafka, hold
from spark_kafka_sink.localkafka.settings import LocalKafkaError, tail_of

# --- the parent's side of the supervisor process -------------------------------------------------

_MODULE = "spark_kafka_sink.localkafka.supervisor"
_CLOSE_TIMEOUT_S = 60
_WAIT_SLICE_MS = 100
_READ_BYTES = 65536


class SupervisorClient:
    """Starts a supervisor, and processes through it. Methods may be called from several threads.

    ``folder``: the data folder, which the supervisor removes at the end. ``pid``: the supervisor's.
    """

    def __init__(self, parent_folder: Path) -> None:
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._next_id = 1
        self._clock = SystemClock()
        # With a session of its own, Ctrl-C in a terminal reaches this process only, which then
        # decides. Programs that this process starts do not inherit the pipe's ends (PEP 446).
        # Python puts the working directory first on the module path, so start in a fixed directory.
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
        self.pid = self._process.pid
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        try:
            self.folder = Path(self._receive(0)["folder"])
        except BaseException:
            self._close()
            raise

    def start(self, name: str, argv: Sequence[str], stdout: Path, stderr: Path) -> int:
        """Start a process and return its id. Its output is appended to the files."""
        files = {"stdout": str(stdout), "stderr": str(stderr)}
        return int(self._request(do="start", name=name, argv=list(argv), **files))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal; ignore it if the process has ended."""
        self._request(do="signal", name=name, number=int(number))

    def wait(self, names: Sequence[str], timeout_ms: int) -> dict[str, int]:
        """Wait for the first of ``names`` to end; return the exit codes of all that have ended."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        while True:
            left_ms = max(0, deadline_ms - self._clock.now_ms())
            # Wait in slices, so that another thread's signal does not wait until a process ends.
            slice_ms = min(left_ms, _WAIT_SLICE_MS)
            codes = self._request(do="wait", names=list(names), timeout_ms=slice_ms)
            if codes or slice_ms == left_ms:
                return {name: int(code) for name, code in codes.items()}

    def close(self) -> None:
        """End the supervisor and all its processes. Does nothing in a forked child of the owner."""
        if os.getpid() == self._owner_pid:
            self._close()
            shutil.rmtree(self.folder, ignore_errors=True)  # if the supervisor was killed

    def _close(self) -> None:
        with suppress(OSError):
            self._stdin.close()
        # The supervisor closes its end last.
        descriptor = self._stdout.fileno()
        while select.select([descriptor], [], [], _CLOSE_TIMEOUT_S)[0]:
            if not os.read(descriptor, _READ_BYTES):
                break
        # Normally all processes have ended by now. Their group outlives a killed supervisor, and no
        # other group can have its id before wait().
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._stdout.close()

    def _request(self, **command: Any) -> Any:
        if os.getpid() != self._owner_pid:
            raise LocalKafkaError(
                f"this LocalKafka belongs to process {self._owner_pid}", code="LOCAL-012"
            )
        with self._lock:
            request_id = self._next_id
            self._next_id += 1
            line = json.dumps({"id": request_id, **command}) + "\n"
            try:
                self._stdin.write(line.encode())
                self._stdin.flush()
            except (OSError, ValueError) as error:
                raise LocalKafkaError(
                    f"the keeper process has ended: {error}", code="LOCAL-013"
                ) from error
            return self._receive(request_id)

    def _receive(self, request_id: int) -> Any:
        """Return the answer to a request; drop answers to earlier, interrupted requests."""
        for line in iter(self._stdout.readline, b""):
            answer = json.loads(line)
            if answer["id"] == request_id:
                if "error" in answer:
                    raise LocalKafkaError(f"keeper process: {answer['error']}", code="LOCAL-013")
                return answer["result"]
        raise LocalKafkaError(
            "the keeper process ended unexpectedly, and the brokers with it", code="LOCAL-013"
        )


# --- one broker ----------------------------------------------------------------------------------

_KILL_TIMEOUT_MS = 30_000


class _State(Enum):
    """The last action on the process; ``wait`` finds a process that died by itself."""

    RUNNING = auto()
    PAUSED = auto()
    STOPPED = auto()


class BrokerProcess:
    """One broker. ``name``: its process's name at the supervisor; ``pid``: its latest process."""

    def __init__(self, supervisor: SupervisorClient, broker_id: int, folder: Path) -> None:
        self._supervisor = supervisor
        self._state = _State.STOPPED
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.folder = folder / self.name
        self.data_directory = self.folder / "data"
        self.log_file = self.folder / "broker.log"
        self.properties_file = self.folder / "server.properties"
        self.pid = -1
        self.folder.mkdir()

    @property
    def is_running(self) -> bool:
        return self._state is _State.RUNNING

    @property
    def is_alive(self) -> bool:
        """True if the broker is running or paused."""
        return self._state is not _State.STOPPED

    def start(self, command: list[str]) -> None:
        self.pid = self._supervisor.start(self.name, command, self.log_file, self.log_file)
        self._state = _State.RUNNING

    def stop(self, timeout_ms: int) -> None:
        """Shut down cleanly. Raises LocalKafkaError if the broker does not end in time."""
        if not self.is_alive:
            return
        self._supervisor.signal(self.name, signal.SIGTERM)
        if self._state is _State.PAUSED:
            self._supervisor.signal(self.name, signal.SIGCONT)
        # The broker counts as running until it has ended, so that it can still be killed.
        self._state = _State.RUNNING
        advice = "a shutdown needs a quorum of running nodes, kill() does not"
        self._await_end(timeout_ms, advice)

    def kill(self) -> None:
        if self.is_alive:
            self._supervisor.signal(self.name, signal.SIGKILL)
            self._await_end(_KILL_TIMEOUT_MS, "it is in a system call that cannot be interrupted")

    def pause(self) -> None:
        self._require(_State.RUNNING, "pause")
        self._supervisor.signal(self.name, signal.SIGSTOP)
        self._state = _State.PAUSED

    def resume(self) -> None:
        self._require(_State.PAUSED, "resume")
        self._supervisor.signal(self.name, signal.SIGCONT)
        self._state = _State.RUNNING

    def _require(self, state: _State, what: str) -> None:
        if self._state is not state:
            now = self._state.name.lower()
            raise LocalKafkaError(
                f"cannot {what} broker {self.broker_id}: it is {now}", code="LOCAL-012"
            )

    def _await_end(self, timeout_ms: int, advice: str) -> None:
        if not self._supervisor.wait([self.name], timeout_ms):
            raise LocalKafkaError(
                f"broker {self.broker_id} did not end within {timeout_ms} ms: {advice}. The end of "
                f"its log:\n{tail_of(self.log_file)}",
                code="LOCAL-010",
            )
        self._state = _State.STOPPED


_PACKAGES = ("org/apache/kafka/", "kafka/")


def find_tool_class(jars: Sequence[Path], name: str) -> str:
    """Return the full name of the class ``name``, because tools move between Kafka's packages.

    A name with a dot is full already. Raises LocalKafkaError if no jar, or more than one package,
    has the class.
    """
    if "." in name:
        return name
    suffix = f"/{name}.class"
    found = {
        entry
        for jar in jars
        if jar.name.startswith(("kafka", "connect"))
        for entry in zipfile.ZipFile(jar).namelist()
        if entry.endswith(suffix) and entry.startswith(_PACKAGES)
    }
    in_tools = {entry for entry in found if "/tools/" in entry} or found
    if len(in_tools) != 1:
        what = f"is ambiguous: {sorted(in_tools)}" if in_tools else "is no class of this Kafka"
        raise LocalKafkaError(f"{name} {what}", code="LOCAL-011")
    return in_tools.pop().removesuffix(".class").replace("/", ".")


# --- the Java programs of one version of Kafka ---------------------------------------------------

# Kafka's own dependencies include no logger; without one, a failing broker logs nothing.
LOGGER_MODULE = "org.slf4j:slf4j-simple:1.7.36"
_FORMAT_TIMEOUT_MS = 300_000


def broker_jars(version: str) -> tuple[list[str], str]:
    """Return the modules that a broker of this version needs, and the name of their folder."""
    return [f"org.apache.kafka:kafka_2.13:{version}", LOGGER_MODULE], f"kafka-{version}"


def tool_jars(version: str) -> tuple[list[str], str]:
    """Return the modules of the command-line tools, and the name of their folder."""
    kafka = [f"org.apache.kafka:{name}:{version}" for name in ("kafka_2.13", "kafka-tools")]
    return [*kafka, LOGGER_MODULE], f"kafka-tools-{version}"


class Toolbox:
    """Kafka's Java programs of one version. Java and jars are found when they are first needed.

    All methods raise LocalKafkaError. step: shows what is waited for
    """

    def __init__(self, version: str, step: Step) -> None:
        self._version = version
        self._step = step
        self._runs = 0
        self._held = ExitStack()

    @cached_property
    def _java(self) -> str:
        return find_java_for_kafka(self._version)

    @cached_property
    def _jars(self) -> list[Path]:
        title = f"Kafka {self._version}, about 45 MB"
        return fetch_jars(*broker_jars(self._version), title=title, step=self._step)

    def fetch(self) -> None:
        """Find Java and fetch the brokers' jars, which stay in the cache until ``release``."""
        assert self._java
        self._held.enter_context(hold(self._jars[0].parent))

    def release(self) -> None:
        """Let the cache be cleared. May be called at any time, and again."""
        self._held.close()

    def start_broker(self, broker: BrokerProcess, heap: str, jvm_options: Sequence[str]) -> None:
        """Start a broker on its server.properties."""
        jvm = [*settings.BROKER_JVM, f"-Xmx{heap}", *jvm_options]
        program = settings.java_program("kafka.Kafka", self._jars, broker.folder, "info", jvm)
        broker.start([self._java, *program, str(broker.properties_file)])

    def _tool(self, jars: Sequence[Path], folder: Path, class_name: str) -> list[str]:
        program = settings.java_program(class_name, jars, folder, "warn", settings.TOOL_JVM)
        return [self._java, *program]

    def run(
        self,
        supervisor: SupervisorClient,
        class_name: str,
        arguments: Sequence[str],
        timeout_ms: int,
    ) -> str:
        """Run a command-line class and return its stdout. The first call fetches its jars."""
        title = f"the tools of Kafka {self._version}, about 55 MB"
        jars = fetch_jars(*tool_jars(self._version), title=title, step=self._step)
        full_name = find_tool_class(jars, class_name)
        self._runs += 1
        name = f"tool-{self._runs}"
        stdout, stderr = supervisor.folder / f"{name}.out", supervisor.folder / f"{name}.err"
        command = [*self._tool(jars, supervisor.folder, full_name), *arguments]
        with hold(jars[0].parent), self._step(f"Running {full_name.rpartition('.')[2]}"):
            supervisor.start(name, command, stdout, stderr)
            code = supervisor.wait([name], timeout_ms).get(name)
        if code is None:
            supervisor.signal(name, signal.SIGKILL)
            raise LocalKafkaError(
                f"{full_name} did not end within {timeout_ms} ms:\n{tail_of(stderr)}",
                code="LOCAL-010",
            )
        if code:
            raise LocalKafkaError(
                f"{full_name} ended with code {code}:\n{tail_of(stderr)}", code="LOCAL-010"
            )
        return stdout.read_text(encoding="utf-8", errors="replace")

    def format(
        self,
        supervisor: SupervisorClient,
        brokers: Sequence[BrokerProcess],
        scram_credentials: Sequence[str],
    ) -> None:
        """Prepare every data directory, all nodes at once.

        scram_credentials: users' credentials, in the format of ``--add-scram``.
        """
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Join id and option, because a leading dash would look like an option.
        arguments = ["format", f"--cluster-id={cluster_id}"]
        for credential in scram_credentials:
            arguments += ["--add-scram", credential]
        for broker in brokers:
            options = [*arguments, "--config", str(broker.properties_file)]
            if scram_credentials:
                # Use a file, because every user of the machine can read a command line. Older
                # Kafkas support neither SCRAM users nor a file of arguments.
                file = write_private(broker.folder / "format.arguments", "\n".join(options))
                options = [f"@{file}"]
            command = self._tool(self._jars, broker.folder, "kafka.tools.StorageTool")
            name = f"format-{broker.broker_id}"
            supervisor.start(name, [*command, *options], broker.log_file, broker.log_file)
        for broker in brokers:
            name = f"format-{broker.broker_id}"
            code = supervisor.wait([name], _FORMAT_TIMEOUT_MS).get(name)
            if code != 0:
                raise LocalKafkaError(
                    f"the data directory could not be formatted (exit code {code}), check "
                    f"server_properties:\n{tail_of(broker.log_file)}",
                    code="LOCAL-010",
                )
