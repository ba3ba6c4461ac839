"""Plugin of pytest for ``release.kill_matrix``: collect tests once, and fork for each mutation.

In the child, all functions that the mutation changes get their new code; then the child runs the
job's tests. No module is executed again, because ``from module import function``, decorators and
tables have bound the function objects already. New code is sound for functions that no import has
called; other mutations need a process that imports the changed module.

With ``RECORD`` in the environment, the child records which test executes which line of the package.
The empty context is that of imports and of the collection.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import hypothesis
import pytest

JOBS, ANSWERS, RECORD = "MATRIX_JOBS", "MATRIX_ANSWERS", "MATRIX_RECORD"
"""Variables: a file of jobs, the descriptor for a line per judged job, coverage's data file."""
MOST_HUNG = 3
"""If so many tests hang or end the process, the others do not run with this mutation."""
_Key = tuple[str, int, str]

_coverage: Any = None
if RECORD in os.environ:
    import coverage

    _coverage = coverage.Coverage(
        data_file=os.environ[RECORD],
        source=["spark_kafka_sink"],
        concurrency=["thread", "greenlet"],
    )
    _coverage.start()


class Job(NamedTuple):
    """One mutation with its tests.

    path: the module, whose ``[start:end]`` (in bytes) becomes ``after``; None if it already has
    is_on_disk: whether processes that the tests start must import the changed module
    limits_s: seconds for each test; a test that takes longer has noticed the mutation. None: all
        collected tests, without a limit
    """

    key: str
    path: str
    change: tuple[int, int, str] | None
    is_on_disk: bool
    limits_s: dict[str, float] | None

    def texts(self) -> tuple[bytes, bytes]:
        """Return the module before and after the change."""
        before = Path(self.path).read_bytes()
        start, end, after = self.change or (0, 0, "")
        return before, before[:start] + after.encode() + before[end:]

    @contextmanager
    def written(self) -> Iterator[None]:
        """Change the file for the length of a block, if processes must see the change."""
        if self.change is None or not self.is_on_disk:
            yield
            return
        path, (before, after) = Path(self.path), self.texts()
        status = path.stat()
        try:
            path.write_bytes(after)
            # Another time than that of the original, or its bytecode would count.
            os.utime(path, (status.st_atime, status.st_mtime - 100))
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


class Outcome(NamedTuple):
    """Ids of tests that noticed a mutation, that passed (with seconds), and that did not run."""

    killed: list[str]
    passed: dict[str, float]
    not_run: list[str]


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Have hypothesis try the same examples with each mutation, and end at the first failure."""
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        "matrix", hypothesis.settings(), derandomize=True, database=None, phases=phases
    )
    hypothesis.settings.load_profile("matrix")


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Judge all jobs, instead of running the tests."""
    items = {item.nodeid: item for item in session.items}
    functions = _functions()
    # The bytecode of one mutation must not count for the next one.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for job in json.loads(Path(os.environ[JOBS]).read_text()):
        answer = json.dumps(_judged(Job(*job), items, functions))
        os.write(int(os.environ[ANSWERS]), f"{answer}\n".encode())
    return True


def _key(code: CodeType) -> _Key:
    """Return what stays equal when the body of a function changes."""
    return code.co_filename, code.co_firstlineno, code.co_name


def _functions() -> dict[_Key, list[FunctionType]]:
    """Return all functions of this process by their code."""
    found: dict[_Key, list[FunctionType]] = {}
    gc.unfreeze()  # frozen objects are not listed
    for one in gc.get_objects():
        if type(one) is FunctionType:
            found.setdefault(_key(one.__code__), []).append(one)
    gc.freeze()
    return found


def _changed_codes(job: Job) -> dict[_Key, CodeType]:
    """Return the new code of each function that differs; none if one does not fit its closure."""
    found: dict[_Key, CodeType] = {}

    def fits(old: CodeType, new: CodeType) -> bool:
        parts = {_key(part): part for part in old.co_consts if isinstance(part, CodeType)}
        for part in new.co_consts:
            if not isinstance(part, CodeType) or part.co_name.startswith("<"):
                continue  # the function around makes comprehensions and lambdas again
            other = parts.get(_key(part))
            if other is None or other.co_freevars != part.co_freevars or not fits(other, part):
                return False
            if other != part:
                found[_key(part)] = part
        return True

    old, new = (compile(text, job.path, "exec", dont_inherit=True) for text in job.texts())
    return found if fits(old, new) else {}


def _judged(
    job: Job, items: dict[str, pytest.Item], functions: dict[_Key, list[FunctionType]]
) -> dict[str, Any]:
    """Return the outcome, or that the mutation needs a process of its own."""
    replaced = []
    if job.change is not None:
        codes = _changed_codes(job)
        replaced = [(one, code) for key, code in codes.items() for one in functions.get(key, ())]
        if not replaced:
            return {"key": job.key, "is_refused": True}
    started = time.monotonic()
    limits_s = dict.fromkeys(items, 1e6) if job.limits_s is None else job.limits_s
    # A test that is not collected has noticed it, too.
    found = Outcome([test for test in limits_s if test not in items], {}, [])
    left = [items[test] for test in limits_s if test in items]
    with job.written():
        for _ in range(1 if _coverage is not None else MOST_HUNG):
            left = left and _left_by_child(left, limits_s, replaced, found)
    found.not_run.extend(item.nodeid for item in left)
    return {"key": job.key, "seconds": time.monotonic() - started, **found._asdict()}


def _left_by_child(
    items: list[pytest.Item],
    limits_s: dict[str, float],
    replaced: list[tuple[FunctionType, CodeType]],
    found: Outcome,
) -> list[pytest.Item]:
    """Return those behind the test that ends or hangs the child; none if no test does."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            os.close(reader)
            os.close(int(os.environ[ANSWERS]))
            for function, code in replaced:
                function.__code__ = code
            _run_as_child(items, writer)
        finally:
            os._exit(0)
    os.close(writer)
    reports = _reports(reader, [limits_s[item.nodeid] for item in items])
    count = 0
    for count, (is_failed, seconds) in enumerate(reports, 1):
        test = items[count - 1].nodeid
        if is_failed:
            found.killed.append(test)
        else:
            found.passed[test] = seconds
    if _coverage is None or count < len(items):
        _kill(child)
    os.waitpid(child, 0)
    os.close(reader)
    found.killed.extend(item.nodeid for item in items[count : count + 1])
    return items[count + 1 :]


def _run_as_child(items: list[pytest.Item], writer: int) -> None:
    """Report each test as a line 'failed seconds'."""
    hooks = items[0].config.hook
    items[0].config.pluginmanager.register(_Reports(writer))
    for item, following in zip(items, [*items[1:], None]):
        hooks.pytest_runtest_protocol(item=item, nextitem=following)
    if _coverage is not None:
        _coverage.stop()
        _coverage.save()


class _Reports:
    def __init__(self, writer: int) -> None:
        self._writer = writer

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if _coverage is not None:
            _coverage.switch_context(nodeid)
        self._is_failed, self._start = False, time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._is_failed |= report.failed

    def pytest_runtest_logfinish(self) -> None:
        seconds = time.monotonic() - self._start
        os.write(self._writer, f"{int(self._is_failed)} {seconds:.4f}\n".encode())


def _reports(reader: int, limits_s: list[float]) -> Iterator[tuple[bool, float]]:
    """Yield (failed, seconds) of each test, until one has not reported within its limit."""
    received = b""
    for limit_s in limits_s:
        end = time.monotonic() + limit_s
        while b"\n" not in received:
            ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
            more = os.read(reader, 65536) if ready else b""
            if not more:
                return
            received += more
        line, _, received = received.partition(b"\n")
        is_failed, seconds = line.split()
        yield is_failed == b"1", float(seconds)


def _kill(child: int) -> None:
    """Kill the child and the processes that its tests have left."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it has no group yet
        os.kill(child, signal.SIGKILL)
