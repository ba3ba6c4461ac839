"""A key that is replaced between two tasks of a producer that is kept.

The former principal has lost its right when the next task begins: one request on a connection of
before would fail it, and no task is tried again.
"""

import os

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from spark_kafka_sink.producer.producer import ProducerPool
from tests.broker.producing import batch_of, plan_of
from tests.patience import NO_OTHER_TIMEOUT, PATIENCE_S, eventually
from tests.security.acls import sees
from tests.security.writing import VALUES, values_in

LISTENER = "MUTUAL_EC"


class Rotation:
    """A key store that is replaced as a certificate manager does it, and who may write to a topic."""

    def __init__(self, world, topic, folder):
        self._world = world
        self._topic = topic
        self._folder = folder
        servers = world.kafka.bootstrap_servers_of(MAIN_LISTENER)
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._path = folder / "client.pem"
        self._now = self._put("before")

    @property
    def options(self):
        options = self._world.kafka.client_options("alice", LISTENER)
        return {**options, "kafka.ssl.keystore.location": str(self._path)}

    def rotate(self):
        """Another principal's key, and the former principal loses its right at each broker."""
        former, self._now = self._now, self._put("after")
        right = AclBindingFilter(*self._of_topic("before"))
        for deleted in self._admin.delete_acls([right]).values():
            assert deleted.result(PATIENCE_S)
        for client in self._clients(former):
            assert eventually(lambda client=client: not sees(client, self._topic))

    def _put(self, name):
        identity = self._world.authority.issue(name)
        for created in self._admin.create_acls([AclBinding(*self._of_topic(name))]).values():
            created.result(PATIENCE_S)
        for client in self._clients(identity):
            assert eventually(lambda client=client: sees(client, self._topic))
        os.replace(write_private(self._folder / "new", identity.pem()), self._path)
        return identity

    def _of_topic(self, name):
        allowed = AclOperation.WRITE, AclPermissionType.ALLOW
        pattern = ResourceType.TOPIC, self._topic, ResourcePatternType.LITERAL
        return (*pattern, f"User:CN={name}", "*", *allowed)

    def _clients(self, identity):
        """One for each broker, of another library."""
        tls = {
            "security.protocol": "SSL",
            "ssl.ca.pem": self._world.authority.pem,
            "ssl.key.pem": identity.private_key(),
            "ssl.certificate.pem": identity.certificate_chain,
        }
        addresses = self._world.kafka.bootstrap_servers_of(LISTENER).split(",")
        return [AdminClient({"bootstrap.servers": address, **tls}) for address in addresses]


def test_the_next_task_of_a_producer_that_is_kept(world, new_topic, tmp_path):
    topic = new_topic()
    rotation = Rotation(world, topic, tmp_path)
    patient = {key.replace("_", "."): text for key, text in NO_OTHER_TIMEOUT.items()}
    given = {key.removeprefix("kafka."): value for key, value in rotation.options.items()}
    config = ProducerConfig.parse({**patient, **given})
    pool = ProducerPool()
    producers = []
    try:
        for turn in range(3):
            producer = pool.acquire(config, [topic])
            producers.append(producer)
            batch = batch_of(value=VALUES)
            producer.append(batch, plan_of(batch, topic))
            producer.flush()
            pool.release(config, producer)
            if turn == 0:
                rotation.rotate()
    finally:
        pool.close()
        for producer in producers:
            producer.close()
    assert len(set(map(id, producers))) == 1
    assert values_in(world.kafka, topic) == sorted(VALUES * 3)
