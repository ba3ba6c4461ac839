"""The demo on a terminal: what is seen, and what is not."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

# Some start Kafka and Spark of their own, and compile: on a busy machine that takes minutes.
pytestmark = pytest.mark.timeout(1800)

REPOSITORY = Path(__file__).resolve().parents[2]
NOISE = ("WARN", "log4j", "[Stage", "incubator", "Traceback")


def run_on_terminal(command):
    """Exit status, and everything that a terminal is sent."""
    ours, theirs = pty.openpty()
    environment = {n: v for n, v in os.environ.items() if n != "NO_COLOR"}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # Linux says so at the end
            break
        if not part:
            break
        shown += part
    os.close(ours)
    return process.wait(), shown.decode()


def test_the_demo_shows_progress_and_results_without_noise():
    status, shown = run_on_terminal(
        [sys.executable, str(REPOSITORY / "jobs" / "demo.py"), "--flights", "20000"]
    )
    assert status == 0, shown
    assert not [word for word in NOISE if word in shown], shown
    for text in (
        "Starting Kafka",
        "Starting Spark",
        "which load the sink",
        "20,000 of 20,000 flights, 12 micro-batches",
        "a record: partition ",
        '"carrier":"',
        "metrics of 12 micro-batches: 20,000 records",
        "read 20,000 flights",
    ):
        assert text in shown, shown[-3000:]
    last_line = shown.splitlines()[-1]
    assert last_line.startswith("\033[32mEqual: every flight arrived once, with its key  (total ")
