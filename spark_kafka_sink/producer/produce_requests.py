"""Batches of one node as a produce request: what is in it, which versions may carry it.

A batch is transactional only if three things come together: the request names the transactional
id, the batch's header has the transactional bit, and it has a producer id. Brokers do not insist:
of some mixtures they take the records as if they belonged to no transaction. So it is checked here,
on the very bytes that are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.base.errors import LocalProtocolError, UnsupportedVersionError
from spark_kafka_sink.base.model import ZERO_UUID, Node, PreparedTransaction
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.api import IMPLICIT_PARTITIONS_VERSION, BrokerApiVersions
from spark_kafka_sink.protocol.messages.produce import (
    ADDS_PARTITIONS_VERSION,
    TOPIC_IDS_VERSION,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from spark_kafka_sink.protocol.types import Records
from spark_kafka_sink.record.record_batch import TRANSACTIONAL_FLAG, read_header


def produce_request(
    batches: Sequence[ProducerBatch],
    acks: int,
    timeout_ms: int,
    transaction: PreparedTransaction | None,
) -> ProduceRequest:
    """The request that carries ``batches``, one per partition, sealed.

    Raises LocalProtocolError when a batch does not belong to ``transaction``.
    """
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        _check_belongs(batch, transaction)
        name = batch.topic_partition.topic
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = TopicProduceData(name, batch.topic_id)
        records = Records(batch.buffers, batch.size_bytes)
        topic.partition_data.append(PartitionProduceData(batch.topic_partition.partition, records))
    return ProduceRequest(
        transactional_id=None if transaction is None else transaction.transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )


def highest_version(request: ProduceRequest, transaction: PreparedTransaction | None) -> int | None:
    """The highest version that ``request`` may be sent in; None for no limit."""
    if transaction is not None and transaction.transaction_version < IMPLICIT_PARTITIONS_VERSION:
        return ADDS_PARTITIONS_VERSION - 1
    if any(topic.topic_id == ZERO_UUID for topic in request.topic_data):
        return TOPIC_IDS_VERSION - 1
    return None


def check_adds_partitions(
    node: Node, versions: BrokerApiVersions | None, transaction: PreparedTransaction | None
) -> None:
    """Raise UnsupportedVersionError where ``node`` would not add partitions to ``transaction``.

    Nobody else does: with an older version the records would belong to no transaction.
    """
    if transaction is None or transaction.transaction_version < IMPLICIT_PARTITIONS_VERSION:
        return
    highest = -1 if versions is None else versions.highest(ProduceRequest)
    if highest < ADDS_PARTITIONS_VERSION:
        raise UnsupportedVersionError(
            f"{node}: Produce version {highest} at most, but transaction.version is "
            f"{transaction.transaction_version}, which needs {ADDS_PARTITIONS_VERSION} or newer. "
            f"Finish the brokers' upgrade before the feature's"
        )


def _check_belongs(batch: ProducerBatch, transaction: PreparedTransaction | None) -> None:
    """Raise LocalProtocolError unless header and request agree about the transaction."""
    header = read_header(batch.buffers[0])
    is_transactional = bool(header.attributes & TRANSACTIONAL_FLAG)
    if transaction is None:
        if not is_transactional and batch.transactional_id is None:
            return
        sent_in = "outside of any transaction"
    else:
        identity = (transaction.producer_id, transaction.producer_epoch)
        if (
            is_transactional
            and batch.transactional_id == transaction.transactional_id
            and (header.producer_id, header.producer_epoch) == identity
            and transaction.producer_id >= 0
            and transaction.transactional_id
        ):
            return
        sent_in = f"in {transaction}"
    raise LocalProtocolError(
        f"a batch of {batch.topic_partition} was about to be sent {sent_in}, with transactional id "
        f"{batch.transactional_id!r}, attributes {header.attributes:#x}, producer id "
        f"{header.producer_id} and epoch {header.producer_epoch}. This is a defect of the sink: "
        f"please report it"
    )
