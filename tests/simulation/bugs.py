"""Bugs that the simulator must catch: each is put into the producer for the length of a block.

The list is also docs/internals/reliability.md's: ``BUGS`` maps a name to what is broken and how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.base.model import NO_OFFSET, NO_SEQUENCE, TopicPartition
from spark_kafka_sink.network.client import Connector, NetworkClient
from spark_kafka_sink.network.node_connection import ConnectionState
from spark_kafka_sink.producer import metadata as metadata_module
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.partitioner import TopicSlots
from spark_kafka_sink.producer.producer_batch import BatchSplitter, ProducerBatch
from spark_kafka_sink.producer.sender import Sender
from spark_kafka_sink.producer.sequences import ProducerState
from tests.simulation import producer_scenarios as scenarios


class Bug(NamedTuple):
    """What is wrong, and the method that is replaced to make it so.

    scenarios: each of them catches the bug, in place of seeds
    """

    what: str
    owner: Any
    name: str
    replacement: Callable[[Any], Any]
    scenarios: tuple[partial[None], ...] = ()

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The product with this bug."""
        original = getattr(self.owner, self.name)
        with mock.patch.object(self.owner, self.name, self.replacement(original)):
            yield


def scenarios_of(bugs: Mapping[str, Bug]) -> list[object]:
    """Each bug with each of its scenarios, as a test's parameters."""
    return [
        pytest.param(bug, scenario, id=f"{name}, {scenario.func.__name__}")
        for name, bug in bugs.items()
        for scenario in bug.scenarios
    ]


def assert_does_harm(bug: Bug, scenario: partial[None]) -> None:
    """What passes without the bug fails with it."""
    scenario()
    with bug.planted(), pytest.raises((AssertionError, KafkaSinkError)):
        scenario()


def _new_sequence_on_retry(original):  # type: ignore[no-untyped-def]
    def assign_sequence(self, batch):  # type: ignore[no-untyped-def]
        if batch.has_sequence:
            self._sequences(batch.topic_partition).in_flight.remove(batch)
            batch.base_sequence = NO_SEQUENCE
        original(self, batch)

    return assign_sequence


def _stale_leader_accepted(original):  # type: ignore[no-untyped-def]
    return lambda known, topic, has_epochs: original(None, topic, has_epochs)


def _mute_forgotten(original):  # type: ignore[no-untyped-def]
    return lambda self, topic_partition: None


def _expired_taken_for_acknowledged(original):  # type: ignore[no-untyped-def]
    def expire(self, now_ms):  # type: ignore[no-untyped-def]
        oldest = self._accumulator.oldest_incomplete()
        timeout_ms = self._config.delivery_timeout_ms
        if oldest is not None and now_ms - oldest.created_at_ms >= timeout_ms:
            self._accumulator._queues.pop(oldest.topic_partition, None)
            self._accumulator.complete(oldest)
            return 0
        return original(self, now_ms)

    return expire


def _retry_at_the_end_of_the_queue(original):  # type: ignore[no-untyped-def]
    return lambda self, queue, batch: len(queue)


def _many_in_flight_from_the_start(original):  # type: ignore[no-untyped-def]
    def must_wait(self, batch):  # type: ignore[no-untyped-def]
        sequences = self._sequences(batch.topic_partition)
        with mock.patch.object(sequences, "last_acked_sequence", 0):
            return original(self, batch)

    return must_wait


def _memory_free_when_drained(original):  # type: ignore[no-untyped-def]
    def drain(self, *arguments):  # type: ignore[no-untyped-def]
        drained = original(self, *arguments)
        for batch in drained:
            self.pool.deallocate(batch.pages)
            batch.pages = []
        return drained

    return drain


def _lost_connection_forgets_requests(original):  # type: ignore[no-untyped-def]
    def lose(self, connection, *arguments, **more):  # type: ignore[no-untyped-def]
        if connection.protocol is not None:
            connection.protocol.in_flight.clear()
        original(self, connection, *arguments, **more)

    return lose


def _no_renumbering(original):  # type: ignore[no-untyped-def]
    return lambda self, sequences: None


def _first_answer_for_all_partitions(original):  # type: ignore[no-untyped-def]
    def complete(self, sent, response, node, now_ms):  # type: ignore[no-untyped-def]
        answers = [p for topic in response.responses for p in topic.partition_responses]
        for answer in answers:
            answer.error_code, answer.base_offset = answers[0].error_code, answers[0].base_offset
        original(self, sent, response, node, now_ms)

    return complete


def _not_mentioned_taken_for_success(original):  # type: ignore[no-untyped-def]
    def complete(self, sent, response, node, now_ms):  # type: ignore[no-untyped-def]
        mentioned = {
            TopicPartition(topic.name or sent.topic_names[topic.topic_id], partition.index)
            for topic in response.responses
            for partition in topic.partition_responses
        }
        for topic_partition in sent.by_partition.keys() - mentioned:
            self._acknowledge(sent.by_partition.pop(topic_partition), NO_OFFSET)
        original(self, sent, response, node, now_ms)

    return complete


def _renumbered_once_and_never_again(original):  # type: ignore[no-untyped-def]
    def close(self):  # type: ignore[no-untyped-def]
        was_renumbered = self.is_renumbered
        original(self)
        self.is_renumbered = was_renumbered

    return close


def _topic_ids_of_the_answers_time(original):  # type: ignore[no-untyped-def]
    def complete(self, sent, response, node, now_ms):  # type: ignore[no-untyped-def]
        cluster = self._metadata.snapshot
        names = {cluster.topic_id(tp.topic): tp.topic for tp in sent.by_partition}
        original(self, sent._replace(topic_names=names), response, node, now_ms)

    return complete


def _parts_in_reverse(original):  # type: ignore[no-untyped-def]
    return lambda self, batch, target: original(self, batch, target)[::-1]


def _probe_numbered_anew(original):  # type: ignore[no-untyped-def]
    def renumber_later(self, topic_partition):  # type: ignore[no-untyped-def]
        self._partitions_to_renumber.add(topic_partition)
        return True

    return renumber_later


def _parts_share_a_sequence(original):  # type: ignore[no-untyped-def]
    def split(self, batch, target):  # type: ignore[no-untyped-def]
        parts = original(self, batch, target)
        for part in parts:
            part.base_sequence = batch.base_sequence
        return parts

    return split


def _flush_forgets_what_is_in_flight(original):  # type: ignore[no-untyped-def]
    return property(lambda self: sum(len(queue) for queue in self._queues.values()))


def _requests_never_time_out(original):  # type: ignore[no-untyped-def]
    return lambda self, connection, now_ms: None


def _any_answer_is_success(original):  # type: ignore[no-untyped-def]
    def complete(self, batch, partition, node, now_ms):  # type: ignore[no-untyped-def]
        self._acknowledge(batch, partition.base_offset)

    return complete


def _timeout_taken_for_success(original):  # type: ignore[no-untyped-def]
    def complete(self, sent, result, now_ms):  # type: ignore[no-untyped-def]
        if result.is_timeout:
            for batch in sent.batches:
                self._acknowledge(batch, NO_OFFSET)
        else:
            original(self, sent, result, now_ms)

    return complete


def _look_up_awaited(original):  # type: ignore[no-untyped-def]
    def connect(self, connection, node, now_ms):  # type: ignore[no-untyped-def]
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

    return connect


def _header_written_anew(original):  # type: ignore[no-untyped-def]
    def close(self):  # type: ignore[no-untyped-def]
        original(self)
        self.is_closed = False
        self.base_timestamp += 1

    return close


def _racks_remembered(original):  # type: ignore[no-untyped-def]
    def available(self, *arguments):  # type: ignore[no-untyped-def]
        kept = [known.partitions for known in self._availability.values()]
        return kept[0] if kept else original(self, *arguments)

    return available


BUGS: dict[str, Bug] = {
    "misrouted connection kept": Bug(
        "a connection does not say which cluster and broker it is meant for",
        Connector,
        "_expected",
        lambda original: lambda self, node: None,
    ),
    "metadata of any cluster accepted": Bug(
        "the cluster of the first metadata is not remembered, so brokers cannot check it",
        NetworkClient,
        "_check_cluster",
        lambda original: lambda self, *arguments: None,
    ),
    "racks remembered for ever": Bug(
        "partitions of the rack are looked up once, and never after metadata has changed",
        TopicSlots,
        "available",
        _racks_remembered,
        (partial(scenarios.racks_that_change),),
    ),
    "sequence assigned anew on retry": Bug(
        "a batch gets a new sequence each time it is drained",
        ProducerState,
        "assign_sequence",
        _new_sequence_on_retry,
    ),
    "stale leader epoch accepted": Bug(
        "older metadata overwrites newer",
        metadata_module,
        "_merge",
        _stale_leader_accepted,
        (partial(scenarios.brokers_that_learn_late),),
    ),
    "muted partition drained": Bug(
        "with one request in flight, a partition is sent to while a retry is open",
        RecordAccumulator,
        "mute",
        _mute_forgotten,
        (partial(scenarios.moved_leader_of_a_retry),),
    ),
    "expired batch acknowledged": Bug(
        "kafka.delivery.timeout.ms completes a batch",
        Sender,
        "_expire",
        _expired_taken_for_acknowledged,
    ),
    "retry at the end of the queue": Bug(
        "a batch that failed goes behind later ones",
        RecordAccumulator,
        "_position",
        _retry_at_the_end_of_the_queue,
    ),
    "several in flight before the first acknowledgement": Bug(
        "a broker that knows nothing of the producer takes the second batch first",
        ProducerState,
        "must_wait",
        _many_in_flight_from_the_start,
    ),
    "memory reused before the acknowledgement": Bug(
        "pages go back to the pool when a batch is sent",
        RecordAccumulator,
        "drain",
        _memory_free_when_drained,
    ),
    "lost connection forgets its requests": Bug(
        "requests in flight are never completed",
        NetworkClient,
        "_lose",
        _lost_connection_forgets_requests,
    ),
    "epoch bumped without renumbering": Bug(
        "batches in flight keep their numbers", ProducerState, "_renumber", _no_renumbering
    ),
    "one answer taken for all partitions": Bug(
        "error and offset of the first partition count for the whole request",
        Sender,
        "_complete_batches",
        _first_answer_for_all_partitions,
    ),
    "partition that is not mentioned taken for success": Bug(
        "what an answer to a produce request leaves out counts as acknowledged",
        Sender,
        "_complete_batches",
        _not_mentioned_taken_for_success,
    ),
    "numbered anew once only": Bug(
        "a batch that was numbered anew once never leads to a new epoch again",
        ProducerBatch,
        "close",
        _renumbered_once_and_never_again,
    ),
    "topic ids looked up when the answer comes": Bug(
        "an answer is read by the topic ids of the metadata of its time, not of the request's",
        Sender,
        "_complete_batches",
        _topic_ids_of_the_answers_time,
    ),
    "parts of a split batch reversed": Bug(
        "the second half is sent first", BatchSplitter, "split", _parts_in_reverse
    ),
    "parts numbered anew although the whole may be appended": Bug(
        "a batch whose answer was lost is split, as a limit was lowered, and written twice",
        ProducerState,
        "_request_epoch_bump",
        _probe_numbered_anew,
    ),
    "parts of a split batch share a sequence": Bug(
        "every part has the sequence of the whole",
        BatchSplitter,
        "split",
        _parts_share_a_sequence,
    ),
    "flush forgets what is in flight": Bug(
        "only queued batches are waited for",
        RecordAccumulator,
        "incomplete_count",
        _flush_forgets_what_is_in_flight,
    ),
    "requests never time out": Bug(
        "an answer that was dropped is waited for",
        NetworkClient,
        "_check_deadlines",
        _requests_never_time_out,
    ),
    "any answer taken for success": Bug(
        "the error code is not looked at", Sender, "_complete_batch", _any_answer_is_success
    ),
    "timeout taken for success": Bug(
        "a request without answer counts as acknowledged",
        Sender,
        "_handle_produce_response",
        _timeout_taken_for_success,
        (partial(scenarios.request_without_answer),),
    ),
    "look-up waited for": Bug(
        "the sender does nothing else until a name server has answered",
        NetworkClient,
        "_connect",
        _look_up_awaited,
        (partial(scenarios.slow_name), partial(scenarios.name_that_is_too_slow)),
    ),
    "header written anew for a retry": Bug(
        "a retry does not send the same bytes", ProducerBatch, "close", _header_written_anew
    ),
}
