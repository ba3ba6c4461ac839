"""docs/internals/parity.md is what its results say."""

from __future__ import annotations

from pathlib import Path

from tests.parity import results
from tests.parity.expected import EXPECTED
from tests.parity.world import CASES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "internals" / "parity.md"


def test_the_document_is_generated():
    assert DOCUMENT.read_text(encoding="utf-8") == results.render()


def test_every_expectation_is_of_a_case():
    assert set(EXPECTED) <= set(CASES)


def test_every_case_has_a_result_in_every_spark_that_was_run():
    found = {(result.spark, result.case): result.outcome for result in results.read()}
    sparks = {spark for spark, _ in found}
    assert sparks
    assert set(found) == {(spark, case) for spark in sparks for case in CASES}
