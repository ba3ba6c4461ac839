"""What goes wrong in a simulated cluster, at random, until it is healed: brokers, names, coordinators,
records that brokers refuse (KIP-467), misrouted connections and racks that change (KIP-1242, KIP-1123).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NamedTuple

from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.producer.sequences import NoSequences
from tests.simulation.cluster import KAFKA_4_4, SimCluster
from tests.simulation.network import NetworkFaults, SimNetwork

TOLD_AT_MOST = 3


class Refusal(NamedTuple):
    """rows: what is said of which record, by its number in the batch"""

    error: str
    message: str
    rows: dict[int, str]


def refusing(rule, error="INVALID_RECORD", is_told=True, most=TOLD_AT_MOST):
    """A broker that takes no batch with a record of which ``rule`` is true.

    is_told: whether it says which; most: of how many at the most
    """

    what = "timestamp" if error == "INVALID_TIMESTAMP" else "number"

    def validate(topic, batch):
        rows = {n: f"not {what} {n}" for n, r in enumerate(batch.records) if rule(topic, r)}
        if not rows:
            return None
        told = dict([*rows.items()][:most]) if is_told else {}
        return Refusal(error, f"{len(rows)} record(s) refused.", told)

    return validate


@dataclass
class RefusingBrokers:
    """Of a life in which brokers refuse some records of topic ``t``, by their numbers.

    begins_after_ms: a topic's settings change while it is written to
    values: what the task got back
    """

    every: int
    begins_after_ms: int
    is_told: bool
    values: list[bytes] = field(default_factory=list)

    @classmethod
    def choose(cls, rng):
        """None for most lives."""
        if rng.random() < 0.7:
            return None
        return cls(rng.choice((2, 7, 50)), rng.choice((0, 0, 200, 2000)), rng.random() < 0.7)

    def refuses(self, value):
        """While they do."""
        return value is not None and int(value[:6]) % self.every == 1

    def validator(self, clock):
        """For a cluster that begins now."""
        begins_ms = clock.ms + self.begins_after_ms
        refuse = refusing(
            lambda topic, r: topic == "t" and self.refuses(r.value), is_told=self.is_told
        )
        return lambda topic, batch: refuse(topic, batch) if clock.ms >= begins_ms else None


# --- faults of a producer's cluster -------------------------------------------------------------

_PRODUCE_KEY = b"\x00\x00"
_RETRIABLE = (
    "NOT_ENOUGH_REPLICAS",
    "KAFKA_STORAGE_ERROR",
    "REQUEST_TIMED_OUT",
    "LEADER_NOT_AVAILABLE",
    "CORRUPT_MESSAGE",
)
# Of max.message.bytes. Each single record fits.
_LIMITS = (300, 1000, 5000, 1 << 20)
_TOPIC_ERRORS = ("LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION")


@dataclass
class FaultRanges:
    """How bad it may get. ``horizon_ms``: everything is healed by then.

    changes: how often somebody changes the topic: its limits, its partitions
    lapses: how often brokers lose what they know of producers, with answers on their way
    """

    horizon_ms: int = 20_000
    events: int = 8
    allow_unclean: bool = False
    network_level: float = 0.03
    changes: int = 0
    lapses: int = 0


class FaultPlan:
    """Schedules faults from now on; ``heal`` ends them all."""

    def __init__(self, simulation, rng, ranges):
        self._simulation = simulation
        self._cluster = simulation.cluster
        self._network = simulation.network
        self._rng = rng
        self._ranges = ranges
        self._is_healed = False
        self._moves = 0
        self.refuses = False
        self.log = []

    def begin(self):
        """Schedule everything, the healing included."""
        self._network.faults = self._network_faults()
        self._cluster.metadata_delay_ms = (0, self._rng.choice((0, 100, 2000)))
        self._cluster.replication_delay_ms = (0, self._rng.choice((2, 50)))
        self._cluster.duplicate_produce = self._rng.choice((0.0, 0.0, 0.05))
        self._cluster.reports_new_leader = self._rng.random() < 0.5
        for _ in range(self._rng.randint(0, self._ranges.events)):
            # Most of them early, while there is something to disturb.
            at_ms = int(self._ranges.horizon_ms * self._rng.random() ** 3)
            self._simulation.scheduler.after(at_ms, self._choose())
        if self._ranges.changes:
            self._begin_apart("", self._ranges.changes, self._changes())
        if self._ranges.lapses:
            self._begin_apart("lapses", self._ranges.lapses, self._lapses())
        self._simulation.scheduler.after(self._ranges.horizon_ms, self.heal)

    def _begin_apart(self, of, count, events):
        # Drawn apart, so that other lives stay what they were.
        rng = random.Random(f"{of}{self._cluster.topics['t'].topic_id}")
        for _ in range(count):
            at_ms = int(self._ranges.horizon_ms * rng.random() ** 3)
            event = rng.choice(events)
            self._simulation.scheduler.after(at_ms, lambda e=event: e(rng))

    def heal(self):
        """No more faults; whoever is away comes back."""
        self._is_healed = True
        self._note("healed")
        self._network.faults = NetworkFaults()
        self._cluster.metadata_delay_ms = (0, 0)
        self._cluster.on_produce = None
        self._cluster.on_receive = None
        self._cluster.on_init_producer_id = lambda: "NONE"
        self._cluster.on_end_txn = lambda transactional_id: "NONE"
        self._cluster.on_describe = lambda topic: "NONE"
        self._cluster.throttle_time_ms = 0
        self._cluster.duplicate_produce = self._cluster.omit_answers = 0.0
        self._network.names.heal()
        if self._cluster.sasl is not None:
            self._cluster.sasl.heal()
        for node_id, broker in self._cluster.brokers.items():
            self._network.tell_address(broker)
            self._revive(node_id)
        self._cluster.publish(now=True)

    def _network_faults(self):
        level = self._ranges.network_level
        chance = self._rng.choice((0.0, level / 3, level))
        slowest = self._rng.choice((2, 30, 300))
        return NetworkFaults(
            latency_ms=(0, slowest),
            whole_requests=0.5,
            cut_during_request=chance * self._rng.random(),
            cut_during_handshake=0.0 if self._cluster.sasl is None else chance,
            cut_before_response=chance * self._rng.random(),
            drop_response=chance * self._rng.random() / 3,
            delay_response=chance * self._rng.random(),
            long_delay_ms=(100, 8000),
        )

    def _events(self):
        """What is chosen from; an event that is there twice is twice as likely."""
        return (
            self._crash,
            self._crash,
            self._pause,
            self._hang,
            self._hang_with_a_request,
            self._move_leader,
            self._move_leader,
            self._shrink_isr,
            self._throttle,
            self._broker_errors,
            self._forget_producers,
            self._producer_id_errors,
            self._topic_error_in_flight,
            self._clock_jump,
            self._cut_everything,
            self._slow_name,
            self._name_without_address,
            self._new_address,
            *([self._truncate_twice] * 6 if self._ranges.allow_unclean else []),
            *(self._events_of_sasl() if self._cluster.sasl is not None else []),
        )

    def _events_of_sasl(self):
        return (
            *[self._hang_in_sasl] * 2,
            *[self._cut_in_sasl] * 2,
            *[self._shorter_sessions] * 2,
            *[self._end_sessions] * 2,
            self._change_password,
        )

    def _choose(self):
        event = self._rng.choice(self._events())

        def guarded():
            if not self._is_healed:
                event()

        return guarded

    def _note(self, text):
        self.log.append(f"{self._simulation.clock.ms} {text}")

    # --- what people change: it stays when all is healed ---------------------------------------

    def _changes(self):
        return (
            self._change_limit,
            self._lower_limit_behind_a_lost_answer,
            self._lower_limit_behind_a_lost_answer,
            self._change_limit_of_broker,
            self._add_partitions,
            self._omit_answers,
        )

    def _change_limit(self, rng):
        topic = self._cluster.topics["t"]
        topic.max_message_bytes = rng.choice(_LIMITS)
        self._note(f"max.message.bytes is {topic.max_message_bytes}")

    def _lower_limit_behind_a_lost_answer(self, rng):
        """The next record batch may be appended; its answer is lost, and the limit lowered."""

        def lose(broker, data):
            if data[4:6] == _PRODUCE_KEY:
                self._cluster.on_receive = None
                self._network.faults.cut_next_response = True
                self._simulation.scheduler.after(rng.randint(0, 20), lambda: lower())

        def lower():
            self._cluster.topics["t"].max_message_bytes = rng.choice(_LIMITS[:2])
            self._note("max.message.bytes is lowered behind a lost answer")

        self._cluster.on_receive = lose

    def _change_limit_of_broker(self, rng):
        """It leads by its own limit whatever it leads, from now on or later."""
        broker = rng.choice(list(self._cluster.brokers.values()))
        broker.max_message_bytes = rng.choice((None, *_LIMITS))
        self._note(f"message.max.bytes of broker {broker.node_id} is {broker.max_message_bytes}")

    def _add_partitions(self, rng):
        count = rng.randint(1, 3)
        self._note(f"t gets {count} more partitions")
        self._cluster.add_partitions("t", count)

    def _omit_answers(self, rng):
        self._note("answers lack partitions")
        self._cluster.omit_answers = 0.0 if self._is_healed else rng.choice((0.1, 0.5))

    # --- what brokers forget of producers ------------------------------------------------------

    def _lapses(self):
        return (
            self._restart_behind_lost_answers,
            self._restart_behind_lost_answers,
            self._forget_behind_lost_answers,
        )

    def _restart_behind_lost_answers(self, rng):
        """A broker's answers are lost for a while, then it restarts, and leads as before."""
        broker = rng.choice(list(self._cluster.brokers.values()))

        def restart():
            self._cluster.stop(broker.node_id)
            self._simulation.scheduler.after(
                rng.choice((1, 300)), lambda: self._revive(broker.node_id)
            )

        self._lose_answers(broker, rng.choice((5, 50, 500)), restart)

    def _forget_behind_lost_answers(self, rng):
        """A newer broker loses the state of producers whose records are old, or all deleted.

        It takes any sequence then. What it has appended may be repeated: nobody can know of it.
        """
        index = rng.randrange(len(self._cluster.topics["t"].partitions))
        partition = self._cluster.topics["t"].partitions[index]
        broker = self._cluster.brokers.get(partition.leader_id)
        if broker is None or self._cluster.rejects_unknown_producers:
            return

        def forget():
            self._note(f"producers of t-{index} forgotten")
            partition.forget_producers()
            partition.takes_any_sequence = True
            self._network.cut_all(broker, "Connection reset by peer")

        self._lose_answers(broker, rng.choice((5, 50, 500)), forget)

    def _lose_answers(self, broker, for_ms, finally_do):
        if self._is_healed or not broker.is_up or broker.is_paused:
            return
        self._note(f"answers of broker {broker.node_id} are lost for {for_ms} ms")
        self._network.faults.unheard.add(broker.host)

        def end():
            self._network.faults.unheard.discard(broker.host)
            if broker.is_up and not self._is_healed:
                finally_do()

        self._simulation.scheduler.after(for_ms, end)

    # --- events --------------------------------------------------------------------------------

    def _crash(self):
        node_id = self._rng.choice(list(self._cluster.brokers))
        if not self._cluster.brokers[node_id].is_up:
            return
        self._note(f"broker {node_id} crashes")
        election_ms = self._rng.choice((0, 50, 3000))
        self._cluster.crash(node_id, election_ms, self._ranges.allow_unclean)
        self._later(lambda: self._revive(node_id))

    def _pause(self):
        node_id = self._rng.choice(list(self._cluster.brokers))
        self._note(f"broker {node_id} pauses")
        self._cluster.brokers[node_id].is_paused = True
        self._later(self._cluster.brokers[node_id].resume)

    def _hang(self):
        self._hang_broker(self._rng.choice(list(self._cluster.brokers)))

    def _hang_with_a_request(self):
        """The next broker that is sent a record batch hangs with it."""

        def hang(broker, data):
            if data[4:6] == _PRODUCE_KEY:
                self._cluster.on_receive = None
                self._hang_broker(broker.node_id)

        self._cluster.on_receive = hang

    def _hang_broker(self, node_id):
        """A broker hangs, connections and all; the controller gives its partitions to others."""
        broker = self._cluster.brokers[node_id]
        if not broker.is_up or broker.is_paused:
            return
        self._note(f"broker {node_id} hangs and is fenced")
        broker.is_paused = True
        for name, topic in self._cluster.topics.items():
            for index, partition in enumerate(topic.partitions):
                others = [b for b in partition.isr - {node_id} if self._cluster.brokers[b].is_up]
                if partition.leader_id == node_id and others:
                    self._cluster.move_leader(name, index, self._rng.choice(others))
                    partition.shrink_isr(node_id)
        self._later(lambda: self._revive(node_id))

    def _move_leader(self):
        name, topic = self._rng.choice(list(self._cluster.topics.items()))
        index = self._rng.randrange(len(topic.partitions))
        partition = topic.partitions[index]
        others = [
            b
            for b in partition.isr - {partition.leader_id}
            if self._cluster.brokers[b].is_up and not self._cluster.brokers[b].is_paused
        ]
        if others and partition.leader_id >= 0:
            to = self._rng.choice(others)
            self._note(f"{name}-{index} moves from {partition.leader_id} to {to}")
            self._cluster.move_leader(name, index, to)

    def _shrink_isr(self):
        partition = self._rng.choice(self._cluster.partitions())
        followers = list(partition.isr - {partition.leader_id})
        if followers:
            follower = self._rng.choice(followers)
            self._note(f"broker {follower} falls out of sync")
            partition.shrink_isr(follower)
            self._later(lambda: self._rejoin(partition, follower))

    def _rejoin(self, partition, follower):
        if self._cluster.brokers[follower].is_up:
            partition.expand_isr(follower)

    def _throttle(self):
        self._note("throttled")
        self._cluster.throttle_time_ms = self._rng.choice((50, 1500))
        self._later(lambda: setattr(self._cluster, "throttle_time_ms", 0))

    def _broker_errors(self):
        """Some produce requests are refused, before anything is appended."""
        chance, error = self._rng.choice((0.2, 0.7)), self._rng.choice(_RETRIABLE)
        self._note(f"{error} in {chance} of requests")
        rng = random.Random(self._rng.random())
        self._cluster.on_produce = lambda *_: error if rng.random() < chance else None
        self._later(lambda: setattr(self._cluster, "on_produce", None))

    def _forget_producers(self):
        """Older brokers lose a producer's state with the last of its records, and then refuse it.

        But for its first batch: if that was appended and not acknowledged, it would be repeated.
        """
        name, topic = self._rng.choice(list(self._cluster.topics.items()))
        index = self._rng.randrange(len(topic.partitions))
        state = self._simulation.producer.sender._state
        in_flight = state.in_flight(TopicPartition(name, index))
        if isinstance(state, NoSequences) or any(batch.base_sequence == 0 for batch in in_flight):
            return
        self._note(f"producers of {name}-{index} forgotten")
        self._cluster.rejects_unknown_producers = True
        topic.partitions[index].forget_producers()

    def _truncate_twice(self):
        """Before each of two appends an unclean election takes the last batch of the log away.

        Of appends with a sequence other than 0, so that the broker finds a gap.
        """
        left = 2

        def truncate(broker, topic, index, batch):
            nonlocal left
            if batch.header.base_sequence <= 0:
                return
            partition = self._cluster.topics[topic].partitions[index]
            if partition.drop_last_batch():
                self._note(f"{topic}-{index} loses its last batch")
                left -= 1
            if not left:
                self._cluster.on_produce = None

        self._cluster.on_produce = truncate

    def _producer_id_errors(self):
        rng = random.Random(self._rng.random())
        names = ("COORDINATOR_LOAD_IN_PROGRESS", "NONE", "NONE")
        self._cluster.on_init_producer_id = lambda: rng.choice(names)

    def _topic_error_in_flight(self):
        """While the answer to the next record batch is on its way, metadata has a topic error."""
        error = self._rng.choice(_TOPIC_ERRORS)
        broken_ms = self._rng.randint(20, 3000)

        def break_topic(broker, data):
            if data[4:6] != _PRODUCE_KEY:
                return
            self._cluster.on_receive = None
            self._note(f"topics are answered with {error} for {broken_ms} ms")
            self._cluster.on_describe = lambda topic: error
            self._network.faults.delay_next_response_ms = broken_ms // 2
            self._simulation.producer._metadata.request_update_now()
            self._network.wakeup()
            self._simulation.scheduler.change(
                broken_ms, self._cluster, on_describe=lambda topic: "NONE"
            )

        self._cluster.on_receive = break_topic

    def _clock_jump(self):
        self._note("the wall clock jumps")
        self._simulation.clock.skew_ms += self._rng.choice((-3_600_000, -5, 5, 3_600_000))

    def _cut_everything(self):
        self._note("all connections are cut")
        self._cluster.cut_connections()

    def _slow_name(self):
        """Whoever connects to a broker waits for its name's address; those who asked wait on."""
        broker = self._any_broker()
        takes_ms = self._rng.choice((300, 3000, 25_000))
        self._note(f"looking up {broker.host} takes {takes_ms} ms")
        self._network.names.takes_ms[broker.host] = takes_ms
        self._network.cut_all(broker, "Connection reset by peer")
        self._later(lambda: self._network.names.takes_ms.pop(broker.host, None))

    def _name_without_address(self):
        broker = self._any_broker()
        self._note(f"{broker.host} has no address")
        self._network.names.unknown.add(broker.host)
        self._network.cut_all(broker, "Connection reset by peer")
        self._later(lambda: self._network.names.unknown.discard(broker.host))

    def _new_address(self):
        """A broker moves. For a while its name leads to where it was, and that may be silent; then
        to both, and that to be tried first is the old one.
        """
        broker, names = self._any_broker(), self._network.names
        old = names.addresses.get(broker.host, [broker.host])[-1]
        self._moves += 1
        new = f"{broker.host}-{self._moves}"
        self._note(f"{broker.host} moves from {old} to {new}")
        if self._rng.random() < 0.5:
            names.silent.add(old)
        self._network.move_server(broker, new)

        def tell():
            self._network.tell_address(broker)
            if not self._is_healed:
                names.addresses[broker.host].insert(0, old)

        self._simulation.scheduler.after(self._rng.choice((0, 5000)), tell)

    def _any_broker(self):
        return self._rng.choice(list(self._cluster.brokers.values()))

    # --- SASL ----------------------------------------------------------------------------------

    @property
    def _sasl(self):
        return self._cluster.sasl

    def _hang_in_sasl(self):
        """The next broker that is sent a message of SASL does not answer it; others go on."""
        self._note("a broker hangs in the middle of SASL")
        self._sasl.hangs_next = True
        self._authenticate_again()

    def _cut_in_sasl(self):
        self._note("a connection is cut in the middle of SASL")
        self._sasl.cuts_next = True
        self._authenticate_again()

    def _shorter_sessions(self):
        sasl = self._sasl
        sasl.lifetime_ms = self._rng.choice((1, 700, 3000))
        self._note(f"sessions live for {self._sasl.lifetime_ms} ms")
        self._later(lambda: setattr(sasl, "lifetime_ms", sasl.usual_lifetime_ms))
        self._authenticate_again()

    def _end_sessions(self):
        """Before their time, as by a broker whose clock has gone ahead."""
        self._note("all sessions end")
        self._sasl.end_all_sessions()

    def _change_password(self):
        """The producer does not learn of it, whatever heals."""
        self._note("the producer's password is not right any more")
        self.refuses = True
        self._sasl.users = dict.fromkeys(self._sasl.users, "another password")
        self._authenticate_again()

    def _authenticate_again(self):
        """So that it shows soon, some connections are made anew."""
        if self._rng.random() < 0.7:
            self._network.cut_all(self._any_broker(), "Connection reset by peer")

    # --- recovery ------------------------------------------------------------------------------

    def _later(self, callback):
        self._simulation.scheduler.after(self._rng.randint(20, 9000), callback)

    def _revive(self, node_id):
        broker = self._cluster.brokers[node_id]
        if not broker.is_up:
            self._note(f"broker {node_id} is back")
            self._cluster.restart(node_id)
        elif broker.is_paused:
            self._note(f"broker {node_id} goes on")
            broker.resume()
        for partition in self._cluster.partitions():
            if node_id in partition.replicas and node_id not in partition.isr:
                delay_ms = self._rng.randint(10, 300)
                self._simulation.scheduler.after(
                    delay_ms, lambda p=partition: self._rejoin(p, node_id)
                )


# --- faults of a query's cluster ----------------------------------------------------------------


class QueryFaults(FaultPlan):
    """As for a single producer, without what needs that producer."""

    def __init__(self, world, cluster, rng, ranges):
        simulation = SimpleNamespace(
            cluster=cluster, network=world.network, scheduler=world.scheduler, clock=world.clock
        )
        super().__init__(simulation, rng, ranges)

    def _events(self):
        return (
            self._crash,
            self._crash,
            self._pause,
            self._hang,
            self._hang_with_a_request,
            self._move_leader,
            self._move_coordinator,
            self._move_coordinator,
            self._shrink_isr,
            self._throttle,
            self._broker_errors,
            self._producer_id_errors,
            self._end_refused,
            self._clock_shift,
            self._cut_everything,
        )

    def heal(self):
        super().heal()
        self._simulation.clock.skew_ms = 0

    def _hang_broker(self, node_id):
        super()._hang_broker(node_id)
        state = self._cluster.transactions
        if self._cluster.brokers[node_id].is_paused:
            state.log.lose(node_id)
            self._cluster.publish()

    def _revive(self, node_id):
        """A broker that goes on may lead partitions that had no leader meanwhile."""
        super()._revive(node_id)
        state = self._cluster.transactions
        state.log.elect_where_missing()
        self._cluster.publish()

    def _move_coordinator(self):
        state = self._cluster.transactions
        alive = [b for b in self._cluster.brokers.values() if b.is_up and not b.is_paused]
        if alive:
            index = self._rng.randrange(len(state.log.partitions))
            to = self._rng.choice(alive).node_id
            self._note(f"__transaction_state-{index} moves to {to}")
            state.log.partitions[index].elect(to)
            self._cluster.publish()

    def _end_refused(self):
        """Coordinators refuse to end what is open, for a while."""
        rng = random.Random(self._rng.random())
        self._note("EndTxn is refused now and then")

        def refuse(transactional_id):
            is_refused = rng.random() < 0.3 and not transactional_id.endswith(".driver")
            return "INVALID_TXN_STATE" if is_refused else "NONE"

        self._cluster.on_end_txn = refuse

    def _clock_shift(self):
        self._note("the drivers' wall clock is wrong")
        self._simulation.clock.skew_ms = self._rng.choice((-15_000, -500, 500, 15_000))


# --- misrouted connections and racks ------------------------------------------------------------

# Produce 12 names topics, so a broker of another cluster takes records for a topic of the name.
BY_NAME = {0: (0, 12), 18: KAFKA_4_4[18]}
OPTIONS = {"partitioner_rack_aware": "true", "client_rack": "a"}
_RACKS = ("a", "b", None)
_MOST_EVENTS = 8
_SHARE_OF_LIVES = 0.3


class Routing:
    """Another cluster, which addresses of the producer's cluster lead to for a while."""

    def __init__(self, simulation, rng):
        self._simulation, self._rng = simulation, rng
        network = SimNetwork(simulation.scheduler, random.Random(rng.random()))
        self.other = SimCluster(network, simulation.scheduler, random.Random(rng.random()))
        self.other.cluster_id = "other"
        for cluster in (simulation.cluster, self.other):
            cluster.api_versions.update(BY_NAME)
        self.misrouted_count = 0

    def begin(self, partitions, horizon_ms):
        """Schedule everything; all connections lead to their brokers before ``horizon_ms``."""
        self.other.create_topic("t", partitions)
        scheduler = self._simulation.scheduler
        for _ in range(self._rng.randint(1, _MOST_EVENTS)):
            at_ms = int(horizon_ms * self._rng.random() ** 3)
            scheduler.after(at_ms, self._rng.choice((self._misroute, self._change_racks)))
        scheduler.after(horizon_ms - 1, self._end)

    @property
    def astray_count(self):
        """Return the number of records in the other cluster."""
        return sum(map(len, self.other.records("t").values()))

    def _misroute(self):
        cluster, network = self._simulation.cluster, self._simulation.network
        # A client that knows no cluster yet takes any.
        if self._simulation.producer._metadata.snapshot.cluster_id != cluster.cluster_id:
            return
        own = cluster.brokers[self._rng.choice(list(cluster.brokers))]
        self.misrouted_count += 1
        network.route(own, self.other.brokers[own.node_id])
        after_ms = self._rng.choice((50, 1_000, 5_000))
        self._simulation.scheduler.after(after_ms, lambda: network.route(own, None))

    def _change_racks(self):
        cluster = self._simulation.cluster
        racks = {node_id: self._rng.choice(_RACKS) for node_id in cluster.brokers}
        cluster.racks = {node_id: rack for node_id, rack in racks.items() if rack is not None}

    def _end(self):
        for broker in self._simulation.cluster.brokers.values():
            self._simulation.network.route(broker, None)


def is_routed(rng):
    """Return whether a life has such faults. Drawn apart, so that other lives stay the same."""
    return rng.random() < _SHARE_OF_LIVES
