"""Idempotence when a broker refuses records of a batch: what is numbered anew, and when."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import NoSequences, ProducerState
from tests.unit.batches import T0, make_batch
from tests.unit.test_accumulator import ALL, accumulator, enqueue
from tests.unit.test_sequences import (
    LAST_SEQUENCE,
    LOG_START,
    OUT_OF_ORDER,
    PRODUCER,
    acknowledge,
    drained,
    start_at,
    state,
)

__all__ = ["accumulator", "state"]

NETWORK_EXCEPTION = error_named("NETWORK_EXCEPTION")
BEFORE_OR_AFTER_APPEND = [
    NETWORK_EXCEPTION,
    error_named("NOT_LEADER_OR_FOLLOWER"),
    error_named("UNKNOWN_TOPIC_OR_PARTITION"),
    error_named("KAFKA_STORAGE_ERROR"),
    error_named("NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
]


def parts_of(batch: ProducerBatch, *counts: int) -> list[ProducerBatch]:
    """As the splitter makes them: they have the first of its numbers."""
    parts, sequence = [], batch.base_sequence
    for count in counts:
        part = make_batch(T0, count)
        part.set_producer_state(batch.producer, sequence)
        sequence += count
        parts.append(part)
    return parts


def numbers(state: ProducerState) -> list[int]:
    return [batch.base_sequence for batch in state.in_flight(T0)]


def refused_behind(state: ProducerState, *batches: ProducerBatch) -> None:
    for batch in batches:
        assert state.is_behind_rejected(batch, OUT_OF_ORDER)


def test_what_is_behind_is_numbered_anew_when_all_of_it_is_answered(state: ProducerState) -> None:
    start_at(state, 100)
    first, second, third, fourth = drained(state, 10, 10, 10, 10)
    state.remove_records(second, parts_of(second, 7, 1))
    assert numbers(state) == [100, 110, 117, 120, 130]
    refused_behind(state, third, fourth)
    # The first one's answer may still say that it was refused as well.
    assert numbers(state) == [100, 110, 117, 120, 130]
    acknowledge(state, first)
    assert numbers(state) == [110, 117, 118, 128]
    (later,) = drained(state, 1)
    assert later.base_sequence == 138


def test_nothing_is_sent_before(state: ProducerState) -> None:
    start_at(state, 0)
    first, second = drained(state, 5, 5)
    state.remove_records(first, parts := parts_of(first, 4))
    assert state.must_wait(parts[0])
    assert state.must_wait(make_batch(T0, 1))
    refused_behind(state, second)
    assert not state.must_wait(parts[0])
    assert state.must_wait(second)


def test_the_first_of_several_gaps_counts(state: ProducerState) -> None:
    start_at(state, 50)
    batches = drained(state, 10, 10, 10)
    state.remove_records(batches[1], parts_of(batches[1], 9))
    state.remove_records(batches[2], parts_of(batches[2], 8))
    state.remove_records(batches[0], parts_of(batches[0], 7))
    assert numbers(state) == [50, 57, 66]


def test_a_batch_that_is_gone_leaves_its_numbers_to_the_next(state: ProducerState) -> None:
    start_at(state, 5)
    (batch,) = drained(state, 3)
    state.remove_records(batch, [])
    (later,) = drained(state, 2)
    assert later.base_sequence == 5


def test_across_the_wrap(state: ProducerState) -> None:
    start_at(state, LAST_SEQUENCE - 3)
    first, second = drained(state, 6, 4)
    state.remove_records(first, parts_of(first, 2))
    refused_behind(state, second)
    assert numbers(state) == [LAST_SEQUENCE - 3, LAST_SEQUENCE - 1]
    assert state._sequences(T0).next_sequence == 2


def test_a_batch_before_it_that_is_out_of_order_is_another_matter(state: ProducerState) -> None:
    start_at(state, 0)
    first, second = drained(state, 5, 5)
    state.remove_records(second, [])
    assert not state.is_behind_rejected(first, OUT_OF_ORDER)
    assert not state.is_behind_rejected(first, NETWORK_EXCEPTION)


def test_what_may_still_come_late_keeps_its_numbers(state: ProducerState) -> None:
    """So it cannot be sent again at all: the task fails."""
    start_at(state, 0)
    first, second = drained(state, 5, 5)
    state.remove_records(first, [])
    second.note_failure(None, NETWORK_EXCEPTION, None)
    assert not state.can_retry(second, NETWORK_EXCEPTION, LOG_START)


@pytest.mark.parametrize("error", BEFORE_OR_AFTER_APPEND)
@pytest.mark.parametrize("position", [1, 2])
def test_nothing_is_divided_where_it_or_a_later_one_may_be_appended(
    state: ProducerState, error: object, position: int
) -> None:
    start_at(state, 0)
    batches = drained(state, 5, 5, 5)
    batches[position].note_failure(None, error, None)  # type: ignore[arg-type]
    assert not state.can_remove_records(batches[1])
    assert state.can_remove_records(batches[2]) == (position == 1)


def test_a_batch_that_was_out_of_order_may_be_divided(state: ProducerState) -> None:
    start_at(state, 0)
    (batch,) = drained(state, 5)
    batch.note_failure(None, OUT_OF_ORDER, None)
    assert state.can_remove_records(batch)


@pytest.mark.parametrize("is_too_large", [False, True])
def test_what_is_left_of_a_batch_is_queued_before_what_was_behind_it(
    state: ProducerState, accumulator: RecordAccumulator, is_too_large: bool
) -> None:
    """The last of three is answered first, and numbered anew before the second one is divided."""
    start_at(state, 1)
    batches = first, second, third = [make_batch(T0, count) for count in (20, 10, 10)]
    enqueue(accumulator, *batches)
    for _ in batches:
        accumulator.drain([T0], ALL, 0, state)
    assert state.can_retry(third, OUT_OF_ORDER, LOG_START)
    accumulator.reenqueue(third, 0)
    state.remove_records(first, [])
    accumulator.replace(first, [], 0)
    parts = parts_of(second, 2)
    if is_too_large:
        state.replace(second, parts := [*parts, *parts_of(second, 8)])
    else:
        state.remove_records(second, parts)
    accumulator.replace(second, parts, 0)
    assert numbers(state) == ([1, 3, 11] if is_too_large else [1, 3])
    assert list(accumulator._queues[T0]) == [*parts, third]
    assert not state.must_wait(parts[0])


def test_a_new_epoch_has_no_gap(state: ProducerState) -> None:
    start_at(state, 0)
    first, second, third = drained(state, 5, 5, 5)
    state.remove_records(second, [])
    # The broker has lost what it knew, and everything is numbered anew.
    assert state.can_retry(first, OUT_OF_ORDER, LOG_START)
    state.bump_epoch_if_needed()
    assert state.producer == (PRODUCER.producer_id, 1)
    assert numbers(state) == [0, 5]
    assert not state.must_wait(first)
    # An answer to its old numbers, which says nothing of the new ones.
    assert not state.is_behind_rejected(third, OUT_OF_ORDER)
    assert state.can_retry(third, OUT_OF_ORDER, LOG_START)
    assert numbers(state) == [0, 5]


def test_without_numbers_everything_may_be_divided() -> None:
    batch = make_batch(T0, 5)
    batch.note_failure(None, NETWORK_EXCEPTION, None)
    assert NoSequences().can_remove_records(batch)
    assert not NoSequences().is_behind_rejected(batch, OUT_OF_ORDER)
