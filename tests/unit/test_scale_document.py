"""docs/internals/scale.md has the figures of the last runs."""

from __future__ import annotations

from tests.chaos import scale_table


def test_the_tables_are_up_to_date():
    text = scale_table.DOCUMENT.read_text(encoding="utf-8")
    assert text == scale_table.render(text), "run python -m tests.chaos.scale_table"
