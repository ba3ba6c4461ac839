"""The decision log where its leader changes, or somebody has deleted records of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from spark_kafka_sink.base.errors import BrokerError, KafkaSinkError
from spark_kafka_sink.base.model import Node, TopicPartition
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from spark_kafka_sink.transactions.inspection import Inspection
from spark_kafka_sink.transactions.log_partition import LogPartition
from tests.simulation.cluster import HIGH_WATERMARK_LAG_MS
from tests.simulation.operating import LOG_TOPIC, PATIENCE_MS, Operated, driver, unit
from tests.simulation.partition import Partition

LOG = TopicPartition(LOG_TOPIC, 0)


@pytest.fixture
def operated() -> Operated:
    operated = Operated()
    operated.batch(6, [b"a"], driver(1))
    return operated


@contextmanager
def asking(broker_id: int) -> Iterator[None]:
    """Metadata come from a broker that takes ``broker_id`` for the leader."""
    node = Node(broker_id, f"broker-{broker_id}", 9092)
    with mock.patch.object(LogPartition, "_find_leader", return_value=(node, None)):
        yield


def move_leader(operated: Operated) -> Partition:
    """To a replica that has everything and has not heard of it."""
    cluster = operated.world.cluster
    partition = cluster.partition(LOG)
    [to, *_] = [b for b in partition.replicas if b != partition.leader_id]
    partition.heard_high_watermarks[to] = 1
    cluster.elect(partition, to)
    cluster.publish(now=True)
    assert partition.told_high_watermark < partition.high_watermark
    return partition


def test_a_decision_is_found_behind_a_new_leader(operated):
    move_leader(operated)
    record = operated.record()
    assert record is not None
    assert record.unit == unit(6)


def test_a_deposed_leader_that_does_not_know_it_hides_no_decision(operated):
    """The true leader has a newer decision; the old one answers everybody who asks it."""
    cluster = operated.world.cluster
    plan = operated.protocol.plan(driver(1), None)
    written = operated.written(plan, [b"b"])
    partition = cluster.partition(LOG)
    old = partition.leader_id
    to = next(b for b in partition.replicas if b != old)
    cluster.depose_leader(*LOG, to, unaware_ms=20_000)
    with asking(to):
        operated.protocol_of("p").commit(plan, unit(7), written)
    log = operated.protocol_of("p").log
    with asking(old):
        looked = log.read(operated.world.clock.ms + PATIENCE_MS)
    assert looked is not None
    assert looked.unit == unit(6), "the old leader was not asked: this proves nothing"
    found = log.read_current(operated.world.clock.ms + PATIENCE_MS)
    assert found is not None
    assert found.unit == unit(7)


def test_a_barrier_replaces_nothing_and_is_nobodys_record(operated):
    log = operated.protocol_of("p").log
    before = operated.record()
    deadline_ms = operated.world.clock.ms + PATIENCE_MS
    assert log.read_current(deadline_ms) == before == log.read(deadline_ms)
    records = operated.world.cluster.partition(LOG).log.records()
    assert {r.key for r in records} == {b"p", b"\xffp", b"\xfep"}
    overviews = Inspection(operated.client, LOG_TOPIC, PATIENCE_MS).overview(None)
    assert [overview.prefix for overview in overviews] == ["p"]


def test_a_leader_that_changes_between_end_and_read(operated):
    log = LogPartition(operated.client.admin, LOG)
    deadline_ms = operated.world.clock.ms + PATIENCE_MS
    end = log.end_offset(deadline_ms)
    move_leader(operated)
    before_ms = operated.world.clock.ms
    batches = list(log.read(0, end, deadline_ms))
    assert batches[-1].last_offset == end - 1
    assert operated.world.clock.ms - before_ms < 3 * HIGH_WATERMARK_LAG_MS


def test_a_leader_that_never_gets_there(operated):
    log = LogPartition(operated.client.admin, LOG)
    end = operated.world.cluster.partition(LOG).high_watermark
    with pytest.raises(BrokerError, match=f"readable to {end}, not to 99: OFFSET_NOT"):
        list(log.read(0, 99, operated.world.clock.ms + 2000))


@pytest.mark.parametrize("is_deleted_wholly", [False, True])
def test_records_that_somebody_has_deleted(operated, is_deleted_wholly):
    partition = operated.world.cluster.partition(LOG)
    end = partition.high_watermark
    partition.log_start_offset = end if is_deleted_wholly else 2
    record = operated.record()
    assert (record is None) == is_deleted_wholly


def test_a_log_that_is_deleted_faster_than_it_can_be_read(operated):
    partition = operated.world.cluster.partition(LOG)

    class Running(int):
        """Before whatever it is compared with."""

        def __le__(self, other: int) -> bool:
            return False

    partition.log_start_offset = Running(0)
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        operated.record()


def test_a_leader_waits_for_its_replicas_for_seconds_whatever_time_there_is(operated):
    """One that is cut off from them would be waited for until the end; another may have the rest."""
    admin = operated.client.admin
    with mock.patch.object(admin, "request_all", wraps=admin.request_all) as asked:
        operated.protocol_of("p").log.read_current(admin.deadline_in(3_600_000))
    requests = [call.request for (calls, *_), _ in asked.call_args_list for call in calls]
    waits = [r.timeout_ms for r in requests if isinstance(r, ProduceRequest)]
    assert waits
    assert all(0 < ms <= 10_000 for ms in waits)


def test_a_cluster_that_falls_silent_is_given_up_in_time(operated):
    """Also while the brokers are asked whether another one leads the log by now."""
    log = LogPartition(operated.client.admin, LOG)
    clock = operated.world.clock
    log.end_offset(clock.ms + PATIENCE_MS)
    operated.world.cluster.handle = lambda broker, request, version, reply: None
    deadline_ms = clock.ms + 2_000
    with pytest.raises(KafkaSinkError):
        log.end_offset(deadline_ms)
    assert clock.ms <= deadline_ms + 1
