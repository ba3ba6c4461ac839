"""A crash hook that holds the driver's process."""

import os
import signal
from pathlib import Path

HOLD_AT = "HOLD_AT"
"""Environment variable: which point, and at which time that it is reached, e.g. commit.ending:3."""
HOLD_FILE = "HOLD_FILE"
"""Environment variable: the file that appears when it is."""

_times = 0


def hold(point):
    global _times
    wanted, _, time = os.environ[HOLD_AT].partition(":")
    if point == wanted:
        _times += 1
        if _times == int(time):
            Path(os.environ[HOLD_FILE]).touch()
            while True:
                signal.pause()
