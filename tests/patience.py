"""How long tests wait: far longer than anything takes on a busy machine.

A test's verdict never depends on how loaded the machine is. Where something must happen "at once",
the timeout that would end the wait is set to ``AN_HOUR_MS``: a product that waits for it is ended by
pytest's own timeout.
"""

import subprocess
import time

import pytest

PATIENCE_S = 900
PATIENCE_MS = PATIENCE_S * 1000
AN_HOUR_MS = 3_600_000
NO_OTHER_TIMEOUT = {
    "max_block_ms": str(AN_HOUR_MS),
    "request_timeout_ms": str(AN_HOUR_MS),
    "delivery_timeout_ms": str(2 * AN_HOUR_MS),
}
"""Options of a producer, for tests of another timeout, or of none."""


def reason_given_time(fails, error, first_ms, *wanted):
    """What ``fails(timeout_ms)`` raises, with as much time as it takes to find out ``wanted``.

    Such an error says at its deadline what is known by then. On a quiet machine that is everything
    after ``first_ms``; else there is more time.
    """
    timeout_ms = first_ms
    while True:
        with pytest.raises(error) as raised:
            fails(timeout_ms)
        message = str(raised.value)
        if all(part in message for part in wanted) or timeout_ms >= PATIENCE_MS:
            return message
        timeout_ms *= 3


def eventually(condition, timeout_s=PATIENCE_S):
    """Whether ``condition`` turns true before the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def is_running(pid):
    """Whether there is such a process; one that only waits to be reaped does not count."""
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip()[:1] not in ("", "Z")


def until(condition, meanwhile=lambda: None):
    """Wait until ``condition`` holds, and do something again and again. AssertionError if never."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        meanwhile()
        time.sleep(0.02)
