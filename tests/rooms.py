"""Which test files belong to a room: those that reach it by their own code, harnesses and fixtures.

``python -m tests.rooms producer [FOLDER …]`` prints them, for ``make quick ROOM=producer``. A room may also be one
module, ``producer.sender``. Imports are followed from a test file through modules of ``tests`` and ``evidence`` and through the
fixtures that it uses, up to the first module of the package. What the package imports itself is not
followed: nearly every module would then reach ``base``. One module of a room is reached through those of its
room that import it.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "spark_kafka_sink"
FAST = ("unit", "kernels", "property", "golden", "simulation", "formats")
"""Folders whose tests need neither a broker nor Spark, but for those marked slow or long."""


@functools.lru_cache(maxsize=None)
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=None)
def path_of(module: str) -> Path | None:
    """The file of a module of this repository, or None."""
    plain = ROOT.joinpath(*module.split("."))
    candidates = (plain.with_suffix(".py"), plain / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


class Use(NamedTuple):
    """What a piece of code uses: names that imports bind, all names and strings, modules that strings name."""

    imports: dict[str, str]
    names: set[str]
    named_modules: set[str]


@functools.lru_cache(maxsize=None)
def use_of(node: ast.AST) -> Use:
    use = Use({}, set(), set())
    for found in ast.walk(node):
        if isinstance(found, ast.Import):
            use.imports.update((a.asname or a.name, a.name) for a in found.names)
        elif isinstance(found, ast.ImportFrom) and found.module:
            for alias in found.names:
                inner = f"{found.module}.{alias.name}"
                bound = alias.asname or alias.name
                use.imports[bound] = inner if path_of(inner) else found.module
        elif isinstance(found, ast.Name):
            use.names.add(found.id)
        elif isinstance(found, ast.arg):
            use.names.add(found.arg)
        elif isinstance(found, ast.Constant) and isinstance(found.value, str):
            use.names.add(found.value)
            use.named_modules.update(
                match.removesuffix(".py").replace("/", ".").rstrip(".")
                for match in re.findall(rf"{PACKAGE}[./][\w./]+", found.value)
            )
    return use


@functools.lru_cache(maxsize=None)
def definitions_of(path: Path) -> dict[str, ast.AST]:
    """The functions and classes of a conftest.py: its fixtures, and what these use."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name: node for node in tree_of(path).body if isinstance(node, kinds)}


def closure(start: ast.AST, conftests: list[Path]) -> set[str]:
    """The modules that ``start`` reaches, through modules of ``tests`` and through fixtures."""
    modules: set[str] = set()
    names: set[str] = set()
    waiting, seen = [start], set()

    def add(imported: Iterable[str]) -> None:
        for module in set(imported) - modules:
            modules.add(module)
            path = path_of(module)
            if path is not None and module.startswith(("tests.", "evidence.")):
                waiting.append(tree_of(path))

    def add_fixtures() -> None:
        for conftest in conftests:
            bound = use_of(tree_of(conftest)).imports
            defined = definitions_of(conftest)
            waiting.extend(defined[name] for name in names & defined.keys())
            used = (use_of(defined[name]).names for name in names & defined.keys())
            add(bound[name] for name in set().union(*used) & bound.keys())

    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        use = use_of(node)
        names |= use.names
        modules |= use.named_modules
        add(use.imports.values())
        if not waiting:
            add_fixtures()
    return modules


def modules_of(path: Path) -> set[str]:
    """The modules that a test file reaches."""
    folders = [folder for folder in path.parents if folder.is_relative_to(ROOT / "tests")]
    conftests = [folder / "conftest.py" for folder in folders]
    return closure(tree_of(path), [conftest for conftest in conftests if conftest.is_file()])


def wanted(room: str) -> set[str]:
    """``room`` is a room: all its modules. It is one module: that, and what of its room imports it."""
    name = f"{PACKAGE}.{room}"
    path = path_of(name)
    if path is None:
        raise SystemExit(f"'{room}' is not a room or module of {PACKAGE}")
    if path.name == "__init__.py" or "." not in room:
        return {name, *modules_in(path.parent if path.name == "__init__.py" else path)}
    imports = {
        module: set(use_of(tree_of(file)).imports.values())
        for module, file in modules_in(path.parent).items()
    }
    found = {name}
    while more := {m for m, used in imports.items() if m not in found and used & found}:
        found |= more
    return found


def modules_in(place: Path) -> dict[str, Path]:
    """The modules of a folder, or one file's."""
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    plain = {file: file.relative_to(ROOT).with_suffix("") for file in files}
    return {".".join(p.parts).removesuffix(".__init__"): file for file, p in plain.items()}


def files_of(room: str, folders: Iterable[str] = FAST) -> list[Path]:
    """The test files of ``folders`` that reach ``room``."""
    modules = wanted(room)
    files = (path for f in folders for path in sorted((ROOT / "tests" / f).rglob("test_*.py")))
    return [path for path in files if not modules.isdisjoint(modules_of(path))]


if __name__ == "__main__":
    print(*(path.relative_to(ROOT) for path in files_of(sys.argv[1], sys.argv[2:] or FAST)))
