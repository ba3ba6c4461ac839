"""Steps of the demo, as a terminal and as a log show them."""

import io
import threading

import pytest

from spark_kafka_sink.jobs.progress import Steps
from tests.simulation.time import SimClock


class Terminal(io.StringIO):
    """A terminal that knows when the text it waits for has been written."""

    def __init__(self, awaited):
        super().__init__()
        self._awaited = awaited
        self.has_shown = threading.Event()

    def isatty(self):
        return True

    def write(self, text):
        written = super().write(text)
        if self._awaited in text:
            self.has_shown.set()
        return written


def test_a_log_gets_a_line_at_the_beginning_and_one_at_the_end():
    clock, out = SimClock(), io.StringIO()
    steps = Steps(clock, out)
    with steps.step("Starting Kafka") as step:
        assert out.getvalue() == "Starting Kafka …\n"
        clock.ms += 4_200
        step.say("Kafka is ready")
    steps.succeed("Done")
    assert out.getvalue() == "Starting Kafka …\n✓ Kafka is ready  4.2 s\nDone  (total 4.2 s)\n"


def test_a_terminal_sees_the_step_while_it_is_at_work(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    clock, out = SimClock(), Terminal("half of the rows")
    steps = Steps(clock, out)
    with steps.step("Streaming") as step:
        clock.ms += 1_500
        step.say("Streaming: half of the rows")
        assert out.has_shown.wait(60)
        step.say("Streamed")
    steps.succeed("Equal")
    shown = out.getvalue()
    assert "\r\033[K\033[34m…\033[0m Streaming: half of the rows  1.5 s" in shown
    assert shown.endswith(
        "\r\033[K\033[32m✓\033[0m Streamed  1.5 s\n\033[32mEqual  (total 1.5 s)\033[0m\n"
    )


def test_a_line_on_a_terminal_does_not_wrap(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal("…")
    with Steps(SimClock(), out).step("Reading the whole topic back") as step:
        assert out.has_shown.wait(60)
        step.say("Read")
    assert out.getvalue().startswith("\r\033[K… Reading the whole\r\033[K")
    assert "topic" not in out.getvalue()
    assert out.getvalue().endswith("\r\033[K✓ Read  0.0 s\n")


def test_a_step_that_fails_is_marked_and_the_error_goes_on():
    out = io.StringIO()
    steps = Steps(SimClock(), out)
    with pytest.raises(RuntimeError), steps.step("Streaming"):
        raise RuntimeError
    steps.fail("The stream failed")
    assert out.getvalue() == "Streaming …\n✗ Streaming  0.0 s\nThe stream failed  (total 0.0 s)\n"
