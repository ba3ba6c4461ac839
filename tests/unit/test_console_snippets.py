"""The commands in README.md and docs/ exist, with these options and files."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from spark_kafka_sink.cli import _parser
from tests.snippets import REPOSITORY, blocks, command_lines, documents

COMMANDS = sorted(
    {
        (document, line)
        for document in documents()
        for block in blocks(document, "")
        for line in command_lines(block)
        if line.split()[0] in ("make", "spark-submit", "pykafka-sink")
    }
)
# "[--yes]", "…" and "A | B" describe a command instead of being one.
DESCRIPTION = re.compile(r"\[|\||…")


def in_this_repository(line: str) -> str:
    """A command with the paths that ``pykafka-sink job`` and ``conf`` print in a checkout."""
    line = re.sub(r"\$\(pykafka-sink job ([\w-]+)\)", r"jobs/\1.py", line)
    return re.sub(r"\$\(pykafka-sink conf ([\w-]+)\)", r"conf/\1.conf", line)


def commands(first_word: str) -> list[list[str]]:
    lines = [in_this_repository(line) for _, line in COMMANDS]
    found = [shlex.split(line) for line in lines if line.split()[0] == first_word]
    assert found, f"no document has a command {first_word}"
    return found


@pytest.mark.parametrize("command", commands("make"), ids=" ".join)
def test_make_targets(command: list[str]) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command[1]}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("command", commands("spark-submit"), ids=" ".join)
def test_spark_submit(command: list[str]) -> None:
    files = [word for word in command if word.startswith(("conf/", "jobs/"))]
    assert [file for file in files if not (REPOSITORY / file).exists()] == []
    script = files[-1]
    assert script.startswith("jobs/")
    spec = importlib.util.spec_from_file_location("documented_job", REPOSITORY / script)
    assert spec is not None
    assert spec.loader is not None
    job = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job)
    job.declare_arguments().parse(command[command.index(script) + 1 :], ())


@pytest.mark.parametrize(
    "line",
    [li for _, li in COMMANDS if li.startswith("pykafka-sink") and not DESCRIPTION.search(li)],
)
def test_pykafka_sink(line: str) -> None:
    arguments = _parser().parse_args(shlex.split(line)[1:])
    assert arguments.command is not None


@pytest.mark.parametrize("document", documents())
def test_files_of_this_repository(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    folder = Path(document).parent
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [link for link in linked if not (REPOSITORY / folder / link).exists()] == []
    words = re.findall(r"(?<![\w/.-])(?:conf|jobs|examples)/[\w./-]*\w", text)
    assert [word for word in words if not (REPOSITORY / word).exists()] == []


def test_wheels_have_the_name_that_a_build_gives_them() -> None:
    """With an underscore: ``pykafka-sink-*.whl`` matches no file."""
    others = ["CONTRIBUTING.md", "Makefile", "examples/kubernetes/Dockerfile"]
    texts = [(REPOSITORY / path).read_text(encoding="utf-8") for path in [*documents(), *others]]
    named = re.findall(r"[\w-]*sink-[^\s`\"/]*\.whl", "\n".join(texts))
    assert len(named) > 5
    assert [name for name in named if not name.startswith("pykafka_sink-")] == []


def test_the_quickstart_is_the_example() -> None:
    example = (REPOSITORY / "examples" / "quickstart.py").read_text(encoding="utf-8")
    docstring, code = example.split('"""\n\n', 1)
    assert docstring.startswith('"""')
    assert blocks("README.md", "python")[0].text == code
