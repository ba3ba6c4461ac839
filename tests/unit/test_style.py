"""Sizes: of files, of functions, and of argument lists."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("spark_kafka_sink", "pyspark_kafka_sink.py", "jobs", "benchmarks", "release")
# numba inlines kernels into kernels, and a kernel takes each array as an argument of its own.
KERNELS = ROOT / "spark_kafka_sink" / "record" / "kernels"

MOST_LINES_OF_A_FILE = 800
MOST_LINES_OF_A_FUNCTION = 60
MOST_PARAMETERS = 6

LONG_FILES = set()
LONG_FUNCTIONS = set()
MANY_PARAMETERS = {
    # For tests of users, who name the few that they need: each has a default, most are keywords.
    "spark_kafka_sink/localkafka/cluster.py: LocalKafka.__init__",
}
"""What may be larger, and why. Nothing is added here without a reason of that kind."""


class Function(NamedTuple):
    """A function or method, by the names of the classes and functions around it."""

    name: str
    lines: int
    parameters: int


def functions(tree, outer=""):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            name = f"{outer}{node.name}"
            lines = node.end_lineno - node.lineno + 1
            yield Function(name, lines, len(parameters_of(node.args)))
            yield from functions(node, f"{name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{outer}{node.name}.")
        else:
            yield from functions(node, outer)


def parameters_of(arguments):
    """All names that a caller can give a value, without the object or class itself."""
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given += [more for more in (arguments.vararg, arguments.kwarg) if more is not None]
    return [argument.arg for argument in given if argument.arg not in ("self", "cls")]


def files(*places):
    for place in places:
        start = ROOT / place
        for path in [start] if start.is_file() else sorted(start.rglob("*.py")):
            yield str(path.relative_to(ROOT)), path


def functions_of_the_product():
    for name, path in files(*PRODUCT):
        if not path.is_relative_to(KERNELS):
            for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
                yield f"{name}: {function.name}", function


def check(found, known, most):
    """``found`` are too large: those that were not known, and those that are not any more."""
    assert not found - known, f"{most}: cut in two {sorted(found - known)}"
    assert not known - found, f"{most}: no longer above it, take off {sorted(known - found)}"


def test_no_file_is_too_long():
    long = {
        name
        for name, path in files(*PRODUCT, "tests")
        if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES_OF_A_FILE
    }
    check(long, LONG_FILES, f"{MOST_LINES_OF_A_FILE} lines of a file")


def test_no_function_is_too_long():
    long = {n for n, found in functions_of_the_product() if found.lines > MOST_LINES_OF_A_FUNCTION}
    check(long, LONG_FUNCTIONS, f"{MOST_LINES_OF_A_FUNCTION} lines of a function")


def test_no_function_takes_too_much():
    many = {n for n, found in functions_of_the_product() if found.parameters > MOST_PARAMETERS}
    check(many, MANY_PARAMETERS, f"{MOST_PARAMETERS} parameters")


def test_what_counts():
    source = (
        "class A:\n"
        "    def f(self, a, /, b, *more, c, **rest):\n"
        "        def inner(): ...\n"
        "        return 1\n"
        "if True:\n"
        "    async def g(): ...\n"
    )
    assert list(functions(ast.parse(source))) == [
        Function("A.f", lines=3, parameters=5),
        Function("A.f.inner", lines=1, parameters=0),
        Function("g", lines=1, parameters=0),
    ]


@pytest.mark.parametrize(
    ("found", "known", "message"),
    [({"a", "b"}, {"a"}, r"cut in two \['b'\]"), ({"a"}, {"a", "b"}, r"take off \['b'\]")],
)
def test_the_lists_are_exact(found, known, message):
    with pytest.raises(AssertionError, match=message):
        check(found, known, "something")
