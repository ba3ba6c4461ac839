"""Each program of evidence/ can start: its imports and arguments are right, and its plan is not empty."""

import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from evidence.__main__ import main
from evidence.everything import read, run_all
from evidence.programs import PROGRAMS, table

ROOT = Path(__file__).parents[2]
SUITES = {name: program for name, program in PROGRAMS.items() if program.tests}
EVIDENCE = "evidence/"
HAS_TOOLS_OF_A_RELEASE = find_spec("cyclonedx") is not None


@pytest.mark.parametrize("name", sorted({*PROGRAMS} - {*SUITES}))
def test_a_program_shows_what_it_would_run(name, capsys):
    assert main([name, "--plan"]) == 0
    assert capsys.readouterr().out.startswith("would run: ")


@pytest.fixture(scope="module")
def collected():
    """Numbers of tests by file, for all suites in one process."""
    suites = [s for s in SUITES.values() if s.environment != "release" or HAS_TOOLS_OF_A_RELEASE]
    paths = {path for suite in suites for path in suite.tests if EVIDENCE in path}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "long", *sorted(paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Counter(re.findall(r"^(\S+?)::", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_collected(name, collected):
    if SUITES[name].environment == "release" and not HAS_TOOLS_OF_A_RELEASE:
        pytest.skip("the extra release is not installed")
    if name == "registry" and find_spec("authlib") is None:
        pytest.skip("the extra registry is not installed")
    for path in SUITES[name].tests:
        if path.startswith(EVIDENCE):
            assert any(file.startswith(path) for file in collected), path
        assert (ROOT / path).exists()


def test_every_file_of_tests_is_in_a_suite():
    files = [str(file.relative_to(ROOT)) for file in ROOT.glob("evidence/**/test_*.py")]
    paths = [path for suite in SUITES.values() for path in suite.tests]
    assert [file for file in files if not any(file.startswith(path) for path in paths)] == []


def test_make_starts_a_program():
    made, sources = Path(sys.prefix, "dev.installed"), ROOT / "pyproject.toml"
    if not made.exists() or made.stat().st_mtime < sources.stat().st_mtime:
        pytest.skip("an environment of make is not installed")
    command = ["make", f"VENV={sys.prefix}", "evidence", "NAME=chaos", "ARGUMENTS=--plan"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "would run: " in done.stdout


def test_every_long_test_of_tests_is_in_a_suite():
    paths = [path for suite in SUITES.values() for path in suite.tests]
    marked = re.compile(r"^ *(?:@|pytestmark.*|.*marks=.*)pytest\.mark\.long\b", re.MULTILINE)
    files = [file for file in ROOT.glob("tests/**/test_*.py") if marked.search(file.read_text())]
    names = [str(file.relative_to(ROOT)) for file in files]
    assert len(names) > 5
    assert [name for name in names if not any(name.startswith(path) for path in paths)] == []


def test_a_run_of_everything_goes_on_where_it_was_interrupted(tmp_path):
    """What has an outcome on this commit does not run again, unless it is named."""
    ran = tmp_path / "ran"

    def run(commit, exit_codes, named=()):
        say = "echo {0} >> {1}; echo end of {0}; exit {2}"
        shell = {n: ["sh", "-c", say.format(n, ran, code)] for n, code in exit_codes.items()}
        return run_all(shell, commit, named, tmp_path / "results.json", tmp_path / "logs")

    run("c1", {"a": 0})
    outcomes = run("c1", {"a": 0, "b": 3})
    assert {n: (o["exit"], o["end"]) for n, o in outcomes.items()} == {
        "a": (0, "end of a"),
        "b": (3, "end of b"),
    }
    run("c1", {"a": 0, "b": 0})
    run("c1", {"a": 0, "b": 0}, ["b"])
    run("c2", {"a": 0})
    assert ran.read_text().split() == ["a", "b", "b", "a"]
    assert {*read(tmp_path / "results.json")} == {"a"}


def test_what_has_no_name_is_refused(capsys):
    assert main(["nothing"]) == 2
    assert "no program 'nothing'" in capsys.readouterr().err


def test_the_list_and_the_environments(capsys):
    assert main([]) == 0
    assert all(f"\n{name} " in f"\n{capsys.readouterr().out}" for name in list(PROGRAMS)[:1])
    assert main(["--environment", "publishing"]) == 0
    assert capsys.readouterr().out == "release\n"


def test_the_table_of_the_readme_is_that_of_the_programs():
    assert table() in (ROOT / "evidence" / "README.md").read_text(encoding="utf-8")


ALLOWED = re.compile(r"^(?:from|import) evidence(?!\.harness\b)", re.MULTILINE)


def test_tests_use_nothing_of_evidence_but_its_harness():
    own = ROOT / "tests" / "evidence"
    files = [file for file in ROOT.glob("tests/**/*.py") if own not in file.parents]
    found = [file.name for file in files if ALLOWED.search(file.read_text(encoding="utf-8"))]
    assert found == []
