"""docs/options.md is what the tables say."""

from __future__ import annotations

from pathlib import Path

from release.options_document import render

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def test_the_document_is_up_to_date():
    command = "python -m release.options_document > docs/options.md"
    assert DOCUMENT.read_text(encoding="utf-8") == render(), f"run: {command}"
