"""Requests about logs and settings: ListOffsets, Fetch, DescribeProducers, DescribeConfigs, topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import error_named
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.protocol import schema
from spark_kafka_sink.protocol.messages import inspection, topics
from spark_kafka_sink.protocol.types import Records
from tests.simulation.partition import Partition

if TYPE_CHECKING:
    from tests.simulation.broker import SimBroker
    from tests.simulation.cluster import Reply, SimCluster

_TOPIC_DEFAULTS = {"cleanup.policy": "delete", "max.message.bytes": "1048588"}
_DEFAULT_PARTITIONS = 1


class LogRequests:
    """Handlers by request class."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._handlers: dict[type[schema.Request], Any] = {
            inspection.ListOffsetsRequest: self._list_offsets,
            inspection.FetchRequest: self._fetch,
            inspection.DescribeProducersRequest: self._describe_producers,
            topics.DescribeConfigsRequest: self._describe_configs,
            topics.CreateTopicsRequest: self._create_topics,
        }

    def handle(self, broker: SimBroker, request: schema.Request, reply: Reply) -> bool:
        """Answer ``request``; False if it is none of these."""
        handler = self._handlers.get(type(request))
        if handler is not None:
            handler(broker, request, reply)
        return handler is not None

    def _led(self, broker: SimBroker, key: TopicPartition) -> tuple[str, Partition | None]:
        """(error name, the partition where this broker leads it, or believes that it does)."""
        topic = self._cluster.topics.get(key.topic)
        view = broker.view.get((key.topic, key.partition))
        if topic is None or view is None:
            return "UNKNOWN_TOPIC_OR_PARTITION", None
        partition = topic.partitions[key.partition]
        # A leader that was replaced and has not heard of it serves what it had then.
        serves = {partition.leader_id, *partition.deposed_high_watermarks}
        if view.leader_id != broker.node_id or broker.node_id not in serves:
            return "NOT_LEADER_OR_FOLLOWER", None
        return "NONE", partition

    # --- ListOffsets ---------------------------------------------------------------------------

    def _list_offsets(
        self, broker: SimBroker, request: inspection.ListOffsetsRequest, reply: Reply
    ) -> None:
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                key = TopicPartition(topic.name, asked.partition_index)
                error, partition = self._led(broker, key)
                answer = inspection.ListOffsetsPartitionResponse(asked.partition_index)
                answer.error_code = error_named(error).code
                if partition is not None and _is_behind(broker, partition, asked.timestamp):
                    answer.error_code = error_named("OFFSET_NOT_AVAILABLE").code
                elif partition is not None:
                    answer.offset = _offset(broker, partition, asked, request.isolation_level)
                    answer.leader_epoch = partition.leader_epoch
                partitions.append(answer)
            topics.append(inspection.ListOffsetsTopicResponse(topic.name, partitions))
        reply(inspection.ListOffsetsResponse(0, topics))

    # --- Fetch ---------------------------------------------------------------------------------

    def _fetch(self, broker: SimBroker, request: inspection.FetchRequest, reply: Reply) -> None:
        response = self._fetched(broker, request)
        size = sum(
            p.records.size_bytes for t in response.responses for p in t.partitions if p.records
        )
        is_error = any(p.error_code for t in response.responses for p in t.partitions)
        if is_error or size >= request.min_bytes or request.max_wait_ms <= 0:
            reply(response)
        else:
            self._cluster.scheduler.after(
                request.max_wait_ms, lambda: reply(self._fetched(broker, request))
            )

    def _fetched(
        self, broker: SimBroker, request: inspection.FetchRequest
    ) -> inspection.FetchResponse:
        left = request.max_bytes
        responses = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                key = TopicPartition(topic.topic, asked.partition)
                max_bytes = min(left, asked.partition_max_bytes)
                answer = self._fetched_partition(
                    broker, key, asked.fetch_offset, max_bytes, request.isolation_level
                )
                left -= answer.records.size_bytes if answer.records else 0
                partitions.append(answer)
            responses.append(inspection.FetchableTopicResponse(topic.topic, partitions))
        return inspection.FetchResponse(responses=responses)

    def _fetched_partition(
        self, broker: SimBroker, key: TopicPartition, offset: int, max_bytes: int, isolation: int
    ) -> inspection.PartitionData:
        error, partition = self._led(broker, key)
        answer = inspection.PartitionData(key.partition, high_watermark=-1, records=Records((), 0))
        if partition is not None:
            log = partition.logs[broker.node_id]
            answer.high_watermark = partition.high_watermark_of(broker.node_id)
            answer.last_stable_offset = log.last_stable_offset(answer.high_watermark)
            answer.log_start_offset = partition.log_start_offset
            is_committed = isolation == inspection.READ_COMMITTED
            end = answer.last_stable_offset if is_committed else answer.high_watermark
            if not partition.log_start_offset <= offset <= log.end_offset:
                error = "OFFSET_OUT_OF_RANGE"
            elif max_bytes > 0:
                data = log.read(offset, end, max_bytes)
                answer.records = Records((data,), len(data))
            if is_committed:
                answer.aborted_transactions = [
                    inspection.AbortedTransaction(ended.producer_id, ended.first_offset)
                    for ended in log.aborted_between(offset, end)
                ]
        answer.error_code = error_named(error).code
        return answer

    # --- DescribeProducers ---------------------------------------------------------------------

    def _describe_producers(
        self, broker: SimBroker, request: inspection.DescribeProducersRequest, reply: Reply
    ) -> None:
        topics = []
        for topic in request.topics:
            partitions = []
            for index in topic.partition_indexes:
                error, partition = self._led(broker, TopicPartition(topic.name, index))
                states = [] if partition is None else _producers(partition)
                error_code = error_named(error).code
                partitions.append(inspection.PartitionResponse(index, error_code, None, states))
            topics.append(inspection.TopicResponse(topic.name, partitions))
        reply(inspection.DescribeProducersResponse(0, topics))

    # --- DescribeConfigs -----------------------------------------------------------------------

    def _describe_configs(
        self, broker: SimBroker, request: topics.DescribeConfigsRequest, reply: Reply
    ) -> None:
        results = [self._described(broker, resource) for resource in request.resources]
        reply(topics.DescribeConfigsResponse(0, results))

    def _described(
        self, broker: SimBroker, resource: topics.DescribeConfigsResource
    ) -> topics.DescribeConfigsResult:
        configs: dict[str, str] = {}
        error = "NONE"
        if resource.resource_type == topics.TOPIC_RESOURCE:
            topic = self._cluster.topics.get(resource.resource_name)
            unknown = "UNKNOWN_TOPIC_OR_PARTITION"
            if topic is None or self._cluster.on_describe(resource.resource_name) == unknown:
                error = unknown
            else:
                min_insync = str(topic.partitions[0].min_insync)
                configs = {**_TOPIC_DEFAULTS, "min.insync.replicas": min_insync, **topic.configs}
        elif resource.resource_name == str(broker.node_id):
            transactions = self._cluster.transactions
            assert transactions is not None
            configs = {"transaction.max.timeout.ms": str(transactions.max_timeout_ms)}
        else:
            error = "INVALID_REQUEST"
        wanted = resource.configuration_keys
        return topics.DescribeConfigsResult(
            error_named(error).code,
            None,
            resource.resource_type,
            resource.resource_name,
            [
                topics.DescribeConfigsResourceResult(name, value)
                for name, value in configs.items()
                if wanted is None or name in wanted
            ],
        )

    # --- CreateTopics --------------------------------------------------------------------------

    def _create_topics(
        self, broker: SimBroker, request: topics.CreateTopicsRequest, reply: Reply
    ) -> None:
        results = []
        for wanted in request.topics:
            error = self._create_error(wanted)
            if error == "NONE" and not request.validate_only:
                configs = {config.name: config.value or "" for config in wanted.configs}
                topic = self._cluster.create_topic(
                    wanted.name,
                    wanted.num_partitions if wanted.num_partitions > 0 else _DEFAULT_PARTITIONS,
                    wanted.replication_factor if wanted.replication_factor > 0 else 1,
                    int(configs.get("min.insync.replicas", "1")),
                )
                topic.configs = configs
            results.append(
                topics.CreatableTopicResult(wanted.name, error_code=error_named(error).code)
            )
        reply(topics.CreateTopicsResponse(0, results))

    def _create_error(self, wanted: topics.CreatableTopic) -> str:
        if wanted.name in self._cluster.topics:
            return "TOPIC_ALREADY_EXISTS"
        if wanted.replication_factor > len(self._cluster.brokers):
            return "INVALID_REPLICATION_FACTOR"
        return "NONE"


def _is_behind(broker: SimBroker, partition: Partition, timestamp: int) -> bool:
    """A leader knows that it is new, and that its high watermark may lag; a deposed one does not."""
    is_latest = timestamp == inspection.LATEST_TIMESTAMP
    is_leader = broker.node_id == partition.leader_id
    return is_leader and is_latest and partition.told_high_watermark < partition.high_watermark


def _offset(
    broker: SimBroker,
    partition: Partition,
    asked: inspection.ListOffsetsPartition,
    isolation_level: int,
) -> int:
    if asked.timestamp == inspection.EARLIEST_TIMESTAMP:
        return partition.log_start_offset
    assert asked.timestamp == inspection.LATEST_TIMESTAMP, "no index by time here"
    high_watermark = partition.high_watermark_of(broker.node_id)
    if isolation_level == inspection.READ_COMMITTED:
        return partition.logs[broker.node_id].last_stable_offset(high_watermark)
    return high_watermark


def _producers(partition: Partition) -> list[inspection.ProducerState]:
    log = partition.log
    return [
        inspection.ProducerState(
            producer_id,
            entry.epoch,
            entry.batches[-1].last_sequence if entry.batches else -1,
            -1,
            entry.coordinator_epoch,
            log.open_transactions.get(producer_id, -1),
        )
        for producer_id, entry in log.producers.items()
    ]
