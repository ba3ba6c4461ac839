"""Envelope of objects sent between the driver, a Spark Connect client and the tasks.

Only the sink's version that pickled an object may read it. A pickle of a dataclass with slots lists
its values by position: a version with one more option would shift the values after it. Therefore an
object is sent as a pickle inside a pickle. The outer pickle holds only the version and a function
that compares it first.
"""

from __future__ import annotations

import pickle
import platform
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import KafkaSinkError


class VersionMismatchError(KafkaSinkError):
    """The object was sent by another version of the sink. Its content was not read."""

    code = "SPARK-003"


class Enveloped:
    """Base of all objects that are sent. Python's own pickle must support their contents.

    Subclasses have no slots; the reader imports them by name.
    """

    has_shared_values: ClassVar[bool] = False
    """True if no reader changes the values: all tasks of a process then share them.

    Building the options takes 0.2 ms, and Spark sends the same bytes to each task.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return open_envelope, (__version__, pickle.dumps((type(self), self.__dict__)))


class _Opened(NamedTuple):
    """The last content with ``has_shared_values`` that this process has read."""

    content: bytes
    kind: type[Enveloped]
    values: dict[str, Any]


_opened = _Opened(b"", Enveloped, {})


def open_envelope(version: str, content: bytes) -> Enveloped:
    """Return the object that was sent. version: the sink's version that pickled ``content``

    Raises VersionMismatchError if it is not this version.
    """
    if version != __version__:
        raise VersionMismatchError(
            f"this was sent by pykafka-sink {version}, and has arrived at pykafka-sink "
            f"{__version__} in {Path(__file__).parents[1]} on {platform.node()}: install the same "
            "version of pykafka-sink on the driver, on all executors, and where the program runs "
            "that uses Spark Connect"
        )
    global _opened
    opened = _opened
    if content != opened.content:
        opened = _Opened(content, *pickle.loads(content))
        if opened.kind.has_shared_values:
            _opened = opened
    instance = opened.kind.__new__(opened.kind)
    instance.__dict__.update(opened.values)
    return instance
