"""Apply each mutant of a room in a copy of the repository, and run the tests that must fail then."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from tests import mutants
from tests.mutants.mutant import Tree

_REPOSITORY = Path(__file__).parents[2]


def rooms() -> dict[str, ModuleType]:
    """The files of rows, by their names."""
    names = {info.name for info in pkgutil.iter_modules(mutants.__path__)} - {"__main__", "mutant"}
    return {name: importlib.import_module(f"tests.mutants.{name}") for name in sorted(names)}


def problems_of(name: str, room: ModuleType, numbers: list[int]) -> list[str]:
    """Why rows of a room are not noticed; all rows without ``numbers``."""
    chosen = [(n, m) for n, m in enumerate(room.MUTANTS) if not numbers or n in numbers]
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree(_REPOSITORY, Path(folder))
        if broken := tree.problem_without(test for _, mutant in chosen for test in mutant.tests):
            return [broken]
        for number, mutant in chosen:
            problem = tree.problem_with(mutant)
            print(
                f"{name} {number:>3} {'SURVIVES' if problem else 'noticed '} {mutant}", flush=True
            )
            found += [problem] if problem else []
        if not numbers and room.PLANTED:
            code, output = tree.run(room.PLANTED)
            print(f"{name} planted bugs: {'caught' if code == 0 else 'NOT CAUGHT'}", flush=True)
            found += [output] if code else []
    return found


def main(arguments: list[str]) -> int:
    """Return 1 if a mutant survives, or a row is out of date."""
    found: list[str] = []
    every = rooms()
    if arguments and arguments[0] not in every:
        raise SystemExit(f"no room '{arguments[0]}': choose one of {', '.join(every)}, or none")
    for name, room in every.items():
        if not arguments or arguments[0] == name:
            found += problems_of(name, room, [int(number) for number in arguments[1:]])
    print("\n\n".join(found) or "every mutant is noticed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
