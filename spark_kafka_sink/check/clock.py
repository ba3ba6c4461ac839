"""How far this machine's clock is from the controller's: timestamps and tokens go by it."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import KafkaSinkError, error_for_code
from spark_kafka_sink.check.finding import Finding, passed, unknown, warned
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.protocol.messages.describe_quorum import (
    METADATA_TOPIC,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)

_SUBJECT = "clock"
_TOLERABLE_MS = 5_000


def difference(admin: AdminClient, clock: Clock, timeout_ms: int) -> Iterator[Finding]:
    """Compares with the leader of the controllers, which tells its time when it is asked."""
    node = admin.any_node(admin.deadline_in(timeout_ms))
    versions = admin.api_versions(node)
    if versions is None or not versions.supports(DescribeQuorumRequest):
        yield unknown(_SUBJECT, "brokers with ZooKeeper tell no time")
        return
    request = DescribeQuorumRequest(
        [DescribeQuorumRequestTopic(METADATA_TOPIC, [DescribeQuorumRequestPartition(0)])]
    )
    before_ms = clock.timestamp_ms()
    try:
        answer = admin.request(None, request, admin.deadline_in(timeout_ms))
    except KafkaSinkError as error:
        yield unknown(_SUBJECT, f"not compared: {error}")
        return
    assert isinstance(answer, DescribeQuorumResponse)
    yield judged(answer, before_ms, clock.timestamp_ms())


def judged(answer: DescribeQuorumResponse, before_ms: int, after_ms: int) -> Finding:
    """before_ms, after_ms: this machine's time when it asked, and when it had the answer."""
    if answer.error_code:
        error = error_for_code(answer.error_code)
        return unknown(_SUBJECT, f"not compared: {error}", "it needs DESCRIBE on the cluster")
    for partition in (p for topic in answer.topics for p in topic.partitions):
        for voter in partition.current_voters:
            theirs_ms = voter.last_caught_up_timestamp
            if voter.replica_id == partition.leader_id and theirs_ms > 0:
                # Their time was taken between the two of ours.
                ahead_ms = max(before_ms - theirs_ms, 0) or min(after_ms - theirs_ms, 0)
                return _told(ahead_ms)
    return unknown(_SUBJECT, "not compared: the controllers do not tell their time")


def _told(ahead_ms: int) -> Finding:
    """ahead_ms: by how much this machine's clock is ahead of the controller's; negative: behind."""
    if abs(ahead_ms) <= _TOLERABLE_MS:
        return passed(_SUBJECT, f"within {_TOLERABLE_MS // 1000} s of the controller's")
    where = "ahead of" if ahead_ms > 0 else "behind"
    return warned(
        _SUBJECT,
        f"{abs(ahead_ms) / 1000:.1f} s {where} the controller's",
        "timestamps of records, tokens and certificates go by the clock: synchronise both (NTP)",
    )
