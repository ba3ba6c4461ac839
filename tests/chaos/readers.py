"""What readers of committed records see while a query writes, told by other clients."""

from __future__ import annotations

import bisect
import threading
import time
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from spark_kafka_sink.client.admin import AdminClient as ProductAdmin
from spark_kafka_sink.transactions.log_partition import LogPartition
from tests.patience import PATIENCE_MS

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
        self._partitions = [TopicPartition(topic, p) for p in range(partitions)]

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
