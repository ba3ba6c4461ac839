"""Figures of the sink are the Java producer's, or it is said why not; no metric of it is left out."""

from __future__ import annotations

import json

import pytest

from spark_kafka_sink.base import kafka_metrics
from spark_kafka_sink.metrics import names
from tests.java_metrics.comparing import RESULTS
from tests.java_metrics.table import (
    DIFFERENT,
    DOCUMENT,
    NODE,
    PRODUCER,
    TOPIC,
    compared,
    names_of_java,
    render,
)
from tests.java_metrics.work import WORKS

MEASURED = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_document_is_that_of_the_results() -> None:
    command = "python -m tests.java_metrics.table"
    assert DOCUMENT.read_text(encoding="utf-8") == render(MEASURED), f"run: {command}"
    assert list(MEASURED["works"]) == [work.name for work in WORKS]


def test_each_figure_is_javas_or_has_a_reason() -> None:
    beside = [row for row in compared(MEASURED) if not row.is_same and row.name not in DIFFERENT]
    assert beside == []


@pytest.mark.parametrize(
    ("group", "given", "missing", "shown"),
    [
        ("producer", kafka_metrics.PRODUCER_METRICS, names.UNAVAILABLE_METRICS, PRODUCER),
        ("topic", kafka_metrics.TOPIC_METRICS, names.UNAVAILABLE_TOPIC_METRICS, TOPIC),
        ("node", kafka_metrics.NODE_METRICS, {}, NODE),
    ],
)
def test_every_metric_of_java_is_given_or_has_a_reason(
    group: str,
    given: tuple[kafka_metrics.KafkaMetric, ...],
    missing: dict[str, str],
    shown: dict[str, str],
) -> None:
    ours = {metric.name for metric in given}
    theirs = names_of_java(MEASURED, group)
    assert theirs == ours | missing.keys()
    assert {name for name in ours if not name.endswith("-rate")} - {"compression-rate"} == (
        shown.keys() - {"compression-rate"}
    )
