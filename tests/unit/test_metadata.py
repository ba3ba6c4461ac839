"""Cluster metadata: leaders, epochs, topic ids, problems; when it is asked for, and of which broker."""

import random
import tracemalloc
from uuid import UUID

import pytest

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.base.model import (
    ZERO_UUID,
    Node,
    PlannedTopic,
    TopicPartition,
    TopicsPlan,
)
from spark_kafka_sink.network.client import ClientSettings, NetworkClient
from spark_kafka_sink.producer.metadata import (
    ClusterSnapshot,
    Metadata,
    MetadataSettings,
    MetadataUpdater,
    PartitionMetadata,
    TopicMetadata,
)
from spark_kafka_sink.producer.monitor import ThreadMonitor
from spark_kafka_sink.protocol.messages.topics import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.simulation.time import SimClock
from tests.unit.batches import NODES, T0, T1, answer, answer_of_all_nodes, make_metadata, topic
from tests.unit.scripted_network import ScriptedNetwork

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED = 3, 5, 29
MIB = 1024 * 1024
IDLE_MS = 10_000
ONE, TWO = UUID(int=1), UUID(int=2)


def plan(number="next", **topics):
    """A task's plan: id and number of partitions by topic."""
    return TopicsPlan(number, {name: PlannedTopic(*planned) for name, planned in topics.items()})


def told(*answers, **settings):
    """Metadata after these answers."""
    metadata = make_metadata(**settings)
    for each in answers:
        metadata.update(each, 0)
    return metadata


# --- snapshots ------------------------------------------------------------------------------------


def test_leaders():
    cluster = told(answer(topic((1, 3), (2, 4), (7, 1), (-1, 5)))).snapshot
    assert cluster.cluster_id == "c"
    assert cluster.leader(T0) == Node(1, "host1", 9092, "rack")
    assert cluster.leader(T1) == cluster.nodes[2]
    assert cluster.leader_epoch(T1) == 4
    assert cluster.partitions_count("t") == 4
    # A leader whose address is not known, none at all, and what does not exist.
    for unknown in (("t", 2), ("t", 3), ("t", 4), ("other", 0)):
        assert cluster.leader(TopicPartition(*unknown)) is None
    for unknown in (("t", 4), ("other", 0)):
        assert cluster.leader_epoch(TopicPartition(*unknown)) == -1
    assert cluster.topic_id("other") == ZERO_UUID


def test_available_partitions_avoid_slow_and_lost_leaders_as_long_as_there_are_others():
    nodes = {1: Node(1, "a", 1), 2: Node(2, "b", 1)}
    partitions = [PartitionMetadata(leader, 0) for leader in (1, 2, 1, 9, -1)]
    cluster = ClusterSnapshot(nodes, {"t": TopicMetadata(ZERO_UUID, partitions)})
    assert cluster.available_partitions("t") == [0, 1, 2]
    assert cluster.available_partitions("t", {1}) == [1]
    assert cluster.available_partitions("t", {1, 2}) == [0, 1, 2]
    assert cluster._replace(nodes={}).available_partitions("t") == [0, 1, 2, 3, 4]


def test_partitions_may_come_in_any_order():
    shuffled = topic((1, 10), (2, 11), (1, 12))
    shuffled.partitions.reverse()
    partitions = told(answer(shuffled)).snapshot.topics["t"].partitions
    assert [p.leader_epoch for p in partitions] == [10, 11, 12]


def test_a_snapshot_is_never_changed():
    metadata = told(answer(topic((1, 3))))
    before = metadata.snapshot
    copy = ClusterSnapshot(dict(before.nodes), dict(before.topics), before.cluster_id)
    metadata.update_leader(T0, PartitionMetadata(2, 9), [Node(5, "new", 1)])
    metadata.update(answer(topic((2, 10), (1, 0)), brokers=(2,)), 1_000)
    assert before == copy
    assert metadata.snapshot.leader(T0) == Node(2, "host2", 9092, "rack")


@pytest.mark.parametrize("index", [4_000_000, -1])
def test_partition_numbers_that_cannot_be(index):
    """One wrong number must neither take memory in proportion nor end the sender thread."""
    metadata, wrong = make_metadata(), topic((1, 0))
    wrong.partitions[0].partition_index = index
    tracemalloc.start()
    try:
        metadata.update(answer(wrong), 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


# --- epochs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "leaders"),
    [
        pytest.param([topic((2, 5)), topic((1, 4))], [(2, 5)], id="an older one is not believed"),
        pytest.param([topic((2, 5)), topic((1, 8))], [(1, 8)], id="a newer one is"),
        pytest.param([topic((2, 5)), topic((-1, 5))], [(-1, 5)], id="the same one is"),
        pytest.param([topic((1, -1)), topic((2, -1))], [(2, -1)], id="brokers that tell none"),
        pytest.param(
            [topic((2, 5)), topic((2, 5), (1, 0))], [(2, 5), (1, 0)], id="a new partition"
        ),
        pytest.param([topic((1, 3), (2, 5)), topic((1, 3))], [(1, 3)], id="fewer without ids"),
    ],
)
def test_epochs_of_leaders(answers, leaders):
    metadata = told(*(answer(each) for each in answers))
    assert metadata.snapshot.topics["t"].partitions == leaders


def test_the_epoch_of_an_added_partition_does_not_go_back_over_a_broker_that_lags():
    """It has not heard of the second partition; another one has not heard of its new leader."""
    answers = [topic((1, 3), (2, 5)), topic((1, 3)), topic((1, 3), (3, 4))]
    metadata = make_metadata()
    for each in answers:
        each.topic_id = ONE
        metadata.update(answer(each), 0)
        assert metadata.snapshot.topics["t"].partitions == [(1, 3), (2, 5)]


@pytest.mark.parametrize(
    "gap", [answer(topic(error_code=LEADER_NOT_AVAILABLE)), answer()], ids=["error", "absent"]
)
def test_epochs_are_remembered_over_an_answer_without_the_topic(gap):
    """Java keeps lastSeenLeaderEpochs apart from the snapshot: a broker that lags behind must not
    bring an old leader back, only because the answer before had an error for the topic.
    """
    metadata = told(answer(topic((2, 5))), gap, answer(topic((1, 4))))
    assert metadata.snapshot.leader_epoch(T0) != 4


def test_a_newer_leader_of_a_produce_answer_is_taken_over_with_its_address():
    metadata = told(answer(topic((1, 5), (1, 5))))
    version = metadata.version
    metadata.update_leader(T0, PartitionMetadata(3, 6), [Node(3, "host3", 1)])
    assert metadata.version == version + 1
    assert metadata.snapshot.leader(T0) == Node(3, "host3", 1)
    assert metadata.snapshot.leader(T1) == metadata.snapshot.nodes[1]
    metadata.update(answer(topic((1, 4), (1, 5))), 100)  # a broker that lags
    assert metadata.snapshot.leader_epoch(T0) == 6


@pytest.mark.parametrize(
    ("topic_partition", "leader"),
    [
        pytest.param(T0, PartitionMetadata(2, 5), id="same epoch"),
        pytest.param(T0, PartitionMetadata(2, 4), id="older epoch"),
        pytest.param(T0, PartitionMetadata(9, 6), id="no address"),
        pytest.param(T0, PartitionMetadata(-1, -1), id="none"),
        pytest.param(T1, PartitionMetadata(2, 6), id="no such partition"),
        pytest.param(TopicPartition("other", 0), PartitionMetadata(2, 6), id="no such topic"),
    ],
)
def test_other_news_of_leaders_is_ignored(topic_partition, leader):
    metadata = told(answer(topic((1, 5))))
    before, version = metadata.snapshot, metadata.version
    metadata.update_leader(topic_partition, leader, [])
    assert metadata.snapshot is before
    assert metadata.version == version


# --- topic ids ------------------------------------------------------------------------------------


def test_a_recreated_topic_is_an_error_and_not_written_to():
    metadata = told(answer(topic((1, 5), topic_id=ONE)))
    assert metadata.snapshot.topic_id("t") == ONE
    for _ in range(2):
        metadata.update(answer(topic((1, 0), topic_id=TWO)), 0)
        assert metadata.snapshot.leader(T0) is None
        problem = metadata.problems["t"]
        assert problem.is_fatal
        for part in ("was deleted and created again while the job ran", str(ONE), str(TWO)):
            assert part in problem.message


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([topic((1, 5), topic_id=ONE), topic(error_code=UNKNOWN_TOPIC)], id="a time without it"),
        pytest.param([topic((1, 5), topic_id=ONE), topic((1, 5))], id="an answer without ids"),
        pytest.param([topic((1, 5)), topic((1, 5), topic_id=ONE)], id="a cluster that is upgraded"),
    ],
)  # fmt: skip
def test_a_recreation_is_found_out_across_other_answers(before):
    """The first id that is one is the id to hold on to."""
    metadata = told(*(answer(each) for each in before))
    assert not any(problem.is_fatal for problem in metadata.problems.values())
    metadata.update(answer(topic((1, 0), topic_id=TWO)), 200)
    assert metadata.problems["t"].is_fatal


# --- problems -------------------------------------------------------------------------------------


def test_problems_that_were_read_do_not_change():
    """The task thread goes over them while the sender thread takes over the next answer."""
    metadata = told(answer(topic(error_code=UNKNOWN_TOPIC)))
    snapshot, problems = metadata.snapshot, metadata.problems
    metadata.update(answer(topic((1, 0)), topic(name="u", error_code=UNKNOWN_TOPIC)), 100)
    assert problems.keys() == snapshot.problems.keys() == {"t"}
    assert metadata.problems.keys() == metadata.snapshot.problems.keys() == {"u"}


def test_a_fatal_problem_is_forgotten_with_its_idle_topic():
    metadata = told(answer(topic(error_code=TOPIC_AUTHORIZATION_FAILED)), max_idle_ms=IDLE_MS)
    problem = metadata.problems["t"]
    assert problem.is_fatal
    assert "grant the principal WRITE on the topic" in problem.message
    metadata.begin_task(IDLE_MS, plan())
    assert metadata.problems == {}


# --- when to ask ----------------------------------------------------------------------------------


def pause_after(metadata, now_ms=0):
    return metadata.time_to_next_update_ms(now_ms)


def test_when_it_is_asked_for():
    metadata = make_metadata(max_age_ms=10_000)
    assert pause_after(metadata) == 0
    metadata.update(answer(topic((1, 0))), 0)
    assert [pause_after(metadata, now_ms) for now_ms in (0, 9_999, 10_000)] == [10_000, 1, 0]
    metadata.add_topic("t", 0)
    assert pause_after(metadata, 0) == 10_000
    metadata.request_update()  # waits for the pause after the last answer
    assert [pause_after(metadata, now_ms) for now_ms in (0, 100)] == [100, 0]
    metadata.add_topic("u", 0)  # does not wait
    assert (metadata.topics, pause_after(metadata, 0)) == (["t", "u"], 0)


def test_a_new_topic_waits_when_brokers_do_not_answer():
    metadata = make_metadata()
    metadata.failed_update(0)
    metadata.add_topic("u", 0)
    assert pause_after(metadata) == 100


def test_failed_attempts_back_off():
    metadata = make_metadata()
    pauses = []
    for _ in range(5):
        metadata.failed_update(0)
        pauses.append(pause_after(metadata))
    assert pauses == [100, 200, 400, 800, 1_000]
    # What was just created does not wait as long as the failures before it.
    metadata.request_update_now()
    metadata.failed_update(0)
    assert pause_after(metadata) == 100
    metadata.failed_update(0)
    metadata.update(answer(topic((1, 0))), 0)
    metadata.request_update()
    assert pause_after(metadata) == 100


def test_equal_answers_at_the_age_of_metadata_make_no_pause_longer():
    metadata = make_metadata(max_age_ms=10_000)
    for now_ms in range(0, 60_000, 10_000):
        metadata.update(answer(topic((1, 0))), now_ms)
    metadata.request_update()
    assert pause_after(metadata, 50_000) == 100


@pytest.mark.parametrize(
    "incomplete",
    [answer(), answer(topic(error_code=LEADER_NOT_AVAILABLE)), answer(topic((1, 0), (-1, 3)))],
    ids=["without the topic", "an error that will pass", "a partition without leader"],
)
def test_an_incomplete_answer_is_asked_for_again_with_back_off(incomplete):
    metadata = make_metadata()
    for expected in (100, 200, 400):
        metadata.update(incomplete, 0)
        assert pause_after(metadata) == expected


def test_topics_without_rows_are_forgotten_and_asked_for_no_more():
    metadata = make_metadata(max_idle_ms=IDLE_MS, topics=("t", "u"))
    metadata.add_topic("u", 5_000)
    both = answer(topic((1, 0), topic_id=ONE), topic((1, 0), name="u"))
    metadata.update(both, 9_999)
    assert metadata.topics == ["t", "u"]
    metadata.update(both, 10_000)
    assert metadata.topics == ["u"]
    assert list(metadata.snapshot.topics) == ["u"]
    # A later task writes to what it is then.
    metadata.begin_task(11_000, plan())
    metadata.add_topic("t", 11_000)
    metadata.update(answer(topic((1, 0), topic_id=TWO), topic((1, 0), name="u")), 11_000)
    assert metadata.problems == {}


@pytest.mark.parametrize("begins_task", [True, False])
def test_an_idle_topic_is_asked_for_again_before_anything_is_written_to_it(begins_task):
    metadata = told(answer(topic((1, 7), (1, 7), topic_id=ONE)), max_idle_ms=IDLE_MS)
    if begins_task:
        metadata.begin_task(IDLE_MS, plan())
    metadata.add_topic("t", IDLE_MS)
    assert "t" not in metadata.snapshot.topics
    assert pause_after(metadata, IDLE_MS) == 0
    if begins_task:  # epochs of the former topic do not count for this one
        metadata.update(answer(topic((2, 0), topic_id=TWO)), 10_001)
        assert metadata.snapshot.topics["t"].partitions == [(2, 0)]


def test_a_topic_that_is_waited_for_is_not_forgotten_before_its_first_answer():
    metadata = make_metadata(max_idle_ms=IDLE_MS)
    metadata.update(answer(topic((1, 0))), 30_000)
    assert metadata.topics == ["t"]
    assert "t" in metadata.snapshot.topics


def test_an_answer_to_what_was_asked_before_a_topic_was_forgotten_is_not_for_it():
    """The topic was recreated on the way, and a task has begun to write to it."""
    both = [topic((1, 0), (1, 0), topic_id=ONE), topic((1, 0), name="u")]
    metadata = told(answer(*both), max_idle_ms=IDLE_MS, topics=("t", "u"))
    metadata.add_topic("u", 5_000)
    assert metadata.begin_update() == ["t", "u"]
    metadata.begin_task(10_000, plan(u=(ZERO_UUID, 1)))
    metadata.add_topic("t", 10_000)
    metadata.update(answer(*both), 10_001)
    assert list(metadata.snapshot.topics) == ["u"]
    assert metadata.begin_update() == ["t", "u"]
    metadata.update(answer(topic((1, 0), topic_id=TWO), both[1]), 10_200)
    assert metadata.snapshot.topic_id("t") == TWO
    assert metadata.problems == {}


# --- which broker is asked ------------------------------------------------------------------------


def candidates(metadata, now_ms=0):
    return [node.node_id for node in metadata.candidate_nodes(now_ms)]


def test_bootstrap_addresses_at_first_and_when_nobody_answers_for_long():
    metadata = make_metadata(rebootstrap_trigger_ms=5_000)
    addresses = [(n.node_id, n.address) for n in metadata.candidate_nodes(0)]
    assert addresses == [(-1, "b1:9092"), (-2, "b2:9092")]
    metadata.update(answer(topic((1, 0))), 0)
    metadata.failed_update(1_000)
    metadata.failed_update(4_000)
    assert candidates(metadata, 6_000) == [1, 2]
    assert candidates(metadata, 6_001) == [-1, -2, 1, 2]
    metadata.update(answer(topic((1, 0))), 6_002)
    assert candidates(metadata, 20_000) == [1, 2]


def test_rebootstrap_on_demand_and_not_at_all():
    for may_rebootstrap, count in ((True, 4), (False, 2)):
        metadata = told(answer(topic((1, 0))), may_rebootstrap=may_rebootstrap)
        metadata.rebootstrap()
        assert len(candidates(metadata)) == count


class World:
    """A cluster of three that is connected to, one request in flight each, metadata due.

    response: instead of one that names all brokers
    """

    def __init__(self, metadata_version=12):
        self.clock = SimClock()
        self.throttle_time_ms = 0
        self.response = None
        bootstrap = NODES[1]._replace(node_id=-1, host="bootstrap")
        offered = {InitProducerIdRequest: (0, 5), MetadataRequest: (0, metadata_version)}
        self.network = ScriptedNetwork({**NODES, -1: bootstrap}, self.clock, self._answer, offered)
        settings = ClientSettings("test", 30_000, 1, 50, 1_000, 10_000, 30_000, 540_000)
        self.client = NetworkClient(settings, self.network, self.clock, random.Random(1))
        backoff = ExponentialBackoff(100, 1_000, random.Random(1))
        ages = MetadataSettings(300_000, 300_000, True, 300_000)
        self.metadata = Metadata([(bootstrap.host, bootstrap.port)], ages, backoff)
        self.updater = MetadataUpdater(self.metadata, self.client, ThreadMonitor(), False)
        self.metadata.update(answer_of_all_nodes(), self.clock.ms)
        for node in NODES.values():
            while not self.client.ready(node, self.clock.ms):
                self.client.poll(0, self.clock.ms)
        self.clock.ms += 1_000
        self.network.connects.clear()
        self.metadata.request_update()

    def _answer(self, asked):
        if isinstance(asked.request, MetadataRequest):
            return answer_of_all_nodes() if self.response is None else self.response
        return InitProducerIdResponse(throttle_time_ms=self.throttle_time_ms)

    def ask_each(self):
        for node in NODES.values():
            self.client.send(node, InitProducerIdRequest(), self.clock.ms, lambda *_: None)

    def ask(self):
        """Have one request for metadata answered."""
        self.clock.ms += 10_000
        self.metadata.request_update()
        self.update()
        self.client.poll(0, self.clock.ms)

    def lose_all(self):
        for node_id in NODES:
            self.network.lose(node_id)
        self.network.down |= {-1, *NODES}
        self.client.poll(0, self.clock.ms)
        for _ in range(10):
            self.client.poll(self.update(), self.clock.ms)

    def update(self):
        return self.updater.maybe_update(self.clock.ms)

    def is_asked(self):
        return any(isinstance(asked.request, MetadataRequest) for asked in self.network.asked)

    def is_calm(self):
        """Nobody was connected to, nothing is wrong, and nothing waits because of a failure."""
        is_due = self.metadata.time_to_next_update_ms(self.clock.ms) == 0
        return not self.network.connects and self.updater.last_failure is None and is_due

    @property
    def asks_bootstrap(self):
        return self.metadata.candidate_nodes(self.clock.ms)[0].node_id < 0


def test_brokers_that_are_all_sent_to_are_waited_for():
    world = World()
    world.ask_each()  # and not yet told that the requests are sent
    assert world.update() > 0
    assert world.is_calm()
    assert not world.is_asked()


def test_brokers_whose_connections_are_full_are_waited_for():
    world = World()
    world.network.hung |= {1, 2, 3}
    world.ask_each()
    world.client.poll(0, world.clock.ms)
    for _ in range(5):
        assert world.update() > 0
        world.client.poll(500, world.clock.ms)
    assert world.is_calm()
    assert world.metadata.candidate_nodes(world.clock.ms) == list(NODES.values())


def test_brokers_that_throttle_are_asked_when_that_is_over():
    world = World()
    world.throttle_time_ms = 3_000
    world.ask_each()
    throttled_at_ms = world.clock.ms
    world.client.poll(0, world.clock.ms)
    assert world.update() == 3_000
    assert world.is_calm()
    world.clock.ms = throttled_at_ms + 3_000
    world.update()
    assert world.is_asked()


def test_where_no_broker_can_be_reached_bootstrap_addresses_are_asked_and_reasons_told():
    world = World()
    world.lose_all()
    failure = world.updater.last_failure or ""
    assert "no broker reachable" in failure
    assert "None" not in failure
    assert world.network.connects
    assert world.asks_bootstrap


def test_a_broker_that_knows_of_nobody_is_not_believed():
    world = World()
    world.response = MetadataResponse()
    world.ask()
    assert world.metadata.snapshot.nodes.keys() == NODES.keys()
    assert "knows of no brokers yet" in str(world.updater.last_failure)
    world.response = None
    world.ask()
    assert world.updater.last_failure is None


def test_a_broker_that_asks_for_a_new_beginning():
    world = World(metadata_version=13)
    world.response = MetadataResponse(error_code=error_named("REBOOTSTRAP_REQUIRED").code)
    assert not world.asks_bootstrap
    world.ask()
    assert world.asks_bootstrap


@pytest.mark.parametrize(("version", "epoch"), [(8, -1), (9, 5)])
def test_epochs_of_brokers_before_2_4(version, epoch):
    world = World(version)
    world.metadata.add_topic("t", world.clock.ms)
    world.response = answer(topic((1, 5)), brokers=(1, 2, 3))
    world.ask()
    assert world.metadata.snapshot.leader_epoch(T0) == epoch
