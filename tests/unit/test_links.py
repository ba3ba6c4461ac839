"""Links of the documents lead to files that exist, and to headings that are in them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

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


def prose(path: Path) -> str:
    return _FENCED.sub("", path.read_text(encoding="utf-8"))


def anchor_of(heading: str) -> str:
    text = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(path: Path) -> set[str]:
    """As code hosts make them: lower case, no punctuation, a hyphen for each space."""
    found: set[str] = set(_ANCHOR.findall(prose(path)))
    for heading in _HEADING.findall(prose(path)):
        anchor = anchor_of(heading)
        number = 1
        while (numbered := anchor if number == 1 else f"{anchor}-{number - 1}") in found:
            number += 1
        found.add(numbered)
    return found


def broken(document: str) -> list[str]:
    path = ROOT / document
    problems = []
    for link in _LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            problems.append(link)
    return problems


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_of(document: str) -> None:
    assert broken(document) == []


def test_links_that_lead_nowhere_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    text = "# A `b`: c → d\n[1](#a-b-c--d) [2](#a) [3](x.md) [4](https://x)\n```\n[5](y.md)\n```\n"
    (tmp_path / "a.md").write_text(text, encoding="utf-8")
    assert broken("a.md") == ["#a", "x.md"]


def test_there_are_links() -> None:
    assert sum(len(_LINK.findall(prose(ROOT / document))) for document in DOCUMENTS) > 100


def test_the_site_shows_every_document_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    shown = re.findall(r"- (?:\w+: )?([\w/-]+\.md)$", navigation, re.MULTILINE)
    assert [name for name, times in Counter(shown).items() if times > 1] == []
    documents = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    own = {name for name in shown if not name.startswith(("repository/", "index.md"))}
    assert own == documents


_TEST = re.compile(r"`(?:tests/)?([\w/]*test_\w+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d.startswith("docs/internals/")])
def test_tests_that_a_record_names_exist(document: str) -> None:
    """The records give tests as evidence: ``folder/test_file.py::test_name``, below tests/."""
    missing = []
    for file, function in _TEST.findall((ROOT / document).read_text(encoding="utf-8")):
        sources = [path.read_text(encoding="utf-8") for path in ROOT.glob(f"tests/**/{file}")]
        if not any(not function or f"def {function}(" in source for source in sources):
            missing.append(f"{file}::{function}")
    assert missing == []
