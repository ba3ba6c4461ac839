"""Idempotence: numbers of batches, what may be sent, refusals and epochs; what a produce request
says of a transaction.
"""

from uuid import UUID

import pytest

from spark_kafka_sink.base import errors
from spark_kafka_sink.base.model import NO_PRODUCER, PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.producer.sender import check_adds_partitions, highest_version, produce_request
from spark_kafka_sink.producer.sequences import NoSequences, ProducerState
from spark_kafka_sink.protocol.api import BrokerApiVersions, VersionRange
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from spark_kafka_sink.record.record_batch import read_header
from tests.unit.batches import ALL, NODES, T0, T1, make_accumulator, make_batch

PRODUCER = ProducerIdAndEpoch(42, 0)
LAST_EPOCH = ProducerIdAndEpoch(42, 2**15 - 1)
UNKNOWN_PRODUCER_ID = errors.error_named("UNKNOWN_PRODUCER_ID")
OUT_OF_ORDER = errors.error_named("OUT_OF_ORDER_SEQUENCE_NUMBER")
NETWORK_EXCEPTION = errors.error_named("NETWORK_EXCEPTION")
BEFORE_OR_AFTER_APPEND = [
    "NETWORK_EXCEPTION",
    "NOT_LEADER_OR_FOLLOWER",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "KAFKA_STORAGE_ERROR",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
]
LOG_START = 0
LAST_SEQUENCE = 2**31 - 1


@pytest.fixture
def state():
    state = ProducerState()
    state.set_producer(PRODUCER)
    return state


def drained(state, *counts):
    """Batches of T0 with so many records each, numbered one after the other."""
    batches = [make_batch(T0, count) for count in counts]
    for batch in batches:
        state.assign_sequence(batch)
    return batches


def acknowledge(state, *batches):
    for batch in batches:
        state.handle_completed_batch(batch, 0)


def start_at(state, sequence):
    """Have ``sequence`` be the next one of T0, everything before it acknowledged."""
    acknowledge(state, *drained(state, 1))
    sequences = state._sequences(T0)
    sequences.next_sequence = sequence
    sequences.last_acked_sequence = sequence - 1


def bump_for(state, batch, error=UNKNOWN_PRODUCER_ID):
    """``batch`` is rejected, which asks for a new epoch."""
    assert state.can_retry(batch, error, LOG_START)
    state.bump_epoch_if_needed()


def numbers(state):
    return [batch.base_sequence for batch in state.in_flight(T0)]


# --- numbers --------------------------------------------------------------------------------------


def test_sequences_follow_the_records_per_partition_and_are_fixed_at_the_first_drain(state):
    batches = [make_batch(T0, 3), make_batch(T1, 5), make_batch(T0, 2), make_batch(T0, 1)]
    for batch in batches:
        assert not batch.has_sequence
        state.assign_sequence(batch)
        assert batch.has_sequence
    state.assign_sequence(batches[0])
    assert [b.base_sequence for b in batches] == [0, 0, 3, 5]
    assert [b.last_sequence for b in batches] == [2, 4, 4, 5]
    assert all(b.producer == PRODUCER for b in batches)
    assert state.in_flight(T0) == [batches[0], batches[2], batches[3]]


def test_sequences_wrap_within_a_batch_and_between_two(state):
    start_at(state, LAST_SEQUENCE - 1)
    across, after = drained(state, 4, 3)
    assert (across.base_sequence, across.last_sequence) == (LAST_SEQUENCE - 1, 1)
    assert (after.base_sequence, after.last_sequence) == (2, 4)
    acknowledge(state, across)
    assert state.can_retry(after, OUT_OF_ORDER, -1)
    assert state._partitions_to_renumber == {T0}


def test_order_of_sequences_across_the_wrap():
    sequences = [LAST_SEQUENCE - 1, LAST_SEQUENCE, 0, 1]
    batches = [make_batch() for _ in sequences]
    for batch, sequence in zip(batches, sequences):
        batch.set_producer_state(PRODUCER, sequence)
    for index, batch in enumerate(batches):
        assert [batch.precedes(other) for other in batches] == [index < n for n in range(4)]
    assert not make_batch().precedes(batches[0])


# --- what may be sent -----------------------------------------------------------------------------


def test_one_in_flight_until_the_first_is_acknowledged_and_then_five_at_most(state):
    [first] = drained(state, 1)
    assert state.must_wait(make_batch(T0))
    assert not state.must_wait(make_batch(T1))
    acknowledge(state, first)
    batches = drained(state, *[1] * 4)
    assert not state.must_wait(make_batch(T0))
    drained(state, 1)
    assert state.must_wait(make_batch(T0))
    acknowledge(state, batches[0])
    assert not state.must_wait(make_batch(T0))


def test_those_acknowledged_out_of_turn_count_until_nothing_is_in_flight(state):
    """A new leader has answered; of the first one's answer, brokers remember five numbers."""
    acknowledge(state, *drained(state, 1))
    first, *others = drained(state, *[1] * 5)
    acknowledge(state, *others)
    assert state.must_wait(make_batch(T0))
    acknowledge(state, first)
    assert not state.must_wait(make_batch(T0))
    drained(state, 1)
    assert not state.must_wait(make_batch(T0))


def test_a_retry_waits_for_what_is_before_it(state):
    acknowledge(state, *drained(state, 1))
    first, second = drained(state, 1, 1)
    assert not state.must_wait(first)
    assert state.must_wait(second)
    acknowledge(state, first)
    assert not state.must_wait(second)


# --- answers --------------------------------------------------------------------------------------


def test_a_duplicate_without_offset_counts_as_acknowledged(state):
    """DUPLICATE_SEQUENCE_NUMBER: the broker has it, and no longer knows where."""
    first, second = drained(state, 1, 1)
    state.handle_completed_batch(first, -1)
    assert state.in_flight(T0) == [second]
    assert state.is_next_sequence(second)


@pytest.mark.parametrize("start", [1, LAST_SEQUENCE - 1], ids=["within", "across the wrap"])
def test_acknowledgements_in_any_order_do_not_go_back(state, start):
    start_at(state, start)
    first, second, third = drained(state, 1, 3, 1)
    acknowledge(state, second, first)
    assert state.is_next_sequence(third)


def test_parts_of_a_split_batch_take_its_place(state):
    first, second, third = drained(state, 1, 4, 1)
    parts = parts_of(second, 1, 3)
    state.replace(second, parts)
    assert state.in_flight(T0) == [first, *parts, third]
    acknowledge(state, first, *parts)
    assert state.is_next_sequence(third)


def test_other_errors_are_retried_by_the_table(state):
    [batch] = drained(state, 1)
    pass_by_themselves = ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "CORRUPT_MESSAGE")
    stay = ("MESSAGE_TOO_LARGE", "INVALID_PRODUCER_EPOCH", "TOPIC_AUTHORIZATION_FAILED")
    for names, expected in ((pass_by_themselves, True), (stay, False)):
        for name in names:
            assert state.can_retry(batch, errors.error_named(name), LOG_START) is expected, name
    assert state._partitions_to_renumber == set()


# --- epochs ---------------------------------------------------------------------------------------


def test_a_lost_producer_state_is_numbered_anew_under_a_new_epoch(state):
    acknowledge(state, *drained(state, 10))
    state.bump_epoch_if_needed()
    assert state.producer == PRODUCER  # without need, nothing happens
    first, second = drained(state, 2, 3)
    first.close()
    assert state.can_retry(second, OUT_OF_ORDER, LOG_START)
    bump_for(state, first)
    assert state.producer == ProducerIdAndEpoch(42, 1)
    assert [b.base_sequence for b in (first, second)] == [0, 2]
    assert all(b.producer == state.producer for b in (first, second))
    assert not first.is_closed
    first.close()
    assert read_header(b"".join(first.buffers)).producer_epoch == 1
    acknowledge(state, first, second)
    [third] = drained(state, 1)
    assert (third.base_sequence, third.producer) == (5, state.producer)


def test_without_log_start_offset_the_epoch_stays(state):
    [batch] = drained(state, 1)
    assert state.can_retry(batch, UNKNOWN_PRODUCER_ID, -1)
    state.bump_epoch_if_needed()
    assert (state.producer, batch.base_sequence) == (PRODUCER, 0)


def test_a_gap_is_one_only_for_the_next_in_line(state):
    acknowledge(state, *drained(state, 1))
    first, second = drained(state, 1, 1)
    bump_for(state, second, OUT_OF_ORDER)
    assert state.producer == PRODUCER
    bump_for(state, first, OUT_OF_ORDER)
    assert state.producer.producer_epoch == 1


@pytest.mark.parametrize("error", [UNKNOWN_PRODUCER_ID, OUT_OF_ORDER])
def test_nothing_is_numbered_anew_before_all_of_it_is_answered(state, error):
    """Until then the answers may still say that a batch is in the log."""
    acknowledge(state, *drained(state, 1))
    first, second = drained(state, 1, 1)
    bump_for(state, first, error)
    assert state.producer == PRODUCER
    assert not state.must_wait(first)
    assert state.can_retry(second, OUT_OF_ORDER, LOG_START)
    bump_for(state, first, error)
    assert state.producer.producer_epoch == 1


@pytest.mark.parametrize("error", [UNKNOWN_PRODUCER_ID, OUT_OF_ORDER])
@pytest.mark.parametrize("lost", [0, 1])
def test_nothing_is_numbered_anew_that_may_be_appended(state, error, lost):
    acknowledge(state, *drained(state, 1))
    batches = drained(state, 1, 1)
    for index, batch in enumerate(batches):
        answer = NETWORK_EXCEPTION if index == lost else OUT_OF_ORDER
        batch.note_failure(None, answer, None)
        batch.is_sent = False
    assert not state.can_retry(batches[0], error, LOG_START)
    state.bump_epoch_if_needed()
    assert state.producer == PRODUCER


@pytest.mark.parametrize("error", [UNKNOWN_PRODUCER_ID, OUT_OF_ORDER])
def test_a_broker_that_does_not_know_the_producer_has_appended_nothing(state, error):
    acknowledge(state, *drained(state, 1))
    [batch] = drained(state, 1)
    batch.note_failure(None, error, None)
    bump_for(state, batch, error)
    assert state.producer.producer_epoch == 1


@pytest.mark.parametrize("error", [UNKNOWN_PRODUCER_ID, OUT_OF_ORDER])
def test_what_a_later_batch_has_overtaken_is_not_written_behind_it(state, error):
    acknowledge(state, *drained(state, 1))
    first, second = drained(state, 1, 1)
    acknowledge(state, second)
    assert not state.can_retry(first, error, LOG_START)


def test_a_second_gap_after_a_new_epoch_bumps_again(state):
    """Two truncations: of what the first epoch wrote, then of what the second did."""
    acknowledge(state, *drained(state, 10))
    first, second = drained(state, 2, 3)
    assert state.can_retry(second, OUT_OF_ORDER, LOG_START)
    bump_for(state, first, OUT_OF_ORDER)
    acknowledge(state, first)
    bump_for(state, second, OUT_OF_ORDER)
    assert state.producer == ProducerIdAndEpoch(42, 2)
    assert (second.producer, second.base_sequence) == (state.producer, 0)


def test_after_the_last_epoch_a_new_producer_id_is_asked_for(state):
    state.set_producer(LAST_EPOCH)
    [batch] = drained(state, 1)
    bump_for(state, batch)
    for _ in range(2):
        assert state.producer == NO_PRODUCER
        assert state.must_wait(batch)
        state.bump_epoch_if_needed()
    state.set_producer(ProducerIdAndEpoch(43, 0))
    assert (batch.producer, batch.base_sequence) == (state.producer, 0)
    assert not state.must_wait(batch)


def test_other_partitions_end_the_old_epoch_before_they_begin_the_new(state):
    before, elsewhere = make_batch(T1, 2), make_batch(T1, 4)
    for batch in (before, elsewhere):
        state.assign_sequence(batch)
    acknowledge(state, before)
    [lost] = drained(state, 1)
    bump_for(state, lost)
    assert (elsewhere.base_sequence, elsewhere.producer) == (2, PRODUCER)
    later = make_batch(T1, 1)
    assert state.must_wait(later)
    acknowledge(state, elsewhere)
    assert not state.must_wait(later)
    state.assign_sequence(later)
    assert (later.base_sequence, later.producer) == (0, state.producer)


# --- a broker rejects records of a batch: gaps ----------------------------------------------------


def parts_of(batch, *counts):
    """As the splitter makes them: they have the first of its numbers."""
    parts, sequence = [], batch.base_sequence
    for count in counts:
        part = make_batch(T0, count)
        part.set_producer_state(batch.producer, sequence)
        sequence += count
        parts.append(part)
    return parts


def refused_behind(state, *batches):
    for batch in batches:
        assert state.is_behind_rejected(batch, OUT_OF_ORDER)


def test_what_is_behind_is_numbered_anew_when_all_of_it_is_answered(state):
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


def test_nothing_is_sent_before(state):
    start_at(state, 0)
    first, second = drained(state, 5, 5)
    state.remove_records(first, parts := parts_of(first, 4))
    assert state.must_wait(parts[0])
    assert state.must_wait(make_batch(T0, 1))
    refused_behind(state, second)
    assert not state.must_wait(parts[0])
    assert state.must_wait(second)


def test_the_first_of_several_gaps_counts(state):
    start_at(state, 50)
    batches = drained(state, 10, 10, 10)
    for index, left in ((1, 9), (2, 8), (0, 7)):
        state.remove_records(batches[index], parts_of(batches[index], left))
    assert numbers(state) == [50, 57, 66]


def test_a_batch_that_is_gone_leaves_its_numbers_to_the_next(state):
    start_at(state, 5)
    (batch,) = drained(state, 3)
    state.remove_records(batch, [])
    (later,) = drained(state, 2)
    assert later.base_sequence == 5


def test_a_gap_across_the_wrap(state):
    start_at(state, LAST_SEQUENCE - 3)
    first, second = drained(state, 6, 4)
    state.remove_records(first, parts_of(first, 2))
    refused_behind(state, second)
    assert numbers(state) == [LAST_SEQUENCE - 3, LAST_SEQUENCE - 1]
    assert state._sequences(T0).next_sequence == 2


def test_a_batch_before_it_that_is_out_of_order_is_another_matter(state):
    start_at(state, 0)
    first, second = drained(state, 5, 5)
    state.remove_records(second, [])
    assert not state.is_behind_rejected(first, OUT_OF_ORDER)
    assert not state.is_behind_rejected(first, NETWORK_EXCEPTION)


def test_what_may_still_come_late_keeps_its_numbers(state):
    """So it cannot be sent again at all: the task fails."""
    start_at(state, 0)
    first, second = drained(state, 5, 5)
    state.remove_records(first, [])
    second.note_failure(None, NETWORK_EXCEPTION, None)
    assert not state.can_retry(second, NETWORK_EXCEPTION, LOG_START)


@pytest.mark.parametrize("error", BEFORE_OR_AFTER_APPEND)
@pytest.mark.parametrize("position", [1, 2])
def test_nothing_is_divided_where_it_or_a_later_one_may_be_appended(state, error, position):
    start_at(state, 0)
    batches = drained(state, 5, 5, 5)
    batches[position].note_failure(None, errors.error_named(error), None)
    assert not state.can_remove_records(batches[1])
    assert state.can_remove_records(batches[2]) == (position == 1)


@pytest.mark.parametrize("is_too_large", [False, True])
def test_what_is_left_of_a_batch_is_queued_before_what_was_behind_it(state, is_too_large):
    """The last of three is answered first, and numbered anew before the second one is divided."""
    accumulator = make_accumulator()
    start_at(state, 1)
    batches = first, second, third = [make_batch(T0, count) for count in (20, 10, 10)]
    for batch in batches:
        accumulator.enqueue(batch)
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


def test_a_new_epoch_has_no_gap(state):
    start_at(state, 7)
    first, second, third = drained(state, 5, 5, 5)
    state.remove_records(second, [])
    # The broker has lost what it knew.
    bump_for(state, first, OUT_OF_ORDER)
    assert numbers(state) == [7, 17]
    refused_behind(state, third)
    assert numbers(state) == [7, 12]
    bump_for(state, first, OUT_OF_ORDER)
    assert state.producer == (PRODUCER.producer_id, 1)
    assert numbers(state) == [0, 5]
    assert not state.must_wait(first)


def test_without_numbers_everything_may_be_divided():
    batch = make_batch(T0, 5)
    batch.note_failure(None, NETWORK_EXCEPTION, None)
    assert NoSequences().can_remove_records(batch)
    assert not NoSequences().is_behind_rejected(batch, OUT_OF_ORDER)


# --- produce requests -----------------------------------------------------------------------------

TRANSACTION = PreparedTransaction("flights.0", 42, 3, 2)
OLD_TRANSACTION = TRANSACTION._replace(transaction_version=1)
TRANSACTIONAL = ProducerIdAndEpoch(42, 3)


def sealed(producer, transactional_id, topic_partition=T0):
    batch = make_batch(topic_partition)
    batch.set_producer_state(producer, 0, transactional_id)
    batch.close()
    return batch


def request_of(transaction, *batches):
    return produce_request(batches, -1, 30_000, transaction)


def test_id_bit_and_producer_come_together_or_not_at_all():
    batches = [sealed(TRANSACTIONAL, "flights.0", tp) for tp in (T0, T1)]
    request = request_of(TRANSACTION, *batches)
    assert request.transactional_id == "flights.0"
    assert [p.index for t in request.topic_data for p in t.partition_data] == [0, 1]
    for producer in (TRANSACTIONAL, NO_PRODUCER):
        assert request_of(None, sealed(producer, None)).transactional_id is None


def test_a_topic_has_the_id_that_its_batches_were_found_ready_with():
    """The task thread may forget an idle topic's metadata before the request is made."""
    batch = sealed(TRANSACTIONAL, None)
    batch.topic_id = UUID(int=7)
    request = request_of(None, batch)
    assert [topic.topic_id for topic in request.topic_data] == [UUID(int=7)]
    assert highest_version(request, None) is None


@pytest.mark.parametrize(
    ("transaction", "producer", "transactional_id"),
    [
        (TRANSACTION, TRANSACTIONAL, None),
        (None, TRANSACTIONAL, "flights.0"),
        (TRANSACTION, TRANSACTIONAL, "flights.1"),
        (TRANSACTION, NO_PRODUCER, "flights.0"),
        (TRANSACTION, ProducerIdAndEpoch(42, 2), "flights.0"),
        (TRANSACTION, ProducerIdAndEpoch(41, 3), "flights.0"),
        (PreparedTransaction("flights.0", -1, -1, 2), NO_PRODUCER, "flights.0"),
        (PreparedTransaction("", 42, 3, 2), TRANSACTIONAL, ""),
    ],
)
def test_a_mixture_is_never_sent(transaction, producer, transactional_id):
    """Brokers would take some of these as records of no transaction."""
    batches = [sealed(producer, transactional_id)]
    if transaction is TRANSACTION and producer == TRANSACTIONAL:  # one wrong batch is enough
        batches.insert(0, sealed(TRANSACTIONAL, "flights.0", T1))
    with pytest.raises(errors.LocalProtocolError, match="t-0 was about to be sent"):
        request_of(transaction, *batches)


@pytest.mark.parametrize("is_transactional", [True, False])
def test_what_counts_are_the_bytes(is_transactional):
    batch = sealed(TRANSACTIONAL, "flights.0" if is_transactional else None)
    batch.buffers[0][22] ^= 0x10
    with pytest.raises(errors.LocalProtocolError, match="defect"):
        request_of(TRANSACTION if is_transactional else None, batch)


def test_a_leader_that_would_not_add_partitions_is_refused_where_it_has_to():
    def check(last, transaction):
        offered = BrokerApiVersions({ProduceRequest.api_key: VersionRange(0, last)})
        check_adds_partitions(NODES[1], offered, transaction)

    for last, transaction in ((12, TRANSACTION), (9, None), (9, OLD_TRANSACTION)):
        check(last, transaction)
    with pytest.raises(
        errors.UnsupportedVersionError, match=r"broker 1.* 11.*transaction\.version"
    ):
        check(11, TRANSACTION)
    with pytest.raises(errors.UnsupportedVersionError, match="Produce version -1 at most"):
        check_adds_partitions(NODES[1], None, TRANSACTION)
