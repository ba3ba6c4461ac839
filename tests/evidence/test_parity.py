"""The results of the cases in each version of Spark are whole."""

from evidence.parity import results
from evidence.parity.results import EXPECTED
from evidence.parity.world import CASES


def test_every_expectation_is_of_a_case():
    assert set(EXPECTED) <= set(CASES)


def test_every_case_has_a_result_in_every_spark_that_was_run():
    found = {(result.spark, result.case): result.outcome for result in results.read()}
    sparks = {spark for spark, _ in found}
    assert sparks
    assert set(found) == {(spark, case) for spark in sparks for case in CASES}
