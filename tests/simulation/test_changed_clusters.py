"""What brokers forget or lose, and metadata that changes, while batches are on their way."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import DeliveryError, TopicError
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.columns.positions import ColumnPositions
from tests.simulation.harness import Simulation, keyed, partition_of, simulate
from tests.simulation.partition_log import PartitionLog


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_topic_error_while_an_answer_is_on_its_way_doubles_nothing(acks):
    simulation = simulate(acks=acks, enable_idempotence=str(acks == "all").lower())
    for partition in range(3):  # connections to all brokers, so that no answer waits for another
        simulation.append_to(partition, [b"a"])
    simulation.producer.flush()

    def break_topic(*_):
        simulation.cluster.on_produce = None
        simulation.network.faults.delay_next_response_ms = 500
        simulation.cluster.on_describe = lambda topic: "LEADER_NOT_AVAILABLE"
        simulation.producer._metadata.request_update_now()
        simulation.network.wakeup()
        simulation.scheduler.after(
            1000, lambda: setattr(simulation.cluster, "on_describe", lambda topic: "NONE")
        )

    simulation.cluster.on_produce = break_topic
    simulation.append_to(0, [b"b"])
    simulation.append_to(0, [b"c"])
    simulation.producer.flush()
    assert simulation.producer.metrics.retries == 0
    assert simulation.values()[0] == [b"a", b"b", b"c"]


def test_a_producer_id_that_the_broker_forgot_is_replaced_by_a_new_epoch():
    simulation = simulate(partitions=1)
    simulation.append_to(0, [b"a", b"b"])
    simulation.producer.flush()
    log = simulation.cluster.topics["t"].partitions[0].log
    answers = iter(["UNKNOWN_PRODUCER_ID"])
    simulation.cluster.on_produce = lambda *_: next(answers, None)
    simulation.append_to(0, [b"c"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b", b"c"]
    last = log.batches[-1].header
    assert (last.producer_epoch, last.base_sequence) == (1, 0)


def test_a_batch_that_a_later_one_has_overtaken_fails_at_once():
    """A leader that has lost the producer's state takes any sequence: here the second one's."""
    simulation = simulate(partitions=1, batch_size="100", linger_ms="0")
    simulation.append_to(0, [b"first"])
    simulation.producer.flush()
    log = simulation.cluster.topics["t"].partitions[0].log
    errors = []

    def forget(broker, topic, index, batch):
        if not errors:
            log.producers.clear()
            errors.append("NOT_ENOUGH_REPLICAS")
            return errors[0]
        return None

    simulation.cluster.on_produce = forget
    began_ms = simulation.clock.ms
    simulation.append_to(0, [b"%d" % n + bytes(90) for n in range(3)])
    with pytest.raises(DeliveryError, match=r"t-0 refused.*OUT_OF_ORDER_SEQUENCE_NUMBER"):
        simulation.producer.flush()
    assert simulation.clock.ms - began_ms < 10_000
    assert [v[:1] for v in simulation.values()[0]][:2] == [b"f", b"1"]


def test_no_more_is_sent_behind_a_batch_that_may_be_appended_than_a_broker_remembers():
    """Its answers are lost, those of the batches behind it are not: brokers remember five."""
    simulation = simulate(partitions=1, batch_size="100", linger_ms="0", retry_backoff_ms="0")
    simulation.append_to(0, [b"first"])
    simulation.producer.flush()
    values = [b"%02d" % n + bytes(90) for n in range(40)]

    def lose_answers_of_second(broker, topic, index, batch):
        is_second = batch.header.base_sequence == 1 and attempts.append(1) is None
        simulation.cluster.omit_answers = 1.0 if is_second and len(attempts) < 12 else 0.0

    attempts: list[int] = []
    simulation.cluster.on_produce = lose_answers_of_second
    simulation.append_to(0, values)
    simulation.producer.flush()
    assert len(attempts) == 12
    assert simulation.values()[0] == [b"first", *values]


def test_no_more_is_sent_behind_a_batch_without_answer_than_the_next_leader_remembers():
    """The leader moves before its answer, which is lost; the next leader answers at once."""
    simulation = simulate(batch_size="100", linger_ms="0", retry_backoff_ms="0")
    for partition in range(3):  # connections to all brokers
        simulation.append_to(partition, [b"first"])
    simulation.producer.flush()
    values = [b"%02d" % n + bytes(90) for n in range(40)]
    leader_id = simulation.cluster.topics["t"].partitions[0].leader_id
    to = next(node_id for node_id in simulation.cluster.brokers if node_id != leader_id)

    def move() -> None:
        simulation.cluster.move_leader("t", 0, to)
        simulation.producer._metadata.request_update_now()
        simulation.network.wakeup()

    def lose_answer(*_):
        simulation.cluster.on_produce = None
        simulation.network.faults.delay_next_response_ms = 60_000
        simulation.scheduler.after(5, move)

    simulation.cluster.on_produce = lose_answer
    simulation.append_to(0, values[:1])
    simulation.run_for(100)
    simulation.append_to(0, values[1:])
    simulation.producer.flush()
    assert simulation.producer.metrics.retries == 1
    assert simulation.values()[0] == [b"first", *values]


def test_two_truncations_in_a_row_lose_what_they_took_and_nothing_else():
    simulation = simulate(partitions=1, batch_size="100")
    partition = simulation.cluster.topics["t"].partitions[0]
    for value in (b"first", b"second"):
        simulation.append_to(0, [value])
        simulation.producer.flush()
    truncations = []

    def truncate(broker, topic, index, batch):
        """Once in each of the first two epochs, where the next sequence is not 0."""
        epoch, sequence = batch.header.producer_epoch, batch.header.base_sequence
        if sequence > 0 and epoch == len(truncations) < 2:
            truncations.append(partition.drop_last_batch())

    simulation.cluster.on_produce = truncate
    values = [b"%d" % n + bytes(90) for n in range(4)]
    simulation.append_to(0, values)
    simulation.producer.flush()
    assert truncations == [True, True]
    assert simulation.values()[0] == [b"first", *values[1:]]
    assert partition.log.batches[-1].header.producer_epoch == 2


def test_a_leader_that_is_not_among_the_brokers_is_asked_for_again_after_the_backoff():
    """Nobody is elected yet: metadata names the dead leader. The sender must not sleep meanwhile."""
    simulation = Simulation(acks="all")
    cluster, clock = simulation.cluster, simulation.clock
    cluster.create_topic("t", partitions=1, replicas=3)
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    cluster.crash(cluster.topics["t"].partitions[0].leader_id, election_delay_ms=1000)
    began_ms = clock.ms
    simulation.append_to(0, [b"b"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b"]
    assert clock.ms - began_ms < 3000


def test_who_gets_the_same_metadata_again_asks_less_often():
    """The dead leader is named for a minute, by every answer."""
    simulation = Simulation(acks="all")
    cluster, clock = simulation.cluster, simulation.clock
    cluster.create_topic("t", partitions=1, replicas=3)
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    cluster.crash(cluster.topics["t"].partitions[0].leader_id, election_delay_ms=60_000)
    began_ms, asked = clock.ms, cluster.metadata_requests
    simulation.append_to(0, [b"b"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a", b"b"]
    assert clock.ms - began_ms < 62_000
    # retry.backoff.max.ms is a second, less a fifth by chance; the first few come sooner.
    assert cluster.metadata_requests - asked < 60 / 0.8 + 5


def test_a_partition_that_an_answer_does_not_mention_is_not_acknowledged():
    """Here it is refused, and the answer lacks that."""
    simulation = simulate(partitions=1)
    simulation.cluster.omit_answers = 1.0
    refusals = iter(["NOT_ENOUGH_REPLICAS"])

    def refuse_first(*_):
        error = next(refusals, None)
        if error is None:
            simulation.cluster.omit_answers = 0.0
        return error

    simulation.cluster.on_produce = refuse_first
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    assert simulation.values()[0] == [b"a"]
    assert simulation.producer.metrics.retries == 1


def test_a_producer_with_a_topic_that_it_cannot_use_any_more_is_not_kept():
    simulation = simulate(partitions=1)
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    assert simulation.producer.is_clean
    simulation.cluster.on_describe = lambda topic: "TOPIC_AUTHORIZATION_FAILED"
    simulation.producer._metadata.request_update_now()
    simulation.run_for(1_000)
    assert simulation.producer.accumulator.failure is None
    assert not simulation.producer.is_clean


def test_a_topic_that_may_not_be_used_any_more_fails_its_batches_at_once():
    """Its leader is lost, and metadata tells why it will not be known again."""
    simulation = simulate(partitions=1)
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()

    def lose_right(*_):
        simulation.cluster.on_describe = lambda topic: "TOPIC_AUTHORIZATION_FAILED"
        return "LEADER_NOT_AVAILABLE"

    simulation.cluster.on_produce = lose_right
    simulation.append_to(0, [b"b"])
    began_ms = simulation.clock.ms
    with pytest.raises(DeliveryError, match="TOPIC_AUTHORIZATION_FAILED"):
        simulation.producer.flush()
    assert simulation.clock.ms - began_ms < _SOON_MS


def test_an_answer_that_comes_after_the_failure_changes_nothing():
    simulation = simulate(partitions=1)
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    simulation.network.faults.delay_next_response_ms = 500
    simulation.append_to(0, [b"b"])
    simulation.producer._appender.finish_open()
    simulation.run_for(20)
    before = simulation.producer.metrics.report()
    simulation.producer.sender.fail(DeliveryError("another batch"))
    simulation.run_for(1_000)
    assert simulation.values()[0] == [b"a", b"b"]
    assert simulation.producer.metrics.report() == before
    assert simulation.producer._totals.report[TopicPartition("t", 0)].records == 1


def test_a_partition_that_an_answer_mentions_twice_is_acknowledged_once():
    simulation = simulate(partitions=1)
    simulation.cluster.repeat_answers = True
    simulation.append_to(0, [b"a"])
    simulation.producer.flush()
    assert simulation.producer.report[TopicPartition("t", 0)].records == 1


_IDLE_MS = 5_000
_SOON_MS = 1_000


def test_rows_that_name_a_partition_that_was_just_added_wait_for_it():
    """Metadata is young, and one broker after the other learns of the partitions."""
    simulation = simulate(partitions=2)
    simulation.append_to(1, [b"a"])
    simulation.producer.flush()
    simulation.cluster.metadata_delay_ms = (2_000, 2_000)
    simulation.cluster.add_partitions("t", 2)
    simulation.append_to(3, [b"b"])
    simulation.producer.flush()
    assert simulation.values() == {0: [], 1: [b"a"], 2: [], 3: [b"b"]}


def test_partitions_that_nobody_adds_are_waited_for_once():
    simulation = simulate(partitions=2, max_block_ms="20000")
    began_ms = simulation.clock.ms
    for _ in range(3):
        with pytest.raises(TopicError, match="Invalid partition 5"):
            simulation.append_to(5, [b"a"])
    waited_ms = simulation.clock.ms - began_ms
    assert 20_000 <= waited_ms < 21_000
    # They are asked for each time.
    simulation.cluster.add_partitions("t", 4)
    simulation.append_to(5, [b"a"])
    simulation.producer.flush()
    assert simulation.values()[5] == [b"a"]
    assert simulation.clock.ms - began_ms < 22_000


def test_metadata_is_asked_for_once_where_all_partitions_are_known():
    simulation = simulate(partitions=2)
    for _ in range(2):
        simulation.append_to(1, [b"a"])
        simulation.producer.flush()
    assert simulation.cluster.metadata_requests == 1


def test_whoever_waited_in_vain_waits_again_later():
    simulation = simulate(partitions=2, max_block_ms="20000", metadata_max_age_ms="20000")
    for _ in range(2):
        began_ms = simulation.clock.ms
        with pytest.raises(TopicError, match="Invalid partition 5"):
            simulation.append_to(5, [b"a"])
        assert simulation.clock.ms - began_ms >= 20_000
        simulation.run_for(20_000)


def test_rows_of_several_topics_wait_for_the_partitions_of_each():
    simulation = simulate(partitions=2)
    simulation.cluster.create_topic("u", 1)
    for topic in ("t", "u"):
        simulation.append_to(0, [b"a"], topic)
    simulation.producer.flush()
    simulation.cluster.add_partitions("u", 1)
    names, values = pa.array(["t", "u", "u"]), pa.array([b"1", b"2", b"3"], pa.binary())
    batch = pa.record_batch([values, pa.array([1, 1, None], pa.int32()), names], list("vpt"))
    simulation.producer.append(batch, ColumnPositions(value=0, partition=1, topic=2))
    simulation.producer.flush()
    assert simulation.values()[1] == [b"1"]
    assert simulation.values("u")[1][:1] == [b"2"]


@pytest.mark.parametrize("idle_ms", [_IDLE_MS, 10 * _IDLE_MS])
@pytest.mark.parametrize("max_age_ms", ["1000", "300000"])
def test_keys_of_a_topic_that_was_recreated_smaller_go_where_they_belong(idle_ms, max_age_ms):
    options = {"metadata_max_idle_ms": str(_IDLE_MS), "metadata_max_age_ms": max_age_ms}
    simulation = simulate(partitions=6, **options)
    rows = keyed(100)
    simulation.append(rows)
    simulation.producer.flush()
    simulation.run_for(idle_ms)
    simulation.cluster.empty_topic("t", 2)
    began_ms = simulation.clock.ms
    simulation.producer.begin_task(["t"])
    simulation.append(rows)
    simulation.append([(None, b"%d" % n) for n in range(50)])
    simulation.producer.flush()
    assert simulation.clock.ms - began_ms < _SOON_MS
    for partition, records in simulation.cluster.records("t").items():
        assert records[0].value
        for record in records:
            assert record.key is None or partition_of(record.key, 2) == partition
        sequences = [b.header.base_sequence for b in _log(simulation, partition).batches]
        assert sequences[0] == 0
    assert len(simulation.all_values()) == 150


def test_a_task_that_pauses_is_told_that_its_topic_was_recreated():
    simulation = simulate(
        partitions=2, metadata_max_idle_ms=str(_IDLE_MS), metadata_max_age_ms="1000"
    )
    simulation.producer.begin_task(["t"])
    simulation.append_to(0, [b"lost"])
    simulation.producer.flush()
    simulation.run_for(2 * _IDLE_MS)
    simulation.cluster.empty_topic("t")
    with pytest.raises(TopicError, match="deleted and created again"):
        simulation.append_to(0, [b"after"])


def _log(simulation: Simulation, partition: int) -> PartitionLog:
    return simulation.cluster.topics["t"].partitions[partition].log
