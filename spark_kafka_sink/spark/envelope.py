"""What goes between the driver, or a Spark Connect client, and the tasks is read by the version of
the sink that has made it, or not at all.

A pickle of a dataclass with slots has its values by position. Read by a version that has one option
more, each value after that would be taken for another option's. So whatever is sent is a pickle in
a pickle: the outer one has nothing but the version, and a function that compares it first.
"""

from __future__ import annotations

import pickle
import platform
from pathlib import Path
from typing import Any

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import KafkaSinkError


class VersionMismatchError(KafkaSinkError):
    """What has arrived was made by another version of the sink. Nothing of it was read."""


class Enveloped:
    """Base of all objects that are sent. What they hold must be picklable by Python's own pickle.

    Subclasses have no slots, and are found by their names where the pickle is read.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return open_envelope, (__version__, pickle.dumps((type(self), self.__dict__)))


def open_envelope(version: str, content: bytes) -> Enveloped:
    """The object that was sent. version: of the sink that has made ``content``.

    Raises VersionMismatchError when that is not this version.
    """
    if version != __version__:
        raise VersionMismatchError(
            f"this was sent by pykafka-sink {version}, and has arrived at pykafka-sink "
            f"{__version__} in {Path(__file__).parents[1]} on {platform.node()}: install the same "
            "version of pykafka-sink on the driver, on all executors, and where the program runs "
            "that uses Spark Connect"
        )
    kind: type[Enveloped]
    kind, state = pickle.loads(content)
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made
