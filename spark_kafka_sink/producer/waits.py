"""Rows that wait for brokers: why, and since when. Logged while it lasts, and at its end.

:class:`WaitCauses` finds why a batch is not acknowledged yet, from what the sender knows anyway:
the batch's last error, its leader, the leader's connection, pauses, and the producer id. The errors
of expired batches use the same causes.

:class:`WaitLog` looks at the oldest batch of each partition, at most once per second, and only if a
batch is older than ``WAIT_LOGGED_AFTER_MS``. Partitions with the same cause share one WARNING,
which is repeated each minute, and one INFO at the end. A batch that waits only behind other
batches, which a broker takes one after the other, has no cause: a slow but healthy broker is no
outage. The limit ``max.bytes.per.second.per.task`` is the cause only where there is no other, and
the time for which it holds a batch counts for no other.

A task of an exactly-once write also waits after its last row, for the check that it is in time. The
broker of this check may be in the pause that it asked for with the last acknowledgement.

The Java producer logs each retry, and is silent about leaders and answers that do not come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import NamedTuple

from spark_kafka_sink.base.errors import coded, sentence, warn
from spark_kafka_sink.base.model import Node, TopicPartition, dataclass
from spark_kafka_sink.base.text import printable, some_of
from spark_kafka_sink.network.client import MOST_POSTPONED_MS
from spark_kafka_sink.network.coordinators import WAIT_LOGGED_AFTER_MS, WAIT_REPEATED_AFTER_MS
from spark_kafka_sink.network.node_connection import NO_ANSWER
from spark_kafka_sink.producer.accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import ClusterAccess
from spark_kafka_sink.producer.metrics import LongestWait
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.quotas import MAX_BYTES, ThrottleTracker
from spark_kafka_sink.producer.rejections import advice_about
from spark_kafka_sink.producer.transaction_manager import ProducerIdentity

_LOOK_EVERY_MS = 1_000
_POSTPONED_H = MOST_POSTPONED_MS // 3_600_000
_NO_LEADER = "no leader"
_START_A_REPLICA = "no broker with an in-sync replica is up: start one"
_OWN_LIMIT = "the limit that you have set holds them, and no broker is slow"
_LOOK_AT_ADDRESS = "look at this broker, its advertised.listeners, DNS and firewalls"
_CHECK = "the check of"
_TIMEOUT = "kafka.delivery.timeout.ms"
_CODE = "DELIVERY-011"

logger = logging.getLogger(__name__)


class Cause(NamedTuple):
    """A reason for which a batch waits.

    what: a few words, to which the broker is added; equal for all partitions with the same cause
    since_ms: when the wait began
    node: the broker that it is about
    meaning: details
    advice: what to do, unless the meaning says so
    is_late: False if this time does not count for ``delivery.timeout.ms``
    """

    what: str
    since_ms: int
    node: Node | None = None
    meaning: str = ""
    advice: str = ""
    is_late: bool = True


class WaitCauses:
    """Finds why batches wait. Used by the sender thread."""

    def __init__(
        self,
        limit: int | None,
        cluster: ClusterAccess,
        quota_waits: ThrottleTracker,
        identity: Callable[[], ProducerIdentity],
    ) -> None:
        """limit: of the task, in bytes per second; identity: returns the current one"""
        self._limit = limit
        self._client, self._metadata, self._updater = cluster
        self._quota_waits = quota_waits
        self._identity = identity

    def cause_of(self, batch: ProducerBatch, now_ms: int) -> Cause | None:
        """Return why ``batch``, the oldest of its partition, waits.

        None behind other batches.
        """
        limited_ms = self._quota_waits.limited_ms(batch, now_ms)
        outage = self._outage(batch, batch.created_at_ms + limited_ms, now_ms)
        return outage or self._own_limit(batch, limited_ms, now_ms)

    def _outage(self, batch: ProducerBatch, since_ms: int, now_ms: int) -> Cause | None:
        if now_ms - since_ms < WAIT_LOGGED_AFTER_MS:
            return None
        error = _last_error(batch, since_ms)
        if not batch.is_queued:
            pause = self._pause(batch, batch.sent_to, since_ms, now_ms)
            return pause or self._silence(batch, batch.sent_to, since_ms, now_ms) or error
        leader = self._metadata.snapshot.leader(batch.topic_partition)
        obstacle = self._obstacle(batch, leader, since_ms, now_ms)
        cause = obstacle or self._pause(batch, leader, since_ms, now_ms) or error
        return cause or self._silence(batch, leader, since_ms, now_ms)

    def _obstacle(
        self, batch: ProducerBatch, leader: Node | None, since_ms: int, now_ms: int
    ) -> Cause | None:
        """Return why a queued batch cannot be sent now; None if nothing is known to prevent it."""
        problem = self._metadata.problems.get(batch.topic_partition.topic)
        if problem is not None:
            return Cause("no metadata", since_ms, meaning=coded(problem.message, problem.code))
        if leader is None:
            unreachable = self._updater.last_failure or ""
            return Cause(_NO_LEADER, since_ms, meaning=unreachable, advice=_START_A_REPLICA)
        failure = self._client.why_not_ready(leader, now_ms)
        if failure is not None and not self._client.is_any_connected([leader]):
            return Cause("no connection to", since_ms, leader, failure, _LOOK_AT_ADDRESS)
        identity = self._identity()
        missing = identity.state.missing(batch.topic_partition)
        if missing is not None:
            why = self._paused_words(identity.coordinator, now_ms)
            why = identity.last_failure or why or NO_ANSWER
            return Cause(missing, since_ms, meaning=why)
        return None

    def _pause_left_ms(self, node: Node | None, now_ms: int) -> int:
        """Return for how long the last known pause of ``node`` goes on; negative after its end."""
        return 0 if node is None else self._client.pauses.end_ms(node.node_id) - now_ms

    def _paused_words(self, coordinator: Node | None, now_ms: int) -> str:
        """Return that ``coordinator`` takes no request now because of a quota; empty if it does."""
        left_ms = self._pause_left_ms(coordinator, now_ms)
        if left_ms <= 0:
            return ""
        return f"its coordinator, {coordinator}, has asked for a pause, of which {_left(left_ms)}"

    def _pause(
        self, batch: ProducerBatch, node: Node | None, since_ms: int, now_ms: int
    ) -> Cause | None:
        """Return the pause of ``node``, if the batch has waited for pauses for half of its time."""
        if node is None:
            return None
        left_ms = self._pause_left_ms(node, now_ms)
        paused_ms = self._quota_waits.paused_ms(batch, now_ms)
        if left_ms <= -WAIT_LOGGED_AFTER_MS or 2 * paused_ms < now_ms - since_ms:
            return None
        return _pause_of(node, since_ms, left_ms)

    def _silence(
        self, batch: ProducerBatch, node: Node | None, since_ms: int, now_ms: int
    ) -> Cause | None:
        """Return that ``node`` owes an answer; None if its answers come."""
        asked_ms = None if node is None else self._client.unanswered_since_ms(node)
        if asked_ms is None or now_ms - asked_ms < WAIT_LOGGED_AFTER_MS:
            return None
        return Cause(
            "no answer from", since_ms if batch.attempts else max(asked_ms, since_ms), node
        )

    def _own_limit(self, batch: ProducerBatch, limited_ms: int, now_ms: int) -> Cause | None:
        """Return the limit, if it has held the batch for half of its time."""
        age_ms = now_ms - batch.created_at_ms
        if age_ms < WAIT_LOGGED_AFTER_MS or 2 * limited_ms < age_ms:
            return None
        limit = f"{MAX_BYTES} = {self._limit}"
        return Cause(limit, batch.created_at_ms, meaning=_OWN_LIMIT, is_late=False)

    def cause_of_check(self, since_ms: int, now_ms: int) -> Cause | None:
        """Return why a task whose rows are all acknowledged waits for the check of its token."""
        check = self._identity().pending_check
        if check is None:
            return None
        node, failure = check.coordinator, check.last_failure
        what = f"{_CHECK} {check.transactional_id}"
        left_ms = self._pause_left_ms(node, now_ms)
        if node is not None and left_ms > 0:
            cause = _pause_of(node, since_ms, left_ms)
            return cause._replace(what=f"{what}: {cause.what}")
        if failure is None and node is not None:
            return Cause(f"{what}: no answer from", since_ms, node)
        return Cause(what, since_ms, meaning=failure or "its coordinator is not known yet")

    def why_not_sent(self, batch: ProducerBatch, now_ms: int) -> tuple[str, str]:
        """Return why ``batch``, which has expired, cannot be sent now, and advice, if any."""
        leader = self._metadata.snapshot.leader(batch.topic_partition)
        found = self._obstacle(batch, leader, batch.created_at_ms, now_ms)
        if found is None:
            return f"The leader is {leader}", ""
        if found.what == _NO_LEADER:
            unreachable = f"; {found.meaning}" if found.meaning else ""
            return f"{batch.topic_partition} has no leader{unreachable}", found.advice
        if found.node is not None:
            text = f"The leader, {leader}, cannot be reached: {found.meaning}"
            return text, found.advice
        return f"{found.what.capitalize()}: {found.meaning}", found.advice


def _pause_of(node: Node, since_ms: int, left_ms: int) -> Cause:
    left = f"{_left(left_ms)}, and " if left_ms >= _LOOK_EVERY_MS else ""
    meaning = f"{left}pykafka-sink quota shows what is granted"
    return Cause("a pause for a quota from", since_ms, node, meaning, is_late=False)


def _last_error(batch: ProducerBatch, since_ms: int) -> Cause | None:
    error = batch.last_error
    if error is None:
        return None
    details = (batch.last_error_detail, advice_about(batch, error))
    meaning = "; ".join(detail.rstrip(".") for detail in details if detail)
    return Cause(f"{error} from", since_ms, batch.last_node, meaning)


@dataclass(slots=True)
class _Wait:
    """Partitions that wait for the same cause, as of the last look that found any.

    Without partitions: a task that waits for the check of its token.
    """

    cause: Cause
    since_ms: int
    seen_ms: int = 0
    partitions: set[TopicPartition] = field(default_factory=set)
    node_ids: set[int] = field(default_factory=set)

    def add(self, topic_partition: TopicPartition | None, cause: Cause) -> None:
        self.since_ms = min(self.since_ms, cause.since_ms)
        if topic_partition is not None:
            self.partitions.add(topic_partition)
        if cause.node is not None:
            self.node_ids.add(cause.node.node_id)

    @property
    def name(self) -> str:
        """Return the cause with its brokers: ``no answer from broker 3``."""
        ids = sorted(self.node_ids)
        if not ids:
            return self.cause.what
        word = "broker" if len(ids) == 1 else "brokers"
        return f"{self.cause.what} {word} {some_of(map(str, ids))}"


def _waiting(partitions: Collection[TopicPartition], waited: str) -> str:
    if not partitions:
        return f"This task has sent all rows, and has waited for {waited}"
    return f"Rows for {_where(partitions)} have waited for {waited}"


def _ended(partitions: Collection[TopicPartition], waited: str) -> str:
    if not partitions:
        return f"This task has sent all rows, and no longer waits, after {waited}"
    return f"Rows for {_where(partitions)} no longer wait, after {waited}"


def _where(partitions: Collection[TopicPartition]) -> str:
    """Return the partitions and topics: ``12 partitions of topic events``."""
    topics = {topic_partition.topic for topic_partition in partitions}
    number = "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
    word = "topic" if len(topics) == 1 else "topics"
    return f"{number} of {word} {some_of(sorted(topics))}"


class WaitLog:
    """Logs what the rows of a producer wait for. Used by the sender thread.

    longest: the longest wait of the task so far, in ms, and its cause; None without one
    check_since_ms: since when a task, whose rows are all acknowledged, waits for the check of its
        token; None if it does not. The task thread sets it under the monitor
    """

    def __init__(
        self, accumulator: RecordAccumulator, causes: WaitCauses, delivery_timeout_ms: int
    ) -> None:
        self._accumulator = accumulator
        self._causes = causes
        self._delivery_timeout_ms = delivery_timeout_ms
        self._waits: dict[str, _Wait] = {}
        # Cause -> when it was logged, so that causes that take turns are not logged at each turn.
        self._logged_ms: dict[str, int] = {}
        self._next_look_ms = 0
        self.longest: LongestWait | None = None
        self.check_since_ms: int | None = None

    def begin_task(self) -> None:
        """Forget the longest wait of the task before. The caller holds the monitor."""
        self.longest = self.check_since_ms = None

    def look(self, now_ms: int) -> int | None:
        """Log what is due; return after how many ms to call again, None if nothing waits."""
        is_idle = self._is_idle
        if self._accumulator.failure is not None or (is_idle and not self._waits):
            return None
        if is_idle or now_ms >= self._next_look_ms:
            with self._accumulator.monitor:
                self._note(now_ms)
            self._log(now_ms)
        return None if self._is_idle else self._next_look_ms - now_ms

    @property
    def _is_idle(self) -> bool:
        return not self._accumulator.incomplete_count and self.check_since_ms is None

    def _note(self, now_ms: int) -> None:
        """Record the causes of all waits. The caller holds the monitor."""
        old: set[TopicPartition] = set()
        found: dict[str, _Wait] = {}
        next_look_ms = now_ms + WAIT_LOGGED_AFTER_MS
        for batch in self._accumulator.incomplete():
            late_at_ms = batch.created_at_ms + WAIT_LOGGED_AFTER_MS
            if now_ms < late_at_ms:
                next_look_ms = late_at_ms
                break  # later batches are younger
            if batch.topic_partition in old:
                continue
            old.add(batch.topic_partition)
            cause = self._causes.cause_of(batch, now_ms)
            if cause is not None:
                wait = found.setdefault(cause.what, _Wait(cause, cause.since_ms, now_ms))
                wait.add(batch.topic_partition, cause)
        if self.check_since_ms is not None:
            late_at_ms = self.check_since_ms + WAIT_LOGGED_AFTER_MS
            next_look_ms = min(next_look_ms, max(late_at_ms, now_ms + _LOOK_EVERY_MS))
            cause = self._causes.cause_of_check(self.check_since_ms, now_ms)
            if cause is not None and now_ms >= late_at_ms:
                found[cause.what] = _Wait(cause, cause.since_ms, now_ms)
                found[cause.what].add(None, cause)
        if old or self._waits:
            next_look_ms = min(next_look_ms, now_ms + _LOOK_EVERY_MS)
        self._next_look_ms = next_look_ms
        for wait in found.values():
            if self.longest is None or now_ms - wait.since_ms > self.longest.ms:
                self.longest = LongestWait(now_ms - wait.since_ms, wait.name)
        self._end_waits(found, now_ms)
        self._waits.update(found)

    def _end_waits(self, found: Mapping[str, _Wait], now_ms: int) -> None:
        """End the waits that are over; log those partitions that wait for nothing else.

        A short time without a cause, as between two attempts, is no end.
        """
        is_idle = self._is_idle
        waiting = {partition for wait in found.values() for partition in wait.partitions}
        for what, wait in list(self._waits.items()):
            if what in found or not (is_idle or now_ms - wait.seen_ms >= WAIT_LOGGED_AFTER_MS):
                continue
            del self._waits[what]
            served = wait.partitions - waiting
            if served or not wait.partitions:
                self._logged_ms.pop(what, None)  # the next wait is another one
                length_ms = (now_ms if is_idle else wait.seen_ms) - wait.since_ms
                text = _ended(served, _seconds(length_ms))
                logger.info("%s", coded(f"{text}: {wait.name}", _CODE))
        if not self._waits and not found:
            self._logged_ms.clear()

    def _log(self, now_ms: int) -> None:
        for what, wait in self._waits.items():
            logged_ms = self._logged_ms.get(what)
            if wait.seen_ms != now_ms:
                continue
            if logged_ms is not None and now_ms - logged_ms < WAIT_REPEATED_AFTER_MS:
                continue
            self._logged_ms[what] = now_ms
            limit = f"{_TIMEOUT} = {self._delivery_timeout_ms}"
            waited = _seconds(now_ms - wait.since_ms)
            texts = wait.cause.meaning, wait.cause.advice
            meaning = "; ".join(printable(sentence(text)) for text in texts if text)
            if wait.cause.is_late:
                until = f"They fail after {limit}"
                if not wait.partitions:
                    until = f"It fails after {limit} and kafka.request.timeout.ms"
            elif wait.cause.node is None:
                until = f"This time does not count for {_TIMEOUT}"
            else:
                until = f"Up to {_POSTPONED_H} h of pauses do not count for {_TIMEOUT}"
            text = f"{_waiting(wait.partitions, waited)}: {wait.name}{meaning and ': '}{meaning}"
            warn(logger, _CODE, f"{text}. {until}")


def _left(ms: int) -> str:
    return f"{_seconds(ms)} are left"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.0f} s"
