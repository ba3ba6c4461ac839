"""The options ``errors.*``: what is refused, what has no effect, what tasks are given."""

from __future__ import annotations

import pickle

import pytest

from spark_kafka_sink.base.entry_points import Hook, HookError, RefusedRowsError, refused_rows
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_keys import DeadLetterConfig, TopicLimits
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.dead_letters import max_letter_bytes

ALL = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}


def parse(**options: str) -> SinkOptions:
    return SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", "topic": "t", **options})


def letters(**options: str) -> DeadLetterConfig:
    found = parse(**ALL, **options).dead_letters
    assert found is not None
    return found


def test_by_default_no_error_is_tolerated() -> None:
    options = parse()
    assert options.dead_letters is None
    assert options.notes == ()


def test_defaults() -> None:
    found = letters()
    assert (found.topic, found.max_ratio, found.max_rows) == ("dead", 0.01, None)
    assert found.has_context_headers
    assert not found.is_logged
    assert found.creation[:3] == (-1, -1, ())
    assert found.data_topic_limits == found.own_topic_limits == TopicLimits(None, False)
    assert parse(**{**ALL, "errors.tolerance": "ALL"}).dead_letters == found


def test_the_topic_is_created_with_its_own_replicas() -> None:
    options = {
        "errors.deadletterqueue.topic.replication.factor": "1",
        "topic.creation.partitions": "4",
        "topic.creation.configs": "cleanup.policy=compact",
    }
    assert letters(**options).creation[:3] == (4, 1, ())


def test_rows_never_vanish() -> None:
    with pytest.raises(ConfigError, match="rows that cannot be written would vanish"):
        parse(**{"errors.tolerance": "all"})


def test_dead_letters_do_not_go_where_all_rows_go() -> None:
    with pytest.raises(ConfigError, match="'t', the topic of all rows"):
        parse(**{**ALL, "errors.deadletterqueue.topic.name": "t"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("errors.tolerance", "some"),
        ("errors.deadletterqueue.max.ratio", "1.5"),
        ("errors.deadletterqueue.max.rows", "-1"),
        ("errors.deadletterqueue.topic.replication.factor", "0"),
        ("errors.deadletterqueue.topic.name", ""),
    ],
)
def test_a_wrong_value_names_the_option(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        parse(**{**ALL, name: value})


def test_without_a_tolerance_the_other_options_have_no_effect() -> None:
    notes = parse(**{"errors.deadletterqueue.topic.name": "dead"}).notes
    assert notes == (
        "option 'errors.deadletterqueue.topic.name' has no effect without errors.tolerance=all",
    )


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("errors.log.include.messages", "pykafka-sink dead-letters show"),
        ("errors.retry.timeout", "kafka.delivery.timeout.ms"),
        ("errors.retry.delay.max.ms", "kafka.delivery.timeout.ms"),
    ],
)
def test_what_kafka_connect_has_besides_is_told(name: str, instead: str) -> None:
    [note] = parse(**{**ALL, name: "1"}).notes
    assert note.startswith(f"option '{name}' of Kafka Connect has no effect here: ")
    assert instead in note


def test_a_typing_error_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"errors\.tolerance"):
        parse(**{"errors.tolerence": "all"})


def test_a_dead_letter_fits_where_it_goes() -> None:
    config = letters()
    assert max_letter_bytes(config, parse().producer) == 1_048_576 - 61
    own = config._replace(own_topic_limits=TopicLimits(max_message_bytes=10_061))
    assert max_letter_bytes(own, parse().producer) == 10_000
    zstd = parse(**{"kafka.compression.type": "zstd"}).producer
    assert max_letter_bytes(own, zstd) == 10_000 - 156 - 64


# --- rows that the user's own code refuses ----------------------------------------------------


def test_refused_rows_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(RefusedRowsError({3: "no id"})))
    assert error.rows == {3: "no id"}
    assert str(error) == "1 row(s) refused: row 3: no id [PKS-ROW-008]"


def test_the_message_names_a_few_rows() -> None:
    text = str(RefusedRowsError(dict.fromkeys(range(1000), "bad")))
    assert text == "1000 row(s) refused: row 0: bad; row 1: bad; row 2: bad [PKS-ROW-008]"


@pytest.mark.parametrize(
    ("rows", "wrong"), [({}, "no row"), ({1: "x", 5: "y"}, "row 5; there are 5"), ({-1: "x"}, "-1")]
)
def test_rows_that_were_not_given_cannot_be_refused(rows: dict[int, str], wrong: str) -> None:
    hook = Hook("on_send of interceptor 'a:B'", print)
    with pytest.raises(HookError, match=wrong):
        refused_rows(hook, RefusedRowsError(rows), 5)


def test_refused_rows_are_in_order() -> None:
    hook = Hook("partitioner 'a:b'", print)
    assert [*refused_rows(hook, RefusedRowsError({4: "x", 0: "y"}), 5)] == [0, 4]
