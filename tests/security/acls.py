"""Rights, given by another client."""

from __future__ import annotations

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.broker.processes import eventually
from tests.patience import PATIENCE_S
from tests.security.listeners import SECRETS


def allow(kafka: LocalKafka, user: str, operation: str, topic: str) -> None:
    """Both brokers know it afterwards. To write implies to describe."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers_of(MAIN_LISTENER)})
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation.upper()],
        AclPermissionType.ALLOW,
    )
    for created in admin.create_acls([binding]).values():
        created.result(PATIENCE_S)
    for address in kafka.bootstrap_servers_of("SASL").split(","):
        config = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": SECRETS[user],
        }
        client = AdminClient(config)
        assert eventually(lambda client=client: sees(client, topic))


def sees(client: AdminClient, topic: str) -> bool:
    return client.list_topics(topic, timeout=PATIENCE_S).topics[topic].error is None
