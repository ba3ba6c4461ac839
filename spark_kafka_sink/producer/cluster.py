"""What a producer has of its cluster: connections, and metadata that is kept up to date."""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.producer.metadata import Metadata, MetadataSettings
from spark_kafka_sink.producer.metadata_updater import MetadataUpdater


class ClusterAccess(NamedTuple):
    """Connections to the brokers; what they have told of topics and leaders; who asks them."""

    client: NetworkClient
    metadata: Metadata
    updater: MetadataUpdater


def metadata_settings(config: ProducerConfig) -> MetadataSettings:
    """When metadata is asked for, by ``metadata.*``."""
    return MetadataSettings(
        config.metadata_max_age_ms,
        config.metadata_max_idle_ms,
        config.metadata_recovery_strategy == "rebootstrap",
        config.metadata_recovery_rebootstrap_trigger_ms,
    )
