"""The machine code of all kernels in this process: out of the package, else kept, else compiled.

A release has a library for each platform that it names. Elsewhere a process of its own compiles all
kernels when they are first needed (``build``), and the result is kept in a file. The key is the
content of all sources of kernels and the platform, so neither is ever out of date.

A failure to read or to keep a file leads to compiling, never to an error.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import logging
import platform
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.environment import CACHE_VARIABLE, child_environment
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.record.kernels.cache_folders import (
    KernelFiles,
    Problem,
    is_folder_named,
    root_folders,
)
from spark_kafka_sink.record.kernels.loading import Addresses, loaded

logger = logging.getLogger(__name__)

TYPICAL_COMPILE_S = 30
"""All kernels on one core of the machine on which the project's figures are measured."""
FILE_NAME = "kernels"
_KEY_DIGITS = 16
_SOURCES = "spark_kafka_sink.record"
_BUILD = f"{_SOURCES}.kernels.build"
_LAST_LINES = 3


class Totals(NamedTuple):
    """What this process has done. compile_ns: time spent waiting for the compiler."""

    compiled: int
    loaded: int
    compile_ns: int


class Library:
    """All kernels, loaded at first use. Safe for threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._addresses: Addresses | None = None
        self._said: set[str] = set()
        self._taken_ns = 0
        self._data = b""
        self._is_kept = True
        self.totals = Totals(0, 0, 0)
        self.is_lasting = False
        """Whether the file is in a folder that is not for temporary files."""
        self.folder: Path | None = None
        """Where the file was loaded from or is kept; None if that is nowhere."""

    def address_of(self, name: str) -> int:
        """Address of the kernel ``name``.

        Raises ConfigError where there is no file and none can be made.
        """
        with self._lock:
            if self._addresses is None:
                self._addresses = self._packaged() or self._kept_or_compiled()
        return self._addresses(name)

    def keep(self) -> None:
        """Have the file in the first folder that can be written, for processes to come.

        What the package has is only kept in a folder that a variable names.
        """
        files = _files()
        if files is not None and (self._is_kept or is_folder_named()):
            self._write(files)

    def take_compile_ns(self) -> int:
        """Nanoseconds waited for the compiler since the last call: for the metrics of a task."""
        compile_ns = self.totals.compile_ns - self._taken_ns
        self._taken_ns += compile_ns
        return compile_ns

    # --- where it comes from -------------------------------------------------------------------

    def _packaged(self) -> Addresses | None:
        file = importlib.resources.files(_SOURCES) / "kernels" / packaged_name()
        try:
            data = file.read_bytes()
        except OSError:
            return None
        addresses = self._tried(data, Path(str(file)))
        if addresses is not None:
            self._data, self._is_kept = data, False
            self.folder, self.is_lasting = Path(str(file)).parent, True
            self.totals = self.totals._replace(loaded=1)
        return addresses

    def _kept_or_compiled(self) -> Addresses:
        files = _files()
        if files is None:
            self._say("sources", "the sources of the kernels cannot be read: compiled each time")
            return self._compiled()
        addresses = self._kept(files)
        if addresses is not None:
            return addresses
        started_ns = self._clock.perf_ns()
        with files.locked():
            # Another process may have compiled them while this one waited.
            addresses = self._kept(files)
            if addresses is None:
                addresses = self._compiled()
                self._write(files)
        waited_ns = self._clock.perf_ns() - started_ns
        self.totals = self.totals._replace(compile_ns=waited_ns)
        return addresses

    def _kept(self, files: KernelFiles) -> Addresses | None:
        found = files.read(FILE_NAME)
        for problem in found.problems:
            self._say_unreadable(problem)
        if found.data is None or found.folder is None:
            return None
        addresses = self._tried(found.data, found.folder / FILE_NAME)
        if addresses is not None:
            self.folder, self._data = found.folder, found.data
            self.totals = self.totals._replace(loaded=1)
        return addresses

    def _tried(self, data: bytes, path: Path) -> Addresses | None:
        try:
            return loaded(data)
        except (OSError, RuntimeError, ConfigError) as error:
            # Key and digest are right, but it cannot be loaded: compiled, whatever the reason.
            self._say_unreadable(Problem(path, str(error)))
            return None

    def _compiled(self) -> Addresses:
        text = f"compiling kernels for first use, about {TYPICAL_COMPILE_S} s"
        self._say("compiling", text, logging.INFO)
        self._data = compile_all()
        self.totals = self.totals._replace(compiled=1)
        return loaded(self._data)

    def _write(self, files: KernelFiles) -> None:
        self.folder, self.is_lasting, problems = files.write(FILE_NAME, self._data)
        if problems and not self.is_lasting:
            self._say_not_kept(problems)

    # --- what is said ---------------------------------------------------------------------------

    def _say_not_kept(self, problems: list[Problem]) -> None:
        where = ", ".join(f"{path} ({reason})" for path, reason in problems)
        instead = (
            f"every Python worker compiles them again, about {TYPICAL_COMPILE_S} s"
            if self.folder is None
            else f"they are kept in {self.folder}"
        )
        self._say(
            "not kept",
            f"compiled kernels cannot be kept in {where}: {instead}. Set {CACHE_VARIABLE} to a "
            "folder that can be written, or run pykafka-sink warm-up when the image is built",
        )

    def _say_unreadable(self, problem: Problem) -> None:
        text = f"a file with compiled kernels cannot be used: {problem.path}: {problem.reason}"
        self._say("unreadable", text)

    def _say(self, what: str, text: str, level: int = logging.WARNING) -> None:
        """Once per process."""
        if what not in self._said:
            self._said.add(what)
            logger.log(level, text)


def compile_all() -> bytes:
    """The content of a file with all kernels, compiled by a process of its own.

    Raises ConfigError if that fails.
    """
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-kernels-") as folder:
        path = Path(folder) / FILE_NAME
        done = subprocess.run(
            [sys.executable, "-m", _BUILD, str(path)],
            # Compiled Python goes by time and size of its source, which may be the same.
            env={**_compilers_environment(), "PYTHONPYCACHEPREFIX": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ConfigError(_not_compiled(done.stderr))
        return path.read_bytes()


def _compilers_environment() -> dict[str, str]:
    """numba's defaults count, whatever its variables say."""
    inherited = child_environment().items()
    return {name: value for name, value in inherited if not name.startswith("NUMBA_")}


def _not_compiled(error: str) -> str:
    lines = [line for line in error.splitlines() if line.strip()]
    return (
        f"the kernels of this sink cannot be compiled: {' | '.join(lines[-_LAST_LINES:])}. "
        "Install pykafka-sink from a wheel that has them for this platform, or install numba"
    )


@cache
def sources_digest() -> str:
    """Of every file that is compiled into a kernel; empty if they cannot be read."""
    sources = _sources()
    digest = hashlib.sha256()
    for name, source in sources:
        digest.update(f"\n{name} {len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()[:_KEY_DIGITS] if sources else ""


def platform_name() -> str:
    """The platform that machine code is for, as linux-x86_64."""
    return f"{sys.platform}-{platform.machine().lower()}"


def packaged_name(of_platform: str | None = None) -> str:
    """Name of the file that a release has for a platform, this one if None.

    No other sources have the same.
    """
    return f"kernels-{of_platform or platform_name()}-{sources_digest()}.so"


def _files() -> KernelFiles | None:
    """The files for this process. None if the sources cannot be read, and nothing may be kept."""
    digest = sources_digest()
    return KernelFiles(f"{platform_name()}-{digest}", root_folders()) if digest else None


def _sources() -> list[tuple[str, bytes]]:
    """Name and content of every file that is compiled into a kernel; also out of a zip file."""
    record = importlib.resources.files(_SOURCES)
    try:
        files = [file for file in (record / "kernels").iterdir() if file.name.endswith(".py")]
        files.sort(key=lambda file: file.name)
        return [(file.name, file.read_bytes()) for file in [*files, record / "views.py"]]
    except OSError:
        return []


LIBRARY = Library(SystemClock())
"""That of this process."""
