"""Text from outside, as it is shown: nothing in it reaches a terminal as a command."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("flights-α 航班", "flights-α 航班"),
        ("\x1b[2J\x1b[Hdone", r"\x1b[2J\x1b[Hdone"),
        ("a\r\nERROR forged", r"a\r\nERROR forged"),
        ("\x9b31m", r"\x9b31m"),
        ("safe\u202etxt.exe\u2028\u200b", r"safe\u202etxt.exe\u2028\u200b"),
        ("\ud800\U000e0001", r"\ud800\U000e0001"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()
