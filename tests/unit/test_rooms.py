"""`make quick ROOM=…` selects the test files that reach a room."""

import subprocess
import sys

import pytest

from tests.rooms import ROOT, files_of

# They read all tests: seconds.
pytestmark = pytest.mark.slow


def names(room, *folders):
    return {path.relative_to(ROOT / "tests").as_posix() for path in files_of(room, folders)}


def test_modules_and_fixtures_of_tests_are_followed():
    """These files name no module of the producer, but a harness does; and a fixture."""
    found = names("producer.sender", "simulation")
    assert {"simulation/test_sender.py", "simulation/test_replay.py"} <= found
    assert "simulation/test_hung_brokers.py" not in found
    assert "broker/test_topics.py" in names("localkafka", "broker")
    assert names("tools.terminal", "unit") < names("tools", "unit")


def test_a_room_that_does_not_exist_is_an_error():
    done = subprocess.run(
        [sys.executable, "-m", "tests.rooms", "produce"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "'produce' is not a room" in done.stderr
    with pytest.raises(SystemExit):
        names("producer.nothing", "unit")
