"""``python -m release.random_mutations --seed N [--count 200] [--root FOLDER] [--rooms …]``.

Change one place of the package at a time, chosen by the seed, and run the tests that execute that
line: those which pass let the mutation survive. The first run of the tests records which test
executes which line (coverage's dynamic contexts) and how long each takes. Results go to the
standard output, one line a mutation, and at the end the survivors by room.

Only statements of functions are changed, and none that only make a message. The tests run
without Kafka and Spark. A line that no test executes is reported separately, because tests with a
real broker may execute it. The command needs the extras ``dev`` and ``release``.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "spark_kafka_sink"
ROOMS = ("producer", "transactions", "formats", "registry", "security", "spark", "record")
_TESTS = ("tests/unit", "tests/property", "tests/simulation", "tests/golden", "tests/formats")
# A test of how the repository is written would notice any mutation, or none for a good reason.
_NOT_OF_BEHAVIOUR = ("test_mutants.py", "test_layers.py")
_MOST_SECONDS, _LONGEST_S = 40.0, 300
_PLUGIN = """
import json, os, time
import coverage, pytest

_coverage = coverage.Coverage(data_file=os.environ["CONTEXTS"], source_pkgs=["spark_kafka_sink"])
_seconds = {}
_coverage.start()

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    _coverage.switch_context(item.nodeid)
    start = time.perf_counter()
    yield
    _seconds[item.nodeid] = time.perf_counter() - start
    _coverage.switch_context("")

def pytest_unconfigure(config):
    _coverage.stop()
    _coverage.save()
    with open(os.environ["CONTEXTS"] + ".seconds", "w") as file:
        json.dump(_seconds, file)
"""


class Mutation(NamedTuple):
    """``file[start:end]`` (offsets in bytes) becomes ``after``."""

    file: Path
    line: int
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        before, after = (" ".join(part.split())[:70] for part in (self.before, self.after))
        return f"{self.file}:{self.line}: {before} -> {after}"


_COMPARISONS: dict[type[ast.cmpop], str] = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"},
}
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//"}
_SILENT_CALLS = ("warn", "warning", "info", "debug", "error", "log")


def changed(node: ast.AST) -> list[ast.AST | str]:
    """Return the possible replacements of ``node``: nodes, or the text of a statement."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        return [f"({left} {_COMPARISONS[type(node.ops[0])]} {right})"]
    if isinstance(node, ast.BoolOp):
        parts = [[*node.values[:n], *node.values[n + 1 :]] for n in range(len(node.values))]
        return [ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0] for rest in parts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        return [f"({left} {_ARITHMETIC[type(node.op)]} {right})"]
    if isinstance(node, (ast.If, ast.IfExp)):
        return []
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [ast.Constant(not node.value)]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return [ast.Constant(node.value + 1)]
    if isinstance(node, (ast.Break, ast.Continue)):
        return ["continue" if isinstance(node, ast.Break) else "break"]
    if isinstance(node, ast.Return) and node.value is not None:
        is_none = isinstance(node.value, ast.Constant) and node.value.value is None
        return [] if is_none else ["return None"]
    if isinstance(node, (ast.AugAssign, ast.Delete)):
        return ["pass"]
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        return ["pass"]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        return [] if name in _SILENT_CALLS else ["pass"]
    return []


def _conditions(node: ast.AST) -> Iterator[tuple[ast.expr, list[ast.AST | str]]]:
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield (
            node.test,
            [ast.Constant(True), ast.Constant(False)][: 1 + (type(node) is not ast.While)],
        )


def _nodes_of_behaviour(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes inside functions, but no annotations, messages and docstrings."""

    def walk(node: ast.AST, is_inside: bool) -> Iterator[ast.AST]:
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Assert)):
            return
        if is_inside:
            yield node
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    inner = is_inside or (is_function and name == "body")
                    yield from walk(child, inner)

    return walk(tree, False)


def mutations_of(path: Path, file: Path) -> list[Mutation]:
    """All that this script can change in one module."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutation] = []
    for node in _nodes_of_behaviour(ast.parse(source)):
        for place, others in [(node, changed(node)), *_conditions(node)]:
            for other in others:
                start = starts[place.lineno - 1] + place.col_offset  # type: ignore[attr-defined]
                end = starts[place.end_lineno - 1] + place.end_col_offset  # type: ignore[attr-defined]
                text = other if isinstance(other, str) else f"({ast.unparse(other)})"
                before = source[start:end].decode()
                line = place.lineno  # type: ignore[attr-defined]
                if text.strip("()") != before:
                    found.append(Mutation(file, line, start, end, before, text))
    return found


class Tree:
    """A copy of a repository, with what its tests execute."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self._folder = folder
        names = subprocess.run(
            ["git", "ls-files", "-z"], cwd=repository, check=True, stdout=subprocess.PIPE
        ).stdout.decode()
        built = repository.glob(f"{PACKAGE}/record/**/kernels-*.so")
        for name in [*filter(None, names.split("\0")), *(p.relative_to(repository) for p in built)]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if (repository / name).is_file():
                shutil.copy2(repository / name, folder / name)
        (folder / "record_contexts.py").write_text(_PLUGIN)
        self._contexts = folder / "contexts"

    def pytest(self, *arguments: str, seconds: float | None = None) -> int:
        """Return the exit code of pytest, 1 if it does not end."""
        environment = {
            **os.environ,
            **{"PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"},
            **{"CONTEXTS": str(self._contexts), "PYTEST_ADDOPTS": ""},
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        try:
            return subprocess.run(
                [*command, "-m", "not long and not slow"],
                cwd=self._folder,
                env=environment,
                stdout=subprocess.DEVNULL if seconds else None,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return 1

    def record(self, tests: Sequence[str]) -> None:
        """Run all tests once, and record which test executes which line."""
        import json

        import coverage

        ignored = [f"--ignore-glob=*/{name}" for name in _NOT_OF_BEHAVIOUR]
        code = self.pytest("-p", "record_contexts", *ignored, *tests)
        if code:
            raise SystemExit(f"the tests fail without a mutation: exit code {code}")
        data = coverage.CoverageData(str(self._contexts))
        data.read()
        self._tests = {
            str(Path(name).relative_to(self._folder)): data.contexts_by_lineno(name)
            for name in data.measured_files()
        }
        self._seconds: dict[str, float] = json.loads(Path(f"{self._contexts}.seconds").read_text())

    def tests_of(self, mutation: Mutation) -> list[str]:
        """Tests that execute the line, the quickest first, up to a limit of their seconds."""
        lines = self._tests.get(str(mutation.file), {})
        names = [
            test
            for test in lines.get(mutation.line, [])
            # A name of several lines cannot be in a file of arguments.
            if test in self._seconds and "\n" not in test
        ]
        names.sort(key=lambda test: self._seconds[test])
        chosen, total = names[:1], 0.0
        for test in names[1:]:
            total += self._seconds[test]
            if total > _MOST_SECONDS:
                break
            chosen.append(test)
        return chosen

    def verdict(self, mutation: Mutation) -> str:
        """Return 'noticed', 'SURVIVES' or 'not run', where no test executes the line."""
        tests = self.tests_of(mutation)
        if not tests:
            return "not run"
        path = self._folder / mutation.file
        original = path.read_bytes()
        changed_text = mutation.after.encode()
        path.write_bytes(original[: mutation.start] + changed_text + original[mutation.end :])
        listed = self._folder / "chosen_tests.txt"
        listed.write_text("\n".join(tests))
        try:
            code = self.pytest("-x", f"@{listed}", seconds=_LONGEST_S)
        finally:
            path.write_bytes(original)
        return "SURVIVES" if code == 0 else "noticed"


def main(arguments: list[str]) -> int:
    """Print a verdict for each mutation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--root", type=Path, default=_REPOSITORY)
    parser.add_argument("--rooms", nargs="*", default=ROOMS)
    parser.add_argument("--tests", nargs="*", default=_TESTS)
    chosen = parser.parse_args(arguments)
    root = chosen.root.resolve()
    every: list[Mutation] = []
    for room in chosen.rooms:
        for path in sorted((root / PACKAGE / room).glob("*.py")):
            every += mutations_of(path, path.relative_to(root))
    sample = random.Random(chosen.seed).sample(every, min(chosen.count, len(every)))
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        tree = Tree(root, Path(folder).resolve())
        tree.record(chosen.tests)
        for number, mutation in enumerate(sample):
            verdict = tree.verdict(mutation)
            counts[mutation.file.parts[1], verdict] += 1
            print(f"{number:>3} {verdict:<8} {mutation}", flush=True)
    print(f"seed {chosen.seed}: {len(sample)} of {len(every)} possible mutations")
    for (room, verdict), count in sorted(counts.items()):
        print(f"{room:<14}{verdict:<10}{count:>5}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
