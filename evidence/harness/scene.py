"""A query under faults: its brokers, which can be cut off, what is done to it, and what readers see.

Clients reach each broker directly. A broker that is cut off keeps answering them: it does not hear
that others lead now what it has led, and serves what it has. Nothing is closed or refused then:
bytes between it and the others wait, as packets do on a network that is broken.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as OtherTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from evidence.harness.crash import ATTEMPTS, HOLD, Trap
from spark_kafka_sink.base.model import TopicPartition, format_address
from spark_kafka_sink.localkafka import LocalKafka, LocalKafkaError
from spark_kafka_sink.localkafka.settings import CONTROLLER_LISTENER
from spark_kafka_sink.network.admin import AdminClient as ProductAdmin
from spark_kafka_sink.transactions.decision_log import LogPartition
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS
from tests.proxy import TcpProxy

_BROKERS = (1, 2, 3)
_BETWEEN_BROKERS = "INTERNAL"
# Longer than FAST_FAILOVER: heartbeats pass through this process, on a machine that is busy.
_FAILOVER = {
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.fetch.timeout.ms": "4000",
    "controller.quorum.election.timeout.ms": "2000",
}


class Links:
    """Which brokers hear each other. ``kafka`` is given when it is made: proxies come first."""

    def __init__(self):
        self._is_connected = {broker_id: threading.Event() for broker_id in _BROKERS}
        for event in self._is_connected.values():
            event.set()
        self._process_of = lambda _: -1

    def know(self, kafka):
        """Whose processes the brokers are."""
        self._process_of = kafka.process_id

    @contextlib.contextmanager
    def cut_off(self, broker_id):
        """Nothing passes between ``broker_id`` and the others, in either direction."""
        self._is_connected[broker_id].clear()
        try:
            yield
        finally:
            self._is_connected[broker_id].set()

    def await_link(self, source, target):
        """Wait until what ``source`` and ``target`` tell each other may pass."""
        if source != target:
            for end in (source, target):
                if end is not None:
                    self._is_connected[end].wait()

    def broker_at(self, port, connected_to):
        """The broker that has a connection from one port to the other; None: it is gone again."""
        wanted = {f"socket:[{inode}]" for inode in _inodes(port, connected_to)}
        for broker_id in _BROKERS:
            folder = Path("/proc", str(self._process_of(broker_id)), "fd")
            with contextlib.suppress(FileNotFoundError):
                for descriptor in os.listdir(folder):
                    with contextlib.suppress(FileNotFoundError):
                        if os.readlink(folder / descriptor) in wanted:
                            return broker_id
        return None


def _inodes(port, connected_to):
    """Of sockets with these ports. Quicker than psutil, which tells of all connections."""
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text(encoding="ascii").splitlines()[1:]:
            _, mine, theirs, *others = line.split()
            if mine.endswith(f":{port:04X}") and theirs.endswith(f":{connected_to:04X}"):
                yield others[6]


class _Link(TcpProxy):
    """In front of the listener of one broker: which other one connects, its process tells."""

    def __init__(self, links, broker_id, target):
        self._links = links
        self._broker_id = broker_id
        super().__init__(target)

    def _passage_of(self, client):
        source = self._links.broker_at(client.getpeername()[1], self.port)
        return lambda: self._links.await_link(source, self._broker_id)


class LinkedBrokers(NamedTuple):
    """Clients find the brokers of ``kafka`` at its ``bootstrap_servers``."""

    kafka: LocalKafka
    links: Links


@contextlib.contextmanager
def linked_brokers(version):
    """Three brokers that hear each other through links only."""
    links = Links()
    with contextlib.ExitStack() as stack:

        def link(broker_id, address_of):
            return stack.enter_context(_Link(links, broker_id, lambda: address_of(broker_id)))

        internal = [link(b, lambda i: kafka.address(i, _BETWEEN_BROKERS)) for b in _BROKERS]
        quorum = [link(b, lambda i: kafka.controller_address(i)) for b in _BROKERS]
        voters = [f"{b}@{proxy.address}" for b, proxy in zip(_BROKERS, quorum)]
        kafka = PatientKafka(
            len(_BROKERS),
            version=version,
            jvm_options=(),  # it runs for half an hour: Java's slower compiler is worth its time
            server_properties={
                **_FAILOVER,
                "inter.broker.listener.name": _BETWEEN_BROKERS,
                "controller.quorum.voters": ",".join(voters),
            },
            listeners={_BETWEEN_BROKERS: "PLAINTEXT"},
            advertised={
                _BETWEEN_BROKERS: [proxy.address for proxy in internal],
                CONTROLLER_LISTENER: [proxy.address for proxy in quorum],
            },
        )
        links.know(kafka)
        yield LinkedBrokers(stack.enter_context(kafka), links)


@contextlib.contextmanager
def proxied_kafka(brokers, proxy=TcpProxy, **more):
    """Brokers with a second listener, PROXIED, that clients reach through proxies only: both."""
    with contextlib.ExitStack() as stack:

        def target_of(broker_id):
            try:
                return kafka.address(broker_id, "PROXIED")
            except LocalKafkaError as error:  # it is being stopped, and a client still tries
                raise ConnectionRefusedError(str(error)) from error

        proxies = [
            stack.enter_context(proxy(lambda b=broker_id: target_of(b)))
            for broker_id in range(1, brokers + 1)
        ]
        advertised = {"PROXIED": [one.address for one in proxies]}
        listeners = {"PROXIED": "PLAINTEXT"}
        kafka = PatientKafka(brokers, listeners=listeners, advertised=advertised, **more)
        yield stack.enter_context(kafka), proxies


_ASK_TIMEOUT_S = 5.0
_EVERY_S = 0.2
_STATE_TOPIC = "__transaction_state"
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


def transactional_ids(kafka):
    """State by transactional id, as Kafka's own tool tells it."""
    told = kafka.run_tool(
        "TransactionsCommand", "--bootstrap-server", kafka.bootstrap_servers, "list"
    )
    lines = [line.split() for line in told.splitlines()[1:]]
    return {words[0]: words[-1] for words in lines if words}


def coordinator(kafka, transactional_id):
    """The broker that coordinates the transactions of an id. Source: TransactionStateManager."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    topic = admin.list_topics(_STATE_TOPIC, timeout=_ASK_TIMEOUT_S).topics[_STATE_TOPIC]
    leader = topic.partitions[abs(_java_hash(transactional_id)) % len(topic.partitions)].leader
    return leader


def leader_told_by(kafka, broker_id, topic, partition):
    """Who leads a partition by the metadata of one broker; -1: nobody."""
    with _asking(kafka, broker_id) as (admin, deadline_ms):
        (described,) = admin.metadata([topic], False, deadline_ms).topics
    (found,) = [p for p in described.partitions if p.partition_index == partition]
    return found.leader_id


def end_told_by(kafka, leader, topic_partition):
    """The high watermark as a broker tells it that takes itself for the leader."""
    with _asking(kafka, leader) as (admin, deadline_ms):
        return LogPartition(admin, topic_partition).end_offset(deadline_ms)


@contextmanager
def _asking(kafka, broker_id):
    """A client that asks no other broker for metadata, and until when."""
    host, port = kafka.address(broker_id)
    with ProductAdmin.connect(f"{host}:{port}") as admin:
        yield admin, admin.deadline_in(PATIENCE_MS)


def _java_hash(text):
    """``String.hashCode`` of ASCII."""
    code = 0
    for character in text:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def lingering(kafka, prefix):
    """Transactional ids under ``prefix`` that have something open."""
    states = transactional_ids(kafka)
    return sorted(i for i, state in states.items() if i.startswith(prefix) and state in _OPEN)


class Ends(NamedTuple):
    """By partition: where readers of committed records stop, and where the log ends."""

    at: float
    stable: dict[int, int]
    high: dict[int, int]

    @property
    def is_all_stable(self):
        return self.stable == self.high


class Lag(NamedTuple):
    """How long readers of committed records had to wait."""

    seconds: float
    micro_batches: int


class EndOffsets:
    """Asks for both ends of a topic's partitions.

    timeout_s: of each question; brokers that are away are asked again soon
    """

    def __init__(self, bootstrap_servers, topic, partitions, timeout_s=_ASK_TIMEOUT_S):
        self._timeout_s = timeout_s
        self._admin = AdminClient(
            {
                "bootstrap.servers": bootstrap_servers,
                "log_level": 0,
                # Brokers are away for seconds; how soon this client finds them again does not matter here.
                "reconnect.backoff.ms": 500,
            }
        )
        self._partitions = [OtherTopicPartition(topic, p) for p in range(partitions)]

    def ask(self):
        """The stable ones first: they cannot be ahead of the others."""
        stable = self._ask(IsolationLevel.READ_COMMITTED)
        high = self._ask(IsolationLevel.READ_UNCOMMITTED)
        return Ends(time.time(), stable, high)

    def _ask(self, level):
        asked = self._admin.list_offsets(
            {partition: OffsetSpec.latest() for partition in self._partitions},
            isolation_level=level,
            request_timeout=self._timeout_s,
        )
        return {p.partition: future.result().offset for p, future in asked.items()}


class Watch:
    """Asks all the time, in a thread, until it is closed; brokers may be away.

    committed: tells how many micro-batches are
    """

    def __init__(self, ends, committed):
        self._ends = ends
        self._committed = committed
        self._seen = []
        self._problem = "none"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._is_over.wait(_EVERY_S):
            try:
                committed = self._committed()
                self._seen.append((self._ends.ask(), committed))
            except Exception as error:  # a broker is away
                self._problem = f"{type(error).__name__}: {error}"

    def close(self):
        """Returns when the last question is answered."""
        self._is_over.set()
        self._thread.join()

    def is_still_since(self, since):
        """Whether nothing was written between the last three answers, all after ``since``."""
        last = self._seen[-3:]
        return (
            len(last) == 3
            and last[0][0].at > since
            and all(ends.high == last[0][0].high for ends, _ in last)
        )

    @property
    def told(self):
        """The last answer, and the last failure to get one."""
        last = self._seen[-1][0] if self._seen else None
        return f"last answer: {last}, last failure: {self._problem}"

    def lag_since(self, since):
        """See ``lag_of``."""
        return lag_of(list(self._seen), since)


def lag_of(seen, since):
    """How long readers of committed records wait for what was written before ``since``, in seconds
    of the epoch, and for how many micro-batches. None if they still do.

    seen: with the number of committed micro-batches, in order of time
    """
    first = bisect.bisect_left([ends.at for ends, _ in seen], since)
    if first == len(seen):
        return None
    written, committed_before = seen[first][0].high, seen[first][1]
    for ends, committed in seen[first:]:
        if all(ends.stable[p] >= written[p] for p in written):
            return Lag(round(ends.at - since, 2), committed - committed_before)
    return None


LOG = TopicPartition("pykafka-sink-transactions", 0)
"""The decision log, by its default name."""
_SERVERS = "kafka.bootstrap.servers"
_TIMEOUT_S = 1800.0
_MOST_FAILURES = 20
_ERROR = re.compile(r"spark_kafka_sink\S*Error: .*|Caused by: .*|[A-Za-z.]+Exception: .*")


class Scene:
    """One query, and the faults that it has survived so far.

    topic: that it writes to
    prefix: None for the control, a query without transactions
    failures: why the query failed when nobody had killed its driver
    """

    def __init__(self, brokers, driver, watch, topic, prefix):
        self.kafka = brokers.kafka
        self.links = brokers.links
        self.topic = topic
        self.driver = driver
        self.watch = watch
        self.prefix = prefix
        self.failures = []
        self.kills = 0
        self._log_end = 0

    @property
    def is_control(self):
        return self.prefix is None

    # --- traps ---------------------------------------------------------------------------------

    def set(self, trap):
        """Set a trap; in the control at a point that its query reaches."""
        return self.driver.traps.set(_for_control(trap) if self.is_control else trap)

    def spring(self, trap):
        """Set a trap and wait for who runs into it."""
        return self.await_sprung(self.set(trap))

    def await_sprung(self, name):
        self.until(lambda: self.driver.traps.sprung(name) is not None, f"trap {name}")
        sprung = self.driver.traps.sprung(name)
        return sprung

    # --- the query -----------------------------------------------------------------------------

    def until(self, is_so, what):
        """Wait; a query that fails by itself is noted, and started again."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not is_so():
            if not self.driver.is_running and not is_so():
                self.failures.append(self._reason())
                assert len(self.failures) <= _MOST_FAILURES, self._state(what)
                self.driver.start()
            assert time.monotonic() < deadline, f"no {what}:\n{self.driver.tail()}"
            time.sleep(0.02)

    def run_on(self, micro_batches):
        """Wait until so many more are committed."""
        target = self.driver.committed + micro_batches
        self.until(lambda: self.driver.committed >= target, f"micro-batch {target}")

    def dead(self):
        """Wait for the end of a driver that was killed."""
        self.driver.wait()
        self.kills += 1
        self._log_end = len(self.driver.text())

    def recover(self):
        """Start the query again; how long it took to commit something, and what was left open."""
        self.driver.traps.clear()
        started = time.monotonic()
        quiet = self.set(Trap("plan.swept", HOLD)) if not self.is_control else None
        before = self.driver.committed
        self.driver.start()
        told = {} if quiet is None else self._open_at(quiet)
        paused_s = told.pop("paused_s", 0.0)
        self.until(lambda: self.driver.committed > before, "micro-batch after the restart")
        return {**told, "recovery_s": round(time.monotonic() - started - paused_s, 1)}

    @contextmanager
    def bootstrap_begins_with(self, broker_id):
        """Drivers that are started meanwhile ask this broker first who leads what."""
        servers = self.driver.options[_SERVERS]
        first = format_address(*self.kafka.address(broker_id))
        others = [server for server in servers.split(",") if server != first]
        self.driver.options[_SERVERS] = ",".join((first, *others))
        try:
            yield
        finally:
            self.driver.options[_SERVERS] = servers

    def check_open(self):
        """What is open at the beginning of some micro-batch that is still to come.

        An attempt that Spark has not ended yet may begin a transaction after that micro-batch's
        sweep: then the next one's must find it.
        """
        if self.is_control:
            return {}
        first = self._open_at(self.set(Trap("plan.swept", HOLD)))["lingering"]
        if not first:
            return {"lingering": []}
        again = self._open_at(self.set(Trap("plan.swept", HOLD)))["lingering"]
        return {"open_once": first, "lingering": sorted(set(first) & set(again))}

    def _open_at(self, quiet):
        self.await_sprung(quiet)
        started = time.monotonic()
        found = lingering(self.kafka, f"{self.prefix}.")
        self.driver.traps.release(quiet)
        return {"lingering": found, "paused_s": time.monotonic() - started}

    def lag(self, since):
        """How long readers waited for what a killed task had written."""
        found = []

        def is_known():
            lag = self.watch.lag_since(since)
            found.extend([] if lag is None else [lag])
            return bool(found)

        try:
            self.until(is_known, "stable offset beyond what the killed task has written")
        except AssertionError as error:
            open_now = lingering(self.kafka, f"{self.prefix}.")
            details = f"{self.watch.told}, open: {open_now}, at {time.time()}, since {since}"
            raise AssertionError(f"{error}\n{details}") from error
        return {"reader_lag_s": found[0].seconds, "reader_lag_batches": found[0].micro_batches}

    def attempts_count(self):
        """Attempts at tasks that were not the first."""
        path = self.driver.folder / ATTEMPTS
        return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0

    def _state(self, what):
        """Return what is known once the query fails again and again."""
        topics = self.kafka.run_tool(
            "TopicCommand", "--bootstrap-server", self.kafka.bootstrap_servers, "--describe"
        )
        return f"no {what}: {self.failures}\n{self.driver.tail()}\n{topics}"

    def _reason(self):
        new = self.driver.text()[self._log_end :]
        self._log_end += len(new)
        found = _ERROR.findall(new)
        return (found[-1] if found else new[-300:])[:400]


def _for_control(trap):
    """Without transactions there is nothing but tasks: they have written when they are flushed."""
    if trap.point in ("task.written", "task.flushed"):
        return trap
    return trap._replace(point="task.flushed", nth=1)
