"""How long each failure takes until it is told, and what is told first: a table, and no verdict.

::

    python -m evidence seconds-of-failures

Runs the tests of failures with the options' defaults instead of timeouts of an hour, through the
sink's check before the first task and a task, in this process. With the package ``gssapi`` and a
KDC, those of Kerberos too.
"""

from __future__ import annotations

import re
import sys
import time
from typing import NamedTuple

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from tests.security import test_failures, writing

_FILES = ("test_failures.py", "test_rights.py", "test_kerberos.py")
_PATIENCE = ("kafka.max.block.ms",)
"""Options of tests that wait for as long as a machine without load needs."""
_NO_FAILURES = "not spark and not with_a and not works and not back_in_time"
"""Tests of what goes well in the end."""
_WRITERS = ("write", "write_through_the_sink")
"""What tests write with."""
_LONGEST_TEXT = 150
_COLLECT = "--collect-only"


class Told(NamedTuple):
    test: str
    seconds: float
    message: str


class Stopwatch:
    """A plugin of pytest: what tests write with is measured."""

    def __init__(self):
        self.told = []
        self._test = ""

    @pytest.fixture(autouse=True)
    def _measured(self, request, monkeypatch):
        self._test = request.node.nodeid.split("::", 1)[1]
        for module in (test_failures, request.module):
            for name in _WRITERS:
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, self.write)

    def write(self, options, topic):
        given = {name: text for name, text in options.items() if name not in _PATIENCE}
        began = time.monotonic()
        try:
            writing.write_through_the_sink(given, topic, {})
        except KafkaSinkError as error:
            self.told.append(Told(self._test, time.monotonic() - began, str(error)))
            raise


def rows(told):
    yield "| test | s | message |"
    yield "| --- | --- | --- |"
    for test, seconds, message in told:
        first = re.sub(r"\s+", " ", message)
        shown = first if len(first) <= _LONGEST_TEXT else f"{first[:_LONGEST_TEXT]}…"
        yield f"| {test} | {seconds:.1f} | `{shown}` |"


def main(words=None):
    words = sys.argv[1:] if words is None else words
    stopwatch = Stopwatch()
    files = [f"tests/security/{name}" for name in _FILES]
    status = pytest.main(
        [
            "-q",
            "-k",
            _NO_FAILURES,
            *files,
            *(_COLLECT if word == "--plan" else word for word in words),
        ],
        [stopwatch],
    )
    print("\n".join(rows(stopwatch.told)))
    return int(status)
