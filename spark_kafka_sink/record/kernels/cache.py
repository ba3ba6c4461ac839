"""Compiled kernels between processes: loaded if they are there, else compiled and kept.

numba's own cache looks at the file of the kernel alone. Functions of other files are compiled into
a kernel, too: after a change in one of those, old machine code would run on new tables. Here the
key is the content of all sources of kernels, the versions of what compiles them, and the processor.
Any failure of the cache leads to compiling, never to an error.

Source: ``numba.core.caching``, whose place in the dispatcher this takes.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import logging
import pickle
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numba
import numpy as np
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.environment import CACHE_VARIABLE
from spark_kafka_sink.record.kernels.cache_folders import KernelFiles, Problem, root_folders

logger = logging.getLogger(__name__)

TYPICAL_COMPILE_S = 15
"""All kernels on one core of the machine on which the project's figures are measured."""

# What else changes the machine code: numba reads it from NUMBA_* variables.
_COMPILER_SETTINGS = ("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT")


class Totals(NamedTuple):
    """What this process has done so far. compile_ns: time spent compiling."""

    compiled: int
    loaded: int
    compile_ns: int


class CompiledKernels:
    """All compiled kernels of this process. numba's compiler lock is held by who calls it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: set[str] = set()
        self._started_ns = 0
        self._taken_ns = 0
        self.totals = Totals(0, 0, 0)
        self.keeps_loaded = False
        """Whether what is loaded is written, too: to the first folder that can be written."""
        self.is_lasting = False
        """Whether what was written last is in a folder that is not for temporary files."""
        self.folder: Path | None = None
        """Where the latest kernel was loaded from or is kept; None if that is nowhere."""

    def load(self, name: str, target_context: Any) -> Any:
        """The compiled kernel, or None: then numba compiles, and calls ``save``."""
        files = kernel_files(target_context.codegen().magic_tuple())
        found = None if files is None else files.read(name)
        for problem in [] if found is None else found.problems:
            self._say_unreadable(problem)
        if found is not None and found.data is not None:
            try:
                result = CompileResult._rebuild(target_context, *pickle.loads(found.data))
            except Exception as error:
                # Key and digest are right, but it cannot be loaded: compiled, whatever the reason.
                self._say_unreadable(Problem(Path(name), repr(error)))
            else:
                self.folder = found.folder
                self.totals = self.totals._replace(loaded=self.totals.loaded + 1)
                if self.keeps_loaded and files is not None:
                    self._keep(files, name, found.data)
                return result
        self._say(
            "compiling",
            f"compiling kernels for first use, about {TYPICAL_COMPILE_S} s",
            logging.INFO,
        )
        self._started_ns = self._clock.perf_ns()
        return None

    def save(self, name: str, result: Any) -> None:
        """Keep what numba has compiled after ``load`` found nothing."""
        compiled, loaded, compile_ns = self.totals
        compile_ns += self._clock.perf_ns() - self._started_ns
        self.totals = Totals(compiled + 1, loaded, compile_ns)
        files = kernel_files(result.codegen.magic_tuple())
        if files is None:
            self._say("sources", "the sources of the kernels cannot be read: compiled each time")
            return
        if result.library.has_dynamic_globals:
            return  # it holds addresses of this process
        try:
            data = dumps(result._reduce())
        except Exception as error:
            self._say("not kept", f"a compiled kernel cannot be kept: {name}: {error!r}")
        else:
            self._keep(files, name, data)

    def _keep(self, files: KernelFiles, name: str, data: bytes) -> None:
        self.folder, self.is_lasting, problems = files.write(name, data)
        if problems and not self.is_lasting:
            self._say_not_kept(problems)

    def take_compile_ns(self) -> int:
        """Nanoseconds spent compiling since the last call: for the metrics of a task."""
        compile_ns = self.totals.compile_ns - self._taken_ns
        self._taken_ns += compile_ns
        return compile_ns

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
        text = f"a file with a compiled kernel cannot be used: {problem.path}: {problem.reason}"
        self._say("unreadable", text)

    def _say(self, what: str, text: str, level: int = logging.WARNING) -> None:
        """Once per process."""
        if what not in self._said:
            self._said.add(what)
            logger.log(level, text)


class KernelCache:
    """One kernel's cache, in the form in which numba's dispatcher calls it."""

    def __init__(self, kernel_name: str, compiled: CompiledKernels) -> None:
        self._kernel_name = kernel_name
        self._compiled = compiled

    @property
    def cache_path(self) -> str | None:
        """Where kernels are kept."""
        folder = self._compiled.folder
        return None if folder is None else str(folder)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The kernel compiled for ``signature``, or None."""
        target_context.refresh()
        return self._compiled.load(self._file_name(signature), target_context)

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep the kernel compiled for ``signature``."""
        self._compiled.save(self._file_name(signature), result)

    def _file_name(self, signature: Any) -> str:
        digest = hashlib.sha256(repr(signature).encode()).hexdigest()[:16]
        return f"{self._kernel_name}-{digest}"

    def enable(self) -> None:
        """It is always on."""

    def disable(self) -> None:
        """It is always on."""

    def flush(self) -> None:
        """Nothing is waiting to be written."""


@cache
def kernel_files(processor: Any) -> KernelFiles | None:
    """The files for this process. None if the sources cannot be read, and nothing may be kept.

    processor: numba's name of it, with its features
    """
    sources = _sources()
    if not sources:
        return None
    digest = hashlib.sha256()
    settings = [getattr(numba.config, name, None) for name in _COMPILER_SETTINGS]
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
    digest.update(repr((processor, settings, versions)).encode())
    for name, source in sources:
        digest.update(f"\n{name} {len(source)}\n".encode())
        digest.update(source)
    return KernelFiles(digest.hexdigest()[:16], root_folders())


def _sources() -> list[tuple[str, bytes]]:
    """Name and content of every file that is compiled into a kernel; also out of a zip file."""
    record = importlib.resources.files("spark_kafka_sink.record")
    try:
        files = [file for file in (record / "kernels").iterdir() if file.name.endswith(".py")]
        files.sort(key=lambda file: file.name)
        return [(file.name, file.read_bytes()) for file in [*files, record / "views.py"]]
    except OSError:
        return []


COMPILED = CompiledKernels(SystemClock())
"""Those of this process."""
