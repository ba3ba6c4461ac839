"""An interceptor that kills its Python worker, and a crash hook that holds the driver's process."""

import os
import signal
from pathlib import Path


class KillOnce:
    """Kills the Python worker in its second Arrow batch, the first time. The rows name a folder."""

    in_batch = 2

    def __init__(self):
        self._batches = 0

    def on_send(self, arrow_batch):
        self._batches += 1
        marker = Path(arrow_batch.column("folder")[0].as_py(), "killed")
        if self._batches == self.in_batch and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return arrow_batch


class KillOnceLater(KillOnce):
    """In its third."""

    in_batch = 3


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
