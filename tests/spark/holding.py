"""A crash hook that holds the driver's process at a point until somebody kills the job."""

import os
import signal
from pathlib import Path

POINT = "HOLD_AT"
"""Environment variable: which point, and at which time that it is reached, e.g. commit.ending:3."""
FILE = "HOLD_FILE"
"""Environment variable: the file that appears when it is."""

_times = 0


def hold(point):
    global _times
    wanted, _, time = os.environ[POINT].partition(":")
    if point == wanted:
        _times += 1
        if _times == int(time):
            Path(os.environ[FILE]).touch()
            while True:
                signal.pause()
