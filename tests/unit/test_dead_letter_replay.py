"""What a replay of dead letters leaves out, and what it refuses, before anything is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.base.entry_points import Hook, HookError
from spark_kafka_sink.columns.rows import Row, row_batch
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.dead_letters.letters import DeadLetter
from spark_kafka_sink.dead_letters.replay import POSITIONS, Replay
from spark_kafka_sink.record.record_reader import Record

CONFIG = ProducerConfig.parse({"bootstrap.servers": "b:9092"})
DEAD = "flights-dead-letters"


def letter_for(topic: str) -> DeadLetter:
    header = ("__connect.errors.topic", topic.encode())
    return DeadLetter.of(0, Record(0, 0, None, b"v", (header,)))


def naming(topic: str) -> Hook:
    def mend(batch: Any) -> Any:
        names = pa.array([topic] * batch.num_rows, batch.schema.types[POSITIONS.topic])
        return batch.set_column(POSITIONS.topic, "topic", names)

    return Hook("'mending:with_topic'", mend)


def test_what_was_to_go_to_the_topic_that_is_read_is_left_out() -> None:
    """It would come back with each replay."""
    replay = Replay(CONFIG, DEAD)
    assert replay.why_not(letter_for("flights")) is None
    reason = replay.why_not(letter_for(DEAD))
    assert reason is not None
    assert f"'{DEAD}' itself" in reason
    assert reason.endswith("Name another one with --to-topic")


def test_it_is_written_to_another_topic() -> None:
    assert Replay(CONFIG, DEAD, to_topic="flights").why_not(letter_for(DEAD)) is None
    replay = Replay(CONFIG, DEAD, mend=naming("flights"))
    assert replay.why_not(letter_for(DEAD)) is None
    batch = row_batch([Row(b"v", None, [], DEAD, None, 0, "too-large")])
    assert replay.mended(batch).column(POSITIONS.topic).to_pylist() == ["flights"]


def test_a_function_that_leaves_it_the_topic_that_is_read_is_refused() -> None:
    batch = row_batch([Row(b"v", None, [], topic, None, 0, "x") for topic in ("a", None)])
    with pytest.raises(HookError, match=f"returned a row for '{DEAD}', the topic that is read"):
        Replay(CONFIG, DEAD, mend=naming(DEAD)).mended(batch)
    assert Replay(CONFIG, DEAD, mend=Hook("'m:f'", lambda b: b)).mended(batch).num_rows == 2
