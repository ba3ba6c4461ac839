"""What a replay of dead letters leaves out, and what it refuses, before anything is written."""

from collections import Counter

import pyarrow as pa
import pytest

from spark_kafka_sink.base.entry_points import Hook, HookError, load
from spark_kafka_sink.base.text import MOST_SHOWN
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.record.dead_letters import Row, row_batch
from spark_kafka_sink.record.record_batch import Record
from spark_kafka_sink.tools.dead_letter_replay import (
    MOST_GROUPS,
    OTHER_CAUSE,
    OTHER_TOPICS,
    POSITIONS,
    DeadLetter,
    LetterFilter,
    Replay,
    grouped,
)
from spark_kafka_sink.tools.dead_letters import _most_frequent as most_frequent
from spark_kafka_sink.tools.dead_letters import _time as time_text
from tests.snippets import load_documented

CONFIG = ProducerConfig.parse({"bootstrap.servers": "b:9092"})
DEAD = "flights-dead-letters"


def letter_for(topic, partition=None, timestamp_ms=0):
    headers = [("__connect.errors.topic", topic.encode())]
    if partition is not None:
        headers.append(("__connect.errors.partition", partition.encode()))
    return DeadLetter.of(0, Record(0, timestamp_ms, None, b"v", tuple(headers)))


def naming(topic):
    def mend(batch):
        names = pa.array([topic] * batch.num_rows, batch.schema.types[POSITIONS.topic])
        return batch.set_column(POSITIONS.topic, "topic", names)

    return Hook("'mending:with_topic'", mend)


def test_what_was_to_go_to_the_topic_that_is_read_is_left_out():
    """It would come back with each replay."""
    replay = Replay(CONFIG, DEAD, allowed=["flights", DEAD])
    assert replay.skip_reason(letter_for("flights")) is None
    reason = replay.skip_reason(letter_for(DEAD))
    assert reason is not None
    assert f"'{DEAD}' itself" in reason
    assert reason.endswith("Name another one with --to-topic")


def test_it_is_written_to_another_topic():
    assert Replay(CONFIG, DEAD, to_topic="flights").skip_reason(letter_for(DEAD)) is None
    replay = Replay(CONFIG, DEAD, allowed=["flights"], mend=naming("flights"))
    assert replay.skip_reason(letter_for(DEAD)) is None
    batch = row_batch([Row(b"v", None, [], DEAD, None, 0, "too-large")])
    assert replay.mended(batch).column(POSITIONS.topic).to_pylist() == ["flights"]


def test_a_function_that_leaves_it_the_topic_that_is_read_is_refused():
    batch = row_batch([Row(b"v", None, [], topic, None, 0, "x") for topic in ("a", None)])
    unchanged = Hook("'m:f'", lambda b: b)
    with pytest.raises(HookError, match=f"returned a row for '{DEAD}', the topic that is read"):
        Replay(CONFIG, DEAD, mend=naming(DEAD)).mended(batch)
    assert Replay(CONFIG, DEAD, allowed=["a"], mend=unchanged).mended(batch).num_rows == 2
    with pytest.raises(HookError, match="for 'a', which neither --to-topic nor --allow-topic"):
        Replay(CONFIG, DEAD, allowed=["b"], mend=unchanged).mended(batch)


def test_the_documented_function_encodes_what_could_not_be_encoded(monkeypatch):
    load_documented("encoding", "docs/dead-letters.md", monkeypatch)
    mend = Hook("'encoding:as_avro'", load("encoding:as_avro", "--mend"))
    values = {"not-encodable": b'{"flight":"a"}', "too-large": b"kept"}
    rows = [Row(value, None, [], "flights", None, 0, cause) for cause, value in values.items()]
    replay = Replay(CONFIG, DEAD, allowed=["flights"], mend=mend)
    mended = replay.mended(row_batch(rows)).column(POSITIONS.value).to_pylist()
    assert mended == [b"\0\0\0\0\7\2a\0", b"kept"]


@pytest.mark.parametrize("topic", ["pykafka-sink-transactions", "payments", "__consumer_offsets"])
def test_a_topic_that_the_operator_has_not_named_is_not_written(topic):
    """Whoever may write to the topic of dead letters chooses what their headers say."""
    reason = Replay(CONFIG, DEAD, allowed=["flights"]).skip_reason(letter_for(topic))
    assert reason == "it was to go to a topic that --allow-topic does not name"
    assert Replay(CONFIG, DEAD, to_topic="flights").skip_reason(letter_for(topic)) is None


@pytest.mark.parametrize("partition", ["", "x", "-1", "+1", "１", "2147483648", "9" * 5000, "1.0"])
def test_a_partition_that_is_no_number_leaves_the_row_out(partition):
    letter = letter_for("flights", partition)
    reason = Replay(CONFIG, DEAD, to_topic="flights").skip_reason(letter)
    assert reason is not None
    assert "--without-partition" in reason
    keyed = Replay(CONFIG, DEAD, to_topic="flights", keeps_partition=False)
    assert keyed.skip_reason(letter) is None
    assert keyed.rows([letter]).column(POSITIONS.partition).to_pylist() == [None]


@pytest.mark.parametrize("timestamp_ms", [-1, -(2**63), 2**63 - 1])
def test_a_timestamp_that_no_row_can_have_leaves_it_out(timestamp_ms):
    letter = letter_for("flights", "7", timestamp_ms)
    replay = Replay(CONFIG, DEAD, to_topic="flights")
    assert replay.skip_reason(letter) == "its timestamp is none that a row can have"
    latest = letter_for("flights", "7", (2**63 - 1) // 1000)
    assert replay.skip_reason(latest) is None
    assert replay.rows([latest]).column(POSITIONS.partition).to_pylist() == [7]


@pytest.mark.parametrize("at_ms", [-(2**63), -1, 0, 2**62, 2**63 - 1])
def test_a_time_of_any_64_bits_is_shown(at_ms):
    assert time_text(at_ms)
    assert time_text(2**62) == f"{2**62} ms"


def test_what_records_say_of_themselves_takes_little_memory_and_little_of_the_screen():
    """Whoever may write to the topic chooses causes, topics and messages, of a megabyte each."""
    names = ("cause", "topic", "exception.message")
    letters = []
    for i in range(50):
        long = b"%d" % i + b"x" * 1_000_000
        headers = tuple((f"__connect.errors.{name}", long) for name in names)
        letters.append(DeadLetter.of(0, Record(0, 0, None, b"v", headers)))
    groups = grouped(letters)
    assert {group.cause for group in groups} == {OTHER_CAUSE}
    assert sum(len(group.topic or "") for group in groups) == 50 * 250
    assert {len(group.example) for group in groups} == {MOST_SHOWN}
    reasons = {LetterFilter(["too-large"]).skip_reason(letter) for letter in letters}
    assert reasons == {"of another cause, which --cause does not name"}
    assert Replay(CONFIG, DEAD, allowed=[letters[0].topic or ""]).skip_reason(letters[0])
    one_topic = [
        letter._replace(context={**letter.context, "topic": "flights"}) for letter in letters
    ]
    (group,) = grouped(one_topic)
    assert (group.cause, group.topic, group.letters) == (OTHER_CAUSE, "flights", 50)
    many = [letter_for(f"t{n}") for n in range(MOST_GROUPS + 20)]
    others, first, *_ = found = grouped([*many, many[0]])
    assert (others.cause, others.topic, others.letters) == ("unknown", OTHER_TOPICS, 20)
    assert (first.topic, first.letters) == ("t0", 2)
    assert len(found) == MOST_GROUPS + 1
    told = most_frequent(Counter({f"cause-{i} to flights": i for i in range(50)}))
    assert told.startswith("49 cause-49 to flights; 48 cause-48")
    assert told.endswith("; 30 cause-30 to flights; 435 others")
