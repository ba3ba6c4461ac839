"""What a line tells of why its batch was slow, in words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.metrics.figures import OTHER, largest_part, shares
from spark_kafka_sink.tools import report_advice
from spark_kafka_sink.tools.report_advice import line_findings
from spark_kafka_sink.tools.report_figures import Finding
from tests.unit.report_lines import (
    CODEC_BOUND,
    EVEN,
    HEALTHY,
    INTERRUPTED,
    SKEWED_KEY,
    SLOW_BROKER,
    THROTTLED,
    TINY_BATCHES,
    line,
    node,
    task,
    times,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "report.md"


@pytest.mark.parametrize(
    ("slow", "kind", "text", "advised"),
    [
        (
            SLOW_BROKER,
            "slow-broker",
            r"broker 2 answered .* within 899 ms, the others .* ms",
            "broker 2: disk",
        ),
        (
            THROTTLED,
            "throttled",
            r"up to 60 ms because of a quota, 4\.8 s for all tasks together \(broker 1 4\.8 s\)",
            "pykafka-sink quota",
        ),
        (
            SKEWED_KEY,
            "skewed-partitions",
            r"orders-0 got 94 % of all records: 5\.6 times",
            "longer key",
        ),
        (TINY_BATCHES, "tiny-batches", r"1\.0 records and 50 B in the mean", "kafka.batch.size"),
        (
            CODEC_BOUND,
            "codec",
            r"compressed for 70 % of their time, to 50 %",
            "lz4 instead of zstd",
        ),
    ],
    ids=["slow broker", "throttled", "skewed key", "tiny batches", "codec bound"],
)
def test_why_was_this_batch_slow(slow: Any, kind: str, text: str, advised: str) -> None:
    first = line_findings(slow)[0]
    assert first.kind == kind
    assert re.search(text, first.text)
    assert advised in first.advice
    assert not first.is_trouble


@pytest.mark.parametrize("slow", [SLOW_BROKER, THROTTLED, SKEWED_KEY, TINY_BATCHES, CODEC_BOUND])
def test_each_cause_is_told_alone(slow: Any) -> None:
    assert len(line_findings(slow)) == 1


def test_nothing_is_said_of_a_healthy_batch() -> None:
    assert line_findings(HEALTHY) == []
    assert line_findings({}) == []


def kinds(found: list[Finding]) -> list[str]:
    return [finding.kind for finding in found]


def of(*tasks: Any, **more: Any) -> list[str]:
    return kinds(line_findings(line(*tasks, **more)))


def test_a_broker_that_is_slow_and_waited_for_by_nobody() -> None:
    nodes = {1: node(5), 2: node(900), 3: node(5)}
    assert of(task(0, EVEN, nodes=nodes)) == []


def test_all_brokers_are_slow() -> None:
    nodes = {1: node(800), 2: node(900), 3: node(700)}
    waiting = times(3000, buffer_wait=2000, ack_wait=100)
    found = line_findings(line(task(0, EVEN, nodes=nodes, **waiting)))
    assert kinds(found) == ["brokers-are-the-limit"]
    assert "more tasks do not" in found[0].advice
    found = line_findings(line(task(0, EVEN, nodes=nodes, **times(3000, ack_wait=2000))))
    assert "Fewer, longer tasks" in found[0].advice


def test_small_batches_of_many_short_tasks() -> None:
    tasks = [task(number, [10] * 12, batches=12, batch_size_max=900) for number in range(50)]
    found = line_findings(line(*tasks))
    assert kinds(found) == ["tiny-batches"]
    assert "coalesce" in found[0].advice


def test_a_task_that_is_longer_than_the_others() -> None:
    short = [task(number, [500], **times(400, encode=300)) for number in range(9)]
    found = line_findings(line(*short, task(9, [50_000], **times(9000, encode=3000))))
    assert kinds(found) == ["skewed-tasks"]
    assert "repartition" in found[0].advice
    found = line_findings(line(*short, task(9, [500], **times(9000, encode=3000))))
    assert "its host" in found[0].advice


def test_other_limits() -> None:
    assert of(task(0, EVEN, **times(1000, input_wait=800))) == ["spark"]
    assert of(task(0, EVEN, **times(1000, encode=800))) == ["encoding"]
    assert of(task(0, EVEN, **times(2_000, load=500))) == ["loading"]
    assert of(task(0, EVEN, **times(1000, metadata_wait=500))) == ["metadata"]
    assert of(task(0, EVEN), commit_ms=900, transactions=1) == ["committing"]
    assert of(task(0, EVEN, batch_splits=3)) == ["split"]


def test_a_codec_that_gains_nothing() -> None:
    slow = task(0, EVEN, compressed_bytes=1_190_000, **times(1000, compress=600))
    assert "kafka.compression.type=none" in line_findings(line(slow))[0].advice


def test_what_is_left_of_a_pause_of_the_batch_before() -> None:
    waiting = times(6000, ack_wait=5800)
    left = task(0, EVEN, throttle_left_ms=5500, **waiting)
    found = line_findings(line(left, task(1, EVEN, throttle_left_ms=5500, **waiting)))
    assert kinds(found) == ["throttled"]
    assert "pauses that brokers had asked for before" in found[0].text
    assert "11.0 s" in found[0].text


def test_the_limit_that_is_set() -> None:
    made = line(task(0, EVEN, limit_wait_ms=5500, **times(6000, ack_wait=5800)))
    (found,) = line_findings({**made, "settings": {"max.bytes.per.second.per.task": "1000000"}})
    assert found.kind == "limited"
    assert "5.5 s, 92 % of their time" in found.text
    assert "max.bytes.per.second.per.task is 1000000." in found.advice
    made["metrics"]["limit_wait_ms"] = 500
    assert kinds(line_findings(made)) == ["brokers-are-the-limit"]


def test_a_limit_is_the_cause_and_no_quota_is_named() -> None:
    """Batches that a limit holds are waited for as acknowledgements; brokers have paused nothing."""
    waiting = times(12_500, encode=300, buffer_wait=4_000, ack_wait=8_000)
    (found,) = line_findings(line(task(0, EVEN, limit_wait_ms=12_000, **waiting)))
    assert found.kind == "limited"
    assert "quota" not in found.text + found.advice
    assert largest_part(line(task(0, EVEN, limit_wait_ms=12_000, **waiting)))[0] == (
        "waiting for the task limit"
    )


def test_waits_for_limits_and_quotas_are_parts_of_their_own() -> None:
    waiting = {"task_ms": 1000, "buffer_wait_ms": 200, "ack_wait_ms": 600}
    found = shares(
        {**waiting, "limit_wait_ms": 300, "throttle_time_ms": 60, "throttle_left_ms": 40}
    )
    assert found["limit_wait_ms"] == pytest.approx(0.3)
    assert found["quota_wait_ms"] == pytest.approx(0.1)
    assert found["buffer_wait_ms"] == pytest.approx(0.1)
    assert found["ack_wait_ms"] == pytest.approx(0.3)
    assert found[OTHER] == pytest.approx(0.2)
    # Several brokers may pause at once, and a task may encode while the limit holds batches.
    found = shares({**waiting, "limit_wait_ms": 700, "throttle_time_ms": 5000})
    assert found["limit_wait_ms"] == pytest.approx(0.7)
    assert found["quota_wait_ms"] == pytest.approx(0.1)
    assert found["ack_wait_ms"] == found["buffer_wait_ms"] == 0
    assert shares({"task_ms": 1000, "limit_wait_ms": 500})["limit_wait_ms"] == 0


def test_what_cost_most_time_is_the_main_cause() -> None:
    some, waiting = {"too-large": 3}, times(3000, buffer_wait=2000)
    assert of(task(0, EVEN, **waiting), dead_letters=some) == [
        *("brokers-are-the-limit", "dead-letters")
    ]
    short = task(0, EVEN, throttle_time_ms=5, throttle_time_max_ms=5, **waiting)
    assert of(short) == ["brokers-are-the-limit"]
    longer = task(0, EVEN, throttle_time_ms=400, throttle_time_max_ms=5, **waiting)
    assert of(longer) == ["brokers-are-the-limit", "throttled"]
    # Shares of task time count as much as tasks took of the batch.
    driver = {"planning_ms": 7000.0, "planning_started_at_ms": 1, "commit_ms": 2500}
    found = line_findings(line(task(0, EVEN, **waiting), **driver))
    assert kinds(found) == ["planning", "committing", "brokers-are-the-limit"]
    assert sum(finding.weight for finding in found) == pytest.approx(1.0, abs=0.1)


def test_waiting_that_is_worth_no_words() -> None:
    """Most of the time, and no time."""
    nodes = {1: node(5), 2: node(60), 3: node(5)}
    assert of(*(task(n, EVEN, nodes=nodes, **times(60, ack_wait=50)) for n in range(20))) == []
    assert of(*(task(n, EVEN, nodes=nodes, **times(600, ack_wait=500)) for n in range(20))) == [
        "slow-broker"
    ]


def test_dead_letters() -> None:
    some = {"too-large": 30, "null-key": 200, "partitioner": 0}
    (found,) = line_findings(line(task(0, EVEN), dead_letters=some))
    assert found.kind == "dead-letters"
    assert found.text == "230 rows could not be written, 2 % of all: 200 null-key, 30 too-large."
    assert "dead-letters show" in found.advice
    assert line_findings(line(task(0, EVEN), dead_letters={"too-large": 0})) == []
    # Those that brokers have refused are among them.
    assert len(line_findings(line(task(0, EVEN, record_errors=2), dead_letters=some))) == 1


def test_planning() -> None:
    assert of(task(0, EVEN), planning_ms=2500.0, planning_started_at_ms=1) == ["planning"]
    assert of(task(0, EVEN), planning_ms=300.0, planning_started_at_ms=1) == []


def test_what_the_settings_are() -> None:
    given = {"kafka.batch.size": "200", "kafka.linger.ms": "0"}
    found = line_findings({**TINY_BATCHES, "settings": given})
    assert "kafka.batch.size (now 200, default 131072) or kafka.linger.ms (now 0)" in (
        found[0].advice
    )
    found = line_findings(TINY_BATCHES)
    assert "kafka.batch.size (default 131072) or kafka.linger.ms is" in found[0].advice


def test_why_a_batch_was_aborted() -> None:
    found = line_findings(line(task(0, EVEN), event="abort", note="n", error="E: x"))[0]
    assert found.text == "n. E: x"
    assert "stopped" not in found.advice


@pytest.mark.parametrize("error", INTERRUPTED)
def test_a_batch_that_the_user_has_stopped_is_no_failure(error: str) -> None:
    found = line_findings(line(task(0, EVEN), event="abort", note="n", error=error))[0]
    assert (found.kind, found.advice) == ("stopped", "")
    assert found.text == "The query or job was stopped while it wrote. n"


def test_an_abort_without_a_reason_may_be_a_stop() -> None:
    """Spark tells a data source no reason."""
    found = line_findings(line(task(0, EVEN), event="abort", note="n"))[0]
    assert found.advice.startswith("If you stopped the query, its next start writes")


def test_trouble_that_takes_no_time_comes_last() -> None:
    waiting = times(3000, buffer_wait=2000)
    retried = task(0, EVEN, record_retries=500, **waiting)
    assert of(retried) == ["brokers-are-the-limit", "retried"]
    found = line_findings(line(retried, event="abort", note="a task has failed"))
    assert kinds(found) == ["aborted", "brokers-are-the-limit", "retried"]
    assert found[0].text == "a task has failed."
    assert of(task(0, EVEN, record_errors=2)) == ["records-refused"]
    assert of(task(0, EVEN), failed_attempts=2) == ["failed-attempts"]


def test_shares_of_task_time() -> None:
    found = shares({"task_ms": 100, "encode_ms": 40})
    assert found["encode_ms"] == pytest.approx(0.4)
    assert found[OTHER] == pytest.approx(0.6)
    beside = shares({"task_ms": 100, "encode_ms": 40, "compress_ms": 160})
    assert beside["compress_ms"] == pytest.approx(0.8)
    assert sum(shares({}).values()) == 0
    assert largest_part(CODEC_BOUND)[0] == "compressing"
    assert largest_part({**CODEC_BOUND, "commit_ms": 60_000})[0] == "committing"


def test_the_document_has_every_kind() -> None:
    folder = Path(report_advice.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    made = set(re.findall(r'Finding\(\s*"([a-z-]+)"', code))
    told = set(re.findall(r"^\| `([a-z-]+)` \|", DOCUMENT.read_text("utf-8"), re.MULTILINE))
    assert made == told
