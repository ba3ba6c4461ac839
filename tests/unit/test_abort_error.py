"""What a line tells of the error that a batch failed with."""

import pytest

from spark_kafka_sink.spark.writer import shortened

TRACEBACK = "\n".join(
    [
        "PythonException: Job aborted. Traceback (most recent call last):",
        *[f'  File "/lib/part{n}.py", line {n}, in call' for n in range(40)],
        "spark_kafka_sink.base.errors.RowError: field 'note' is null",
        "\tat org.apache.spark.Runner.run(Runner.scala:1)",
        "Driver stacktrace:",
    ]
)


def test_a_short_error_is_told_whole():
    assert shortened("ConfigError: a") == "ConfigError: a"


def test_of_a_traceback_the_reason_is_told():
    told = shortened(TRACEBACK)
    assert len(told) == 500
    assert told.startswith("PythonException: Job aborted.")
    assert told.endswith(" … spark_kafka_sink.base.errors.RowError: field 'note' is null")


def test_a_long_reason_leaves_room_for_the_beginning():
    told = shortened(TRACEBACK.replace("is null", "x" * 900))
    assert len(told) == 500
    assert told.startswith("PythonException: Job aborted.")
    assert "RowError: field 'note' xxx" in told


@pytest.mark.parametrize("text", ["E: " + "x" * 900, "SomeError: " + "x" * 900])
def test_without_a_traceback_the_beginning_is_told(text):
    assert text.startswith(shortened(text)[:90])
    assert len(shortened(text)) == 500


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("E: " + "x" * 900 + " [PKS-TXN-020]", "TXN-020"),
        ("E: " + "x" * 900 + "\nmore words [PKS-TXN-020]", "TXN-020"),
        (TRACEBACK.replace("is null", "is null [PKS-ROW-007]"), "ROW-007"),
        (TRACEBACK.replace("is null", "x" * 900 + " [PKS-ROW-007]"), "ROW-007"),
        ("AError: a [PKS-ROW-001]\n" + TRACEBACK.replace("is null", "[PKS-ROW-007]"), "ROW-007"),
    ],
)
def test_a_long_error_keeps_its_code(text, code):
    told = shortened(text)
    assert told.endswith(f" [PKS-{code}]")
    assert told.count("PKS-") == 1
    assert len(told) <= 500
