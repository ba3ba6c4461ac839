from __future__ import annotations

import json

from tests.chaos.table import DOCUMENT, RESULTS, render


def test_the_tables_are_those_of_the_results():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == render(text), "run python -m tests.chaos.table"


def test_every_fault_was_survived_by_both_jobs():
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert len(results) == 12
    for result in results:
        assert result["read"] == result["records"] == 2_000_000
        assert result["lost"] == result["doubled"] == result["out_of_order"] == 0, result
        assert result["failure"] == ""
