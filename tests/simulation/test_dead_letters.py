"""Rows that cannot be written, in all combinations of what can be wrong with them, and records that
brokers refuse after they were sent: each arrives once, here or as a dead letter, with the right cause.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_kafka_sink import RefusedRowsError
from spark_kafka_sink.base.errors import DeliveryError, KafkaSinkError, RecordError, TopicError
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.sink_keys import TopicLimits
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.record import dead_letters as faults
from spark_kafka_sink.spark import task
from spark_kafka_sink.spark.commit import BatchSummary, KafkaCommitMessage
from spark_kafka_sink.spark.dead_letters import TooManyDeadLettersError
from spark_kafka_sink.spark.task import Interceptors
from tests.simulation.faults import Refusal, refusing
from tests.simulation.harness import assert_has, simulate
from tests.snippets import load_documented

# These rows come with their values: nothing is made of columns.
CAUSES = [cause for cause in faults.CAUSES if cause != faults.NOT_ENCODABLE]
ROWS = 10_240
MOST_BYTES = 900
NAMES = ("value", "key", "headers", "topic", "partition", "timestamp")
COLUMNS = ColumnPositions(value=0, key=1, headers=2, topic=3, partition=4, timestamp=5)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = (pa.binary(), pa.binary(), HEADERS, pa.string(), pa.int32(), pa.timestamp("us", "UTC"))
PREFIX = "__connect.errors."
RULES = TopicLimits(max_message_bytes=None, needs_key=True)
ALL = {"errors_deadletterqueue_max_ratio": "1"}


# --- the user's own, named below by entry points ----------------------------------------------


class Picky:
    """Refuses values that begin with I."""

    def on_send(self, arrow_batch):
        is_bad = pc.starts_with(arrow_batch.column("value"), b"I")
        rows = [n for n, bad in enumerate(is_bad.to_pylist()) if bad]
        if rows:
            raise RefusedRowsError(dict.fromkeys(rows, "begins with I"))
        return arrow_batch


def picky(keys, values, partitions_count):
    """Refuses one kind of value, and sends another one to a partition that does not exist."""
    texts = values.to_pylist()
    refused = {n: "has an R" for n, text in enumerate(texts) if text[1:2] == b"R"}
    if refused:
        raise RefusedRowsError(refused)
    return pa.array([partitions_count if t[1:2] == b"P" else None for t in texts], pa.int32())


def broken(keys, values, partitions_count):
    raise LookupError("the user's own mistake")


HERE = __name__


# --- rows -------------------------------------------------------------------------------------


def row(number, wrong):
    partitioner = "RP"[number % 2] if faults.PARTITIONER in wrong else "."
    value = f"{'I' if faults.INTERCEPTOR in wrong else '.'}{partitioner}{number:06d}".encode()
    header = {"key": "h", "value": b"%d" % number}
    nameless = {"key": None, "value": b"x"}
    topic = "bad topic" if faults.INVALID_TOPIC in wrong else f"t{number % 2}"
    moment_ms = -5 if faults.BAD_TIMESTAMP in wrong else 1_700_000_000_000 + number
    return {
        "value": value.ljust(1000 if faults.TOO_LARGE in wrong else 20, b"."),
        "key": None if faults.NULL_KEY in wrong else b"k%d" % (number % 50),
        "headers": [header, nameless] if faults.NULL_HEADER in wrong else [header],
        "topic": None if faults.NULL_TOPIC in wrong else topic,
        "partition": number % 3 if number % 3 < 2 else None,
        "timestamp": datetime.fromtimestamp(moment_ms / 1000, timezone.utc),
    } | ({"partition": (7, -1)[number % 2]} if faults.BAD_PARTITION in wrong else {})


def arrow_batch(rows):
    columns = [pa.array([r[name] for r in rows], kind) for name, kind in zip(NAMES, TYPES)]
    return pa.record_batch(columns, names=list(NAMES))


def number_of(value):
    return int(value[2:8])


class Task:
    """What a task does with its rows, on a simulated cluster. plan: of the values, made of columns"""

    def __init__(self, positions=COLUMNS, rules=RULES, plan=None, **more):
        given = {
            "kafka.bootstrap.servers": "b:1",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "dead",
            **({} if positions.topic_option is None else {"topic": positions.topic_option}),
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        kafka = {n.removeprefix("kafka."): v for n, v in given.items() if n.startswith("kafka.")}
        kafka.pop("bootstrap.servers")
        options = SinkOptions.parse(given)
        log = options.producer.decision_log
        self.simulation = simulate(decision_log=log, **kafka)
        for topic in ("t", "t0", "t1", "dead", "decisions"):
            self.simulation.cluster.create_topic(topic, 2)
        config = options.dead_letters
        if config is not None:
            object.__setattr__(options, "dead_letters", config._replace(data_topic_limits=rules))
        self.message = KafkaCommitMessage(4, 0, query_id="q-1", batch_id=17)
        hooks = Interceptors(options.interceptors)
        of_task = hooks, self.simulation.producer, positions, options, self.message
        is_made = plan is not None
        self.rows = task._EncodingWriter(*of_task, plan) if is_made else task._RowWriter(*of_task)

    def write(self, *batches):
        written = [part for batch in batches for part in self.rows.write(batch)]
        self.rows.finish()
        return written

    def refuse(self, rule, *how, **more):
        """Brokers refuse such records from now on."""
        self.simulation.cluster.on_validate = refusing(rule, *how, **more)

    def records(self, topic):
        return [r for rs in self.simulation.cluster.records(topic).values() for r in rs]


def headers_of(record):
    """Those of a dead letter, without their prefix."""
    own = ((k.removeprefix(PREFIX), v) for k, v in record.headers if k.startswith(PREFIX))
    return {name: value.decode() for name, value in own}


def cause_of(record):
    return headers_of(record)["cause"]


# --- all kinds at once ------------------------------------------------------------------------


@pytest.mark.slow
def test_ten_thousand_rows_with_all_kinds_of_badness_in_all_combinations():
    combinations = itertools.product((0, 1), repeat=len(CAUSES))
    kinds = [set(itertools.compress(CAUSES, bits)) for bits in combinations]
    rows = {n: (kinds[n % len(kinds)], row(n, kinds[n % len(kinds)])) for n in range(ROWS)}
    given = Task(
        interceptors=f"{HERE}:Picky",
        kafka_partitioner=f"{HERE}:picky",
        kafka_max_request_size=str(MOST_BYTES),
        **ALL,
    )
    given.refuse(lambda topic, r: topic != "dead" and faults.REFUSED in rows[number_of(r.value)][0])
    chunks = [
        arrow_batch([rows[n][1] for n in range(at, at + 1024)]) for at in range(0, ROWS, 1024)
    ]
    written = given.write(*chunks)

    good = {n for n, (wrong, _) in rows.items() if not wrong}
    arrived = Counter(number_of(r.value) for t in ("t0", "t1") for r in given.records(t))
    assert arrived == Counter(good)
    dead = {number_of(r.value): r for r in given.records("dead")}
    assert len(given.records("dead")) == len(dead) == ROWS - len(good)
    assert dead.keys() == rows.keys() - good
    for n, record in dead.items():
        wrong, whole = rows[n]
        told = headers_of(record)
        assert told["cause"] == next(c for c in CAUSES if c in wrong)
        assert told.get("topic") == whole["topic"]
        assert record.key == whole["key"]
        assert ("h", b"%d" % n) in record.headers
        if faults.BAD_TIMESTAMP not in wrong:
            assert record.timestamp == 1_700_000_000_000 + n
    # What tells a replay from other rows is the same, whatever became of which row.
    assert sum(batch.num_rows for batch in written) == ROWS
    expected = Counter(next(c for c in CAUSES if c in w) for w, _ in rows.values() if w)
    assert given.message.dead_letters == expected


def test_what_a_dead_letter_tells():
    given = Task(**ALL)
    given.write(arrow_batch([row(0, set()), row(1, {faults.BAD_PARTITION})]))
    (record,) = given.records("dead")
    told = headers_of(record)
    assert told.pop("exception.message").startswith("Invalid partition -1 for topic 't1'")
    assert told == {
        **{"topic": "t1", "partition": "-1", "timestamp": "1700000000001"},
        **{"cause": "bad-partition", "task.id": "4", "spark.query.id": "q-1"},
        "spark.batch.id": "17",
    }
    assert record.headers[0] == ("h", b"1")
    assert (record.key, record.timestamp) == (b"k1", 1_700_000_000_001)


def test_without_context_headers_there_are_the_rows_own_alone():
    given = Task(**ALL, errors_deadletterqueue_context_headers_enable="false")
    given.write(arrow_batch([row(1, {faults.BAD_PARTITION})]))
    assert given.records("dead")[0].headers == (("h", b"1"),)


# --- sizes ------------------------------------------------------------------------------------

ONE = ColumnPositions(value=0, key=1, topic_option="t0")


def plain(*rows):
    keys, values = zip(*rows)
    return pa.record_batch(
        [pa.array(values, pa.binary()), pa.array(keys, pa.binary())], names=["value", "key"]
    )


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd", "gzip", "snappy"])
def test_the_topics_own_limit_counts_for_what_the_broker_gets(codec):
    """The broker takes every row that is not a dead letter, and no other."""
    given = Task(
        ONE,
        TopicLimits(max_message_bytes=3000),
        kafka_compression_type=codec,
        **ALL,
    )
    given.simulation.cluster.topics["t0"].max_message_bytes = 3000
    noise = given.simulation.rng.randbytes(10_000)
    sizes = [2900, 2928, 2929, 2930, 2931, 2990, 4000]
    batch = plain(*[(b"k", noise[:n]) for n in sizes], (b"zeros", bytes(9000)))
    given.write(batch)
    good = {len(r.value) for r in given.records("t0")}
    assert good | {len(r.value) for r in given.records("dead")} == {*sizes, 9000}
    assert len(given.records("t0")) + len(given.records("dead")) == 8
    assert (9000 in good) == (codec != "none")
    if codec == "none":
        # 61 of the batch, 2 of the record's length, 3, then 2 for the key, 2 of the value's length, 1 of the headers.
        assert max(good) == 3000 - 61 - 2 - 3 - 2 - 2 - 1
    assert 4000 not in good


def test_a_value_that_is_too_large_is_cut_off_and_says_so():
    given = Task(ONE, kafka_max_request_size="2000", **ALL)
    given.write(plain((b"k", bytes(5000)), (b"k" * 3000, b"v"), (b"k", b"good")))
    assert values(given, "t0") == [b"good"]
    of_value, of_key = sorted(given.records("dead"), key=lambda r: len(r.key))
    assert headers_of(of_value)["value.truncated.from"] == "5000"
    assert 1000 < len(of_value.value) < 2000
    told = headers_of(of_key)
    assert (told["key.truncated.from"], told["value.truncated.from"]) == ("3000", "1")
    assert 1000 < len(of_key.key) < 2000


def test_headers_that_are_too_large_are_left_out_and_the_dead_letter_says_so():
    given = Task(kafka_max_request_size="2000", **ALL)
    given.write(arrow_batch([row(1, set()) | {"headers": [{"key": "h", "value": bytes(5000)}]}]))
    (record,) = given.records("dead")
    assert (headers_of(record)["headers.dropped"], record.value, record.key) == ("1", b"", b"k1")


# --- limits -----------------------------------------------------------------------------------


def test_a_task_with_too_many_dead_letters_fails_with_their_causes_and_examples():
    kinds = {n: {faults.NULL_TOPIC} for n in range(0, 800, 100)}
    kinds |= {n: {faults.BAD_TIMESTAMP} for n in (1, 2, 3)}
    with pytest.raises(TooManyDeadLettersError) as raised:
        Task().write(arrow_batch([row(n, kinds.get(n, set())) for n in range(1000)]))
    assert_has(
        str(raised.value),
        "11 dead letter(s) of its 1000 rows, more than errors.deadletterqueue.max.ratio = 0.01",
        "8 null-topic (row 0 of an Arrow batch: null topic",
        "3 bad-timestamp (row 1 of an Arrow batch: Invalid timestamp: -5 ms",
        "[PKS-DEADLETTER-006]",
    )


@pytest.mark.parametrize(("rows_count", "allowed"), [(1, 1), (100, 1), (101, 2), (1000, 10)])
def test_the_ratio_is_rounded_up_to_whole_rows(rows_count, allowed):
    for bad in (allowed, allowed + 1):
        given = Task()
        kinds = [{faults.NULL_TOPIC}] * bad + [set()] * (rows_count - bad)
        batch = arrow_batch([row(n, wrong) for n, wrong in enumerate(kinds)])
        if bad <= allowed:
            given.write(batch)
            assert len(given.records("dead")) == bad
        elif bad <= rows_count:
            with pytest.raises(TooManyDeadLettersError):
                given.write(batch)


def test_above_the_absolute_limit_a_task_fails_at_once():
    given = Task(errors_deadletterqueue_max_rows="2", **ALL)
    with pytest.raises(TooManyDeadLettersError, match=r"3 dead letter\(s\) so far, more than"):
        given.rows.write(arrow_batch([row(n, {faults.NULL_TOPIC}) for n in range(3)]))


# --- what is no fault of a row ----------------------------------------------------------------


def test_a_topic_that_does_not_exist_fails_the_task():
    given = Task(kafka_max_block_ms="100")
    rows = [row(0, set()), row(1, {faults.NULL_TOPIC}), row(2, set()) | {"topic": "missing"}]
    with pytest.raises(TopicError, match="missing"):
        given.write(arrow_batch(rows))
    assert given.records("dead") == []


def test_a_partitioner_that_fails_fails_the_task():
    given = Task(kafka_partitioner=f"{HERE}:broken")
    with pytest.raises(KafkaSinkError, match="the user's own mistake"):
        given.write(arrow_batch([row(0, set()), row(1, {faults.NULL_TOPIC})]))


OF_DECISIONS = {
    "delivery_guarantee": "exactly-once",
    "transactional_id_prefix": "q",
    "transaction_log_topic": "decisions",
}


def decision(number):
    """A row that would be a decision of the query with this prefix, in its decision log."""
    return row(number, set()) | {"topic": "decisions", "key": b"q", "partition": 0}


def test_a_row_for_the_querys_own_decision_log_is_a_dead_letter():
    given = Task(**OF_DECISIONS, **ALL)
    given.write(arrow_batch([row(0, set()), decision(1), row(2, set())]))
    (letter,) = given.records("dead")
    assert headers_of(letter)["topic"] == "decisions"
    assert given.message.dead_letters == {faults.INVALID_TOPIC: 1}
    assert "it is the decision log, transaction.log.topic" in str(headers_of(letter))
    assert given.records("decisions") == []
    assert sorted(number_of(r.value) for r in given.records("t0")) == [0, 2]


def test_a_row_for_the_querys_own_decision_log_fails_the_task_without_a_tolerance():
    given = Task(**OF_DECISIONS, errors_tolerance="none")
    with pytest.raises(RecordError, match=r"'decisions'.*transaction\.log\.topic"):
        given.write(arrow_batch([row(0, set()), decision(1)]))
    assert given.records("decisions") == given.records("t0") == []


def test_without_exactly_once_no_topic_is_the_decision_log():
    given = Task(transaction_log_topic="decisions")
    given.write(arrow_batch([decision(0)]))
    assert len(given.records("decisions")) == 1


def test_without_a_tolerance_rows_that_are_refused_fail_the_task():
    given = Task(interceptors=f"{HERE}:Picky", errors_tolerance="none")
    with pytest.raises(RefusedRowsError, match=r"1 row\(s\) refused: row 1: begins with I"):
        given.write(arrow_batch([row(0, set()), row(1, {faults.INTERCEPTOR})]))
    assert given.message.dead_letters is None
    assert "dead_letters" not in BatchSummary.merge([given.message]).line("commit", 1)


def test_the_documented_interceptor(monkeypatch):
    load_documented("orders", "docs/dead-letters.md", monkeypatch)
    given = Task(interceptors="orders:NeedsKey", **ALL)
    given.write(arrow_batch([row(n, {faults.NULL_KEY} if n % 3 else set()) for n in range(9)]))
    assert sorted(number_of(r.value) for t in ("t0", "t1") for r in given.records(t)) == [0, 3, 6]
    assert given.message.dead_letters == {"interceptor": 6}


def test_counts_of_all_tasks_are_in_the_line():
    messages = [KafkaCommitMessage(n, 0) for n in range(3)]
    messages[0].dead_letters = {"too-large": 2, "null-topic": 1}
    messages[1].dead_letters = {"too-large": 1}
    messages[2].dead_letters = {}
    line = BatchSummary.merge(messages).line("commit", 3)
    assert line["dead_letters"] == {"null-topic": 1, "too-large": 3}


# --- what is told -----------------------------------------------------------------------------


def test_dead_letters_are_logged_where_that_is_wanted(caplog):
    batch = arrow_batch([row(0, set()), row(1, {faults.NULL_TOPIC, faults.BAD_TIMESTAMP})])
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        Task().write(batch)
        assert caplog.messages == []
        Task(errors_log_enable="true").write(batch)
    assert caplog.messages == [
        "1 dead letter(s): 1 null-topic (row 1 of an Arrow batch: null topic present in the data) "
        "[PKS-DEADLETTER-007]"
    ]


# --- brokers refuse records that were appended --------------------------------------------------


def is_bad(topic, record):
    return topic == "t0" and record.value is not None and record.value[:1] == b"x"


def values(given, topic):
    return [r.value for r in given.records(topic)]


def rows(count, every):
    """Each ``every``-th is refused."""
    return [(b"k", (b"x" if n % every == 1 else b".") + b"%06d" % n) for n in range(count)]


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("acks", ["1", "all"])
def test_refused_records_are_dead_letters_and_the_others_arrive_in_order(acks, codec, is_told):
    """Five batches in flight, each with some; three are told of at most, or none at all."""
    given = Task(
        ONE,
        kafka_acks=acks,
        kafka_compression_type=codec,
        kafka_batch_size="300",
        kafka_max_in_flight_requests_per_connection="1" if acks == "1" else "5",
        **ALL,
    )
    given.refuse(is_bad, is_told=is_told)
    appended = rows(300, 7)
    written = given.write(*(plain(*appended[at : at + 50]) for at in range(0, 300, 50)))
    good = [value for _, value in appended if value[:1] == b"."]
    bad = [value for _, value in appended if value[:1] == b"x"]
    (arrived,) = [v for v in given.simulation.values("t0").values() if v]
    assert arrived == good
    assert Counter(values(given, "dead")) == Counter(bad)
    assert given.message.dead_letters == {"refused": len(bad)}
    assert sum(batch.num_rows for batch in written) == 300
    report = given.simulation.producer.report
    assert sum(r.records for r in report.values()) == 300
    assert given.simulation.producer.metrics.record_errors == len(bad)
    assert given.simulation.has_all_memory


def test_a_refused_record_keeps_what_it_has():
    given = Task(**ALL)
    given.refuse(lambda topic, r: topic != "dead" and r.value[2:8] in (b"000002", b"000005"))
    given.write(arrow_batch([row(n, set()) for n in range(8)]))
    first, second = sorted(given.records("dead"), key=lambda r: r.value)
    assert (first.key, second.key) == (b"k2", b"k5")
    assert (first.headers[0], first.timestamp) == (("h", b"2"), 1_700_000_000_002)
    told = headers_of(first)
    assert (told["topic"], told["cause"], told["spark.batch.id"]) == ("t0", "refused", "17")
    why = rf"t0-{told['partition']} refuses it with INVALID_RECORD \(87\): not number \d"
    assert re.fullmatch(why, told["exception.message"])


def test_a_batch_of_which_all_records_are_refused_leaves_no_trace():
    given = Task(ONE, **ALL)
    given.refuse(is_bad, most=1000)
    given.write(plain(*[(b"k", b"x%d" % n) for n in range(9)]))
    given.simulation.producer.append(plain((b"k", b"after")), ONE)
    given.simulation.flush()
    assert values(given, "t0") == [b"after"]
    assert len(values(given, "dead")) == 9


def test_one_that_is_too_large_alone_is_a_dead_letter():
    """The topic's settings are not known here, as with a topic column."""
    given = Task(ONE, TopicLimits(), **ALL)
    given.simulation.cluster.topics["t0"].max_message_bytes = 4000
    given.write(plain((b"k", b"." * 100), (b"k", b"y" * 5000), (b"k", b"." * 99)))
    assert sorted(map(len, values(given, "t0"))) == [99, 100]
    (letter,) = given.records("dead")
    assert letter.value == b"y" * 5000
    assert cause_of(letter) == "too-large"


def test_a_timestamp_that_both_topics_refuse_is_kept_in_a_header_alone():
    given = Task(**ALL)
    early = 1_700_000_000_004
    given.refuse(lambda topic, r: r.timestamp == early, "INVALID_TIMESTAMP")
    given.write(arrow_batch([row(n, {"null-topic"} if n == 6 else set()) for n in range(8)]))
    (letter,) = [r for r in given.records("dead") if headers_of(r).get("topic")]
    assert cause_of(letter) == "bad-timestamp"
    assert headers_of(letter)["timestamp"] == str(early)
    assert letter.timestamp != early


def test_a_bad_timestamp_beside_another_fault_does_not_hide_it():
    """Brokers tell one error for all records of a batch."""
    given = Task(ONE, **ALL)
    told = {b"x1": "Timestamp 7 of message with offset 0 is out of range", b"x2": "no key"}

    def validate(topic, batch):
        rows = {n: told[r.value] for n, r in enumerate(batch.records) if r.value in told}
        return Refusal("INVALID_TIMESTAMP", "invalid", rows) if rows and topic == "t0" else None

    given.simulation.cluster.on_validate = validate
    given.write(plain((b"k", b"x1"), (b"k", b"good"), (b"k", b"x2")))
    causes = {r.value: cause_of(r) for r in given.records("dead")}
    assert causes == {b"x1": "bad-timestamp", b"x2": "refused"}


def test_a_dead_letter_whose_timestamp_is_refused_gets_the_current_time():
    given = Task(**ALL)
    given.refuse(lambda topic, r: r.timestamp == 1_700_000_000_003, "INVALID_TIMESTAMP")
    given.write(arrow_batch([row(n, {"null-topic"}) for n in (3, 4)]))
    found = {r.value[2:8]: r for r in given.records("dead")}
    assert found.keys() == {b"000003", b"000004"}
    assert found[b"000003"].timestamp != 1_700_000_000_003
    assert found[b"000004"].timestamp == 1_700_000_000_004
    assert {cause_of(r) for r in found.values()} == {"null-topic"}
    assert given.message.dead_letters == {"null-topic": 2}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("INVALID_TIMESTAMP", "refuses a record with the current time"),
        ("INVALID_RECORD", r"for dead-\d refused.*INVALID_RECORD"),
    ],
)
def test_a_topic_that_refuses_dead_letters_fails_the_task(error, words):
    given = Task(ONE, **ALL)
    given.refuse(lambda topic, r: topic == "dead", error)
    with pytest.raises(DeliveryError, match=words):
        given.write(plain((b"k", b"good"), (b"k", bytes(2_000_000))))


def test_other_errors_than_those_of_records_make_no_dead_letters():
    given = Task(ONE, **ALL)
    given.simulation.cluster.refuse(*["NOT_ENOUGH_REPLICAS"] * 3)
    given.write(plain((b"k", b"a")))
    assert not given.message.dead_letters
    assert values(given, "t0") == [b"a"]


def test_the_limits_count_what_brokers_refuse():
    for limit in (
        {"errors_deadletterqueue_max_ratio": "0.01"},
        {"errors_deadletterqueue_max_rows": "3", **ALL},
    ):
        given = Task(ONE, **limit)
        given.refuse(is_bad)
        with pytest.raises(TooManyDeadLettersError, match=r"refused \(t0-\d refuses it"):
            given.write(plain(*rows(100, 10)))


def test_without_a_tolerance_the_message_names_the_records():
    simulation = simulate(partitions=1)
    simulation.cluster.on_validate = refusing(lambda topic, r: r.value < b"3", most=5)
    told = "; ".join(f"record {n} of the batch's 9: not number {n}" for n in range(3))
    assert_has(
        simulation.refused(0, *[b"%d" % n for n in range(9)]),
        f"INVALID_RECORD (87): 3 record(s) refused; {told}",
    )


@pytest.mark.parametrize("is_split", [False, True])
def test_nothing_is_left_out_where_an_earlier_attempt_may_have_been_appended(is_split):
    """The answer to the first attempt is lost; then the topic's settings change."""
    given = Task(ONE, kafka_retry_backoff_ms="1", **ALL)
    cluster = given.simulation.cluster

    def change(*_):
        cluster.on_produce = None
        given.refuse(is_bad)
        cluster.topics["t0"].max_message_bytes = 100 if is_split else 1 << 20

    def lose_answer(*_):
        cluster.on_produce = change
        given.simulation.network.faults.cut_next_response = True

    cluster.on_produce = lose_answer
    with pytest.raises(DeliveryError, match="INVALID_RECORD"):
        given.write(plain(*rows(10, 5)))


def test_the_next_task_of_a_producer_tolerates_nothing():
    given = Task(ONE, **ALL)
    producer = given.simulation.producer
    given.refuse(is_bad)
    given.write(plain(*rows(10, 5)))
    producer.begin_task([])
    producer.append(plain(*rows(10, 5)), ONE)
    with pytest.raises(DeliveryError, match="INVALID_RECORD"):
        producer.flush()
