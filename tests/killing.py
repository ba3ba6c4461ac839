"""An interceptor that kills the Python worker in which it runs. Spark tries the task again."""

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
