"""Everything that runs before a release, one after the other, on one commit.

::

    python -m evidence everything              # goes on where it was interrupted
    python -m evidence everything chaos fuzz   # these, also if they have run on this commit

The outcome of each command is kept in ``everything.json`` when it ends: exit code, seconds, and the last
line of its output, all of which is in ``build/evidence/``. Outcomes of another commit are dropped. A command
that has failed runs again only if it is named. The exit code is 1 unless every command has passed.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from evidence.harness.keeping import replace
from evidence.harness.planning import parser_of, show
from evidence.programs import PROGRAMS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("everything.json")
LOGS = ROOT / "build" / "evidence"
NAME = "everything"
_TARGETS = ("test", "demo", "docs-site", "simulate", "simulate-queries", "fuzz", "kernels-checked")
COMMANDS = {
    **{target: ["make", target] for target in _TARGETS},
    **{name: ["make", "evidence", f"NAME={name}"] for name in PROGRAMS if name != NAME},
}


def commit_of(root):
    """The commit of a checkout whose code is as committed."""
    changed = ["git", "-C", root, "diff", "--name-only", "HEAD", "--", "*.py", "*.toml", "Makefile"]
    names = subprocess.run(changed, capture_output=True, text=True, check=True).stdout.split()
    assert not names, f"commit these first: {', '.join(names)}"
    head = ["git", "-C", root, "rev-parse", "HEAD"]
    return subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()


def read(path=RESULTS):
    """The outcomes by command, all of one commit."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def run_all(commands, commit, named=(), results=RESULTS, logs=LOGS):
    """Run what has no outcome on ``commit`` yet, and what is ``named``; all outcomes."""
    outcomes = {name: o for name, o in read(results).items() if o["commit"] == commit}
    for name in named or [name for name in commands if name not in outcomes]:
        print(f"{name} …", flush=True)
        outcomes[name] = _outcome(commands[name], commit, logs / f"{name}.log")
        replace(results, json.dumps(outcomes, indent=1, ensure_ascii=False) + "\n")
        print(f"{name}: {outcomes[name]}", flush=True)
    return outcomes


def _outcome(command, commit, log):
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("wb") as output:
        done = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, check=False)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return {
        "commit": commit,
        "exit": done.returncode,
        "seconds": round(time.monotonic() - started),
        "end": lines[-1][:200] if lines else "",
    }


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", help="run only these")
    given = parser.parse_args(words)
    if unknown := {*given.names} - {*COMMANDS}:
        parser.error(f"no command {', '.join(sorted(unknown))}; there are: {', '.join(COMMANDS)}")
    if given.plan:
        return show(" ".join(COMMANDS[name]) for name in given.names or COMMANDS)
    outcomes = run_all(COMMANDS, commit_of(ROOT), given.names)
    missing = [name for name in COMMANDS if outcomes.get(name, {}).get("exit") != 0]
    print(f"{len(COMMANDS)} commands, not passed: {missing}")
    return 1 if missing else 0
