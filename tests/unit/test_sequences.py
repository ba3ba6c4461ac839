"""Idempotence: sequences, who may be sent, what a broker's refusal leads to, epochs."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.base.model import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.producer.producer_batch import ProducerBatch, increment_sequence
from spark_kafka_sink.producer.sequences import ProducerState
from spark_kafka_sink.record.record_batch import read_header
from tests.unit.batches import T0, T1, make_batch

PRODUCER = ProducerIdAndEpoch(42, 0)
UNKNOWN_PRODUCER_ID = error_named("UNKNOWN_PRODUCER_ID")
OUT_OF_ORDER = error_named("OUT_OF_ORDER_SEQUENCE_NUMBER")
LOG_START = 0
LAST_SEQUENCE = 2**31 - 1


@pytest.fixture
def state() -> ProducerState:
    state = ProducerState()
    state.set_producer(PRODUCER)
    return state


def drained(state: ProducerState, *counts: int) -> list[ProducerBatch]:
    """Batches of T0 with so many records each, numbered one after the other."""
    batches = [make_batch(T0, count) for count in counts]
    for batch in batches:
        state.assign_sequence(batch)
    return batches


def acknowledge(state: ProducerState, *batches: ProducerBatch) -> None:
    for batch in batches:
        state.handle_completed_batch(batch, 0)


def start_at(state: ProducerState, sequence: int) -> None:
    """Have ``sequence`` be the next one of T0, everything before it acknowledged."""
    [batch] = drained(state, 1)
    acknowledge(state, batch)
    sequences = state._sequences(T0)
    sequences.next_sequence = sequence
    sequences.last_acked_sequence = sequence - 1


# --- numbers --------------------------------------------------------------------------------------


def test_sequences_follow_the_records_per_partition(state: ProducerState) -> None:
    batches = [make_batch(T0, 3), make_batch(T1, 5), make_batch(T0, 2), make_batch(T0, 1)]
    for batch in batches:
        assert not batch.has_sequence
        state.assign_sequence(batch)
        assert batch.has_sequence
    assert [b.base_sequence for b in batches] == [0, 0, 3, 5]
    assert [b.last_sequence for b in batches] == [2, 4, 4, 5]
    assert all(b.producer == PRODUCER for b in batches)
    assert state.in_flight(T0) == [batches[0], batches[2], batches[3]]


def test_a_sequence_is_fixed_at_the_first_drain(state: ProducerState) -> None:
    first, second = drained(state, 2, 2)
    state.assign_sequence(first)
    assert (first.base_sequence, second.base_sequence) == (0, 2)
    assert state.in_flight(T0) == [first, second]


@pytest.mark.parametrize(
    ("sequence", "by", "expected"),
    [
        (0, 1, 1),
        (-1, 1, 0),
        (LAST_SEQUENCE - 1, 1, LAST_SEQUENCE),
        (LAST_SEQUENCE, 1, 0),
        (LAST_SEQUENCE, 2, 1),
        (LAST_SEQUENCE - 1, 4, 2),
        (5, 0, 5),
    ],
)
def test_increment_wraps_from_the_last_to_0(sequence: int, by: int, expected: int) -> None:
    assert increment_sequence(sequence, by) == expected


def test_sequences_wrap_within_a_batch_and_between_two(state: ProducerState) -> None:
    start_at(state, LAST_SEQUENCE - 1)
    across, after = drained(state, 4, 3)
    assert (across.base_sequence, across.last_sequence) == (LAST_SEQUENCE - 1, 1)
    assert (after.base_sequence, after.last_sequence) == (2, 4)
    acknowledge(state, across)
    assert state.can_retry(after, OUT_OF_ORDER, -1)
    assert state._partitions_to_renumber == {T0}


def test_a_batch_that_ends_with_the_last_sequence(state: ProducerState) -> None:
    start_at(state, LAST_SEQUENCE - 1)
    last, first = drained(state, 2, 1)
    assert last.last_sequence == LAST_SEQUENCE
    assert first.base_sequence == 0
    acknowledge(state, last)
    assert state.is_next_sequence(first)


def test_order_of_sequences_across_the_wrap() -> None:
    sequences = [LAST_SEQUENCE - 1, LAST_SEQUENCE, 0, 1]
    batches = [make_batch() for _ in sequences]
    for batch, sequence in zip(batches, sequences):
        batch.set_producer_state(PRODUCER, sequence)
    for index, batch in enumerate(batches):
        assert [batch.precedes(other) for other in batches] == [
            index < other for other in range(len(batches))
        ]
    assert not make_batch().precedes(batches[0])


def test_the_numbers_reach_the_header(state: ProducerState) -> None:
    [_, batch] = drained(state, 7, 3)
    batch.close()
    header = read_header(b"".join(batch.buffers))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (42, 0, 7)
    assert header.last_offset_delta == 2


# --- who may be sent ------------------------------------------------------------------------------


def test_nothing_without_a_producer_id() -> None:
    state = ProducerState()
    assert not state.has_producer_id
    assert state.must_wait(make_batch())
    state.set_producer(PRODUCER)
    assert state.has_producer_id
    assert not state.must_wait(make_batch())


def test_one_in_flight_until_the_first_is_acknowledged(state: ProducerState) -> None:
    [first] = drained(state, 1)
    assert state.must_wait(make_batch(T0))
    assert not state.must_wait(make_batch(T1))
    acknowledge(state, first)
    drained(state, 1)
    assert not state.must_wait(make_batch(T0))


def test_five_in_flight_at_most(state: ProducerState) -> None:
    acknowledge(state, *drained(state, 1))
    batches = drained(state, *[1] * 4)
    assert not state.must_wait(make_batch(T0))
    batches += drained(state, 1)
    assert state.must_wait(make_batch(T0))
    acknowledge(state, batches[0])
    assert not state.must_wait(make_batch(T0))


def test_those_acknowledged_out_of_turn_count_until_nothing_is_in_flight(
    state: ProducerState,
) -> None:
    """A new leader has answered; of the first one's answer, brokers remember five numbers."""
    acknowledge(state, *drained(state, 1))
    first, *others = drained(state, *[1] * 5)
    acknowledge(state, *others)
    assert state.must_wait(make_batch(T0))
    acknowledge(state, first)
    assert not state.must_wait(make_batch(T0))
    drained(state, 1)
    assert not state.must_wait(make_batch(T0))


def test_a_retry_waits_for_what_is_before_it(state: ProducerState) -> None:
    acknowledge(state, *drained(state, 1))
    first, second = drained(state, 1, 1)
    assert not state.must_wait(first)
    assert state.must_wait(second)
    acknowledge(state, first)
    assert not state.must_wait(second)


# --- answers --------------------------------------------------------------------------------------


def test_a_duplicate_without_offset_counts_as_acknowledged(state: ProducerState) -> None:
    """DUPLICATE_SEQUENCE_NUMBER: the broker has it, and no longer knows where."""
    first, second = drained(state, 1, 1)
    state.handle_completed_batch(first, -1)
    assert state.in_flight(T0) == [second]
    assert state.is_next_sequence(second)
    assert state._sequences(T0).last_acked_offset == -1


def test_offsets_only_grow(state: ProducerState) -> None:
    first, second, third = drained(state, 3, 1, 1)
    state.handle_completed_batch(second, 50)
    state.handle_completed_batch(first, 10)
    state.handle_completed_batch(third, -1)
    assert state._sequences(T0).last_acked_offset == 50


def test_parts_of_a_split_batch_take_its_place(state: ProducerState) -> None:
    first, second, third = drained(state, 1, 4, 1)
    parts = [make_batch(T0, 1), make_batch(T0, 3)]
    parts[0].set_producer_state(PRODUCER, second.base_sequence)
    parts[1].set_producer_state(PRODUCER, second.base_sequence + 1)
    state.replace(second, parts)
    assert state.in_flight(T0) == [first, *parts, third]
    acknowledge(state, first, *parts)
    assert state.is_next_sequence(third)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NOT_LEADER_OR_FOLLOWER", True),
        ("REQUEST_TIMED_OUT", True),
        ("CORRUPT_MESSAGE", True),
        ("MESSAGE_TOO_LARGE", False),
        ("INVALID_PRODUCER_EPOCH", False),
        ("TOPIC_AUTHORIZATION_FAILED", False),
    ],
)
def test_other_errors_are_retried_by_the_table(
    state: ProducerState, name: str, expected: bool
) -> None:
    [batch] = drained(state, 1)
    assert state.can_retry(batch, error_named(name), LOG_START) is expected
    assert state._partitions_to_renumber == set()


# --- epochs ---------------------------------------------------------------------------------------


def test_a_lost_producer_state_is_numbered_anew_under_a_new_epoch(state: ProducerState) -> None:
    acknowledge(state, *drained(state, 10))
    first, second = drained(state, 2, 3)
    assert state.can_retry(first, UNKNOWN_PRODUCER_ID, LOG_START)
    state.bump_epoch_if_needed()
    assert state.producer == ProducerIdAndEpoch(42, 1)
    assert [b.base_sequence for b in (first, second)] == [0, 2]
    assert all(b.producer == state.producer and b.is_renumbered for b in (first, second))
    acknowledge(state, first, second)
    [third] = drained(state, 1)
    assert (third.base_sequence, third.producer) == (5, state.producer)


def test_renumbering_writes_the_header_again(state: ProducerState) -> None:
    [batch] = drained(state, 1)
    batch.close()
    state.can_retry(batch, UNKNOWN_PRODUCER_ID, LOG_START)
    state.bump_epoch_if_needed()
    assert not batch.is_closed
    batch.close()
    assert read_header(b"".join(batch.buffers)).producer_epoch == 1


def test_without_log_start_offset_the_epoch_stays(state: ProducerState) -> None:
    [batch] = drained(state, 1)
    assert state.can_retry(batch, UNKNOWN_PRODUCER_ID, -1)
    state.bump_epoch_if_needed()
    assert state.producer == PRODUCER
    assert batch.base_sequence == 0


def test_a_gap_is_one_only_for_the_next_in_line(state: ProducerState) -> None:
    acknowledge(state, *drained(state, 1))
    first, second = drained(state, 1, 1)
    assert state.can_retry(second, OUT_OF_ORDER, LOG_START)
    state.bump_epoch_if_needed()
    assert state.producer == PRODUCER
    assert state.can_retry(first, OUT_OF_ORDER, LOG_START)
    state.bump_epoch_if_needed()
    assert state.producer.producer_epoch == 1


def test_a_renumbered_batch_does_not_bump_again(state: ProducerState) -> None:
    """It failed for its old number; the answer was on its way."""
    [batch] = drained(state, 1)
    state.can_retry(batch, UNKNOWN_PRODUCER_ID, LOG_START)
    state.bump_epoch_if_needed()
    for error in (UNKNOWN_PRODUCER_ID, OUT_OF_ORDER):
        assert state.can_retry(batch, error, LOG_START)
        state.bump_epoch_if_needed()
        assert state.producer.producer_epoch == 1


def test_a_second_gap_after_a_new_epoch_bumps_again(state: ProducerState) -> None:
    """Two truncations: of what the first epoch wrote, then of what the second did."""
    acknowledge(state, *drained(state, 10))
    first, second = drained(state, 2, 3)
    state.can_retry(first, OUT_OF_ORDER, LOG_START)
    state.bump_epoch_if_needed()
    for batch in (first, second):
        batch.close()  # as when it is sent again
    acknowledge(state, first)
    assert state.can_retry(second, OUT_OF_ORDER, LOG_START)
    state.bump_epoch_if_needed()
    assert state.producer == ProducerIdAndEpoch(42, 2)
    assert (second.producer, second.base_sequence) == (state.producer, 0)


def test_a_batch_acknowledged_by_its_old_number_does_not_stop_the_others(
    state: ProducerState,
) -> None:
    """It was renumbered while its acknowledgement was on its way: those after it begin too high
    for the new epoch, which the broker refuses.
    """
    acknowledge(state, *drained(state, 10))
    first, second = drained(state, 2, 3)
    state.can_retry(first, UNKNOWN_PRODUCER_ID, LOG_START)
    state.bump_epoch_if_needed()
    state.handle_completed_batch(first, 10)
    second.close()
    assert state.is_next_sequence(second)
    assert state.can_retry(second, OUT_OF_ORDER, LOG_START)
    state.bump_epoch_if_needed()
    assert (second.producer.producer_epoch, second.base_sequence) == (2, 0)


def test_acknowledgements_in_any_order_do_not_go_back(state: ProducerState) -> None:
    first, second, third = drained(state, 2, 3, 1)
    acknowledge(state, second, first)
    assert state.is_next_sequence(third)


def test_acknowledgements_in_any_order_across_the_wrap(state: ProducerState) -> None:
    start_at(state, LAST_SEQUENCE - 1)
    before, after, third = drained(state, 1, 3, 1)
    assert (before.last_sequence, after.last_sequence) == (LAST_SEQUENCE - 1, 1)
    acknowledge(state, after, before)
    assert state.is_next_sequence(third)


def test_no_epoch_is_made_up_while_a_new_producer_id_is_asked_for(state: ProducerState) -> None:
    state.set_producer(ProducerIdAndEpoch(42, 2**15 - 1))
    [batch] = drained(state, 1)
    state.can_retry(batch, UNKNOWN_PRODUCER_ID, LOG_START)
    for _ in range(3):
        state.bump_epoch_if_needed()
    assert state.producer == NO_PRODUCER
    state.set_producer(ProducerIdAndEpoch(43, 0))
    assert (batch.producer, batch.base_sequence) == (state.producer, 0)


def test_other_partitions_end_the_old_epoch_before_they_begin_the_new(
    state: ProducerState,
) -> None:
    before, elsewhere = make_batch(T1, 2), make_batch(T1, 4)
    for batch in (before, elsewhere):
        state.assign_sequence(batch)
    acknowledge(state, before)
    [lost] = drained(state, 1)
    state.can_retry(lost, UNKNOWN_PRODUCER_ID, LOG_START)
    state.bump_epoch_if_needed()
    assert (elsewhere.base_sequence, elsewhere.producer) == (2, PRODUCER)
    later = make_batch(T1, 1)
    assert state.must_wait(later)
    acknowledge(state, elsewhere)
    assert not state.must_wait(later)
    state.assign_sequence(later)
    assert (later.base_sequence, later.producer) == (0, state.producer)


def test_after_the_last_epoch_a_new_producer_id_is_asked_for(state: ProducerState) -> None:
    state.set_producer(ProducerIdAndEpoch(42, 2**15 - 1))
    [batch] = drained(state, 1)
    state.can_retry(batch, UNKNOWN_PRODUCER_ID, LOG_START)
    state.bump_epoch_if_needed()
    assert state.producer == NO_PRODUCER
    assert state.must_wait(batch)
    state.set_producer(ProducerIdAndEpoch(43, 0))
    assert (batch.producer, batch.base_sequence) == (state.producer, 0)
    assert not state.must_wait(batch)


def test_nothing_happens_without_need(state: ProducerState) -> None:
    state.bump_epoch_if_needed()
    assert state.producer == PRODUCER
