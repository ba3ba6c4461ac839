"""How far readers of committed records get in partitions, and which producers hold them back.

Source: ``GetOffsetShell``, ``TransactionsCommand.DescribeProducersCommand``; KIP-98, KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from spark_kafka_sink.base.errors import KafkaErrorCode, error_for_code, error_named
from spark_kafka_sink.base.model import NO_OFFSET, Node, TopicPartition
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.client.blocking import Call
from spark_kafka_sink.protocol.messages import inspection
from spark_kafka_sink.protocol.messages.inspection import READ_COMMITTED, READ_UNCOMMITTED
from spark_kafka_sink.protocol.schema import Message

# One partition without a leader must not prevent the answer about the others.
_PATIENCE_MS = 5_000


class OpenProducer(NamedTuple):
    """A producer with an open transaction in a partition.

    first_offset: of the transaction; last_write_ms: since 1970, -1 if the leader does not know
    transactional_id: None where no coordinator has an open transaction of this producer
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_write_ms: int
    transactional_id: str | None = None


class ReadPosition(NamedTuple):
    """One partition. ``producers``: those with open transactions, who holds readers back first.

    problem: why some of it is not known; empty if all is
    """

    topic_partition: TopicPartition
    last_stable_offset: int = NO_OFFSET
    high_watermark: int = NO_OFFSET
    producers: tuple[OpenProducer, ...] = ()
    problem: str = ""

    @property
    def waiting(self) -> int:
        """How many offsets readers of committed records do not get to see yet."""
        return self.high_watermark - self.last_stable_offset

    def named(self, transactional_ids: Mapping[int, str]) -> ReadPosition:
        """The same with transactional ids by producer id."""
        producers = (
            p._replace(transactional_id=transactional_ids.get(p.producer_id))
            for p in self.producers
        )
        return self._replace(producers=tuple(producers))


def read_positions(
    admin: AdminClient, partitions: Iterable[TopicPartition], deadline_ms: int
) -> list[ReadPosition]:
    """All ``partitions``, sorted; those that cannot be asked with the reason."""
    deadline_ms = min(deadline_ms, admin.deadline_in(_PATIENCE_MS))
    found: dict[TopicPartition, ReadPosition] = {}
    missing = sorted(set(partitions))
    problems: dict[TopicPartition, KafkaErrorCode] = {}
    attempts = 0
    while missing:
        for answer in _ask_leaders(admin, missing, deadline_ms):
            partition, error = answer.position.topic_partition, answer.error
            if error.retriable:
                problems[partition] = error
            else:
                problem = "" if error.code == 0 else str(error)
                found[partition] = answer.position._replace(problem=problem)
        missing = [p for p in missing if p not in found]
        if missing and not admin.pause(attempts, deadline_ms):
            break
        attempts += 1
    no_leader = error_named("LEADER_NOT_AVAILABLE")
    found.update({p: ReadPosition(p, problem=str(problems.get(p, no_leader))) for p in missing})
    return [found[partition] for partition in sorted(found)]


class _Answer(NamedTuple):
    position: ReadPosition
    error: KafkaErrorCode


def _ask_leaders(
    admin: AdminClient, partitions: Sequence[TopicPartition], deadline_ms: int
) -> list[_Answer]:
    by_leader: dict[Node, list[TopicPartition]] = {}
    for partition, leader in _leaders(admin, partitions, deadline_ms).items():
        by_leader.setdefault(leader, []).append(partition)
    calls: list[Call] = []
    for leader, led in by_leader.items():
        # A leader answers in this order: the high watermark is not behind the stable offset.
        calls.append(Call(leader, _offsets_request(led, READ_COMMITTED)))
        calls.append(Call(leader, _offsets_request(led, READ_UNCOMMITTED)))
        calls.append(Call(leader, _producers_request(led)))
    answers = admin.request_all(calls, deadline_ms)
    told: list[_Answer] = []
    for index, led in enumerate(by_leader.values()):
        told += _merged(led, *answers[3 * index : 3 * index + 3])
    return told


def _leaders(
    admin: AdminClient, partitions: Sequence[TopicPartition], deadline_ms: int
) -> dict[TopicPartition, Node]:
    response = admin.metadata(sorted({p.topic for p in partitions}), False, deadline_ms)
    nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
    leaders = {
        TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
        for topic in response.topics
        for partition in topic.partitions
    }
    return {p: nodes[leaders[p]] for p in partitions if leaders.get(p) in nodes}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _offsets_request(
    partitions: Iterable[TopicPartition], isolation_level: int
) -> inspection.ListOffsetsRequest:
    latest = inspection.LATEST_TIMESTAMP
    topics = [
        inspection.ListOffsetsTopic(
            topic, [inspection.ListOffsetsPartition(i, timestamp=latest) for i in indexes]
        )
        for topic, indexes in _by_topic(partitions).items()
    ]
    return inspection.ListOffsetsRequest(isolation_level=isolation_level, topics=topics)


def _producers_request(
    partitions: Iterable[TopicPartition],
) -> inspection.DescribeProducersRequest:
    topics = _by_topic(partitions).items()
    return inspection.DescribeProducersRequest(
        [inspection.TopicRequest(topic, indexes) for topic, indexes in topics]
    )


def _merged(
    partitions: Iterable[TopicPartition],
    stable: Message | None,
    latest: Message | None,
    producers: Message | None,
) -> list[_Answer]:
    """What one leader says of its partitions."""
    lost = error_named("NETWORK_EXCEPTION")
    stable_offsets, end_offsets = _offsets(stable), _offsets(latest)
    by_partition = _producers(producers)
    answers = []
    for partition in partitions:
        stable_offset, stable_error = stable_offsets.get(partition, (NO_OFFSET, lost))
        end_offset, end_error = end_offsets.get(partition, (NO_OFFSET, lost))
        held_by, producers_error = by_partition.get(partition, ((), lost))
        position = ReadPosition(partition, stable_offset, end_offset, held_by)
        errors = [e for e in (stable_error, end_error, producers_error) if e.code]
        answers.append(_Answer(position, errors[0] if errors else error_named("NONE")))
    return answers


def _offsets(answer: Message | None) -> dict[TopicPartition, tuple[int, KafkaErrorCode]]:
    if not isinstance(answer, inspection.ListOffsetsResponse):
        return {}
    return {
        TopicPartition(topic.name, p.partition_index): (p.offset, error_for_code(p.error_code))
        for topic in answer.topics
        for p in topic.partitions
    }


def _producers(
    answer: Message | None,
) -> dict[TopicPartition, tuple[tuple[OpenProducer, ...], KafkaErrorCode]]:
    if not isinstance(answer, inspection.DescribeProducersResponse):
        return {}
    return {
        TopicPartition(topic.name, p.partition_index): (_open_in(p), error_for_code(p.error_code))
        for topic in answer.topics
        for p in topic.partitions
    }


def _open_in(partition: inspection.PartitionResponse) -> tuple[OpenProducer, ...]:
    found = [
        OpenProducer(
            state.producer_id,
            state.producer_epoch,
            state.current_txn_start_offset,
            state.last_timestamp,
        )
        for state in partition.active_producers
        if state.current_txn_start_offset >= 0
    ]
    return tuple(sorted(found, key=lambda producer: producer.first_offset))
