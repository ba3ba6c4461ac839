"""What brokers forget or lose, metadata, host names and addresses that change, brokers that go away, while
batches are on their way; and connections that lead to another cluster (KIP-1242).
"""

from __future__ import annotations

import logging
import random
import re
import subprocess
import sys

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import BootstrapError, DeliveryError, TopicError
from spark_kafka_sink.base.model import ColumnPositions, TopicPartition
from spark_kafka_sink.network.node_connection import LOGGED_AFTER_MS, Outages
from tests.simulation.cluster import KAFKA_4_3, KAFKA_4_4, SimCluster
from tests.simulation.harness import (
    Simulation,
    assert_has,
    connected,
    keyed,
    partition_of,
    simulate,
)
from tests.simulation.network import SimNetwork
from tests.simulation.operating import Prefix
from tests.simulation.sasl import PLAIN, SCRAM, USERS, Sasl, options_of


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_topic_error_while_an_answer_is_on_its_way_doubles_nothing(acks):
    simulation = simulate(acks=acks, enable_idempotence=str(acks == "all").lower())
    simulation.write_everywhere(b"a")

    def break_topic(*_):
        simulation.cluster.on_produce = None
        simulation.network.faults.delay_next_response_ms = 500
        simulation.cluster.on_describe = lambda topic: "LEADER_NOT_AVAILABLE"
        simulation.refresh_metadata()
        simulation.scheduler.change(1000, simulation.cluster, on_describe=lambda topic: "NONE")

    simulation.cluster.on_produce = break_topic
    simulation.append_to(0, [b"b"])
    simulation.write(0, b"c")
    assert simulation.producer.metrics.retries == 0
    assert simulation.values()[0] == [b"a", b"b", b"c"]


def test_a_batch_that_a_later_one_has_overtaken_fails_at_once():
    """A leader that has lost the producer's state takes any sequence: here the second one's."""
    simulation = connected(b"first", partitions=1, batch_size="100", linger_ms="0")

    def forget(*_):
        simulation.cluster.on_produce = None
        simulation.log().producers.clear()
        return "NOT_ENOUGH_REPLICAS"

    simulation.cluster.on_produce = forget
    with simulation.within(10_000):
        message = simulation.refused(0, *[b"%d" % n + bytes(90) for n in range(3)])
    assert_has(message, "t-0 refused", "OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert [v[:1] for v in simulation.values()[0]][:2] == [b"f", b"1"]


def test_no_more_is_sent_behind_a_batch_that_may_be_appended_than_a_broker_remembers():
    """Its answers are lost, those of the batches behind it are not: brokers remember five."""
    simulation = connected(
        b"first", partitions=1, batch_size="100", linger_ms="0", retry_backoff_ms="0"
    )
    values = [b"%02d" % n + bytes(90) for n in range(40)]

    def lose_answers_of_second(broker, topic, index, batch):
        is_second = batch.header.base_sequence == 1 and attempts.append(1) is None
        simulation.cluster.omit_answers = 1.0 if is_second and len(attempts) < 12 else 0.0

    attempts = []
    simulation.cluster.on_produce = lose_answers_of_second
    simulation.write(0, *values)
    assert len(attempts) == 12
    assert simulation.values()[0] == [b"first", *values]


def test_no_more_is_sent_behind_a_batch_without_answer_than_the_next_leader_remembers():
    """The leader moves before its answer, which is lost; the next leader answers at once."""
    simulation = simulate(batch_size="100", linger_ms="0", retry_backoff_ms="0")
    simulation.write_everywhere(b"first")
    values = [b"%02d" % n + bytes(90) for n in range(40)]

    def move():
        simulation.cluster.move_leader("t", 0, 2)
        simulation.refresh_metadata()

    def lose_answer(*_):
        simulation.cluster.on_produce = None
        simulation.network.faults.delay_next_response_ms = 60_000
        simulation.scheduler.after(5, move)

    simulation.cluster.on_produce = lose_answer
    simulation.append_to(0, values[:1])
    simulation.run_for(100)
    simulation.write(0, *(values[1:]))
    assert simulation.producer.metrics.retries == 1
    assert simulation.values()[0] == [b"first", *values]


@pytest.mark.parametrize("election_s", [1, 60])
def test_a_leader_that_is_not_among_the_brokers_is_asked_for_again_after_the_backoff(election_s):
    """Nobody is elected yet: metadata names the dead leader. The sender must not sleep meanwhile, and
    who gets the same metadata again asks less often.
    """
    simulation = Simulation(acks="all")
    cluster = simulation.cluster
    cluster.create_topic("t", partitions=1, replicas=3)
    simulation.write(0, b"a")
    cluster.crash(1, election_delay_ms=election_s * 1000)
    asked = cluster.metadata_requests
    assert simulation.write(0, b"b") < election_s * 1000 + 2_000
    assert simulation.values()[0] == [b"a", b"b"]
    # retry.backoff.max.ms is a second, less a fifth by chance; the first few come sooner.
    assert cluster.metadata_requests - asked < election_s / 0.8 + 8


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
    simulation.write(0, b"a")
    assert simulation.values()[0] == [b"a"]
    assert simulation.producer.metrics.retries == 1


def test_a_producer_with_a_topic_that_it_cannot_use_any_more_is_not_kept():
    simulation = connected(partitions=1)
    assert simulation.producer.is_clean
    simulation.cluster.on_describe = lambda topic: "TOPIC_AUTHORIZATION_FAILED"
    simulation.producer._metadata.request_update_now()
    simulation.run_for(1_000)
    assert simulation.producer.accumulator.failure is None
    assert not simulation.producer.is_clean


def test_a_topic_that_may_not_be_used_any_more_fails_its_batches_at_once():
    """Its leader is lost, and metadata tells why it will not be known again."""
    simulation = connected(partitions=1)

    def lose_right(*_):
        simulation.cluster.on_describe = lambda topic: "TOPIC_AUTHORIZATION_FAILED"
        return "LEADER_NOT_AVAILABLE"

    simulation.cluster.on_produce = lose_right
    with simulation.within(_SOON_MS):
        assert_has(simulation.refused(0, b"b"), "TOPIC_AUTHORIZATION_FAILED")


def test_an_answer_that_comes_after_the_failure_changes_nothing():
    simulation = connected(partitions=1)
    simulation.network.faults.delay_next_response_ms = 500
    simulation.hand_over(0, b"b")
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
    simulation.write(0, b"a")
    assert simulation.producer.report[TopicPartition("t", 0)].records == 1


_IDLE_MS = 5_000
_SOON_MS = 1_000


@pytest.mark.parametrize("answers_late_ms", [0, 3_000])
def test_metadata_that_was_asked_for_after_a_row_decides_on_its_partition(answers_late_ms):
    """At once: not the answer that was on its way when the row came, which is older than it."""
    simulation = simulate(partitions=2)
    simulation.write(1, b"a")
    if answers_late_ms:
        simulation.network.faults.delay_next_response_ms = answers_late_ms
        simulation.refresh_metadata()
        simulation.run_for(10)
    asked = simulation.cluster.metadata_requests
    simulation.cluster.add_partitions("t", 2)
    simulation.run_for(100)
    with simulation.within(answers_late_ms + _SOON_MS, answers_late_ms - 200):
        simulation.write(3, b"b")
        for _ in range(2):
            with pytest.raises(TopicError, match="Invalid partition 5 for topic 't', which has 4"):
                simulation.append_to(5, [b"a"])
    assert simulation.cluster.metadata_requests == asked + 3
    assert simulation.values() == {0: [], 1: [b"a"], 2: [], 3: [b"b"]}


@pytest.mark.parametrize("waits_for", ["partition", "topic"])
def test_what_rows_wait_for_is_logged_once_after_5_s(waits_for, caplog):
    simulation = connected(partitions=2, max_block_ms="20000")
    if waits_for == "partition":
        simulation.cluster.pause()
        expected, wanted = "Partition 5 of topic t is not known after 5 s", (5, [b"b"])
    else:
        expected, wanted = "Topic u is not known after 5 s", (0, [b"b"], "u")
    with caplog.at_level(logging.WARNING, "spark_kafka_sink.producer"):
        simulation.scheduler.after(4_900, lambda: seen.append(len(caplog.messages)))
        seen = []
        with simulation.within(21_000, 20_000), pytest.raises(TopicError):
            simulation.append_to(*wanted)
    assert seen == [0]
    (told,) = caplog.messages
    assert_has(told, expected, "kafka.max.block.ms = 20000")


def test_rows_of_several_topics_wait_for_the_partitions_of_each():
    simulation = simulate(partitions=2)
    simulation.cluster.create_topic("u", 1)
    for topic in ("t", "u"):
        simulation.append_to(0, [b"a"], topic)
    simulation.flush()
    simulation.cluster.add_partitions("u", 1)
    names, values = pa.array(["t", "u", "u"]), pa.array([b"1", b"2", b"3"], pa.binary())
    batch = pa.record_batch([values, pa.array([1, 1, None], pa.int32()), names], list("vpt"))
    simulation.producer.append(batch, ColumnPositions(value=0, partition=1, topic=2))
    simulation.flush()
    assert simulation.values()[1] == [b"1"]
    assert simulation.values("u")[1][:1] == [b"2"]


@pytest.mark.parametrize("idle_ms", [_IDLE_MS, 10 * _IDLE_MS])
@pytest.mark.parametrize("max_age_ms", ["1000", "300000"])
def test_keys_of_a_topic_that_was_recreated_smaller_go_where_they_belong(idle_ms, max_age_ms):
    options = {"metadata_max_idle_ms": str(_IDLE_MS), "metadata_max_age_ms": max_age_ms}
    simulation = simulate(partitions=6, **options)
    rows = keyed(100)
    simulation.write_rows(rows)
    simulation.run_for(idle_ms)
    simulation.cluster.empty_topic("t", 2)
    with simulation.within(_SOON_MS):
        simulation.producer.begin_task(["t"])
        simulation.append(rows)
        simulation.write_rows([(None, b"%d" % n) for n in range(50)])
    for partition, records in simulation.cluster.records("t").items():
        assert records[0].value
        for record in records:
            assert record.key is None or partition_of(record.key, 2) == partition
        assert simulation.log(partition).batches[0].header.base_sequence == 0
    assert len(simulation.all_values()) == 150


def test_a_task_that_pauses_is_told_that_its_topic_was_recreated():
    simulation = simulate(
        partitions=2, metadata_max_idle_ms=str(_IDLE_MS), metadata_max_age_ms="1000"
    )
    simulation.producer.begin_task(["t"])
    simulation.write(0, b"lost")
    simulation.run_for(2 * _IDLE_MS)
    simulation.cluster.empty_topic("t")
    with pytest.raises(TopicError, match="deleted and created again"):
        simulation.append_to(0, [b"after"])


# --- host names ---------------------------------------------------------------------------------


def test_twenty_silent_bootstrap_servers_and_one_that_answers():
    """Each has a quarter of a second before the next one is asked as well."""
    silent = [f"silent-{number}" for number in range(20)]
    servers = ",".join(f"{host}:9092" for host in [*silent, "broker-1"])
    for seed in range(10):  # orders in which they are asked
        simulation = simulate(seed, bootstrap_servers=servers)
        simulation.network.names.silent.update(silent)
        with simulation.within(6_000):
            simulation.write(0, b"a")


def test_brokers_behind_names_with_silent_addresses():
    """Bootstrap and brokers: the first two addresses of each name are those of a dead zone."""
    simulation = simulate()
    names = simulation.network.names
    for broker in simulation.cluster.brokers.values():
        dead = [f"{broker.host}-dead-{number}" for number in range(2)]
        names.silent.update(dead)
        names.addresses[broker.host] = [*dead, broker.host]
    with simulation.within(2_000):
        simulation.write_everywhere(b"a")


def test_no_bootstrap_name_is_told_within_max_block_ms():
    simulation = Simulation(max_block_ms="3000")
    simulation.cluster.create_topic("t", 1)
    simulation.network.names.takes_ms = dict.fromkeys(["broker-1", "broker-2", "broker-3"], 40_000)
    told = r"max\.block\.ms = 3000: .* is still being looked up"
    with simulation.within(4_000), pytest.raises(TopicError, match=told):
        simulation.append_to(0, [b"a"])


def test_the_drivers_side_waits_until_its_deadline_and_says_for_what():
    prefix = Prefix()
    prefix.world.network.names.takes_ms = dict.fromkeys(
        ["broker-1", "broker-2", "broker-3"], 40_000
    )
    admin = prefix.client.admin
    deadline_ms = admin.deadline_in(5_000)
    with pytest.raises(BootstrapError, match="its host name is still being looked up"):
        admin.metadata([], False, deadline_ms)
    assert prefix.world.clock.ms == deadline_ms


# --- a broker that goes away is one WARNING within 5 s, and its return is another ---------------

SOON_MS = 5_000
AWAY = "cannot be reached"
BACK = "is back, after"


@pytest.fixture
def log(caplog):
    """Lines about brokers alone, without those about rows that wait for them."""
    caplog.set_level(logging.CRITICAL, "spark_kafka_sink.producer.waits")
    with caplog.at_level(logging.WARNING, "spark_kafka_sink.network.node_connection"):
        yield caplog


def watched(**options):
    """One broker, to which records are written, and which has no one to replace it."""
    simulation = simulate(partitions=1, brokers=1, **options)
    simulation.producer.client.outages = Outages()
    simulation.write(0, b"before")
    return simulation


def go_away(simulation, for_ms=SOON_MS):
    """The broker dies, and is missed."""
    simulation.cluster.crash(1, 0)
    simulation.append_to(0, [b"during"])
    simulation.run_for(for_ms)


def test_one_warning_within_5_s_and_one_when_it_is_back(log):
    simulation = watched()
    for _ in range(2):
        log.clear()
        go_away(simulation)
        (away,) = log.messages
        assert re.match(rf"broker 1 \(.*\) {AWAY}: ", away)
        simulation.run_for(30_000)
        assert len(log.messages) == 1
        simulation.cluster.restart(1)
        simulation.run_for(5_000)
        assert re.match(rf"broker 1 \(.*{BACK}", log.messages[1])
        simulation.flush()
    assert simulation.all_values() == [b"before", b"during", b"during"]


def test_a_failure_of_an_earlier_attempt_is_not_told_as_that_of_this_one(log):
    simulation = watched()
    simulation.network.names.silent.add(simulation.cluster.brokers[1].host)
    go_away(simulation)
    (away,) = log.messages
    assert re.search(rf"\) {AWAY}: no answer yet \(before: [^()]+\)\. ", away), away
    simulation.network.names.heal()
    simulation.cluster.restart(1)
    simulation.flush()


def moved_away():
    """An outage that was logged, and another leader, so that the broker is not tried any more."""
    simulation = simulate(partitions=1)
    simulation.producer.client.outages = Outages()
    simulation.cluster.move_leader("t", 0, 1)
    simulation.write(0, b"before")
    simulation.cluster.stop(1)
    simulation.append_to(0, [b"during"])
    simulation.run_for(10_000)
    simulation.cluster.move_leader("t", 0, 2)
    simulation.flush()
    simulation.run_for(60_000)
    return simulation


def test_an_outage_of_which_nobody_saw_the_end_has_no_length(log):
    simulation = moved_away()
    simulation.cluster.restart(1)
    simulation.cluster.move_leader("t", 0, 1)
    simulation.write(0, b"after")
    away, back = log.messages
    assert AWAY in away
    assert back.endswith(") is back [PKS-CONNECT-009]"), back


def test_two_outages_are_not_measured_as_one(log):
    """Nobody knows whether the broker was there while it was not tried."""
    simulation = moved_away()
    simulation.cluster.restart(1)
    simulation.cluster.move_leader("t", 0, 1)
    broker = simulation.cluster.brokers[1]
    broker.crash()  # the controller has not noticed
    simulation.network.cut_all(broker, "Connection reset by peer")
    simulation.append_to(0, [b"after"])
    simulation.run_for(20_000)
    simulation.cluster.restart(1)
    simulation.flush()
    _, back = log.messages
    assert re.search(r" is back, after (19|2\d) s ", back), back


def test_a_connection_that_is_soon_replaced_is_no_outage(log):
    simulation = watched()
    go_away(simulation, LOGGED_AFTER_MS // 3)
    simulation.cluster.restart(1)
    simulation.flush()
    assert log.messages == []


def test_a_broker_that_is_not_needed_is_no_outage(log):
    """Its partitions have other leaders when it ends: the lost connection costs nothing."""
    simulation = simulate(partitions=3)
    simulation.producer.client.outages = Outages()
    simulation.write_everywhere(b"x")
    for index in range(3):
        simulation.cluster.move_leader("t", index, 1)
    simulation.write(0, b"x")
    simulation.run_for(10_000)
    simulation.cluster.crash(3, 0)
    simulation.append_to(1, [b"x"])
    simulation.run_for(SOON_MS)
    assert log.messages == []


def test_another_task_of_the_process_does_not_log_the_same_outage(log):
    """Spark's retry of a failed task has another producer, and sees the broker come back."""
    simulation = watched()
    go_away(simulation)
    assert len(log.messages) == 1
    simulation.producer.client.outages = Outages()
    simulation.run_for(SOON_MS)
    assert len(log.messages) == 1
    simulation.cluster.restart(1)
    simulation.flush()
    assert [BACK in message for message in log.messages] == [False, True]


WORKER = """
import sys
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network.node_connection import ConnectionEvent, NodeConnection
from spark_kafka_sink.network.node_connection import LOGGED_AFTER_MS, Outages

node, outages = Node(1, "away", int(sys.argv[1]), None), Outages()
connection = NodeConnection(node, last_failure="Connection refused")
outages.note_failure(connection)
connection.change(ConnectionEvent.RESOLVE)
outages.wait_ms(LOGGED_AFTER_MS, 0)
outages.log(LOGGED_AFTER_MS)
print("waits", flush=True)
sys.stdin.readline()
outages.note_usable(connection, 10_000)
"""


@pytest.mark.slow
def test_one_process_of_an_executor_logs():
    """Processes with one parent, as Spark's Python workers have, and of which any may be killed."""

    def start(port):
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", WORKER, str(port)]
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert worker.stdout.readline() == "waits\n"
        return worker

    def end(worker):
        return worker.communicate("\n")[1].splitlines()

    first, second, other = start(9092), start(9092), start(9093)
    assert end(second) == []
    assert [BACK in line for line in end(first)] == [False, True]
    assert [BACK in line for line in end(other)] == [False, True]
    killed = start(9092)
    killed.kill()
    assert len(end(killed)) == 1
    assert len(end(start(9092))) == 2


def test_a_connection_that_was_cut_without_work_is_no_outage(log):
    """A firewall cuts idle connections; the brokers are there when the next task needs them."""
    simulation = simulate(partitions=3)
    simulation.producer.client.outages = Outages()
    for _ in range(4):
        simulation.write_everywhere(b"x")
        simulation.cluster.cut_connections()
        simulation.run_for(60_000)
    assert log.messages == []


# --- a broker's address leads to a broker of another cluster (KIP-1242) -------------------------

# Produce 12 names topics, so a broker of another cluster would take the records.
BY_NAME = {**KAFKA_4_4, 0: (0, 12)}
ROWS = [b"%d" % n for n in range(50)]


class TwoClusters:
    """The producer's cluster, and another one with a topic of the same name, and the same user."""

    def __init__(self, sasl=None, **options):
        self.simulation = simulate(**options, **({} if sasl is None else options_of(sasl)))
        self.own = self.simulation.cluster
        network = SimNetwork(self.simulation.scheduler, random.Random(2))
        self.other = SimCluster(network, self.simulation.scheduler, random.Random(3))
        self.other.cluster_id = "other"
        self.other.create_topic("t", 3)
        for cluster in (self.own, self.other):
            cluster.api_versions = dict(BY_NAME)
            if sasl is not None:
                cluster.enable_sasl(sasl)
        self.simulation.write_everywhere(b"first")

    def route(self, *node_ids, is_right):
        for node_id in node_ids:
            to = None if is_right else self.other.brokers[node_id]
            self.simulation.network.route(self.own.brokers[node_id], to)

    def append_misrouted(self, *node_ids):
        self.route(*node_ids, is_right=False)
        self.simulation.append_everywhere(*ROWS)
        self.simulation.run_for(5_000)

    @property
    def astray(self):
        return sum(map(len, self.other.records("t").values()))


@pytest.mark.parametrize(
    ("node_ids", "mechanism"), [((1,), None), ((1, 2, 3), None), ((1,), PLAIN), ((1,), SCRAM)]
)
def test_nothing_is_written_to_the_other_cluster_and_nothing_is_lost(node_ids, mechanism):
    """With SASL, a broker compares identities only once it knows the client."""
    clusters = TwoClusters(mechanism and Sasl(mechanism, dict(USERS)))
    clusters.append_misrouted(*node_ids)
    assert clusters.astray == 0
    producer = clusters.simulation.producer
    failure = producer.client.last_failure(producer._metadata.snapshot.nodes[1])
    assert "REBOOTSTRAP_REQUIRED" in failure
    clusters.route(*node_ids, is_right=True)
    producer.flush()
    assert clusters.astray == 0
    assert clusters.simulation.values() == {p: [b"first", *ROWS] for p in range(3)}


@pytest.mark.parametrize(
    "options", [{"metadata_cluster_check_enable": "false"}, {"metadata_recovery_strategy": "none"}]
)
def test_without_the_check_records_go_astray(options):
    """The control: the fault is one that only the check finds."""
    clusters = TwoClusters(**options)
    clusters.append_misrouted(1)
    assert clusters.astray > 0


def test_an_older_broker_is_asked_once_for_its_versions():
    """Without a broker that checks identities, no request is in a version unknown to it."""
    simulation = simulate(partitions=3)
    asked = []
    simulation.cluster.on_receive = lambda broker, data: asked.append(data[4:8])
    simulation.write_everywhere(b"a")
    assert asked.count(b"\x00\x12\x00\x05") == 0
    assert asked.count(b"\x00\x12\x00\x04") > 0


@pytest.mark.parametrize("mechanism", [None, PLAIN])
def test_a_broker_that_is_downgraded_is_asked_as_before(mechanism):
    """It does not know the version that names the expected broker."""
    clusters = TwoClusters(mechanism and Sasl(mechanism, dict(USERS)))
    clusters.own.api_versions[18] = KAFKA_4_3[18]
    clusters.own.cut_connections()
    clusters.simulation.write_everywhere(*ROWS)
    assert clusters.simulation.values() == {p: [b"first", *ROWS] for p in range(3)}
