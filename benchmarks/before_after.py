"""Compare this checkout with an earlier one, in turns, to find what has become slower.

    python -m benchmarks.before_after /path/of/the/earlier/checkout [--pairs 7] [--scale 1.0]

Each checkout has its own virtual environment in ``.venv``, and its own Spark session for all runs.
The sessions write the same cached rows to one broker. They take turns in starting a pair. CPU is
that of Spark's JVM and its Python workers.

Writes benchmarks/results/before_after.json. A ratio is before / after: above 1 is faster now.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.before_after_session import CASES
from benchmarks.topics import SERVER_PROPERTIES, BenchTopic
from spark_kafka_sink.localkafka import LocalKafka

_ROOT = Path(__file__).resolve().parents[1]
_WARMUPS = 2


class Session:
    """A checkout's Spark session, in a process that runs the requested jobs."""

    def __init__(self, checkout: Path) -> None:
        program = _ROOT / "benchmarks" / "before_after_session.py"
        self._process = subprocess.Popen(
            [checkout / ".venv" / "bin" / "python", program],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def write(self, **asked: Any) -> dict[str, float]:
        """Return a job's ``elapsed_s`` and ``cpu_s``. Raises RuntimeError if the session ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, float] = json.loads(line)
                return answer
        raise RuntimeError(f"the session ended: {self._process.wait()}")

    def close(self) -> None:
        """End the session, and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(kafka: LocalKafka, sessions: dict[str, Session], case: str, args: Any) -> Any:
    """Run all pairs of one case; check that each run wrote each row once."""
    topic = BenchTopic(kafka, CASES[case].partitions)
    rows = int(CASES[case].rows * args.scale)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sessions}
    try:
        for pair in range(-_WARMUPS, args.pairs):
            for name in sorted(sessions, reverse=bool(pair % 2)):
                end = topic.end_offsets()
                run = sessions[name].write(
                    case=case, rows=rows, servers=kafka.bootstrap_servers, topic=topic.name
                )
                written = topic.end_offsets() - end
                assert written == rows, f"{written} of {rows} records"
                topic.empty()
                if pair >= 0:
                    runs[name].append(run)
    finally:
        topic.delete()
    return {
        "case": CASES[case].what,
        "rows": rows,
        "runs": runs,
        **{f"{of}_ratio": ratio(runs, of) for of in ("elapsed_s", "cpu_s")},
    }


def ratio(runs: dict[str, list[dict[str, float]]], of: str) -> dict[str, float]:
    """Return the median, lowest and highest of before / after, pair by pair."""
    ratios = [before[of] / after[of] for before, after in zip(runs["before"], runs["after"])]
    return {
        "median": round(statistics.median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
    }


def commit_of(checkout: Path) -> str:
    """Return the hash of the commit that is checked out."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def main() -> int:
    """Run all cases, print their ratios, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="of the cases' numbers of rows")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    checkouts = {"before": args.before.resolve(), "after": _ROOT}
    sessions = {name: Session(checkout) for name, checkout in checkouts.items()}
    results = []
    try:
        with LocalKafka(server_properties=SERVER_PROPERTIES) as kafka:
            for case in args.cases:
                results.append(compare(kafka, sessions, case, args))
                shown = {k: v for k, v in results[-1].items() if k != "runs"}
                print(json.dumps(shown), flush=True)
    finally:
        for session in sessions.values():
            session.close()
    commits = {name: commit_of(checkout) for name, checkout in checkouts.items()}
    harness.save("before_after", {"commits": commits, "results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
