"""Two writes of one function for ``foreachBatch`` that a prefix would take for one.

A decision log knows a micro-batch by its query and number. That it comes again is nothing unusual:
what was written before is dropped. A second write in the same call of the function looks the same
there; it is known here, in the process that has made the first one.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError


class Call(NamedTuple):
    """A write of a micro-batch, and the call of the function that makes it.

    execution_id: of Spark; each call of a function has another one
    """

    prefix: str
    execution_id: str | None
    query_id: str
    batch_id: int


class Calls:
    """The last write under each prefix: under way, or done.

    Its methods are for one thread at a time for each prefix.
    """

    def __init__(self) -> None:
        self._last: dict[str, Call] = {}

    def check(self, call: Call) -> None:
        """Raise ConfigError for a second write of the same call."""
        if self._last.get(call.prefix) == call:
            raise ConfigError(
                f"micro-batch {call.batch_id} of query {call.query_id} is written a second time "
                f"under transactional.id.prefix '{call.prefix}': give each write of a function "
                "for foreachBatch a transactional.id.prefix of its own, or a write.id of its own"
            )

    def note(self, call: Call) -> None:
        """It begins."""
        self._last[call.prefix] = call

    def forget(self, call: Call) -> None:
        """It has failed: it may be tried again."""
        if self._last.get(call.prefix) == call:
            del self._last[call.prefix]
