"""One mutation, and how to see whether tests notice it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_LONGEST_S = 1800
_PASSED, _FAILED = 0, 1


class Mutant(NamedTuple):
    """``before`` becomes ``after`` in ``file``, and one of ``tests`` must fail.

    file: relative to spark_kafka_sink; before: what is in it exactly once
    tests: files or ids, as pytest takes them, relative to tests
    """

    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """Raise ValueError unless ``before`` is in ``text`` exactly once."""
        count = text.count(self.before)
        if count != 1:
            raise ValueError(
                f"{self.file} has {self.before!r} {count} times: the row is out of date"
            )
        if self.after == self.before:
            raise ValueError(f"{self.file}: {self.before!r} stays as it is")
        return text.replace(self.before, self.after)

    def __str__(self) -> str:
        before, after = (" ".join(part.split()) for part in (self.before, self.after))
        return f"{self.file}: {before!r} -> {after!r}"


class Tree:
    """A copy of the repository in ``folder``; the repository itself stays as it is."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self._folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=repository,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout.decode()
        # Of these sources: a mutant of a kernel would have to be compiled.
        built = "spark_kafka_sink/record/compiled/kernels-*.so"
        kernels = [str(path.relative_to(repository)) for path in repository.glob(built)]
        for name in [*filter(None, listed.split("\0")), *kernels]:
            source, target = repository / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def problem_without(self, tests: Iterable[str]) -> str | None:
        """Why ``tests`` say nothing about mutants: they fail without one."""
        code, output = self.run(sorted(set(tests)))
        return None if code == _PASSED else f"the tests fail without a mutant:\n{output}"

    def problem_with(self, mutant: Mutant) -> str | None:
        """Why ``mutant`` is not noticed; None if a test fails with it."""
        try:
            with self.changed_by(mutant):
                code, output = self.run(mutant.tests)
        except ValueError as error:
            return str(error)
        if code == _PASSED:
            return f"no test notices {mutant}"
        # A negative code is that of a signal: a kernel has read or written memory of others.
        is_noticed = code == _FAILED or code < 0
        return None if is_noticed else f"the tests cannot run with {mutant}:\n{output}"

    @contextmanager
    def changed_by(self, mutant: Mutant) -> Iterator[None]:
        """Change the copy for the length of a block. Errors: as ``Mutant.applied_to``."""
        path = self._folder / "spark_kafka_sink" / mutant.file
        original = path.read_text(encoding="utf-8")
        try:
            path.write_text(mutant.applied_to(original), encoding="utf-8")
            yield
        finally:
            path.write_text(original, encoding="utf-8")

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        """Exit code and end of the output of pytest; a test that does not end has failed."""
        command = ["pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["-m", "long or not long", *(f"tests/{test}" for test in tests)]
        code, output = self.run_module(command)
        return code, output[-3000:]

    def run_module(self, command: Sequence[str]) -> tuple[int, str]:
        """Exit code and output of ``python -m``; what does not end has failed."""
        # Without bytecode: a file that is changed twice in a second may be as long as before.
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", *command],
                cwd=self._folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _FAILED, f"no end after {_LONGEST_S} s"
        return done.returncode, done.stdout.decode(errors="replace")
