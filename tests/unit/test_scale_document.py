"""docs/internals/scale.md has the figures of the last runs."""

from __future__ import annotations

from tests.chaos.table import SCALE_DOCUMENT, render_scale


def test_the_tables_are_up_to_date():
    text = SCALE_DOCUMENT.read_text(encoding="utf-8")
    assert text == render_scale(text), "run python -m tests.chaos.table"
