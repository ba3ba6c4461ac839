import socket
import threading

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from spark_kafka_sink.protocol.messages.transactions import (
    InitProducerIdRequest,
)
from tests.broker.processes import eventually
from tests.broker.unreachable import why_unreachable
from tests.patience import AN_HOUR_MS, PATIENCE_MS

UNKNOWN_TOPIC = 3
COORDINATOR_LOAD_IN_PROGRESS = 14


@pytest.fixture
def admin(kafka):
    with AdminClient.connect(kafka.bootstrap_servers) as admin_client:
        yield admin_client


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class TestMetadata:
    def test_brokers_and_controller(self, kafka, admin):
        cluster = admin.metadata([], False, admin.deadline_in(PATIENCE_MS))
        assert [(b.node_id, b.host, b.port) for b in cluster.brokers] == [(1, *kafka.address(1))]
        assert cluster.controller_id == 1
        assert cluster.topics == []

    def test_one_topic_and_all(self, kafka, admin):
        kafka.create_topic("am-one", partitions=4)
        kafka.create_topic("am-other")
        (topic,) = admin.metadata(["am-one"], False, admin.deadline_in(PATIENCE_MS)).topics
        assert topic.name == "am-one"
        assert sorted(p.partition_index for p in topic.partitions) == [0, 1, 2, 3]
        names = {t.name for t in admin.metadata(None, False, admin.deadline_in(PATIENCE_MS)).topics}
        assert names >= {"am-one", "am-other"}

    def test_missing_topic_is_told_at_once(self, admin):
        (topic,) = admin.metadata(["am-missing"], False, admin.deadline_in(AN_HOUR_MS)).topics
        assert (topic.name, topic.error_code) == ("am-missing", UNKNOWN_TOPIC)

    def test_waits_for_a_topic_that_is_being_created(self, admin):
        (topic,) = admin.metadata(["am-auto"], True, admin.deadline_in(PATIENCE_MS)).topics
        assert topic.error_code == 0
        assert [partition.leader_id for partition in topic.partitions] == [1]


class TestCreateTopics:
    def test_each_topic_has_its_own_result(self, admin):
        first = admin.create_topics([CreatableTopic("ac-exists", 1, 1)], 10_000)
        assert first == {"ac-exists": None}
        results = admin.create_topics(
            [
                CreatableTopic("ac-exists", 1, 1),
                CreatableTopic("ac new", 1, 1),
                CreatableTopic("ac-replicas", 1, 5),
                CreatableTopic(
                    "ac-new", 2, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")]
                ),
            ],
            10_000,
        )
        assert results["ac-new"] is None
        errors = {name: error.error.name for name, error in results.items() if error}
        assert errors == {
            "ac-exists": "TOPIC_ALREADY_EXISTS",
            "ac new": "INVALID_TOPIC_EXCEPTION",
            "ac-replicas": "INVALID_REPLICATION_FACTOR",
        }
        assert "create topic ac-exists: TOPIC_ALREADY_EXISTS" in str(results["ac-exists"])

    def test_validate_only(self, admin):
        topic = CreatableTopic("ac-validated", 1, 1)
        assert admin.create_topics([topic], 10_000, validate_only=True) == {"ac-validated": None}
        assert admin.create_topics([topic], 10_000) == {"ac-validated": None}


def test_any_request_to_a_broker(kafka, admin):
    node = Node(1, *kafka.address(1))
    answers = []

    def is_given_an_id():
        request = InitProducerIdRequest(None, 60_000)
        response = admin.request(node, request, admin.deadline_in(PATIENCE_MS))
        answers.append(response)
        # A broker that has no block of ids yet says so, and fetches one: errors are not retried.
        assert response.error_code in (0, COORDINATOR_LOAD_IN_PROGRESS)
        return response.error_code == 0

    assert eventually(is_given_an_id)
    assert answers[-1].producer_id >= 0


class TestUnreachable:
    def test_each_address_has_its_own_reason(self):
        closed = closed_port()
        with socket.create_server(("127.0.0.1", 0)) as server:
            silent = server.getsockname()[1]
            servers = f"127.0.0.1:{closed},nohost.invalid:9092,127.0.0.1:{silent}"
            with AdminClient.connect(servers) as admin:
                refused = f"127.0.0.1:{closed} (Connection refused), "
                unknown = "nohost.invalid:9092 (host name: "
                hangs = f"127.0.0.1:{silent} (no answer yet)"
                message = why_unreachable(admin, refused, unknown, hangs)
        assert message.startswith(f"no broker reachable: {refused}{unknown}")
        assert message.endswith(hangs)

    def test_listener_of_another_protocol(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=answer_as_http, args=(server,))
            thread.start()
            port = server.getsockname()[1]
            with AdminClient.connect(f"127.0.0.1:{port}") as admin:
                reason = "this address is an HTTP server"
                message = why_unreachable(admin, reason)
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
        assert reason in message

    def test_one_good_address_is_enough(self, kafka):
        servers = f"127.0.0.1:{closed_port()},{kafka.bootstrap_servers}"
        with AdminClient.connect(servers) as admin:
            assert len(admin.metadata([], False, admin.deadline_in(AN_HOUR_MS)).brokers) == 1

    def test_wrong_address_list(self):
        with pytest.raises(ConfigError, match="the port is missing"):
            AdminClient.connect("localhost")


def answer_as_http(server):
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(1024)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
