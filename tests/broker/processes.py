"""Waiting for processes and files, with a deadline."""

import subprocess
import time

from tests.patience import PATIENCE_S


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
