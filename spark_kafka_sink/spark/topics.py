"""The topics of a plan: ids and partition counts, as brokers describe them when the driver plans.

All tasks of a job or micro-batch write to the same topic, and a key to the same partition, because
all take the id and the count of the plan. So the plan must not be older than the job. Partitions
that are added show in no response but metadata, and a topic that is recreated shows in produce
responses only from Kafka 4.1 on. So the driver asks, with one small request over a connection that
it keeps. If no broker answers, the plan has no topics: a WARNING says so, once per outage, and each
task asks for itself.

Also a topic that is deleted and created again is named, once: records of before are gone, and with
another number of partitions, keys move.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from threading import Lock

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import KafkaSinkError, error_for_code, sentence, warn
from spark_kafka_sink.base.model import ZERO_UUID, PlannedTopic
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.protocol.messages.topics import MetadataResponse

logger = logging.getLogger(__name__)

# The tasks have more time: they wait for max.block.ms.
_PATIENCE_MS = 2_000
_MAX_CLIENTS = 4


class _TopicClient:
    """A client that is kept. Threads of one process may write to the same cluster at once."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._admin: AdminClient | None = None
        self._lock = Lock()
        # The topics without a description when last asked for.
        self._unknown: set[str] = set()
        # The topics as described last.
        self._described: dict[str, PlannedTopic] = {}

    def ask(self, names: Sequence[str]) -> Mapping[str, PlannedTopic]:
        """Return the topics as a broker describes them; warn of topics that none describes now."""
        with self._lock:
            try:
                response = self._ask(names)
            except KafkaSinkError as error:
                self._note(names, dict.fromkeys(names, sentence(error)))
                return {}
            described = topics_of(response)
            errors = {t.name: str(error_for_code(t.error_code)) for t in response.topics}
            missing = [name for name in names if name not in described]
            self._note(names, {name: errors.get(name, "no answer") for name in missing})
            self._note_recreated(described)
            return described

    def _ask(self, names: Sequence[str]) -> MetadataResponse:
        if self._admin is None:
            self._admin = AdminClient.of(self._config, self._clock, _PATIENCE_MS)
        self._admin.renew_if_credentials_changed()
        return self._admin.metadata(names, False, self._admin.deadline_in(_PATIENCE_MS))

    def _note(self, names: Sequence[str], reasons: Mapping[str, str]) -> None:
        """Warn of the topics with a reason that were not missing when last asked for."""
        for name in (n for n in reasons if n not in self._unknown):
            warn(
                logger,
                "TOPIC-008",
                f"topic '{name}': no broker has described it to the driver: {reasons[name]}. Each "
                "task asks for itself, and if partitions are added meanwhile, tasks may send the "
                "same key to different partitions",
            )
        self._unknown = (self._unknown - set(names)) | set(reasons)

    def _note_recreated(self, described: Mapping[str, PlannedTopic]) -> None:
        """Warn of the topics that have another id than when last described."""
        for name, now in described.items():
            before = self._described.get(name, now)
            self._described[name] = now
            if ZERO_UUID in (before.topic_id, now.topic_id) or before.topic_id == now.topic_id:
                continue  # brokers before Kafka 2.8 have no ids
            count = f"{now.partitions_count} partition(s)"
            keys = f"{count}, as before"
            if now.partitions_count != before.partitions_count:
                keys = f"{count} instead of {before.partitions_count}, so that keys move"
            warn(
                logger,
                "TOPIC-009",
                f"topic '{name}' was deleted and created again: it has id {now.topic_id} instead "
                f"of {before.topic_id}, and {keys}. What was written to it before is gone, and "
                "this write goes on with the new topic",
            )

    def close(self) -> None:
        """Close the connections; ``ask`` opens them again."""
        with self._lock:
            if self._admin is not None:
                self._admin.close()
                self._admin = None


# By configuration, which includes the security identity. The most recently used one comes last.
_clients: dict[ProducerConfig, _TopicClient] = {}
os.register_at_fork(after_in_child=_clients.clear)


def ask_for_topics(
    config: ProducerConfig, names: Sequence[str], clock: Clock
) -> Mapping[str, PlannedTopic]:
    """Return the topics as they are now, without those that no broker describes within two seconds.

    A WARNING names these, once per outage.
    """
    if not names:
        return {}
    client = _clients.pop(config, None) or _TopicClient(config, clock)
    _clients[config] = client
    for unused in list(_clients)[:-_MAX_CLIENTS]:
        # Another thread may have taken it meanwhile, because closing waits for a running request.
        evicted = _clients.pop(unused, None)
        if evicted is not None:
            evicted.close()
    return client.ask(names)


def topics_of(response: MetadataResponse) -> Mapping[str, PlannedTopic]:
    """Return the topics of a response, except those with an error or without partitions."""
    return {
        topic.name: PlannedTopic(topic.topic_id, len({p.partition_index for p in topic.partitions}))
        for topic in response.topics
        if topic.name is not None and not topic.error_code and topic.partitions
    }
