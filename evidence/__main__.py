"""The command line of all evidence.

python -m evidence                        # lists the programs
python -m evidence chaos kill --plan      # shows what would run
python -m evidence chaos kill             # a program with its own arguments, or pytest's for a suite
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from evidence.harness import pages
from evidence.programs import PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[1]
PLAN = "--plan"
RELEASE_PYTHON = ROOT / ".venv-release" / "bin" / "python"
_ENVIRONMENT = "--environment"


def listed() -> str:
    """Return the table of all programs, for a terminal."""
    width = max(map(len, PROGRAMS))
    rows = (f"{name:{width}}  {p.takes:>6}  {p.proves}" for name, p in PROGRAMS.items())
    return "\n".join(rows)


def run_tests(program: Program, words: Sequence[str]) -> int:
    """Run a suite in a pytest of its own, and write its page afterwards; its exit code."""
    is_plan = PLAN in words
    words = ["--collect-only" if word == PLAN else word for word in words]
    # The tools of a release are in an environment that lacks what tests/conftest.py imports.
    is_release = program.environment == "release"
    python = str(RELEASE_PYTHON) if is_release and RELEASE_PYTHON.exists() else sys.executable
    more = ["--noconftest"] if is_release else []
    command = [python, "-m", "pytest", *more, "-m", program.marks, *program.tests, *words]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if program.document and not is_plan:
        pages.write(importlib.import_module(program.document).PAGES)
    return status


def main(words: Sequence[str]) -> int:
    """Run the command line; return the exit code of the program."""
    if not words:
        print(__doc__.partition("\n\n")[2], listed(), sep="\n")
        return 0
    asks = words[0] == _ENVIRONMENT
    name = "".join(words[1:2]) if asks else words[0]
    if name not in PROGRAMS:
        print(f"no program {name!r}; there are:\n\n{listed()}", file=sys.stderr)
        return 2
    program = PROGRAMS[name]
    if asks:
        print(program.environment)
        return 0
    given = list(words[1:])
    if given in ([], [PLAN]):
        given = [*program.usual, *given]
    if program.tests:
        return run_tests(program, given)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    status: int = importlib.import_module(program.module).main(given)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
