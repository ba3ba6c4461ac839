"""Bugs that the simulator must catch: each is put into the producer for the length of a block.

The list is also docs/internals/reliability.md's: a bug's name, what is broken and how.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError, error_named
from spark_kafka_sink.base.model import NO_OFFSET, NO_SEQUENCE, TopicPartition
from spark_kafka_sink.network.client import Connector, NetworkClient
from spark_kafka_sink.network.node_connection import ConnectionState, NodeConnection
from spark_kafka_sink.producer import metadata
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.partitioner import TopicSlots
from spark_kafka_sink.producer.producer_batch import (
    BatchSplitter,
    BatchWithoutRecords,
    ProducerBatch,
)
from spark_kafka_sink.producer.rejections import RejectionHandler
from spark_kafka_sink.producer.sender import Sender
from spark_kafka_sink.producer.sequences import ProducerState, _PartitionSequences
from spark_kafka_sink.protocol.connection import NEVER_MS, Connection, Session
from tests.simulation import producer_scenarios as scenarios


class Bug(NamedTuple):
    """What is wrong, and the method that is replaced to make it so.

    replacement: gets the original, and what that is called with
    scenarios: each of them catches the bug, in place of seeds
    """

    what: str
    owner: Any
    name: str
    replacement: Callable[..., Any]
    scenarios: tuple[partial[None], ...] = ()

    @contextmanager
    def planted(self):
        """The product with this bug."""
        original = getattr(self.owner, self.name)

        def replaced(*given, **named):
            return self.replacement(original, *given, **named)

        is_property = isinstance(original, property)
        with mock.patch.object(
            self.owner, self.name, property(replaced) if is_property else replaced
        ):
            yield


def into(bugs):
    """A decorator of replacements: the docstring says what is broken, and the bug is in ``bugs``."""

    def bug(name, owner, method, *scenarios):
        def add(replacement):
            steps = tuple(s if isinstance(s, partial) else partial(s) for s in scenarios)
            bugs[name] = Bug(replacement.__doc__, owner, method, replacement, steps)

        return add

    return bug


def scenarios_of(bugs):
    """Each bug with each of its scenarios, as a test's parameters."""
    return [
        pytest.param(bug, scenario, id=f"{name}, {scenario.func.__name__}")
        for name, bug in bugs.items()
        for scenario in bug.scenarios
    ]


def assert_does_harm(bug, scenario):
    """What passes without the bug fails with it."""
    scenario()
    with bug.planted(), pytest.raises((AssertionError, KafkaSinkError)):
        scenario()


PRODUCER_BUGS: dict[str, Bug] = {}
bug = into(PRODUCER_BUGS)


@bug("pooled topics kept", metadata.Metadata, "_is_as_planned")
def _(original, *_):
    """a task takes the partitions of its topics, and their ids, from the task before"""
    return True


@bug("misrouted connection kept", Connector, "_expected")
def _(original, *_):
    """a connection does not say which cluster and broker it is meant for"""


@bug("metadata of any cluster accepted", NetworkClient, "_check_cluster")
def _(original, *_):
    """the cluster of the first metadata is not remembered, so brokers cannot check it"""


@bug("racks remembered for ever", TopicSlots, "available", scenarios.racks_that_change)
def _(original, self, *arguments):
    """partitions of the rack are looked up once, and never after metadata has changed"""
    kept = [known.partitions for known in self._availability.values()]
    return kept[0] if kept else original(self, *arguments)


@bug("sequence assigned anew on retry", ProducerState, "assign_sequence")
def _(original, self, batch):
    """a batch gets a new sequence each time it is drained"""
    if batch.has_sequence:
        self._sequences(batch.topic_partition).in_flight.remove(batch)
        batch.base_sequence = NO_SEQUENCE
    original(self, batch)


@bug("stale leader epoch accepted", metadata, "_merge", scenarios.brokers_that_learn_late)
def _(original, known, topic, has_epochs):
    """older metadata overwrites newer"""
    return original(None, topic, has_epochs)


@bug("muted partition drained", RecordAccumulator, "mute", scenarios.moved_leader_of_a_retry)
def _(original, self, topic_partition):
    """with one request in flight, a partition is sent to while a retry is open"""


@bug("expired batch acknowledged", Sender, "_expire")
def _(original, self, now_ms):
    """kafka.delivery.timeout.ms completes a batch"""
    oldest = self._accumulator.oldest_incomplete()
    timeout_ms = self._config.delivery_timeout_ms
    if oldest is not None and now_ms - oldest.created_at_ms >= timeout_ms:
        self._accumulator._queues.pop(oldest.topic_partition, None)
        self._accumulator.complete(oldest)
        return 0
    return original(self, now_ms)


@bug("retry at the end of the queue", RecordAccumulator, "_position")
def _(original, self, queue, batch):
    """a batch that failed goes behind later ones"""
    return len(queue)


@bug("several in flight before the first acknowledgement", ProducerState, "must_wait")
def _(original, self, batch):
    """a broker that knows nothing of the producer takes the second batch first"""
    sequences = self._sequences(batch.topic_partition)
    with mock.patch.object(sequences, "last_acked_sequence", 0):
        return original(self, batch)


@bug("memory reused before the acknowledgement", RecordAccumulator, "drain")
def _(original, self, *arguments):
    """pages go back to the pool when a batch is sent"""
    drained = original(self, *arguments)
    for batch in drained:
        self.pool.deallocate(batch.pages)
        batch.pages = []
    return drained


@bug("lost connection forgets its requests", NetworkClient, "_lose")
def _(original, self, connection, *arguments, **more):
    """requests in flight are never completed"""
    if connection.protocol is not None:
        connection.protocol.in_flight.clear()
    original(self, connection, *arguments, **more)


@bug("epoch bumped without renumbering", ProducerState, "_renumber")
def _(original, self, sequences):
    """batches in flight keep their numbers"""


@bug("one answer taken for all partitions", Sender, "_complete_batches")
def _(original, self, sent, response, node, now_ms):
    """error and offset of the first partition count for the whole request"""
    answers = [p for topic in response.responses for p in topic.partition_responses]
    for answer in answers:
        answer.error_code, answer.base_offset = answers[0].error_code, answers[0].base_offset
    original(self, sent, response, node, now_ms)


@bug("partition that is not mentioned taken for success", Sender, "_complete_batches")
def _(original, self, sent, response, node, now_ms):
    """what an answer to a produce request leaves out counts as acknowledged"""
    mentioned = {
        TopicPartition(topic.name or sent.topic_names[topic.topic_id], partition.index)
        for topic in response.responses
        for partition in topic.partition_responses
    }
    for topic_partition in sent.by_partition.keys() - mentioned:
        self._acknowledge(sent.by_partition.pop(topic_partition), NO_OFFSET)
    original(self, sent, response, node, now_ms)


@bug("topic ids looked up when the answer comes", Sender, "_complete_batches")
def _(original, self, sent, response, node, now_ms):
    """an answer is read by the topic ids of the metadata of its time, not of the request's"""
    cluster = self._metadata.snapshot
    names = {cluster.topic_id(tp.topic): tp.topic for tp in sent.by_partition}
    original(self, sent._replace(topic_names=names), response, node, now_ms)


@bug("parts of a split batch reversed", BatchSplitter, "split")
def _(original, self, batch, target):
    """the second half is sent first"""
    return original(self, batch, target)[::-1]


@bug("numbered anew although perhaps appended", ProducerState, "_request_epoch_bump")
def _(original, self, topic_partition):
    """batches whose answers were lost, or the parts of one, are written again in a new epoch"""
    self._partitions_to_renumber.add(topic_partition)
    return True


@bug(
    "later batch taken for a proof",
    Sender,
    "_complete_batch",
    scenarios.later_batch_that_is_taken_first,
)
def _(original, self, batch, partition, node, now_ms):
    """a batch that the broker knows is taken for a proof that those in doubt before it are there"""
    in_flight = self._state.in_flight(batch.topic_partition)
    in_doubt = self.__dict__.setdefault("in_doubt", [])
    is_out_of_order = partition.error_code == error_named("OUT_OF_ORDER_SEQUENCE_NUMBER").code
    is_first = in_flight[0] is batch and len(in_flight) > 1
    if is_out_of_order and is_first and batch.may_be_appended:
        in_doubt.append(in_flight.pop(0))
        return
    while not partition.error_code and in_doubt:
        in_flight.insert(0, in_doubt.pop())
        self._acknowledge(in_flight[0], NO_OFFSET)
    original(self, batch, partition, node, now_ms)


@bug("parts of a split batch share a sequence", BatchSplitter, "split")
def _(original, self, batch, target):
    """every part has the sequence of the whole"""
    parts = original(self, batch, target)
    for part in parts:
        part.base_sequence = batch.base_sequence
    return parts


@bug("flush forgets what is in flight", RecordAccumulator, "incomplete_count")
def _(original, self):
    """only queued batches are waited for"""
    return sum(len(queue) for queue in self._queues.values())


@bug("requests never time out", NetworkClient, "_check_deadlines")
def _(original, self, connection, now_ms):
    """an answer that was dropped is waited for"""


@bug("any answer taken for success", Sender, "_complete_batch")
def _(original, self, batch, partition, node, now_ms):
    """the error code is not looked at"""
    self._acknowledge(batch, partition.base_offset)


@bug(
    "timeout taken for success",
    Sender,
    "_handle_produce_response",
    scenarios.request_without_answer,
)
def _(original, self, sent, result, now_ms):
    """a request without answer counts as acknowledged"""
    if result.is_timeout:
        for batch in sent.batches:
            self._acknowledge(batch, NO_OFFSET)
    else:
        original(self, sent, result, now_ms)


@bug(
    "look-up waited for",
    NetworkClient,
    "_connect",
    scenarios.slow_name,
    scenarios.name_that_is_too_slow,
)
def _(original, self, connection, node, now_ms):
    """the sender does nothing else until a name server has answered"""
    original(self, connection, node, now_ms)
    others = []
    while connection.state is ConnectionState.RESOLVING:
        for event in self._network.poll(60_000):
            if event.channel_id == connection.channel_id:
                self._handle(event, self._clock.now_ms())
            else:
                others.append(event)
    for event in others:
        self._handle(event, self._clock.now_ms())


@bug("header written anew for a retry", ProducerBatch, "close")
def _(original, self):
    """a retry does not send the same bytes"""
    original(self)
    self.is_closed = False
    self.base_timestamp += 1


@bug("refused records forgotten", RejectionHandler, "take_rejected")
def _(original, self):
    """the task does not get back what brokers have refused"""
    return []


@bug("records beside refused ones forgotten", BatchSplitter, "without_records")
def _(original, self, batch, rows):
    """the rest of a batch of which some records are refused is not sent again"""
    return BatchWithoutRecords([], original(self, batch, rows).removed)


@bug("gap after refused records", _PartitionSequences, "record_gap")
def _(original, self, sequence):
    """batches behind one of which records are refused keep their numbers"""


@bug("refused although perhaps appended", ProducerState, "can_remove_records")
def _(original, self, batch):
    """records are left out of a batch whose earlier attempt had no answer"""
    return True


SASL_BUGS: dict[str, Bug] = {}
sasl_bug = into(SASL_BUGS)
_RENEWED = scenarios.requests_in_flight_while_a_session_is_renewed


@sasl_bug(
    "end of the session not looked at",
    NodeConnection,
    "can_send",
    partial(scenarios.session_that_ends_unused, 5_000),
)
def _(original, self, now_ms, max_in_flight):
    """a connection is sent to after its session, and the broker ends it"""
    if self.state is ConnectionState.READY and self.protocol is not None:
        self.protocol.renew_at_ms = self.protocol.ends_at_ms = NEVER_MS
    return original(self, now_ms, max_in_flight)


@sasl_bug(
    "refusal taken for a lost connection",
    NetworkClient,
    "_refuse",
    partial(scenarios.refused_at_first, "PLAIN"),
    scenarios.refused_later,
)
def _(original, self, connection, reason, now_ms):
    """who is refused tries again until the time is up"""
    self._lose(connection, reason, now_ms)


@sasl_bug(
    "authentication without a deadline",
    Connection,
    "open",
    scenarios.broker_that_hangs_in_sasl,
)
def _(original, self, now_ms, deadline_ms):
    """a broker that hangs in the middle of SASL is waited for"""
    return original(self, now_ms, NEVER_MS)


@sasl_bug("renewal forgets what is in flight", Connection, "authenticate_again", _RENEWED)
def _(original, self, now_ms, deadline_ms):
    """earlier requests are forgotten when a session is renewed"""
    self.in_flight.clear()
    return original(self, now_ms, deadline_ms)


@sasl_bug("session renewed at once", Session, "of", _RENEWED)
def _(original, began_at_ms, *more):
    """the broker is asked for a new session within a second of the last one"""
    return original(began_at_ms, *more)._replace(renew_at_ms=began_at_ms)


@sasl_bug(
    "session over before the answers",
    NodeConnection,
    "can_reauthenticate",
    partial(scenarios.session_that_ends_in_use, 300),
)
def _(original, self, now_ms):
    """a connection whose session is over is closed under its requests"""
    is_ready = self.state is ConnectionState.READY and self.protocol is not None
    return is_ready and now_ms >= self.protocol.renew_at_ms
