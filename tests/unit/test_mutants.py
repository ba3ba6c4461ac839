"""The tables of mutations are up to date, and a mutant that survives is told."""

import functools
import subprocess
from pathlib import Path

import pytest

from tests.mutants.__main__ import rooms
from tests.mutants.mutant import Mutant, Tree
from tests.tables import each_row

ROOT = Path(__file__).parents[2]
SIZE = "def size(n):\n    return abs(n) + 0 * n\n"


@functools.cache
def source(file):
    return (ROOT / "spark_kafka_sink" / file).read_text(encoding="utf-8")


def problems(row):
    try:
        row.applied_to(source(row.file))
    except (OSError, ValueError) as error:
        yield str(error)
    if not row.tests:
        yield f"{row}: no tests"
    for test in row.tests:
        if not (ROOT / "tests" / test.partition("::")[0]).exists():
            yield f"{row}: there is no {test}"


@each_row("room", rooms())
def test_what_a_row_changes_is_there_once_and_so_are_its_tests(room):
    assert [problem for row in rooms()[room].MUTANTS for problem in problems(row)] == []


@pytest.fixture
def tree(tmp_path):
    """A package of one function, whose sign no test looks at."""
    files = {
        "spark_kafka_sink/__init__.py": "",
        "spark_kafka_sink/size.py": SIZE,
        "tests/test_size.py": (
            "from spark_kafka_sink.size import size\n\n\ndef test_size():\n    assert size(3) == 3\n"
        ),
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['long: x']\n",
    }
    repository, folder = tmp_path / "repository", tmp_path / "copy"
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    return Tree(repository, folder)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [("n)", "m)", "2 times"), ("m)", "n)", "0 times"), ("abs(n)", "abs(n)", "stays as it is")],
)
def test_a_row_that_is_out_of_date_is_told(before, after, problem):
    with pytest.raises(ValueError, match=problem):
        Mutant("size.py", before, after, ()).applied_to(SIZE)


@pytest.mark.slow
def test_a_mutant_that_survives_is_told(tree, tmp_path):
    def problem(before, after):
        return tree.problem_with(Mutant("size.py", before, after, ("test_size.py",)))

    assert problem("abs(n)", "-abs(n)") is None
    assert "no test notices" in str(problem("abs(n)", "n"))
    assert "cannot run" in str(problem("    return abs", "return abs"))
    for folder in ("repository", "copy"):  # the one was never changed, the other is as it was
        assert (tmp_path / folder / "spark_kafka_sink/size.py").read_text() == SIZE
    assert "fail without a mutant" in str(tree.problem_without(["test_missing.py"]))
