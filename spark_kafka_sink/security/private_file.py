"""Key material as a file, for OpenSSL, which reads private keys from nothing else.

On Linux it is a file in memory that has no name (memfd): nobody else can open it, and it is gone
when it is closed. Elsewhere, a temporary file that only this user may read, deleted after use.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_OWN_DESCRIPTORS = "/proc/self/fd"


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, as long as the block lasts."""
    descriptor = _in_memory()
    if descriptor is None:
        descriptor, path = tempfile.mkstemp(prefix="pykafka-sink-")
        is_named = True
    else:
        path, is_named = f"{_OWN_DESCRIPTORS}/{descriptor}", False
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield path
    finally:
        if is_named:
            os.unlink(path)


def _in_memory() -> int | None:
    """The descriptor of a nameless file; None where the system has no such files."""
    if not hasattr(os, "memfd_create") or not os.path.isdir(_OWN_DESCRIPTORS):
        return None
    try:
        return os.memfd_create("pykafka-sink")
    except OSError:
        return None  # forbidden, as in some sandboxes
