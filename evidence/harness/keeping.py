"""Files of results, which programs that run beside each other write."""

import fcntl
import os
from contextlib import contextmanager


@contextmanager
def locked(path):
    """One process at a time. The folder is what is locked: the file itself is replaced."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def replace(path, text):
    """Whoever reads it meanwhile finds the old text or the new one, whole."""
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(text, encoding="utf-8")
    hidden.replace(path)
