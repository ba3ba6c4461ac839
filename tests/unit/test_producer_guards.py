"""Second checks, forgetting and limits of the producer, each with a case that needs it.

Nothing else fails without one of these, as the first check or the usual case hides it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.base.errors import (
    RecordError,
    RecordTooLargeError,
    TransactionError,
    error_named,
)
from spark_kafka_sink.base.model import ProducerIdAndEpoch, UnusedProducerIdentity
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.columns.record_columns import arrow_records
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_keys import RowRules
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.network.client import ThrottleTimes
from spark_kafka_sink.producer import pool
from spark_kafka_sink.producer.accumulator import BufferPool, NodeLatency, RecordAccumulator
from spark_kafka_sink.producer.appender import RowChecks
from spark_kafka_sink.producer.identity import Identities, ProducerIdRequester
from spark_kafka_sink.producer.metadata import PartitionMetadata
from spark_kafka_sink.producer.monitor import ThreadMonitor, Turns
from spark_kafka_sink.producer.partitioner import (
    RoundRobinPartitioner,
    StickyPartitioner,
    TopicSlots,
)
from spark_kafka_sink.producer.producer import ThreadedProducer
from spark_kafka_sink.producer.quotas import RateLimit, ThrottleTracker
from spark_kafka_sink.producer.rejections import rejected_rows
from spark_kafka_sink.producer.sequences import ProducerState
from spark_kafka_sink.producer.transaction_manager import (
    CONNECTING_RECHECK_MS,
    TokenCheck,
    TransactionSettings,
)
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages.topics import (
    BatchIndexAndErrorMessage,
    MetadataRequest,
    MetadataResponse,
    PartitionProduceResponse,
)
from spark_kafka_sink.protocol.messages.transactions import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
)
from tests.unit import test_metadata_updater
from tests.unit.batches import NODES, T0, make_batch, make_cluster
from tests.unit.cluster_answers import (
    TOPIC_AUTHORIZATION_FAILED,
    answer,
    make_metadata,
    topic,
)
from tests.unit.scripted_network import Asked, Silence
from tests.unit.transaction_world import RETRY_BACKOFF_MS
from tests.unit.transaction_world import World as Transacting

IDLE_MS = 10_000


class TestMetadata:
    """What is known of topics."""

    def test_a_topic_that_a_task_comes_back_to_is_looked_at_again(self) -> None:
        metadata = make_metadata(max_idle_ms=IDLE_MS)
        metadata.update(answer(topic((1, 0))), 0)
        metadata.add_topic("t", IDLE_MS)
        assert "t" not in metadata.snapshot.topics

    def test_what_was_wrong_with_an_idle_topic_is_forgotten_with_it(self) -> None:
        """Its producer is kept for the next task again."""
        metadata = make_metadata(max_idle_ms=IDLE_MS)
        metadata.update(answer(topic(error_code=TOPIC_AUTHORIZATION_FAILED)), 0)
        assert metadata.problems["t"].is_fatal
        metadata.begin_task(IDLE_MS)
        assert metadata.problems == {}

    def test_a_leader_from_a_produce_answer_is_not_taken_back(self) -> None:
        """By a broker that lags."""
        metadata = make_metadata()
        metadata.update(answer(topic((1, 3))), 0)
        metadata.update_leader(T0, PartitionMetadata(2, 9), [])
        metadata.update(answer(topic((1, 4))), 100)
        assert metadata.snapshot.leader_epoch(T0) == 9

    def test_equal_answers_at_the_age_of_metadata_make_no_pause_longer(self) -> None:
        metadata = make_metadata(max_age_ms=10_000)
        for now_ms in range(0, 60_000, 10_000):
            metadata.update(answer(topic((1, 0))), now_ms)
        metadata.request_update()
        assert metadata.time_to_next_update_ms(50_000) == 100

    def test_what_was_just_created_does_not_wait_as_failures_before_it_do(self) -> None:
        metadata = make_metadata()
        for _ in range(5):
            metadata.failed_update(0)
        metadata.request_update_now()
        metadata.failed_update(0)
        assert metadata.time_to_next_update_ms(0) == 100

    def test_without_ids_fewer_partitions_are_another_topics(self) -> None:
        slots = TopicSlots("t", 0, 3, random.Random(7))
        assert slots.is_current(make_cluster({"t": [(1, 0)] * 3}))
        assert not slots.is_current(make_cluster({"t": [(1, 0)] * 2}))


class World(test_metadata_updater.World):
    """Whose brokers answer with ``response``, if there is one."""

    def __init__(self) -> None:
        self.response: MetadataResponse | None = None
        super().__init__()

    def _answer(self, asked: Any) -> Any:
        if isinstance(asked.request, MetadataRequest) and self.response is not None:
            return self.response
        return super()._answer(asked)

    def ask(self) -> None:
        """Have one request answered."""
        self.clock.ms += 10_000
        self.metadata.request_update()
        self.update()
        self.client.poll(0, self.clock.ms)

    @property
    def asks_bootstrap(self) -> bool:
        return self.metadata.candidate_nodes(self.clock.ms)[0].node_id < 0


class TestAnswersAboutTheCluster:
    """What a broker says of the others."""

    def test_a_broker_that_knows_of_nobody_is_not_believed(self) -> None:
        world = World()
        world.response = MetadataResponse()
        world.ask()
        assert world.metadata.snapshot.nodes.keys() == NODES.keys()
        assert "knows of no brokers yet" in str(world.updater.last_failure)
        world.response = None
        world.ask()
        assert world.updater.last_failure is None

    def test_a_broker_that_asks_for_a_new_beginning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        offered = {**test_metadata_updater.OFFERED, MetadataRequest: (0, 13)}
        monkeypatch.setattr(test_metadata_updater, "OFFERED", offered)
        world = World()
        world.response = MetadataResponse(error_code=error_named("REBOOTSTRAP_REQUIRED").code)
        assert not world.asks_bootstrap
        world.ask()
        assert world.asks_bootstrap

    def test_bootstrap_addresses_where_no_broker_can_be_reached(self) -> None:
        world = World()
        for node_id in NODES:
            world.network.lose(node_id)
        world.network.down |= {*NODES}
        for _ in range(10):
            world.client.poll(world.update(), world.clock.ms)
        assert world.asks_bootstrap

    @pytest.mark.parametrize(("version", "epoch"), [(8, -1), (9, 5)])
    def test_epochs_of_brokers_before_2_4(
        self, monkeypatch: pytest.MonkeyPatch, version: int, epoch: int
    ) -> None:
        offered = {**test_metadata_updater.OFFERED, MetadataRequest: (0, version)}
        monkeypatch.setattr(test_metadata_updater, "OFFERED", offered)
        world = World()
        world.metadata.add_topic("t", world.clock.ms)
        world.response = answer(topic((1, 5)), brokers=(1, 2, 3))
        world.ask()
        assert world.metadata.snapshot.leader_epoch(T0) == epoch


class TestPauses:
    """Waits for quotas and for the limit."""

    def waits(self) -> tuple[ThrottleTimes, ThrottleTracker, Any]:
        backoff = ExponentialBackoff(100, 1_000, random.Random(1))
        pages = BufferPool(1 << 16, 4096)
        accumulator = RecordAccumulator(ThreadMonitor(), pages, backoff, lambda: None)
        pauses = ThrottleTimes()
        return pauses, ThrottleTracker(pauses, make_cluster({"t": [(1, 0)]})), accumulator

    def test_two_at_the_same_time_count_once(self) -> None:
        pauses, waits, accumulator = self.waits()
        batch = make_batch()
        accumulator.enqueue(batch)
        pauses.note(1, 2_000, 4_000)
        waits.record_limited([T0], 1_000, 3_000)
        assert waits.paused_ms(batch, 5_000) == 3_000

    def test_the_limit_holds_nothing_that_is_sent(self) -> None:
        """But what is behind it in its partition's queue."""
        _, waits, _ = self.waits()
        batch = make_batch()
        batch.is_queued, batch.drained_at_ms, batch.sent_to = False, 3_000, NODES[1]
        waits.record_limited([T0], 1_000, 9_000)
        assert waits.paused_ms(batch, 9_000) == 2_000

    def test_former_leaders_are_forgotten(self) -> None:
        pauses, waits, accumulator = self.waits()
        accumulator.enqueue(make_batch())
        pauses.note(1, 1_000, 2_000)
        waits.update_leaders(make_cluster({"t": [(2, 1)]}), accumulator, 5_000)
        assert waits._past_pauses
        waits.forget_before(6_000)
        assert not waits._past_pauses
        assert not waits._led_since_ms

    def test_nothing_overtakes_what_the_limit_holds(self) -> None:
        limit = RateLimit(1_000, 0)
        limit.begin_round(500)
        assert limit.admit([make_batch(size_bytes=600), make_batch(size_bytes=100)]) == []
        assert len(limit.held) == 2

    def test_a_transaction_lasts_from_its_first_batch(self) -> None:
        limit = RateLimit(1_000, 0)
        limit.begin_transaction(10_000)
        for now_ms in (0, 5_000):
            limit.begin_round(now_ms)
            limit.spend([make_batch(size_bytes=1_000)], now_ms)
        limit.admit([make_batch(size_bytes=100)])
        with pytest.raises(TransactionError, match="has aborted its transaction"):
            limit.check_transaction(6_000, 5_000)


class TestPartitions:
    """Where rows without a key go."""

    def test_a_round_goes_on_without_what_is_not_available_any_more(self) -> None:
        sticky = StickyPartitioner(random.Random(1))
        first = sticky.next_partition([0, 1, 2], {})
        assert [sticky.next_partition([first], {}) for _ in range(3)] == [first] * 3

    def test_a_round_goes_on_over_arrow_batches(self) -> None:
        turns, row = RoundRobinPartitioner(), SimpleNamespace(rows_count=1)
        found = [turns.compute("t", row, None, [0, 1, 2], 3)[0] for _ in range(4)]  # type: ignore[arg-type]
        assert found == [0, 1, 2, 0]

    def test_a_node_that_took_a_batch_is_slow_only_from_then_on(self) -> None:
        latency = NodeLatency(100)
        for could_send, now_ms in ((False, 0), (True, 10), (False, 20), (False, 115)):
            latency.note(1, could_send, now_ms)
        assert latency.slow_nodes == frozenset()
        latency.note(1, False, 121)
        assert latency.slow_nodes == {1}

    def test_without_a_timeout_no_node_is_slow(self) -> None:
        latency = NodeLatency(0)
        for now_ms in (0, 1_000_000):
            latency.note(1, False, now_ms)
        assert latency.slow_nodes == frozenset()


def test_a_broker_that_refuses_records_which_a_batch_has_not() -> None:
    named = [BatchIndexAndErrorMessage(index, None) for index in (7, 1, -1)]
    told = PartitionProduceResponse(record_errors=named)
    assert [*rejected_rows(3, error_named("INVALID_RECORD"), told)] == [1]


class TestRowChecks:
    """What no broker would take."""

    def check(self, rules: RowRules, memory_bytes: int = 1 << 20, **more: str) -> None:
        config = ProducerConfig.parse({"bootstrap.servers": "b:1", **more})
        batch = pa.record_batch([pa.array([b"a" * 2000])], names=["value"])
        records = arrow_records(batch, ColumnPositions(value=0, topic_option="t"), 0)
        RowChecks(config, memory_bytes).check(records, rules)

    def test_without_a_column_of_keys_no_row_has_one(self) -> None:
        self.check(RowRules())
        with pytest.raises(RecordError, match="key is null"):
            self.check(RowRules(needs_key=True))

    def test_the_memory_is_a_limit_too(self) -> None:
        with pytest.raises(RecordTooLargeError, match=r"buffer\.memory"):
            self.check(RowRules(), memory_bytes=1000)

    def test_what_gets_smaller_is_left_to_brokers(self) -> None:
        self.check(RowRules(100), **{"compression.type": "zstd"})
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
            self.check(RowRules(100))


class TestBetweenTasks:
    """A producer that is kept."""

    @pytest.fixture
    def producer(self) -> Iterator[ThreadedProducer]:
        (port,) = free_ports(1, "127.0.0.1")
        config = ProducerConfig.parse({"bootstrap.servers": f"127.0.0.1:{port}"})
        made = ThreadedProducer(config)
        yield made
        made.close()

    def test_a_fork_has_no_sender_thread(self, producer: ThreadedProducer) -> None:
        assert producer.is_healthy
        child = os.fork()
        if child == 0:
            os._exit(producer.is_healthy)
        assert os.waitpid(child, 0)[1] == 0

    def test_one_that_is_closing_is_not_taken_up(self, producer: ThreadedProducer) -> None:
        """Its thread tells brokers the last metrics yet."""
        with producer._monitor:  # the thread goes no further
            producer._is_closing = True
            assert not producer.is_healthy

    def test_one_that_is_taken_up_does_not_close_itself(self, producer: ThreadedProducer) -> None:
        producer.mark_idle(producer._clock.now_ms() + 1_000_000)
        assert producer.reactivate()
        assert producer._close_at_ms is None

    def test_a_fork_has_no_producers_of_the_process_that_it_comes_from(
        self, producer: ThreadedProducer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(pool.POOL._idle, producer._config, [pool._Idle(producer, 0)])
        child = os.fork()
        if child == 0:
            os._exit(pool.POOL.idle_count)
        assert os.waitpid(child, 0)[1] == 0


TOKEN = UnusedProducerIdentity("flights.driver", ProducerIdAndEpoch(77, 5))


def silent(asked: Asked) -> schema.Message:
    raise Silence


class TestCoordinator:
    def test_pauses_grow_and_are_short_again_after_a_success(self):
        for error in map(error_named, ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS")):
            asking, pauses = Transacting().asking(), []
            for count in range(4):
                if count == 3:
                    asking.succeed()
                    assert asking.last_failure is None
                asking.handle_error("no answer", error, None, 0)
                pauses.append(asking.pause_ms(0))
            assert pauses[0] < pauses[1] < pauses[2]
            assert pauses[3] == pauses[0]

    def test_one_that_cannot_be_reached_is_looked_for_after_the_pause(self):
        world = Transacting()
        world.network.down.add(2)
        wait_ms = None
        while world.manager.last_failure is None:
            wait_ms = world.manager.maybe_request(world.clock.ms)
            world.client.poll(1_000 if wait_ms is None else wait_ms, world.clock.ms)
        assert "cannot be reached" in world.manager.last_failure
        assert wait_ms is not None
        assert 0 < wait_ms <= 2 * RETRY_BACKOFF_MS

    def test_one_question_is_asked_at_a_time(self):
        world = Transacting()
        world.network._script = silent
        check = TokenCheck(TOKEN, world.client, world.metadata, world.asking(), lambda: None)
        for _ in range(20):
            world.manager.maybe_request(world.clock.ms)
            check.maybe_request(True, world.clock.ms)
            world.client.poll(0, world.clock.ms)
        assert len(world.asked(FindCoordinatorRequest)) == 2

    def test_one_that_asks_for_a_pause_is_not_lost(self):
        world = Transacting()
        found = world._found

        def with_pause(asked: Asked, code: int) -> FindCoordinatorResponse:
            world.coordinator = asked.node_id
            return replace(found(asked, code), throttle_time_ms=500)

        world._found = with_pause
        world.run()
        assert world.state.has_producer_id
        assert len(world.asked(FindCoordinatorRequest)) == 1


class TestIdentity:
    def test_the_pause_before_another_producer_id_is_kept(self):
        world = Transacting()
        world.script(InitProducerIdRequest, "COORDINATOR_LOAD_IN_PROGRESS")
        is_wanted = [False]
        requester = ProducerIdRequester(
            world.client, world.metadata, ProducerState(), world.asking(), lambda: is_wanted[0]
        )
        assert requester.maybe_request(world.clock.ms) is None
        is_wanted[0] = True
        while requester.last_failure is None:
            assert requester.maybe_request(world.clock.ms) in (None, CONNECTING_RECHECK_MS)
            world.client.poll(0, world.clock.ms)
        wait_ms = requester.maybe_request(world.clock.ms)
        assert wait_ms is not None
        assert 0 < wait_ms <= 2 * RETRY_BACKOFF_MS
        world.client.poll(0, world.clock.ms)
        assert len(world.asked(InitProducerIdRequest)) == 1

    def test_one_producer_id_is_asked_for_at_a_time(self):
        world = Transacting()

        world.network._script = silent
        requester = ProducerIdRequester(
            world.client, world.metadata, ProducerState(), world.asking()
        )
        for _ in range(20):
            requester.maybe_request(world.clock.ms)
            world.client.poll(0, world.clock.ms)
        assert len(world.asked(InitProducerIdRequest)) == 1

    def test_a_task_that_waits_for_the_check_of_its_token_is_woken(self):
        world, monitor = Transacting(), NotedMonitor()
        config = ProducerConfig.parse({"bootstrap.servers": "a:1"})
        accumulator: Any = SimpleNamespace(monitor=monitor, queued_partitions=tuple)
        backoff = ExponentialBackoff(100, 1_000, random.Random(1))
        identities = Identities(
            config, world.client, world.metadata, accumulator, backoff, random.Random(1)
        )
        checked: Any = identities.transactional(TransactionSettings("flights.0", 1_000), TOKEN)
        checked._check._on_done()
        assert monitor.notified == 1


class NotedMonitor(ThreadMonitor):
    notified = 0

    def notify_all(self) -> None:
        super().notify_all()
        self.notified += 1


class TestTurns:
    def test_the_sender_takes_none_while_the_task_waits_or_is_at_work(self):
        turns = Turns(ThreadMonitor())
        with turns.sender_turn() as is_begun:
            assert is_begun
        turns.is_task_waiting = True
        with turns.sender_turn() as is_begun:
            assert not is_begun
        turns.is_task_waiting = False
        with turns.task_turn(), turns.sender_turn() as is_begun:
            assert not is_begun
