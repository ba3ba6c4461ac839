"""docs/options.md is what the tables say."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from release.options_document import KEYS, render
from spark_kafka_sink.config.config_def import KAFKA_PREFIX
from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG
from spark_kafka_sink.config.security_keys import SECURITY_CONFIG
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS

DOCS = Path(__file__).resolve().parents[2] / "docs"
DOCUMENT = DOCS / "options.md"
MOST_OF_OUR_OWN = 110
MOST_WORDS = 48
MOST_WORDS_OF_WHEN = 26
ADVICE = re.compile(
    r"(?:Set|Increase|Decrease|Change|Leave|Empty|Give) |For larger records, increase "
)


def test_the_document_is_up_to_date():
    command = "python -m release.options_document > docs/options.md"
    assert DOCUMENT.read_text(encoding="utf-8") == render(), f"run: {command}"


def test_each_option_has_one_anchor() -> None:
    """So that messages and pages can link to an option."""
    anchors = re.findall(r'<a id="([^"]+)"></a>', render())
    providers = [name for name in anchors if name.startswith("kafka.config.providers")]
    assert sorted(anchors) == sorted([*KEYS, *providers])
    assert len(set(providers)) == 3


def test_parity_names_each_default_that_differs_from_javas() -> None:
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


def test_each_meaning_is_short() -> None:
    assert {name: key.doc for name, key in KEYS.items() if len(key.doc.split()) > MOST_WORDS} == {}


def test_each_option_says_when_to_change_it() -> None:
    """In a sentence of its own: the meaning has no advice."""
    assert {name: key.when for name, key in KEYS.items() if not ADVICE.match(key.when)} == {}
    assert {name: key.when for name, key in KEYS.items() if not key.when.endswith(".")} == {}
    assert {
        name: key.when for name, key in KEYS.items() if len(key.when.split()) > MOST_WORDS_OF_WHEN
    } == {}
    advice_in_meaning = re.compile(r"(?:^|[.:] )(?:Set|Increase|Decrease|Change|Leave) ")
    assert {name: key.doc for name, key in KEYS.items() if advice_in_meaning.search(key.doc)} == {}


def test_each_row_shows_when_to_change_the_option() -> None:
    rows = [row for row in render().splitlines() if row.startswith('| <a id="')]
    shown = [ADVICE.match(row.rpartition("<br>")[2]) for row in rows]
    assert [row for row, advice in zip(rows, shown) if advice is None] == []
    assert {name for row in rows for name in re.findall(r'<a id="([^"]+)">', row)} >= set(KEYS)


def test_each_option_of_our_own_has_its_reason() -> None:
    """In docs/design.md, where a row may be for a family of names."""
    tables = (SINK_OPTIONS, PRODUCER_CONFIG, SECURITY_CONFIG)
    names = {key.full_name for table in tables for key in table.keys.values()}
    own = {name for name in names if not name.startswith(KAFKA_PREFIX)}
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    section = text.partition("## Options of our own, and why each exists\n")[2].partition("\n## ")[
        0
    ]
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", section, re.MULTILINE)
    assert all(reason.strip() for _, reason in rows)
    patterns = [pattern for cell, _ in rows for pattern in re.findall(r"`([^`]+)`", cell)]
    told = {name: [one for one in patterns if fnmatchcase(name, one)] for name in own}
    assert {name: by for name, by in told.items() if len(by) != 1} == {}
    assert set(patterns) == {one for by in told.values() for one in by}
    assert len(own) <= MOST_OF_OUR_OWN
