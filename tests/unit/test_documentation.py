"""Documents: their links and commands, what they name, and that generated ones are up to date."""

import importlib.util
import re
import shlex
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from release import commands_document, errors_document, metrics_document, options_document
from release.options_document import KEYS
from spark_kafka_sink.__main__ import _parser
from spark_kafka_sink.config.config_def import KAFKA_PREFIX
from tests.snippets import REPOSITORY, blocks, command_lines, documents
from tests.tables import each_row

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.md")
    for path in ROOT.glob(pattern)
)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def prose(path):
    return _FENCED.sub("", path.read_text(encoding="utf-8"))


def anchor_of(heading):
    text = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(path):
    """As code hosts make them: lower case, no punctuation, a hyphen for each space."""
    found = set(_ANCHOR.findall(prose(path)))
    for heading in _HEADING.findall(prose(path)):
        anchor = anchor_of(heading)
        number = 1
        while (numbered := anchor if number == 1 else f"{anchor}-{number - 1}") in found:
            number += 1
        found.add(numbered)
    return found


def broken(document):
    path = ROOT / document
    problems = []
    text = path.read_text(encoding="utf-8")
    if not document.startswith(("docs/internals", "benchmarks", "CHANGELOG")):
        words = re.findall(r"(?<![\w/.-])(?:conf|jobs|examples)/[\w./-]*\w", text)
        problems += [word for word in words if not (ROOT / word).exists()]
    for link in _LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            problems.append(link)
    return problems


@each_row("document", DOCUMENTS)
def test_links_of(document):
    assert broken(document) == []


def test_the_site_shows_every_document_once():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    shown = re.findall(r"- (?:\w+: )?([\w/-]+\.md)$", navigation, re.MULTILINE)
    assert [name for name, times in Counter(shown).items() if times > 1] == []
    documents = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    own = {name for name in shown if not name.startswith(("repository/", "index.md"))}
    assert own == documents


_TEST = re.compile(r"`(?:tests/)?([\w/]*test_\w+\.py)(?:::(\w+))?`")


@each_row("document", [d for d in DOCUMENTS if d.startswith("docs/internals/")])
def test_tests_that_a_record_names_exist(document):
    """The records give tests as evidence: ``folder/test_file.py::test_name``, below tests/ or evidence/."""
    missing = []
    for file, function in _TEST.findall((ROOT / document).read_text(encoding="utf-8")):
        paths = [
            *ROOT.glob(f"tests/**/{file}"),
            *ROOT.glob(f"evidence/**/{file.removeprefix('evidence/')}"),
        ]
        sources = [path.read_text(encoding="utf-8") for path in paths]
        if not any(not function or f"def {function}(" in source for source in sources):
            missing.append(f"{file}::{function}")
    assert missing == []


def test_files_and_commands_of_contributing_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    quoted = set(re.findall(r"`([^`\n]+)`", text))
    files = {text for text in quoted if re.fullmatch(r"[\w./-]+/[\w./-]*|[\w-]+\.md", text)}
    assert len(files) > 20
    made = (".venv",)
    assert [f for f in files if not f.startswith(made) and not (ROOT / f).exists()] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    named = {target for text in quoted for target in re.findall(r"^make ([a-z0-9-]+)", text)}
    # ``evidence/publishing/test_workflows.py`` reads the workflow files as YAML.
    steps = [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob(".ci/[rf]*")]
    lines = "\n".join(path.read_text(encoding="utf-8") for path in steps if path.is_file())
    called = re.findall(r"^(?: *- run: |exec )?make (.+)$", lines, re.MULTILINE)
    words = {word for line in called for word in line.split() if "=" not in word}
    assert words >= {"test", "wheel", "docs-site", "dist"}
    assert named | words <= targets
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert targets == set(phony[1].split())


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


def in_this_repository(line):
    """A command with the paths that ``pykafka-sink job`` and ``conf`` print in a checkout."""
    line = re.sub(r"\$\(pykafka-sink job ([\w-]+)\)", r"jobs/\1.py", line)
    return re.sub(r"\$\(pykafka-sink conf ([\w-]+)\)", r"conf/\1.conf", line)


def commands(first_word):
    lines = [in_this_repository(line) for _, line in COMMANDS]
    found = [shlex.split(line) for line in lines if line.split()[0] == first_word]
    assert found, f"no document has a command {first_word}"
    return found


@pytest.mark.parametrize("command", commands("make"), ids=" ".join)
def test_make_targets(command):
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command[1]}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("command", commands("spark-submit"), ids=" ".join)
def test_spark_submit(command):
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


@each_row(
    "line",
    [li for _, li in COMMANDS if li.startswith("pykafka-sink") and not DESCRIPTION.search(li)],
)
def test_pykafka_sink(line):
    arguments = _parser().parse_args(shlex.split(line)[1:])
    assert arguments.command is not None


def test_wheels_have_the_name_that_a_build_gives_them():
    """With an underscore: ``pykafka-sink-*.whl`` matches no file."""
    others = ["CONTRIBUTING.md", "Makefile", "examples/kubernetes/Dockerfile"]
    texts = [(REPOSITORY / path).read_text(encoding="utf-8") for path in [*documents(), *others]]
    named = re.findall(r"[\w-]*sink-[^\s`\"/]*\.whl", "\n".join(texts))
    assert len(named) > 5
    assert [name for name in named if not name.startswith("pykafka_sink-")] == []


def test_the_quickstart_is_the_example():
    example = (REPOSITORY / "examples" / "quickstart.py").read_text(encoding="utf-8")
    docstring, code = example.split('"""\n\n', 1)
    assert docstring.startswith('"""')
    assert blocks("README.md", "python")[0].text == code


PACKAGE = ROOT / "spark_kafka_sink"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def rooms():
    """What the file map says of each folder of the package."""
    file_map = DESIGN.split("## File map")[1].split("```")[1].split("spark_kafka_sink/\n")[1]
    parts = re.split(r"^ {2,4}(\w+)/ ", file_map, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def test_the_file_map_names_every_module():
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    assert rooms().keys() == {folder.name for folder in folders}
    for folder in folders:
        modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        assert modules <= set(re.findall(r"\w+", rooms()[folder.name])), folder


def test_every_file_that_is_named_exists():
    names = set(re.findall(r"`((?:\w+/)*\w+\.py)`", DESIGN))
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("[a-z]*/**/*.py")}
    assert len(names) > 30
    missing = {name for name in names if not any(f"/{file}".endswith(f"/{name}") for file in files)}
    assert not missing


DOCS = ROOT / "docs"
GENERATED = {
    # What writes it, and what it is made of, beside itself.
    DOCS / "commands.md": ("release.commands_document", lambda _: commands_document.render()),
    DOCS / "options.md": ("release.options_document", lambda _: options_document.render()),
    DOCS / "errors.md": ("release.errors_document", lambda _: errors_document.render()),
    DOCS / "metrics.md": ("release.metrics_document", lambda _: metrics_document.render()),
}


@pytest.mark.parametrize("document", GENERATED, ids=lambda path: path.name)
def test_a_generated_document_is_up_to_date(document):
    program, render = GENERATED[document]
    text = document.read_text(encoding="utf-8")
    assert text == render(text), f"write {document.name} again: python -m {program}"


ADVICE = re.compile(
    r"(?:Set|Increase|Decrease|Change|Leave|Empty|Give) |For larger records, increase "
)


def test_parity_names_each_default_that_differs_from_javas():
    parity = (DOCS / "parity.md").read_text(encoding="utf-8")
    differing = {
        key.full_name: str(key.java_default)
        for key in KEYS.values()
        if key.java_default is not None and key.full_name.startswith(KAFKA_PREFIX)
    }
    assert len(differing) > 5
    assert [
        name for name, java in differing.items() if name not in parity or java not in parity
    ] == []


def test_each_option_says_when_to_change_it():
    """In a sentence of its own: the meaning has no advice."""
    assert {name: key.when for name, key in KEYS.items() if not ADVICE.match(key.when)} == {}
    assert {name: key.when for name, key in KEYS.items() if not key.when.endswith(".")} == {}
    advice_in_meaning = re.compile(r"(?:^|[.:] )(?:Set|Increase|Decrease|Change|Leave) ")
    assert {name: key.doc for name, key in KEYS.items() if advice_in_meaning.search(key.doc)} == {}
