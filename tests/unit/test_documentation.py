"""docs/internals/documentation.md: pages keep their length, and each question has its answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_links import anchor_of

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "internals"
TEXT = (FOLDER / "documentation.md").read_text(encoding="utf-8")
PAGES = re.findall(r"^\| \[\S+\]\((\S+)\) \| \w+ \| \d+ \| \d* ?\| (\d+) \|$", TEXT, re.MULTILINE)
QUESTIONS = re.findall(
    r"^\| \d+ \| (.+?) \| \[[^\]]+\]\((\S+)#(\S+)\) \| `(.+?)` \| \d+ \| \d+ \|$",
    TEXT,
    re.MULTILINE,
)
SECONDS = re.findall(r"^\| \d+ \| .+ \| `.+?` \| (\d+) \| (\d+) \|$", TEXT, re.MULTILINE)
_WORDS_PER_S = 4
_MOST_S = 60


def words_of(text: str) -> int:
    """Return the words that a reader sees: not those of comments and anchors."""
    seen = re.sub(r"<!--.*?-->|<a id=[^>]*></a>", "", text, flags=re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in seen.split())


def section(text: str, anchor: str) -> str:
    """Return the text below the heading, up to the next heading of its level."""
    for heading in re.finditer(r"^(#+) +(.+?) *$", text, re.MULTILINE):
        if anchor_of(heading[2]) == anchor:
            rest = text[heading.end() :]
            return re.split(rf"^#{{1,{len(heading[1])}}} ", rest, flags=re.MULTILINE)[0]
    return ""


def test_the_tables_are_read() -> None:
    assert len(PAGES) > 30
    assert len(QUESTIONS) == 25


@pytest.mark.parametrize(("page", "most"), PAGES)
def test_no_page_grows_unseen(page: str, most: str) -> None:
    assert words_of((FOLDER / page).read_text(encoding="utf-8")) <= int(most)


def test_markup_is_no_word() -> None:
    assert words_of('<!-- a: generated -->\n| <a id="x"></a>`x` | 1 | two - |') == 3


def test_no_answer_takes_more_than_a_minute() -> None:
    """``make docs-look-up`` has measured them: loading, and reading the words."""
    assert len(SECONDS) == len(QUESTIONS)
    assert [row for row in SECONDS if int(row[1]) > _MOST_S] == []
    assert [row for row in SECONDS if int(row[1]) < int(row[0]) // _WORDS_PER_S] == []


@pytest.mark.parametrize(("question", "page", "anchor", "answer"), QUESTIONS)
def test_each_question_has_its_answer(question: str, page: str, anchor: str, answer: str) -> None:
    text = (FOLDER / page).read_text(encoding="utf-8")
    assert answer in section(text, anchor), f"{question}: not in {page}#{anchor}"
