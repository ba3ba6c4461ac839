"""Bugs in a copy of the package, one at a time: each harness with real brokers must end red with them.

python -m evidence planted                                    # all, and each run without a bug
python -m evidence planted --bugs "commit before flush" --harnesses lost

Writes evidence/chaos/planted_results.json and the table in docs/internals/reliability.md.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from evidence.chaos.table import write_planted
from evidence.harness.planning import parser_of, show
from tests.mutants.mutant import Mutant, Tree

_REPOSITORY = Path(__file__).parents[2]
_WRONG = ("lost", "doubled", "out_of_order", "miscounted", "left_open", "found_open", "failure")

_CHAOS = ("evidence", "chaos", "--records", "300000", "--jobs")
_LOST = ("evidence", "lost", "--runs", "1", "--jobs")
_UNHEARD = (*_LOST, "batch", "--guarantees", "at-least-once", "--faults", "unheard executor")
_EXACTLY_ONCE = (
    *("evidence", "exactly-once", "--guarantees", "exactly-once", "--versions", "4.4.0"),
    *("--micro-batches", "12", "--only"),
)
HARNESSES = ("chaos", "lost", "exactly-once")


class Bug(NamedTuple):
    """``runs``: the smallest ones of a harness that show it."""

    what: str
    mutant: Mutant
    runs: tuple[tuple[str, ...], ...]


BUGS = {
    "ack before append": Bug(
        "a batch counts as acknowledged when it is sent",
        Mutant(
            "producer/sender.py",
            "transaction, config = self.transaction, self._config\n",
            "import dataclasses\n\n"
            "        transaction = self.transaction\n"
            "        config = dataclasses.replace(self._config, acks=0)\n",
            (),
        ),
        ((*_CHAOS, "batch", "--", "kill"), _UNHEARD),
    ),
    "retry with a new sequence": Bug(
        "a batch that is sent again is numbered as a new one",
        Mutant(
            "producer/sequences.py",
            """        if batch.has_sequence:
            return
        sequences = self._sequences(batch.topic_partition)
""",
            """        sequences = self._sequences(batch.topic_partition)
        if batch.has_sequence:
            sequences.in_flight.remove(batch)
""",
            (),
        ),
        (
            (*_CHAOS, "batch", "--", "cut"),
            (*_LOST, "batch", "--guarantees", "exactly-once", "--faults", "answers"),
        ),
    ),
    "commit before flush": Bug(
        "a task ends, and the driver commits, before its records are acknowledged",
        Mutant(
            "spark/task.py",
            """        _write_batch(arrow_batch, writer, transaction)
    writer.finish()
""",
            """        _write_batch(arrow_batch, writer, transaction)
""",
            (),
        ),
        (
            (*_CHAOS, "batch", "--", "pause"),
            _UNHEARD,
            (*_EXACTLY_ONCE, "an output partition's leader hangs at task.written"),
        ),
    ),
    "dead letter counted twice": Bug(
        "a task's count of dead letters is twice their number",
        Mutant(
            "spark/dead_letters.py",
            """        self.counts.update(counts)
""",
            """        self.counts.update(counts)
        self.counts.update(counts)
""",
            (),
        ),
        (
            (*_CHAOS, "stream", "--", "none"),
            (*_LOST, "stream", "--guarantees", "exactly-once", "--faults", "answers"),
        ),
    ),
}


def said(output: str) -> str:
    """What is wrong by the last result that a harness has printed; nothing if it has printed none."""
    results = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    results = [result for result in results if "lost" in result]
    if not results:
        return ""
    wrong = {name: results[-1].get(name) for name in _WRONG}
    return ", ".join(f"{name} {_shown(value)}" for name, value in wrong.items() if value)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else " ".join(str(value).split())[:80]


def name_of(run: tuple[str, ...]) -> str:
    """The command, as it is typed."""
    return "python -m " + " ".join(f'"{word}"' if " " in word else word for word in run)


def is_green(tree: Tree, run: tuple[str, ...]) -> bool:
    """Whether a run finds nothing without a bug."""
    code, output = tree.run_module(run)
    print(f"no bug: {name_of(run)}: {'RED' if code else 'green'}", flush=True)
    if code:
        print(output[-3000:], flush=True)
    return code == 0


def is_red(tree: Tree, name: str, run: tuple[str, ...]) -> bool:
    """Whether a run finds a bug; what it says is kept then."""
    bug = BUGS[name]
    with tree.changed_by(bug.mutant):
        code, output = tree.run_module(run)
    found = said(output)
    is_found = code != 0 and bool(found)
    print(f"{name}: {name_of(run)}: {'red' if is_found else 'NOT RED'}: {found}", flush=True)
    if not is_found:
        print(output[-3000:], flush=True)
        return False
    result = {"bug": name, "what": bug.what, "harness": run[1], "command": name_of(run)}
    write_planted([{**result, "said": found, "commit": package_commit()}])
    return True


def package_commit() -> str:
    """The last one that changed the package."""
    command = ["git", "log", "-1", "--format=%h", "--abbrev=8", "--", "spark_kafka_sink"]
    done = subprocess.run(command, cwd=_REPOSITORY, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().strip()


def main(words: list[str] | None = None) -> int:
    """Return 1 unless every run is red with its bug, and green without one."""
    parser = parser_of(__doc__)
    parser.add_argument("--bugs", nargs="*", default=list(BUGS), choices=list(BUGS))
    parser.add_argument("--harnesses", nargs="*", default=list(HARNESSES), choices=list(HARNESSES))
    parser.add_argument("--without-control", action="store_true", help="with bugs only")
    arguments = parser.parse_args(words)
    wanted = set(arguments.harnesses)
    chosen = [(name, r) for name in arguments.bugs for r in BUGS[name].runs if r[1] in wanted]
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Tree(_REPOSITORY, Path(folder))
        if arguments.plan:
            for name, _ in chosen:
                with tree.changed_by(BUGS[name].mutant):
                    pass
            return show(f"{name}: {name_of(run)}" for name, run in chosen)
        verdicts = [is_red(tree, name, run) for name, run in chosen]
        if not arguments.without_control:
            verdicts += [is_green(tree, run) for run in dict.fromkeys(run for _, run in chosen)]
    print("every bug is found" if all(verdicts) else "NOT AS IT MUST BE", flush=True)
    return 0 if all(verdicts) else 1
