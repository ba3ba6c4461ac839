"""Rights, given by another client."""

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.patience import PATIENCE_S, eventually
from tests.security.listeners import SECRETS


def allow(kafka, user, operation, topic):
    """Both brokers know it afterwards, and what was allowed before. To write implies to describe."""
    _add(kafka, user, operation, ResourceType.TOPIC, topic)
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


def allow_transactions(kafka, user, prefix):
    """To write under ids that begin with it. Brokers learn of rights in turn: ``allow`` waits."""
    _add(kafka, user, "write", ResourceType.TRANSACTIONAL_ID, prefix, ResourcePatternType.PREFIXED)


def _add(kafka, user, operation, kind, name, pattern=ResourcePatternType.LITERAL):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers_of(MAIN_LISTENER)})
    allowed, right = AclPermissionType.ALLOW, AclOperation[operation.upper()]
    binding = AclBinding(kind, name, pattern, f"User:{user}", "*", right, allowed)
    for created in admin.create_acls([binding]).values():
        created.result(PATIENCE_S)


def sees(client, topic):
    return client.list_topics(topic, timeout=PATIENCE_S).topics[topic].error is None
