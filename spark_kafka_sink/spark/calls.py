"""Writes that a prefix would take for one another, as far as one process can know.

A decision log knows a micro-batch by its query and number, a named write by its name and version.
That one comes again is nothing unusual: what was written before is dropped. Another write under the
same name and number looks the same there, and its rows would be dropped without a word; it is known
here, in the process that has made the first one. What an earlier process has written is not known.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.transactions.model import Write

_EACH = (
    "give each write of a function for foreachBatch a transactional.id.prefix of its own, or a "
    "write.id of its own"
)


class Call(NamedTuple):
    """A write that may come again.

    number: of the micro-batch, or write.version; topic: option topic
    query_id: of the query whose micro-batch it is, where Spark tells it
    execution_id: Spark's, of the call of a function for foreachBatch: each call has another one.
    None outside of such a function, and where Spark does not tell it
    """

    prefix: str
    number: int
    topic: str | None
    write_id: str | None = None
    query_id: str | None = None
    execution_id: str | None = None

    @property
    def scope(self) -> tuple[str, str | None]:
        """Whose numbers its number is one of."""
        return self.prefix, self.write_id


class Calls:
    """The last write of each scope, under way and done.

    ``check`` to ``begin`` is for one thread at a time for each prefix.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str | None], Call] = {}
        self._done: dict[tuple[str, str | None], Call] = {}

    def check(self, call: Call) -> None:
        """Raise ConfigError for a write that would be taken for one under way, or, if it has no
        name, for one that is done.
        """
        if call.scope in self._begun:
            _check(call, self._begun[call.scope])
        if call.write_id is None and call.scope in self._done:
            _check(call, self._done[call.scope])

    def check_dropped(self, call: Call) -> None:
        """Raise ConfigError for a named write that the decision log says is done, and that is
        another one than this process has made. ``release`` makes a log forget names.
        """
        if call.scope in self._done:
            _check(call, self._done[call.scope])

    def begin(self, call: Call) -> None:
        """It is planned."""
        self._begun[call.scope] = call

    def finish(self, call: Call) -> None:
        """It is written."""
        self._done[call.scope] = call
        self.forget(call)

    def forget(self, call: Call) -> None:
        """It is not under way any more: one that has failed may be tried again."""
        if self._begun.get(call.scope) is call:
            del self._begun[call.scope]


def _check(call: Call, earlier: Call) -> None:
    if call.write_id is None:
        _check_micro_batch(call, earlier)
    else:
        _check_named(call, call.write_id, earlier)


def _check_micro_batch(call: Call, earlier: Call) -> None:
    if call._replace(topic=None) == earlier._replace(topic=None):
        raise ConfigError(
            f"micro-batch {call.number} of query {call.query_id} is written a second time "
            f"under transactional.id.prefix '{call.prefix}': {_EACH}"
        )


def _check_named(call: Call, write_id: str, earlier: Call) -> None:
    write, before = Write(write_id, call.number), Write(write_id, earlier.number)
    if call.number > earlier.number:
        return
    is_same_call = call.execution_id is not None and call.execution_id == earlier.execution_id
    if is_same_call and call.number == earlier.number:
        raise ConfigError(
            f"{write} is written a second time under transactional.id.prefix '{call.prefix}', and "
            f"its rows would be dropped: {_EACH}"
        )
    if call.topic != earlier.topic:
        raise ConfigError(
            f"{write} is for {_topic(call)}, and would be dropped under transactional.id.prefix "
            f"'{call.prefix}': {before} was for {_topic(earlier)}. A write.id is for one topic: "
            "give this write a write.id of its own, or a transactional.id.prefix of its own"
        )
    if None not in (call.query_id, earlier.query_id) and call.query_id != earlier.query_id:
        raise ConfigError(
            f"{write} is a micro-batch of query {call.query_id}, and would be dropped under "
            f"transactional.id.prefix '{call.prefix}': {before} was one of query "
            f"{earlier.query_id}. Give this query a write.id of its own, also if it is the same "
            "one with a new checkpoint"
        )


def _topic(call: Call) -> str:
    return "the topics of its rows" if call.topic is None else f"topic '{call.topic}'"
