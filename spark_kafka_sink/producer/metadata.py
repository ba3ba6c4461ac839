"""Metadata of the cluster: nodes, topics, leaders, the times of refreshes, problems of topics.

The sender thread applies responses, and both threads read. A snapshot is immutable, so an update
replaces it. :class:`MetadataUpdater` sends a request whenever :class:`Metadata` has one due. The
task thread waits for a topic in ``MetadataWaiter`` of ``producer.py``.

Source: ``Metadata``, ``ProducerMetadata``, ``MetadataSnapshot``,
``NetworkClient.DefaultMetadataUpdater``; KIP-320 (leader epochs), KIP-516 (topic ids), KIP-951 (new
leader in the produce response).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from spark_kafka_sink.base.clock import ExponentialBackoff
from spark_kafka_sink.base.errors import (
    KafkaErrorCode,
    UnsupportedVersionError,
    advice_for,
    broker_code,
    error_for_code,
    joined,
)
from spark_kafka_sink.base.model import (
    NO_LEADER_EPOCH,
    ZERO_UUID,
    Node,
    PlannedTopic,
    TopicPartition,
    TopicsPlan,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.node_connection import HEAD_START_MS, ClientResponse
from spark_kafka_sink.producer.monitor import Monitor
from spark_kafka_sink.protocol.messages.topics import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)


class PartitionMetadata(NamedTuple):
    """Leader of one partition; ``leader_id`` is -1 without a leader."""

    leader_id: int
    leader_epoch: int


class TopicMetadata(NamedTuple):
    """Id of a topic, and its partitions in order of their numbers."""

    topic_id: UUID
    partitions: Sequence[PartitionMetadata]


class TopicProblem(NamedTuple):
    """Problem of a topic without usable metadata. If it is fatal, a retry does not help.

    code: of the error, see ``base.errors``
    """

    message: str
    is_fatal: bool
    code: str


_NEVER_MS = -(2**63)
# How long brokers may take to learn of a new topic before another id counts as a recreation.
_PROPAGATION_MS = 5_000
_NO_PROBLEMS: Mapping[str, TopicProblem] = MappingProxyType({})
_NO_PLAN: Mapping[str, PlannedTopic] = MappingProxyType({})


class ClusterSnapshot(NamedTuple):
    """The cluster at one moment, as one task sees it.

    problems: topics that are not among ``topics``, and why
    planned: topics of the task's plan
    """

    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicMetadata]
    cluster_id: str | None = None
    problems: Mapping[str, TopicProblem] = _NO_PROBLEMS
    planned: Mapping[str, PlannedTopic] = _NO_PLAN

    def leader(self, topic_partition: TopicPartition) -> Node | None:
        """Return the partition's leader; None if the leader or its address is unknown."""
        partition = self._partition(topic_partition)
        return None if partition is None else self.nodes.get(partition.leader_id)

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the epoch of the partition's leader; -1 if unknown."""
        partition = self._partition(topic_partition)
        return NO_LEADER_EPOCH if partition is None else partition.leader_epoch

    def partitions_count(self, topic: str) -> int:
        """Return the number of partitions of a known topic."""
        return len(self.topics[topic].partitions)

    def planned_count(self, topic: str) -> int:
        """Return to how many partitions of a known topic rows go that name none.

        All tasks of a plan use as many, so that they agree on keys. A row may name any partition.
        """
        count, planned = self.partitions_count(topic), self.planned.get(topic)
        return count if planned is None else min(count, planned.partitions_count)

    def available_partitions(
        self, topic: str, slow_nodes: Set[int] = frozenset(), rack: str = ""
    ) -> list[int]:
        """Return the planned partitions with a known leader that is not in ``slow_nodes``.

        If there are none, return the partitions with a known leader; without these, return all. If
        some of these leaders are in ``rack``, return only their partitions (KIP-1123).
        """
        partitions = self.topics[topic].partitions[: self.planned_count(topic)]
        led = [index for index, p in enumerate(partitions) if p.leader_id in self.nodes]
        quick = [index for index in led if partitions[index].leader_id not in slow_nodes]
        usable = quick or led
        in_rack = []
        if rack:
            in_rack = [i for i in usable if self.nodes[partitions[i].leader_id].rack == rack]
        return in_rack or usable or list(range(len(partitions)))

    def topic_id(self, topic: str) -> UUID:
        """Return the topic's id; all zeros if the topic or its id is unknown."""
        known = self.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def _partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition >= len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]


class MetadataSettings(NamedTuple):
    """Settings: ``metadata.max.age.ms``, ``metadata.max.idle.ms`` and ``metadata.recovery.*``."""

    max_age_ms: int
    max_idle_ms: int
    may_rebootstrap: bool
    rebootstrap_trigger_ms: int


class Metadata:
    """The current snapshot, the topics of interest, and when to refresh."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        settings: MetadataSettings,
        retry_backoff: ExponentialBackoff,
    ) -> None:
        self.bootstrap_nodes = [
            Node(-1 - index, host, port) for index, (host, port) in enumerate(bootstrap)
        ]
        self.snapshot = ClusterSnapshot({}, {})
        self.version = 0
        # Topics of interest, and when each was last used.
        self._topics: dict[str, int] = {}
        self._plan_number: str | None = None
        # The id of each topic for this plan: the planned one, else the one that was seen first. The
        # task writes to the topic with this id, also after a pause in which the topic was of no
        # interest.
        self._topic_ids: dict[str, UUID] = {}
        # Since when answers have shown another id than the planned one, which was not seen yet.
        self._other_id_since_ms: dict[str, int] = {}
        # Kept outside the snapshot: a response without a topic must not reset the topic's leader
        # epochs.
        self._last_seen: dict[str, TopicMetadata] = {}
        # Topics of the request in flight, without topics forgotten since then; None means all
        # topics.
        self._requested: set[str] | None = None
        self.requests_count = 0
        """Number of requests so far."""
        self.answered_request = 0
        """Number of the last request that was answered: what it shows is not older."""
        self._settings = settings
        self._retry_backoff = retry_backoff
        self._is_update_requested = True
        self._last_success_ms: int | None = None
        self._retry_at_ms: int | None = None
        self._failed_attempts = 0
        # Number of consecutive responses without news.
        self._equivalent_responses = 0
        self._attempt_start_ms: int | None = None
        self._is_rebootstrapping = False

    @property
    def problems(self) -> Mapping[str, TopicProblem]:
        """Return the topics' problems in the current snapshot."""
        return self.snapshot.problems

    def age_ms(self, now_ms: int) -> int:
        """Return the age of the snapshot; 0 before the first response."""
        return 0 if self._last_success_ms is None else now_ms - self._last_success_ms

    # --- requests ------------------------------------------------------------------------------

    @property
    def topics(self) -> list[str]:
        """Return the topics of interest, sorted."""
        return sorted(self._topics)

    def begin_task(self, now_ms: int, plan: TopicsPlan) -> None:
        """Take over the plan of another task, and forget what it contradicts.

        A topic is kept without a request if it is known under this plan already, or if it is known
        as planned. Every other topic may have changed since it was asked for, and is asked for at
        its first use.
        """
        self._forget(self._idle_topics(now_ms))
        if plan.number == self._plan_number:
            return
        self._plan_number = plan.number
        self.snapshot = self.snapshot._replace(planned=plan.topics)
        self._topic_ids = {t: planned.topic_id for t, planned in plan.topics.items()}
        self._other_id_since_ms = {}
        self._forget({topic for topic in self._topics if not self._is_as_planned(topic)})

    def _is_as_planned(self, topic: str) -> bool:
        planned, known = self.snapshot.planned.get(topic), self.snapshot.topics.get(topic)
        if planned is None or known is None or known.topic_id != planned.topic_id:
            return False
        more = len(known.partitions) - planned.partitions_count
        # Without ids, fewer partitions may be those of another topic.
        return more == 0 or (more > 0 and known.topic_id != ZERO_UUID)

    def add_topic(self, topic: str, now_ms: int) -> None:
        """Keep metadata of ``topic`` for ``metadata.max.idle.ms`` from now on."""
        is_new = self._topics.get(topic, _NEVER_MS) <= now_ms - self._settings.max_idle_ms
        if is_new:
            self._forget({topic})
        self._topics[topic] = now_ms
        if is_new:
            self._is_update_requested = True
            # The backoff after an earlier response does not apply to a new topic.
            if self._failed_attempts == 0:
                self._retry_at_ms = None

    def begin_update(self) -> list[str]:
        """Return the topics that the next request asks for."""
        self.requests_count += 1
        self._requested = set(self._topics)
        return self.topics

    def request_update(self) -> None:
        """Refresh as soon as the backoff allows."""
        self._is_update_requested = True

    def request_update_now(self) -> None:
        """Refresh at once, without a backoff, because a topic or partition may be new."""
        self._is_update_requested = True
        self._failed_attempts = self._equivalent_responses = 0
        self._retry_at_ms = None

    def time_to_next_update_ms(self, now_ms: int) -> int:
        """Return the ms until a request is due; 0 if one is due now."""
        due_ms = 0
        if not self._is_update_requested and self._last_success_ms is not None:
            due_ms = max(0, self._last_success_ms + self._settings.max_age_ms - now_ms)
        if self._retry_at_ms is not None:
            due_ms = max(due_ms, self._retry_at_ms - now_ms)
        return due_ms

    def candidate_nodes(self, now_ms: int) -> list[Node]:
        """Return the known nodes, and the bootstrap addresses while these are needed."""
        nodes = list(self.snapshot.nodes.values())
        since_ms = self._attempt_start_ms
        trigger_ms = self._settings.rebootstrap_trigger_ms
        if since_ms is not None and now_ms - since_ms > trigger_ms:
            self.rebootstrap()
        if not nodes or self._is_rebootstrapping:
            return self.bootstrap_nodes + nodes
        return nodes

    def rebootstrap(self) -> None:
        """Ask the bootstrap addresses, too, until a broker responds (KIP-899, KIP-1102)."""
        if self._settings.may_rebootstrap:
            self._is_rebootstrapping = True

    # --- responses -----------------------------------------------------------------------------

    def failed_update(self, now_ms: int) -> None:
        """Set a backoff after an attempt without a complete response."""
        if self._attempt_start_ms is None:
            self._attempt_start_ms = now_ms
        self._retry_at_ms = now_ms + self._retry_backoff.backoff_ms(self._failed_attempts)
        self._failed_attempts += 1

    def update(self, response: MetadataResponse, now_ms: int, has_epochs: bool = True) -> None:
        """Apply a response. Topics with a retriable error are requested again after a backoff.

        ``has_epochs``: True if the leader epochs in the response are reliable.
        """
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        forgotten = self._idle_topics(now_ms)
        self._forget(forgotten)
        topics, problems, is_incomplete = {}, dict(self.problems), False
        for topic in response.topics:
            name = topic.name or ""
            if name in forgotten or (self._requested is not None and name not in self._requested):
                continue  # the response may be older than the task that writes to it
            error = error_for_code(topic.error_code)
            if topic.error_code:
                problems[name] = _problem(name, error)
                is_incomplete = is_incomplete or error.retriable
                continue
            found = _merge(self._last_seen.get(name), topic, has_epochs)
            problem = self._other_topic(name, topic.topic_id, now_ms)
            problem = problem or self._not_all_partitions(name, topic, found)
            if problem is not None:
                problems[name] = problem
                is_incomplete = is_incomplete or not problem.is_fatal
                continue
            problems.pop(name, None)
            topics[name] = self._last_seen[name] = found
            is_incomplete = is_incomplete or any(p.leader_id < 0 for p in found.partitions)
        self._count_equivalent_responses(nodes, topics, now_ms)
        planned = self.snapshot.planned
        self.snapshot = ClusterSnapshot(nodes, topics, response.cluster_id, problems, planned)
        self.version += 1
        self.answered_request = self.requests_count
        self._last_success_ms = now_ms
        self._attempt_start_ms = None
        self._is_rebootstrapping = False
        self._is_update_requested = is_incomplete or not self._topics.keys() <= topics.keys()
        if self._is_update_requested:
            self.failed_update(now_ms)
        else:
            self._failed_attempts = 0
            attempts = max(self._equivalent_responses - 1, 0)
            self._retry_at_ms = now_ms + self._retry_backoff.backoff_ms(attempts)

    def _other_topic(self, name: str, topic_id: UUID, now_ms: int) -> TopicProblem | None:
        """Return the problem of a topic with another id than before or than planned, if it has.

        It is final if records may have gone to the first topic. A planned topic that was not seen
        yet may be new to the broker that was asked.
        """
        first_id = self._topic_ids.get(name, ZERO_UUID)
        if first_id == ZERO_UUID:
            self._topic_ids[name] = topic_id
        if ZERO_UUID in (first_id, topic_id) or topic_id == first_id:
            return None
        since_ms = self._other_id_since_ms.setdefault(name, now_ms)
        may_be_new = name in self.snapshot.planned and name not in self._last_seen
        is_fatal = not may_be_new or now_ms - since_ms >= _PROPAGATION_MS
        return _recreated(name, first_id, topic_id, is_fatal)

    def _not_all_partitions(
        self, name: str, topic: MetadataResponseTopic, found: TopicMetadata
    ) -> TopicProblem | None:
        """Return the problem of a topic whose partitions the broker does not all know, if so."""
        planned, count = self.snapshot.planned.get(name), len(found.partitions)
        wanted = 1 if planned is None else planned.partitions_count
        if name not in self._last_seen:
            wanted = max(wanted, len({p.partition_index for p in topic.partitions}))
        if count >= wanted:
            return None
        return TopicProblem(
            f"topic '{name}': the broker knows {count} of at least {wanted} partition(s) yet",
            is_fatal=False,
            code="TOPIC-004",
        )

    def _count_equivalent_responses(
        self, nodes: Mapping[int, Node], topics: Mapping[str, TopicMetadata], now_ms: int
    ) -> None:
        """Count responses without news, so that repeated requests back off (KIP-580).

        Requests that were due because of ``metadata.max.age.ms`` do not count.
        """
        has_news = nodes != self.snapshot.nodes or topics != self.snapshot.topics
        last_ms = self._last_success_ms
        is_old = last_ms is not None and now_ms - last_ms >= self._settings.max_age_ms
        self._equivalent_responses = 0 if has_news or is_old else self._equivalent_responses + 1

    def _idle_topics(self, now_ms: int) -> set[str]:
        """Return the idle topics; a topic without any response is not idle."""
        oldest_ms = now_ms - self._settings.max_idle_ms
        answered = self.snapshot.topics.keys() | self.snapshot.problems.keys()
        return {t for t, used_ms in self._topics.items() if used_ms <= oldest_ms and t in answered}

    def _forget(self, topics: set[str]) -> None:
        """Drop the metadata of ``topics``, but not the ids that the task has written to."""
        for topic in topics:
            self._topics.pop(topic, None)
            self._last_seen.pop(topic, None)
            if self._requested is not None:
                self._requested.discard(topic)
        snapshot = self.snapshot
        if not topics.isdisjoint({*snapshot.topics, *snapshot.problems}):
            known = {t: m for t, m in snapshot.topics.items() if t not in topics}
            problems = {t: p for t, p in snapshot.problems.items() if t not in topics}
            self.snapshot = snapshot._replace(topics=known, problems=problems)

    def update_leader(
        self, topic_partition: TopicPartition, leader: PartitionMetadata, nodes: Iterable[Node]
    ) -> None:
        """Apply a new leader from a produce response, unless the known leader epoch is as new."""
        topic = self.snapshot.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition >= len(topic.partitions):
            return
        if leader.leader_epoch <= topic.partitions[topic_partition.partition].leader_epoch:
            return
        known_nodes = {**self.snapshot.nodes, **{node.node_id: node for node in nodes}}
        if leader.leader_id not in known_nodes:
            return
        partitions = list(topic.partitions)
        partitions[topic_partition.partition] = leader
        topic = self._last_seen[topic_partition.topic] = topic._replace(partitions=partitions)
        topics = {**self.snapshot.topics, topic_partition.topic: topic}
        self.snapshot = self.snapshot._replace(nodes=known_nodes, topics=topics)
        self.version += 1


def _problem(topic: str, error: KafkaErrorCode) -> TopicProblem:
    advice = advice_for(error)
    return TopicProblem(
        f"topic '{topic}': {error}{': ' if advice else ''}{advice}",
        not error.retriable,
        broker_code(error),
    )


def _recreated(topic: str, first_id: UUID, topic_id: UUID, is_fatal: bool) -> TopicProblem:
    message = (
        f"topic '{topic}' was deleted and created again while the job ran (its topic id was "
        f"{first_id} and is {topic_id}): what was written before is gone. Start the job again"
    )
    return TopicProblem(message, is_fatal, code="TOPIC-005")


def _merge(
    known: TopicMetadata | None, topic: MetadataResponseTopic, has_epochs: bool
) -> TopicMetadata:
    """Return the response's partitions; a newer leader epoch from an earlier response stays.

    Partitions that the broker does not know yet stay too, because a topic of the same id never
    loses partitions. A response without epochs is applied, as in ``Metadata.updateLatestMetadata``.
    """
    described = {p.partition_index: p for p in topic.partitions}
    partitions: list[PartitionMetadata] = []
    while (p := described.get(len(partitions))) is not None:  # numbered without gaps
        epoch = p.leader_epoch if has_epochs else NO_LEADER_EPOCH
        partitions.append(PartitionMetadata(p.leader_id, epoch))
    count = len(partitions)
    if known is not None:
        for index, old in enumerate(known.partitions[:count]):
            if 0 <= partitions[index].leader_epoch < old.leader_epoch:
                partitions[index] = old
        if known.topic_id == topic.topic_id != ZERO_UUID:
            partitions += known.partitions[count:]
    return TopicMetadata(topic.topic_id, partitions)


_RECHECK_MS = 1000
_RELIABLE_EPOCHS_VERSION = 9


class MetadataUpdater:
    """Keeps at most one metadata request in flight."""

    def __init__(
        self,
        metadata: Metadata,
        client: NetworkClient,
        monitor: Monitor,
        allow_auto_topic_creation: bool,
    ) -> None:
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._metadata = metadata
        self._client = client
        self._monitor = monitor
        self._is_in_progress = False
        self._has_epochs = True
        self._failure: str | None = None
        self._not_ready: str | None = None

    @property
    def last_failure(self) -> str | None:
        """Return why the last attempt failed, or before that why the broker is not asked yet."""
        return self._failure or self._not_ready

    def maybe_update(self, now_ms: int) -> int:
        """Send a request if one is due and possible; return after how many ms to call again."""
        if self._is_in_progress:
            return _RECHECK_MS
        wait_ms = self._metadata.time_to_next_update_ms(now_ms)
        if wait_ms > 0:
            return wait_ms
        nodes = self._metadata.candidate_nodes(now_ms)
        node = self._client.least_loaded_node(nodes, now_ms)
        if node is None and self._client.is_any_connected(nodes):
            return max(self._until_usable_ms(nodes, now_ms), 1)
        if node is None:
            self._note_unreachable(nodes, now_ms)
            return max(self._until_usable_ms(nodes, now_ms), 1)
        if not self._client.ready(node, now_ms):
            reason = self._client.why_not_ready(node, now_ms)
            self._not_ready = f"{node}: {reason}" if reason is not None else None
            return HEAD_START_MS  # then another node is asked as well
        self._send(node, now_ms)
        return _RECHECK_MS

    def _note_unreachable(self, nodes: list[Node], now_ms: int) -> None:
        """Back off, because all candidates do; record why, and ask bootstrap addresses next."""
        self._metadata.rebootstrap()
        reasons = [f"{node.address} ({self._client.last_failure(node)})" for node in nodes]
        self._failure = f"no broker reachable: {joined(reasons)}"
        self._metadata.failed_update(now_ms)

    def _until_usable_ms(self, nodes: list[Node], now_ms: int) -> int:
        """Return the ms until the first of ``nodes`` is usable after its backoff or throttling."""
        delays = (self._client.poll_delay_ms(node, now_ms) for node in nodes)
        return min((d for d in delays if d is not None), default=_RECHECK_MS)

    def _send(self, node: Node, now_ms: int) -> None:
        with self._monitor:
            topics = [MetadataRequestTopic(name=name) for name in self._metadata.begin_update()]
        request = MetadataRequest(topics, self._allow_auto_topic_creation)
        try:
            self._client.send(node, request, now_ms, self._complete)
        except UnsupportedVersionError as error:
            self._failure = str(error)
            self._metadata.failed_update(now_ms)
        else:
            self._is_in_progress = True
            versions = self._client.api_versions(node)
            assert versions is not None, "a request was just sent"
            # Brokers before 2.4 may return epochs that are not current (KAFKA-9212).
            self._has_epochs = (
                versions.latest_usable_version(MetadataRequest) >= _RELIABLE_EPOCHS_VERSION
            )

    def _complete(self, result: ClientResponse, now_ms: int) -> None:
        self._is_in_progress = False
        with self._monitor:
            if not isinstance(result.response, MetadataResponse):
                self._failure = f"{result.node}: {result.failure}"
                self._metadata.failed_update(now_ms)
            elif result.response.error_code:
                if error_for_code(result.response.error_code).name == "REBOOTSTRAP_REQUIRED":
                    self._metadata.rebootstrap()
                self._failure = f"{result.node}: {error_for_code(result.response.error_code)}"
                self._metadata.failed_update(now_ms)
            elif not result.response.brokers:
                # A broker that is still starting reports no broker, not even itself.
                self._failure = f"{result.node}: knows of no brokers yet"
                self._metadata.failed_update(now_ms)
            else:
                self._failure = self._not_ready = None
                self._metadata.update(result.response, now_ms, self._has_epochs)
            self._monitor.notify_all()


class ClusterAccess(NamedTuple):
    """Connections to the brokers, the metadata from them, and the updater that requests it."""

    client: NetworkClient
    metadata: Metadata
    updater: MetadataUpdater


def metadata_settings(config: ProducerConfig) -> MetadataSettings:
    """Return the settings of ``metadata.*``."""
    return MetadataSettings(
        config.metadata_max_age_ms,
        config.metadata_max_idle_ms,
        config.metadata_recovery_strategy == "rebootstrap",
        config.metadata_recovery_rebootstrap_trigger_ms,
    )
