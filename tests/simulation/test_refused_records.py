"""Brokers refuse records that were appended: they become dead letters, and the others of their batch
arrive, each once and in order.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from spark_kafka_sink.base.errors import DeliveryError
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_keys import TopicLimits
from spark_kafka_sink.spark.dead_letters import TooManyDeadLettersError
from tests import twin
from tests.simulation.harness import simulate
from tests.simulation.refusing import Refusal, refusing
from tests.simulation.test_dead_letters import PREFIX, Task, arrow_batch, headers_of, plain, row

ONE = ColumnPositions(value=0, key=1, topic_option="t0")
ALL = {"errors_deadletterqueue_max_ratio": "1"}


def is_bad(topic: str, record: twin.Record) -> bool:
    return topic == "t0" and record.value is not None and record.value[:1] == b"x"


def values(given: Task, topic: str) -> list[bytes]:
    return [r.value for r in given.records(topic)]


def rows(count: int, every: int) -> list[tuple[bytes, bytes]]:
    """Each ``every``-th is refused."""
    return [(b"k", (b"x" if n % every == 1 else b".") + b"%06d" % n) for n in range(count)]


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("acks", ["1", "all"])
def test_refused_records_are_dead_letters_and_the_others_arrive_in_order(
    acks: str, codec: str, is_told: bool
) -> None:
    """Five batches in flight, each with some; three are told of at most, or none at all."""
    given = Task(
        ONE,
        kafka_acks=acks,
        kafka_compression_type=codec,
        kafka_batch_size="300",
        kafka_max_in_flight_requests_per_connection="1" if acks == "1" else "5",
        **ALL,
    )
    given.simulation.cluster.on_validate = refusing(is_bad, is_told=is_told)
    appended = rows(600, 7)
    written = given.write(*(plain(*appended[at : at + 100]) for at in range(0, 600, 100)))
    good = [value for _, value in appended if value[:1] == b"."]
    bad = [value for _, value in appended if value[:1] == b"x"]
    (arrived,) = [v for v in given.simulation.values("t0").values() if v]
    assert arrived == good
    assert Counter(values(given, "dead")) == Counter(bad)
    assert given.message.dead_letters == {"refused": len(bad)}
    assert sum(batch.num_rows for batch in written) == 600
    report = given.simulation.producer.report
    assert sum(r.records for r in report.values()) == 600
    assert given.simulation.producer.metrics.record_errors == len(bad)
    pool = given.simulation.producer.pool
    assert pool.free_count == pool.pages_count


def test_a_refused_record_keeps_what_it_has() -> None:
    given = Task(**ALL)
    given.simulation.cluster.on_validate = refusing(
        lambda topic, r: topic != "dead" and r.value[2:8] in (b"000002", b"000005")
    )
    given.write(arrow_batch([row(n, set()) for n in range(8)]))
    first, second = sorted(given.records("dead"), key=lambda r: r.value)
    assert (first.key, second.key) == (b"k2", b"k5")
    assert first.headers[0] == ("h", b"2")
    assert first.timestamp == 1_700_000_000_002
    told = headers_of(first)
    message, partition = (told.pop(PREFIX + name) for name in ("exception.message", "partition"))
    assert re.fullmatch(
        rf"t0-{partition} refuses it with INVALID_RECORD \(87\): not number \d", message
    )
    assert told == {
        PREFIX + "topic": "t0",
        PREFIX + "timestamp": "1700000000002",
        PREFIX + "cause": "refused",
        PREFIX + "task.id": "4",
        PREFIX + "spark.query.id": "q-1",
        PREFIX + "spark.batch.id": "17",
    }


def test_a_batch_of_which_all_records_are_refused_leaves_no_trace() -> None:
    given = Task(ONE, **ALL)
    given.simulation.cluster.on_validate = refusing(is_bad, most=1000)
    given.write(plain(*[(b"k", b"x%d" % n) for n in range(9)]))
    given.simulation.producer.append(plain((b"k", b"after")), ONE)
    given.simulation.producer.flush()
    assert values(given, "t0") == [b"after"]
    assert len(values(given, "dead")) == 9


def test_one_that_is_too_large_alone_is_a_dead_letter() -> None:
    """The topic's settings are not known here, as with a topic column."""
    given = Task(ONE, TopicLimits(), **ALL)
    given.simulation.cluster.topics["t0"].max_message_bytes = 4000
    given.write(plain((b"k", b"." * 100), (b"k", b"y" * 5000), (b"k", b"." * 99)))
    assert sorted(map(len, values(given, "t0"))) == [99, 100]
    (letter,) = given.records("dead")
    assert letter.value == b"y" * 5000
    assert headers_of(letter)[PREFIX + "cause"] == "too-large"


def test_a_timestamp_that_both_topics_refuse_is_kept_in_a_header_alone() -> None:
    given = Task(**ALL)
    early = 1_700_000_000_004
    given.simulation.cluster.on_validate = refusing(
        lambda topic, r: r.timestamp == early, "INVALID_TIMESTAMP"
    )
    given.write(arrow_batch([row(n, {"null-topic"} if n == 6 else set()) for n in range(8)]))
    (letter,) = [r for r in given.records("dead") if headers_of(r).get(PREFIX + "topic")]
    assert headers_of(letter)[PREFIX + "cause"] == "bad-timestamp"
    assert headers_of(letter)[PREFIX + "timestamp"] == str(early)
    assert letter.timestamp != early


def test_a_bad_timestamp_beside_another_fault_does_not_hide_it() -> None:
    """Brokers tell one error for all records of a batch."""
    given = Task(ONE, **ALL)
    told = {b"x1": "Timestamp 7 of message with offset 0 is out of range", b"x2": "no key"}

    def validate(topic: str, batch: twin.RecordBatch) -> Refusal | None:
        rows = {n: told[r.value] for n, r in enumerate(batch.records) if r.value in told}
        return Refusal("INVALID_TIMESTAMP", "invalid", rows) if rows and topic == "t0" else None

    given.simulation.cluster.on_validate = validate
    given.write(plain((b"k", b"x1"), (b"k", b"good"), (b"k", b"x2")))
    causes = {r.value: headers_of(r)[PREFIX + "cause"] for r in given.records("dead")}
    assert causes == {b"x1": "bad-timestamp", b"x2": "refused"}


def test_a_dead_letter_whose_timestamp_is_refused_gets_the_current_time() -> None:
    given = Task(**ALL)
    given.simulation.cluster.on_validate = refusing(
        lambda topic, r: r.timestamp == 1_700_000_000_003, "INVALID_TIMESTAMP"
    )
    given.write(arrow_batch([row(n, {"null-topic"}) for n in (3, 4)]))
    found = {r.value[2:8]: r for r in given.records("dead")}
    assert found.keys() == {b"000003", b"000004"}
    assert found[b"000003"].timestamp != 1_700_000_000_003
    assert found[b"000004"].timestamp == 1_700_000_000_004
    assert {headers_of(r)[PREFIX + "cause"] for r in found.values()} == {"null-topic"}
    assert given.message.dead_letters == {"null-topic": 2}


def test_a_topic_of_dead_letters_that_refuses_the_current_time_fails_the_task() -> None:
    given = Task(ONE, **ALL)
    given.simulation.cluster.on_validate = refusing(
        lambda topic, r: topic == "dead", "INVALID_TIMESTAMP"
    )
    batch = plain((b"k", b"good"), (b"k", bytes(2_000_000)))
    with pytest.raises(DeliveryError, match="refuses a record with the current time"):
        given.write(batch)


def test_a_dead_letter_that_is_refused_for_another_reason_fails_the_task() -> None:
    given = Task(ONE, **ALL)
    given.simulation.cluster.on_validate = refusing(lambda topic, r: topic == "dead")
    with pytest.raises(DeliveryError, match=r"for dead-\d refused.*INVALID_RECORD"):
        given.write(plain((b"k", b"good"), (b"k", bytes(2_000_000))))


def test_the_limits_count_what_brokers_refuse() -> None:
    for limit in (
        {"errors_deadletterqueue_max_ratio": "0.01"},
        {"errors_deadletterqueue_max_rows": "3", **ALL},
    ):
        given = Task(ONE, **limit)
        given.simulation.cluster.on_validate = refusing(is_bad)
        with pytest.raises(TooManyDeadLettersError, match=r"refused \(t0-\d refuses it"):
            given.write(plain(*rows(100, 10)))


def test_without_a_tolerance_the_message_names_the_records() -> None:
    simulation = simulate(partitions=1)
    simulation.cluster.on_validate = refusing(lambda topic, r: r.value < b"3", most=5)
    simulation.append_to(0, [b"%d" % n for n in range(9)])
    with pytest.raises(DeliveryError) as raised:
        simulation.producer.flush()
    assert (
        "INVALID_RECORD (87): 3 record(s) refused; record 0 of the batch's 9: not number 0; record "
        "1 of the batch's 9: not number 1; record 2 of the batch's 9: not number 2"
        in str(raised.value)
    )


@pytest.mark.parametrize("is_split", [False, True])
def test_nothing_is_left_out_where_an_earlier_attempt_may_have_been_appended(
    is_split: bool,
) -> None:
    """The answer to the first attempt is lost; then the topic's settings change."""
    given = Task(ONE, kafka_retry_backoff_ms="1", **ALL)
    cluster = given.simulation.cluster
    seen = []

    def lose_first_answer(broker: object, topic: str, index: int, batch: object) -> None:
        seen.append(topic)
        given.simulation.network.faults.cut_next_response = len(seen) == 1
        if len(seen) == 2:
            cluster.on_validate = refusing(is_bad)
            if is_split:
                cluster.topics["t0"].max_message_bytes = 100

    cluster.on_produce = lose_first_answer
    with pytest.raises(DeliveryError, match="INVALID_RECORD"):
        given.write(plain(*rows(10, 5)))


def test_the_next_task_of_a_producer_tolerates_nothing() -> None:
    given = Task(ONE, **ALL)
    producer = given.simulation.producer
    given.simulation.cluster.on_validate = refusing(is_bad)
    given.write(plain(*rows(10, 5)))
    producer.begin_task([])
    producer.append(plain(*rows(10, 5)), ONE)
    with pytest.raises(DeliveryError, match="INVALID_RECORD"):
        producer.flush()
