"""``python -m release.kill_matrix run [--rooms …] [--count 150] [--seed 1]``, ``… table [TEST …]``.

Which test notices which mutations of the package, and which mutations no other test notices.

``run`` changes one place of the package at a time and runs all tests that execute the place, each
to its end. It appends a line of JSON for each mutation to ``build/mutations/results.jsonl``;
started again, it goes on where it has stopped. First it records which test executes which line,
once for each state of package and tests. ``table`` counts by room and by file of tests, and lists
the survivors. ``table TEST …`` lists what each of these tests notices alone, and ``table --without
TEST …`` shows what would survive without these tests.

Tests that need Kafka, Spark or Java do not run. The command needs the extra ``dev``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import coverage

from release.forked_tests import ANSWERS, JOBS, RECORD, Job, Outcome
from release.mutations import Mutation, Names, mutations_of

_REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "spark_kafka_sink"
TESTS = [
    *("tests/unit", "tests/property", "tests/simulation", "tests/golden", "tests/formats"),
    "tests/kernels",
]
_TESTS_OF = Outcome._fields
# A test of how the repository is written would notice any mutation, or none for a good reason.
_NOT_OF_BEHAVIOUR = ["test_mutants.py", "test_layers.py"]
# No process loads the library of kernels beside other sources than its own; these do not count.
_COMPILED, _LOADER = (f"{PACKAGE}/record/kernels/", f"{PACKAGE}/record/compiled/"), "library.py"


def room_of(file: str) -> str:
    """Return the folder of a module in the package; 'package' for the package's own modules."""
    return "/".join(Path(file).parts[1:-1]) or "package"


def _is_compiled(file: str) -> bool:
    return file.startswith(_COMPILED) and not file.endswith(_LOADER)


class Map(NamedTuple):
    """What the tests execute, without those that fail in a child.

    tests: ids; seconds: of each, while its lines are recorded
    sets: numbers of tests; lines: by file and line, the number of a set
    imported: lines that imports or the collection of tests execute, by file
    """

    tests: list[str]
    seconds: list[float]
    sets: list[list[int]]
    lines: dict[str, dict[str, int]]
    imported: dict[str, list[int]]

    def tests_on(self, lines: Iterable[tuple[str, int]]) -> set[int]:
        """Return the numbers of tests that execute one of the lines (file, line)."""
        places = {self.lines.get(file, {}).get(str(line)) for file, line in lines}
        return {test for place in places if place is not None for test in self.sets[place]}

    def limits_s(self, tests: Iterable[int], patience_s: float) -> dict[str, float]:
        """Return the tests in the order of their files, each with time for a loaded machine."""
        return {self.tests[n]: patience_s + 10 * self.seconds[n] for n in sorted(tests)}


class Tree:
    """A copy of a repository, whose package is changed."""

    def __init__(self, repository: Path, folder: Path, tests: Sequence[str] = TESTS) -> None:
        self.folder, self._tests = folder, tests
        self._cache = repository / "build" / "mutations"
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=repository, check=True, stdout=subprocess.PIPE)
        built = [p.relative_to(repository) for p in repository.glob(f"{PACKAGE}/**/kernels-*.so")]
        digest = hashlib.sha256()
        for name in sorted({*filter(None, listed.stdout.decode().split("\0")), *map(str, built)}):
            if (repository / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(repository / name, folder / name)
                if name.startswith((PACKAGE, "tests/", "pyproject.toml")):
                    digest.update(f"{name}\0".encode() + (folder / name).read_bytes())
        self.digest = digest.hexdigest()[:12]
        self.files = sorted(str(p.relative_to(folder)) for p in (folder / PACKAGE).rglob("*.py"))

    def judged(
        self, jobs: list[Job], limit_s: float = 1e6, tests: Sequence[str] = (), **variables: str
    ) -> Iterator[dict[str, Any]]:
        """Yield the answer of each job; fewer if pytest cannot start, or not in time.

        tests: what pytest collects; by default, the files of the jobs' tests
        """
        files = tests or sorted({one.partition("::")[0] for job in jobs for one in job.limits_s})
        listed = self.folder / "jobs.json"
        listed.write_text(json.dumps(jobs))
        reader, writer = os.pipe()
        environment = {
            **{**os.environ, JOBS: str(listed), ANSWERS: str(writer), **variables},
            "PYTEST_ADDOPTS": "",
            "PYTHONPATH": os.pathsep.join(map(str, [self.folder, _REPOSITORY])),
        }
        command = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "release.forked_tests"]
        command += ["--continue-on-collection-errors", f"--basetemp={self.folder}-tests"]
        command += [f"--ignore-glob=*/{name}" for name in _NOT_OF_BEHAVIOUR]
        process = subprocess.Popen(
            [sys.executable, *command, "-m", "not long and not slow", *files],
            **{"cwd": self.folder, "env": environment, "pass_fds": [writer]},
            **{"stdout": subprocess.DEVNULL, "start_new_session": True},
        )
        os.close(writer)
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        try:
            with open(reader) as answers:
                yield from map(json.loads, answers)
        finally:
            timer.cancel()
            process.kill()
            process.wait()

    def recorded(self) -> Map:
        """Return what the tests execute: run all of them, unless this state's file has it."""
        path = self._cache / f"{self.digest}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(self._record()))
            part.replace(path)
        return Map(*json.loads(path.read_text()))

    def _record(self) -> Map:
        every = Job("", "", None, False, None)
        contexts = f"{self.folder}/contexts"
        answer = next(self.judged([every], tests=self._tests, **{RECORD: contexts}), None)
        if answer is None or answer["not_run"]:
            raise SystemExit("the tests do not run to the end without a mutation")
        for test in answer["killed"]:
            print(f"left out, because it fails without a mutation: {test}", flush=True)
        tests: list[str] = list(answer["passed"])
        numbers = {test: number for number, test in enumerate(tests)}
        data = coverage.CoverageData(contexts)
        data.read()
        sets: dict[tuple[str, ...], int] = {}
        lines: dict[str, dict[str, int]] = {}
        imported: dict[str, list[int]] = {}
        for name in data.measured_files():
            file = str(Path(name).relative_to(self.folder))
            by_line = data.contexts_by_lineno(name)
            imported[file] = sorted(line for line, found in by_line.items() if "" in found)
            lines[file] = {
                str(line): sets.setdefault(tuple(sorted(numbers.keys() & found)), len(sets))
                for line, found in by_line.items()
            }
        by_number = [[numbers[test] for test in one] for one in sets]
        return Map(tests, [*answer["passed"].values()], by_number, lines, imported)


class Run:
    """Judges mutations of one tree, and appends a row for each to a file.

    patience_s: how long even the quickest test may take, before it counts as hanging
    """

    def __init__(self, tree: Tree, results: Path, patience_s: float = 20) -> None:
        self._tree, self._results, self._patience_s = tree, results, patience_s
        self._map = tree.recorded()
        self._names = Names(tree.folder, tree.files)
        self._numbers = {test: number for number, test in enumerate(self._map.tests)}
        headers, rows = read_results(results)
        self._known = {
            key
            for key, row in rows.items()
            if row["tree"] == tree.digest or not self._numbers.keys().isdisjoint(row["killed"])
        }
        if [*headers.items()][-1:] != [(tree.digest, self._map.tests)]:
            self._append({"tree": tree.digest, "tests": self._map.tests})

    def _append(self, row: dict[str, Any]) -> None:
        with open(self._results, "a") as file:
            file.write(f"{json.dumps(row)}\n")

    def chosen(self, rooms: Sequence[str], seed: int, count: int) -> list[Mutation]:
        """Return up to ``count`` mutations of each room, the first of the seed's order."""
        by_room: dict[str, list[Mutation]] = {}
        for file in self._tree.files:
            room = room_of(file)
            if not rooms or any(f"{room}/".startswith(f"{one}/") for one in rooms):
                found = mutations_of(self._tree.folder, file)
                by_room.setdefault(room, []).extend(
                    one for one in found if not (_is_compiled(file) and self._is_of_import(one))
                )
        return [
            mutation
            for room, found in by_room.items()
            for mutation in random.Random(f"{seed} {room}").sample(found, len(found))[:count]
        ]

    def _is_of_import(self, mutation: Mutation) -> bool:
        imported = self._map.imported.get(mutation.file, [])
        return mutation.is_of_import or any(line in imported for _, line in mutation.lines())

    def _tests_of(self, mutation: Mutation) -> dict[str, float]:
        """Tests that execute the change; for one of an import, also those that use its result."""
        tests = self._map.tests_on(mutation.lines())
        if self._is_of_import(mutation):
            tests |= self._map.tests_on(self._names.lines_that_use(mutation.name))
        return self._map.limits_s(tests, self._patience_s)

    def judge(self, mutations: Iterable[Mutation]) -> None:
        """Write a row for each mutation that has none."""
        pending: dict[str, tuple[Mutation, Job]] = {}
        for mutation in mutations:
            path = self._tree.folder / mutation.file
            key, change = mutation.key(path.read_bytes()), mutation[1:4]
            if key not in self._known:
                is_on_disk = not _is_compiled(mutation.file)
                job = Job(key, str(path), change, is_on_disk, self._tests_of(mutation))
                pending[key] = (mutation, job)
        jobs = [j for m, j in pending.values() if j.limits_s and not self._is_of_import(m)]
        answered = 0
        for answer in self._tree.judged(jobs) if jobs else ():
            answered += 1
            if "is_refused" not in answer:
                self._write(pending.pop(answer["key"])[0], answer)
        if answered < len(jobs):
            raise SystemExit(f"pytest has ended at {pending[jobs[answered].key][0]}")
        for mutation, job in pending.values():
            self._write(mutation, self._judged_alone(job))

    def _judged_alone(self, job: Job) -> dict[str, Any]:
        """In a process that imports the changed module."""
        answer: dict[str, Any] = {"key": job.key, "killed": [], "passed": {}, "not_run": []}
        tests = job.limits_s or {}
        if not tests or not job.is_on_disk:
            return {**answer, "not_run": [*tests]}
        with job.written():
            limit_s = 120 + sum(tests.values())
            never_written = {"PYTHONDONTWRITEBYTECODE": "1"}
            answers = self._tree.judged([job._replace(change=None)], limit_s, **never_written)
            return next(answers, {**answer, "killed": [*tests], "is_import_broken": True})

    def _write(self, mutation: Mutation, answer: dict[str, Any]) -> None:
        row = {
            **{"key": answer["key"], "tree": self._tree.digest, "room": room_of(mutation.file)},
            **{"mutation": str(mutation), "operator": mutation.operator},
            **{name: sorted(self._numbers[test] for test in answer[name]) for name in _TESTS_OF},
            "is_import_broken": "is_import_broken" in answer,
            "seconds": round(answer.get("seconds", 0), 2),
        }
        self._append(row)
        print(f"{_verdict(row):<9} {len(row['killed']):>4} {mutation}", flush=True)


def _verdict(row: dict[str, Any]) -> str:
    return "noticed" if row["killed"] else "SURVIVES" if row["passed"] else "not run"


def read_results(path: Path) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]]]:
    """Return the tests of each tree, the newest last, and the newest row of each mutation.

    Rows have numbers of tests in the file, and ids in the result.
    """
    headers: dict[str, list[str]] = {}
    rows: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        if "tests" in row:
            headers.pop(row["tree"], None)
            headers[row["tree"]] = row["tests"]
            continue
        ids = headers[row["tree"]]
        rows[row["key"]] = {**row, **{name: [ids[n] for n in row[name]] for name in _TESTS_OF}}
    return headers, rows


def rows_without(path: Path, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return all rows as if only the newest tree's tests existed, and none of ``names``."""
    headers, rows = read_results(path)
    newest = [*headers.values()][-1] if headers else []
    kept = {test for test in newest if not _is_in(test, names)}
    return [{**row, "killed": [t for t in row["killed"] if t in kept]} for row in rows.values()]


def _is_in(test: str, names: Sequence[str]) -> bool:
    """Whether ``test`` is one of ``names``, or a part of one."""
    return any(test == one or test.startswith((f"{one}::", f"{one}/", f"{one}[")) for one in names)


def table(rows: list[dict[str, Any]], names: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines: of rooms and files of tests, or of the tests in ``names``."""
    verdicts = Counter((row["room"], _verdict(row)) for row in rows)
    yield f"{'room':<20} mutations  noticed  survive  not run"
    for room in sorted({room for room, _ in verdicts}):
        counts = [verdicts[room, verdict] for verdict in ("noticed", "SURVIVES", "not run")]
        yield f"{room:<20} {sum(counts):>9} " + " ".join(f"{count:>8}" for count in counts)
    met: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    alone: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["is_import_broken"]:
            continue  # every test notices that
        groups = {
            name: {test if names else test.partition("::")[0] for test in row[name]}
            for name in _TESTS_OF
        }
        met.update(groups["killed"] | groups["passed"])
        killed.update(groups["killed"])
        if len(groups["killed"]) == 1:
            alone[groups["killed"].pop()].append(row["mutation"])
    shown = [test for test in met if not names or _is_in(test, names)]
    yield f"\n{'only it':>7} {'kills':>6} {'ran':>6}  test"
    for test in sorted(shown, key=lambda test: (len(alone[test]), killed[test], test)):
        yield f"{len(alone[test]):>7} {killed[test]:>6} {met[test]:>6}  {test}"
        yield from (f"{'':>23}{mutation}" for mutation in alone[test] if names)
    idle, shared = (sum(not found[test] for test in shown) for found in (killed, alone))
    yield f"of {len(shown)}, {idle} kill nothing, and {shared} nothing that no other kills"
    survivors = sorted(row["mutation"] for row in rows if _verdict(row) == "SURVIVES")
    yield f"\n{len(survivors)} survive"
    yield from survivors


def main(arguments: list[str]) -> int:
    """Judge mutations, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=_REPOSITORY)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--rooms", nargs="*", default=())
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--count", type=int, default=150, help="mutations of each room")
    shown = commands.add_parser("table")
    shown.add_argument("tests", nargs="*", help="ids, files or folders")
    shown.add_argument("--without", nargs="*", default=(), help="tests that are to be removed")
    chosen = parser.parse_args(arguments)
    root = chosen.root.resolve()
    results = root / "build" / "mutations" / "results.jsonl"
    if chosen.command == "table":
        print(*table(rows_without(results, chosen.without), chosen.tests), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        judge = Run(Tree(root, Path(folder).resolve() / "tree"), results)
        judge.judge(judge.chosen(chosen.rooms, chosen.seed, chosen.count))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
