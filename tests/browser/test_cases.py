"""Why was batch 17 slow? Answered from the page alone, of real runs in which it was made slow.

make test-report-cases: three brokers, Spark, and a browser; 3 minutes.
"""

import pytest

from spark_kafka_sink.cli import main
from tests.browser.cases import BATCHES, CASES, HURT, Run, world
from tests.spark.session import spark_session

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def a_world():
    with spark_session() as spark, world(spark) as made:
        yield made


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_why_was_batch_17_slow(case, a_world, tmp_path, open_page):
    metrics = Run(a_world, case, tmp_path).run()
    report = tmp_path / "report.html"
    assert main(["report", str(metrics), "--output", str(report)]) == 0
    page = open_page(report)
    rows = page.locator("#latest tbody tr")
    assert rows.count() >= BATCHES
    # It stands out, with its cause, before anything else is read.
    said = page.locator("#outliers li", has_text=f"batch {HURT},")
    assert kinds(said)[0] == case.kind, kinds(said)
    # Its row says the same, in words and with what to do, when it is unfolded.
    row = rows.filter(has=page.locator("th", has_text=f"{HURT}"))
    assert kinds(row)[0] == case.kind
    advice = row.locator(f"[data-kind={case.kind}] .do")
    assert not advice.is_visible()
    row.locator("summary").click()
    assert advice.is_visible()
    # Of no other batch this is said; what is left of a pause hurts the next one too.
    others = rows.filter(has_not=page.locator("th", has_text=f"{HURT}"))
    also = [row for row in others.all() if case.kind in kinds(row)[:1]]
    assert len(also) <= case.hurts_next, [row.inner_text() for row in also]
    if case.hurt_options:
        changed = page.locator("#changes tbody tr").all_inner_texts()
        for name, value in case.hurt_options.items():
            assert [text for text in changed if text.split("\t")[2::2] == [name, value]], changed
    if case.kind == "throttled":
        chart = page.locator("#time .chart")
        chart.focus()
        for _ in range(HURT + 1):
            page.keyboard.press("ArrowRight")
        told = page.locator("#time .readout").inner_text()
        assert told.startswith(f"batch {HURT}, ")
        assert told.endswith("ms of pauses for quotas")
    assert (page.outside, page.problems) == ([], [])


def kinds(element):
    """Of the findings in it, the most important first."""
    found = element.locator("[data-kind]").evaluate_all("all => all.map(one => one.dataset.kind)")
    return found
