from pathlib import Path

import pytest

from spark_kafka_sink.localkafka import LocalKafkaError, cluster
from spark_kafka_sink.localkafka.cluster import PORTS_VARIABLE, free_ports
from spark_kafka_sink.localkafka.settings import (
    BrokerPorts,
    render_properties,
    server_properties,
)
from spark_kafka_sink.protocol.messages.topics import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def properties(brokers):
    ports = {
        i: BrokerPorts(200 + i, {"PLAINTEXT": 100 + i, "S": 300 + i}) for i in range(1, brokers + 1)
    }
    protocols = {"PLAINTEXT": "PLAINTEXT", "S": "SASL_SSL"}
    return server_properties(1, ports, protocols, Path("/data"))


def test_listeners():
    found = properties(3)
    clients = "PLAINTEXT://127.0.0.1:101,S://127.0.0.1:301"
    assert found["advertised.listeners"] == clients
    assert found["listeners"] == f"{clients},CONTROLLER://127.0.0.1:201"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:201,2@127.0.0.1:202,3@127.0.0.1:203"
    protocol_map = "PLAINTEXT:PLAINTEXT,S:SASL_SSL,CONTROLLER:PLAINTEXT"
    assert found["listener.security.protocol.map"] == protocol_map


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_replication_of_internal_topics(brokers, replicas, in_sync):
    found = properties(brokers)
    assert found["offsets.topic.replication.factor"] == replicas
    assert found["transaction.state.log.replication.factor"] == replicas
    assert found["transaction.state.log.min.isr"] == in_sync


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain=text: #!", "plain=text: #!"),
        (" leading", "\\ leading"),
        ("#no comment", "\\#no comment"),
        ("C:\\dir", "C:\\\\dir"),
        ("two\nlines\r\t", "two\\nlines\\r\\t"),
        ("é🚀", "\\u00e9\\ud83d\\ude80"),
        ("", ""),
    ],
)
def test_properties_file(value, written):
    assert render_properties({"a.b": value, "c": "1"}) == f"a.b={written}\nc=1\n"


def test_ports_are_chosen_from_those_that_are_given(monkeypatch):
    monkeypatch.setenv(PORTS_VARIABLE, "20000-20099")
    assert all(20_000 <= port < 20_100 for port in free_ports(20, "127.0.0.1"))


@pytest.mark.parametrize("given", ["", "15000", "a-b", "2000-1000", "1-2-3"])
def test_ports_that_are_no_range(monkeypatch, given):
    monkeypatch.setenv(PORTS_VARIABLE, given)
    with pytest.raises(LocalKafkaError, match=f"{PORTS_VARIABLE} is '{given}', not a range"):
        free_ports(1, "127.0.0.1")


def test_free_ports_are_different_and_free():
    ports = free_ports(20, "127.0.0.1")
    assert len(set(ports)) == 20


def seen(leader=1, isr=(1, 2), error=0):
    partition = MetadataResponsePartition(0, 0, leader, 0, [1, 2], list(isr))
    return MetadataResponse(
        brokers=[MetadataResponseBroker(1, "h", 1), MetadataResponseBroker(2, "h", 2)],
        controller_id=1,
        topics=[MetadataResponseTopic(error, "t", partitions=[partition])],
    )


class TestReadiness:
    def test_serving(self):
        assert cluster.is_serving([1, 2])(seen()) is None
        assert cluster.is_serving([1, 2])(seen(leader=-1)) == "t-0 has no leader"
        assert cluster.is_serving([1])(seen(leader=-1)) is None, "a replica is not running"
        assert cluster.is_serving([1, 2, 3])(seen()) == "it knows brokers [1, 2], not [3]"
        headless = seen()
        headless.controller_id = -1
        assert cluster.is_serving([1, 2])(headless) == "it knows no controller"

    def test_in_sync(self):
        assert cluster.is_in_sync([1, 2])(seen()) is None
        problem = cluster.is_in_sync([1, 2])(seen(isr=(1,)))
        assert problem == "t-0 has replicas [1, 2], in sync are [1]"
        assert cluster.is_in_sync([1])(seen(isr=(1,))) is None
        assert cluster.is_in_sync([1, 3])(seen()) == "it knows brokers [1, 2], not [3]"

    def test_has_topic(self):
        assert cluster.has_topic("t", 1)(seen()) is None
        assert cluster.has_topic("t", 2)(seen()) == "1 of 2 have a leader"
        assert cluster.has_topic("t", 1)(seen(leader=-1)) == "0 of 1 have a leader"
        assert cluster.has_topic("u", 1)(seen()) == "topic u is unknown"
        assert "LEADER_NOT_AVAILABLE" in str(cluster.has_topic("t", 1)(seen(error=5)))
