"""Docstrings, comments and pages are plain technical English: the worst patterns, found by machine."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tables import each_row

PLACES = ("spark_kafka_sink", "pyspark_kafka_sink.py", "jobs", "benchmarks", "release")
ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md")
    for page in (path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))
)
TABLES_OF_PROGRAMS = ("docs/internals/",)
"""Pages whose tables hold names of test cases and results of runs."""
MOST_WORDS = 35
_WORD = "a word that has to be decoded"
_SUBJECT = "a clause as the subject"
_LONG = f"more than {MOST_WORDS} words"
_PATTERNS = {
    _WORD: re.compile(
        r"\b(is|are|was|were|be|been|being) told\b|\btells?\b|\btold\b|\bof them\b|\bwho (has|have|is|are)\b"
        r"|\b(is|are) there\b(?=[.,;:)]|$)|\bg(?:ave|ive[sn]?) up\b|\banew\b|\bdoubled\b|\bleft away\b"
        r"|\b(no|some)body\b|\bsuch a one\b|\bthat one\b|\bwhoever\b|\bmended\b",
        re.IGNORECASE,
    ),
    _SUBJECT: re.compile(r"(?:^|[.:;!?] )(?:Who|Whoever|What|Whatever|Which) (?!.*\?)"),
}
_FRAGMENT = re.compile(
    r"^(Of|Whether|What|Who|Whose|Which|That|As|In|For|To|From|By|With|Without|At|On|Those|Such|If|How"
    r"|Where|When|Why|Than|Only|Not|Until|Before|After|Since|Because|The same|Also|And|Or|But|So|None)\b"
)
EXCEPTIONS = {
    "docs/internals/performance.md: Versions of the matrix: system",  # a list, written by a program
    "docs/internals/performance.md: Installed anew: the first one",  # the name in stored results
}
"""``file: first words`` of what is allowed, with the reason beside it."""


def files(place):
    """Yield the name and the path of each file of Python in ``place``."""
    start = ROOT / place
    for path in [start] if start.is_file() else sorted(start.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path


class Text(NamedTuple):
    """One docstring, or the lines of one comment."""

    line: int
    is_docstring: bool
    text: str


def texts(source):
    """Yield the docstrings (of assignments too) and the comments of a module."""
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield Text(value.lineno, True, value.value)
    last, lines, start = -2, [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(
            r"#\s*(noqa|type:|pragma|!)", token.string
        ):
            if token.start[0] != last + 1 and lines:
                yield Text(start, False, " ".join(lines))
                lines = []
            if not lines:
                start = token.start[0]
            lines.append(token.string.lstrip("# ").strip())
            last = token.start[0]
    if lines:
        yield Text(start, False, " ".join(lines))


def sentences(text):
    """Yield the sentences: paragraphs and lists end one, indented examples and tables are left out."""
    for paragraph in re.split(r"\n\s*\n|\n\s*(?=[-*] |\d+\. |\w+(?:, \w+)*: )", text):
        if re.search(r"^\s{4,}\S+.*(\||->|=|\$ )", paragraph, re.M):
            continue
        flat = " ".join(re.sub(r"``[^`]*``", "code", paragraph).split())
        yield from (s for s in re.split(r"(?<=[.!?]) (?=[A-Z])", flat) if s)


def faults(source):
    """Yield line, what is wrong, and the sentence."""
    for text in texts(source):
        if text.is_docstring and _FRAGMENT.match(text.text.strip()):
            yield text.line, "the first line is a fragment", text.text.strip().splitlines()[0]
        for sentence in sentences(text.text):
            if len(sentence.split()) > MOST_WORDS:
                yield text.line, _LONG, sentence
            for wrong, pattern in _PATTERNS.items():
                if pattern.search(sentence):
                    yield text.line, wrong, sentence


_NO_PROSE = re.compile(r"^ *```.*?^ *```$|^#+ [^\n]*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_END = re.compile(r"""(?<=[.!?])[*_)"]* (?=[*_("]*[A-Z])""")
_ITEM = re.compile(r"<br>|\n\s*(?:[-*]|\d+\.) |\n\s*\n|\n(?=\|)|(?<!\\)\||\s·\s")


def faults_of_a_page(page, markdown):
    """Yield what is wrong and the sentence: of paragraphs, items of lists and cells of tables."""
    text = _NO_PROSE.sub("\n\n", markdown)
    if page.startswith(TABLES_OF_PROGRAMS):
        text = re.sub(r"^\|.*", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    text = re.sub(r"(`+)[^`].*?\1", "Code", text, flags=re.DOTALL)
    for part in _ITEM.split(text):
        for sentence in _END.split(" ".join(part.split())):
            if len(sentence.split()) > MOST_WORDS:
                yield _LONG, sentence
            for wrong, pattern in _PATTERNS.items():
                if pattern.search(sentence):
                    yield wrong, sentence


@each_row("page", PAGES)
def test_sentences_of_pages(page):
    found = [
        f"{wrong}: {sentence}"
        for wrong, sentence in faults_of_a_page(page, (ROOT / page).read_text(encoding="utf-8"))
        if f"{page}: {' '.join(sentence.split()[:5])}" not in EXCEPTIONS
    ]
    assert not found, f"{len(found)} sentences: rewrite them\n" + "\n".join(found)


@pytest.mark.slow
@pytest.mark.timeout(600)  # seconds of CPU, on a machine of any load
@pytest.mark.parametrize("place", PLACES)
def test_sentences(place):
    found = [
        f"{name}:{line}: {wrong}: {sentence}"
        for name, path in files(place)
        for line, wrong, sentence in faults(path.read_text(encoding="utf-8"))
        if f"{name}: {' '.join(sentence.split()[:5])}" not in EXCEPTIONS
    ]
    assert not found, f"{len(found)} sentences: rewrite them\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ('"""Of a task."""', ["the first line is a fragment"]),
        ('"""Return the node that is told of it."""', ["a word that has to be decoded"]),
        ('"""Return it. Who closes it is not known."""', ["a clause as the subject"]),
        (f'"""Return {"the word " * 18}."""', ["more than 35 words"]),
        ("x = 1  # nobody reads it", ["a word that has to be decoded"]),
        ('"""Return the offsets of a batch."""\nx = 1  # noqa', []),
    ],
)
def test_what_is_found(source, wrong):
    assert [found for _, found, _ in faults(source)] == wrong


@pytest.mark.parametrize(
    ("page", "markdown", "wrong"),
    [
        ("docs/a.md", "# Who is told\n\n```\nnobody\n```\n\nA `told` [link](who-has.md).", []),
        ("docs/a.md", "The broker sends it.\nThe driver is told.", [_WORD]),
        ("docs/a.md", "- It works.\n- Who reads it must wait.", [_SUBJECT]),
        ("docs/a.md", "| a | b |\n| --- | --- |\n| c | What is left |", [_SUBJECT]),
        ("docs/internals/a.md", "| a | What is left |\n\nWhat is left.", [_SUBJECT]),
        ("docs/a.md", f"{'word ' * 20}\n{'word ' * 16}", [_LONG]),
        ("docs/a.md", f"{'word ' * 20}\n\n{'word ' * 16}", []),
        ("docs/a.md", f"{'word ' * 20}. (`Code` {'word ' * 16}.)", []),
    ],
)
def test_what_is_found_in_a_page(page, markdown, wrong):
    assert [found for found, _ in faults_of_a_page(page, markdown)] == wrong
