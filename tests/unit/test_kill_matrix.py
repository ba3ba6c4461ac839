"""What the kill matrix changes, and that it sees which tests notice a change."""

import json
import subprocess

import pytest

from release.kill_matrix import Run, Tree, rows_without, table
from release.mutations import mutations_of
from tests.tables import each_row

HEAD = "def f(a, b, kept):\n    total = a\n    "


def made_of(folder, source):
    (folder / "m.py").write_text(source)
    return mutations_of(folder, "m.py")


@each_row(
    "statement, operator, expected",
    [
        ("if a:\n        return b\n    return a", "early return", ["pass"]),
        ("if a:\n        raise ValueError(f'{a} + {b}')", "raise", ["pass"]),
        ("return a, b", "return", ["return None"]),
        ("self.at = a", "state", ["pass"]),
        ("total = total + b", "state", ["pass"]),
        ("other = b", "state", []),
        ("known.add(a)", "statement", ["pass"]),
        ("log.info(a)", "statement", []),
        ("known[a, b, 0] = 1", "element", ["((b, 0))", "((a, 0))", "((a, b))"]),
        ("x, y = a, b", "element", []),
        ("use({a})", "element", ["set()"]),
        ("use({a: b, **kept})", "element", ["({**kept})", "({a: b})"]),
        ("use(0 <= a <= b)", "comparison", ["(0 <= a)", "(a <= b)"]),
        ("use(a and b and kept)", "operand", ["(b and kept)", "(a and kept)", "(a and b)"]),
        ("return a is b", "condition", ["(True)", "(False)"]),
        ("use([x for x in a if x])", "condition", ["(True)", "(False)"]),
        ("try:\n        a()\n    except (A, B):\n        pass", "element", ["((B,))", "((A,))"]),
        ("try:\n        a()\n    except A:\n        pass", "handler", ["()"]),
        ("use(min(a, b), a.lower())", "call", ["(a)", "(b)", "(a)"]),
        ("use(a[:9])", "slice", ["(a)"]),
    ],
)
def test_what_an_operator_makes(tmp_path, statement, operator, expected):
    found = made_of(tmp_path, HEAD + statement + "\n")
    assert [m.after for m in found if m.operator == operator and m.first_line > 2] == expected


def test_lines_stay_where_they_are(tmp_path):
    source = (
        "def f(a):\n    a[\n        0\n    ] = (\n        1,\n        2,\n    )\n    return a\n"
    )
    for mutation in made_of(tmp_path, source):
        changed = source[: mutation.start] + mutation.after + source[mutation.end :]
        compile(changed, "m.py", "exec")
        assert changed.count("\n") == source.count("\n"), mutation


def test_what_an_import_executes_is_known(tmp_path):
    found = made_of(tmp_path, "A = 1\n\n\ndef f(a=2):\n    return 3\n")
    assert [(m.before, m.name, m.is_of_import) for m in found if m.operator == "constant"] == [
        ("1", "A", True),
        ("2", "f", True),
        ("3", "f", False),
    ]


FILES = {
    ".gitignore": "/build/\n/results.jsonl\n",
    "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['long: x', 'slow: x']\n",
    "spark_kafka_sink/__init__.py": "",
    "spark_kafka_sink/sizes.py": """
import functools
import os


def counted(function):
    @functools.wraps(function)
    def inner(n):
        return function(n + 1)

    return inner


def size(n):
    return abs(n) * 1


@counted
def size_of_next(n):
    return n


def doubled(n):
    return n * 2


def down(n):
    while n > 0:
        n -= 1
    return n


def exit_below_0(n):
    if n < 0:
        os._exit(0)
    return n


TABLE = [doubled(n) for n in (1, 2)]
MOST = 5
""",
    "spark_kafka_sink/users.py": """
from spark_kafka_sink.sizes import MOST, TABLE, size


def size_or_most(n):
    return min(size(n), MOST)


def second():
    return TABLE[1]
""",
    "tests/unit/test_sizes.py": """
import subprocess
import sys

import pytest

from spark_kafka_sink import sizes
from spark_kafka_sink.sizes import down, exit_below_0, size_of_next
from spark_kafka_sink.users import second, size_or_most


@pytest.mark.parametrize("n", [3, -3])
def test_size(n):
    assert size_or_most(n) == 3


def test_most():
    assert size_or_most(7) == 5


def test_next():
    assert size_of_next(3) == 4


def test_table():
    assert second() == 4


def test_down():
    assert down(2) == 0


def test_exit():
    assert exit_below_0(1) == 1


def test_process():
    assert sizes.size(1)
    code = "from spark_kafka_sink.sizes import size; assert size(2) == 2"
    subprocess.run([sys.executable, "-c", code], check=True)
""",
}


@pytest.fixture
def repository(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


NOTICED = {
    "return abs(n) * 1 -> return None": {"size[3]", "size[-3]", "most", "process"},
    "abs(n) -> (n)": {"size[-3]"},
    "abs(n) * 1 -> (abs(n))": set(),
    "n + 1 -> (n - 1)": {"next"},
    "n * 2 -> (n)": {"table"},
    "(1, 2) -> ((1,))": {"table"},
    "5 -> (6)": {"most"},
    "n < 0 -> (True)": {"exit"},
}
"""Also where a test has bound the function, a decorator keeps it, an import has made a table with
it, only another process imports it, or the process of the test ends."""
HANGING = {"n -= 1 -> pass": {"down"}}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_test_that_notices_a_mutation_is_named(repository, tmp_path_factory):
    results = repository / "results.jsonl"

    def judged(wanted, **more):
        run = Run(
            Tree(repository, tmp_path_factory.mktemp("tree"), ["tests/unit"]), results, **more
        )
        run.judge(m for m in run.chosen((), 1, 999) if str(m).partition(": ")[2] in wanted)
        return {
            row["mutation"].partition(": ")[2]: {t.partition("::test_")[2] for t in row["killed"]}
            for row in rows_without(results)
        }

    assert judged(NOTICED) == NOTICED
    assert judged(NOTICED | HANGING, patience_s=1) == NOTICED | HANGING
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(rows) == 1 + len(NOTICED | HANGING)  # it has gone on where it has stopped
    for name, text in FILES.items():
        assert (repository / name).read_text() == text
    without = rows_without(results, ["tests/unit/test_sizes.py::test_size"])
    assert "abs(n) -> (n)" in "\n".join(table(without))


WHOLE = {"not_run": [], "is_import_broken": False}


def test_the_table_tells_what_only_one_test_notices():
    rows = [
        {"room": "a", "mutation": "m1", "killed": ["t.py::x", "t.py::y"], "passed": [], **WHOLE},
        {"room": "a", "mutation": "m2", "killed": ["t.py::x"], "passed": ["t.py::y"], **WHOLE},
        {"room": "a", "mutation": "m3", "killed": [], "passed": ["u.py::z"], **WHOLE},
    ]
    assert [" ".join(line.split()) for line in table(rows, ["t.py"])][1:] == [
        "a 3 2 1 0",
        "only it kills ran test",
        "0 1 2 t.py::y",
        "1 2 2 t.py::x",
        "m2",
        "of 2, 0 kill nothing, and 1 nothing that no other kills",
        "1 survive",
        "m3",
    ]
