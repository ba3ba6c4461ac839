"""What becomes of connections: idle ones, those to brokers that hang, those to one that was away."""

import threading

import pytest

from spark_kafka_sink.base.errors import DeliveryError
from spark_kafka_sink.base.model import Node
from tests.broker.creating import append, producer_for
from tests.broker.described import Topics
from tests.broker.processes import eventually
from tests.broker.producing import batch_of, plan_of
from tests.patience import AN_HOUR_MS, NO_OTHER_TIMEOUT, PATIENCE_S
from tests.reading import read_topic, values

TASKS = 8
# Nothing that these wait for is ended by a timeout.
NO_TIMEOUT = {
    "socket_connection_setup_timeout_ms": str(AN_HOUR_MS),
    "socket_connection_setup_timeout_max_ms": str(AN_HOUR_MS),
    **NO_OTHER_TIMEOUT,
}


class TestIdleConnections:
    def test_are_closed_and_come_back(self, pair):
        pair.create_topic("ad-idle", 2, 1)
        open_before = [forwarder.open_count for forwarder in pair.forwarders.values()]

        def write_to_both(value):
            batch = batch_of(value=[value] * 2, partition=[0, 1])
            producer.append(batch, plan_of(batch, "ad-idle"))
            producer.flush()

        def are_closed():
            return [f.open_count for f in pair.forwarders.values()] == open_before

        def accepted():
            return sum(forwarder.accepted_count for forwarder in pair.forwarders.values())

        with producer_for(pair.forwarded_servers, connections_max_idle_ms="500") as producer:
            write_to_both(b"1")
            assert eventually(are_closed)
            accepted_before = accepted()
            write_to_both(b"2")
            assert accepted() > accepted_before
            assert producer.is_healthy
        assert values(read_topic(pair.bootstrap_servers, "ad-idle")) == [b"1", b"2"] * 2


class TestBrokersThatHang:
    """Broker 2 accepts connections, and never answers: its forwarder holds everything back."""

    @pytest.fixture
    def topic(self, pair, request):
        name = f"ad-{request.node.name.replace('_', '-')}"
        pair.create_topic(name, 2, 1)
        return name

    def test_do_not_hold_up_others(self, pair, topic):
        with producer_for(pair.forwarders[1].address, **NO_TIMEOUT) as producer:
            append_to(pair, producer, topic, [1], b"before")
            producer.flush()
            with pair.forwarders[2].held_back():
                for n in range(3):
                    append_to(pair, producer, topic, [1, 2], b"%d" % n)
                # Not flushed: that waits for both.
                expected = [b"before", b"0", b"1", b"2"]
                assert eventually(lambda: written(pair, topic, 1) == expected)
                assert written(pair, topic, 2) == []
            producer.flush()
        assert written(pair, topic, 2) == [b"0", b"1", b"2"]

    def test_in_the_middle_do_not_hold_up_others(self, pair, topic):
        with producer_for(pair.forwarders[1].address, **NO_TIMEOUT) as producer:
            append_to(pair, producer, topic, [1, 2], b"before")
            producer.flush()
            expected = [b"before", b"0", b"1", b"2"]
            with pair.forwarders[2].held_back():
                for n in range(3):
                    append_to(pair, producer, topic, [1, 2], b"%d" % n)
                assert eventually(lambda: written(pair, topic, 1) == expected)
                assert written(pair, topic, 2) == [b"before"]
            producer.flush()
        assert written(pair, topic, 2) == expected

    def test_do_not_hold_up_tasks_that_begin(self, pair, topic):
        """Each asks some broker for a producer id and metadata, and some ask the one that hangs."""

        def run_task():
            with producer_for(pair.forwarders[1].address, **NO_TIMEOUT) as producer:
                append_to(pair, producer, topic, [1], b"v")
                producer.flush()

        tasks = [threading.Thread(target=run_task) for _ in range(TASKS)]
        with pair.forwarders[2].held_back():
            for task in tasks:
                task.start()
            for task in tasks:
                task.join(PATIENCE_S)
            are_done = not any(task.is_alive() for task in tasks)
        for task in tasks:
            task.join()
        assert written(pair, topic, 1) == [b"v"] * TASKS
        assert are_done

    def test_for_too_long_are_named(self, pair, topic):
        # It must be long enough for the first record.
        options = {"delivery_timeout_ms": "10000", "request_timeout_ms": "5000"}
        with producer_for(pair.forwarders[1].address, **options) as producer:
            append_to(pair, producer, topic, [1], b"before")
            producer.flush()
            with pair.forwarders[2].held_back():
                append_to(pair, producer, topic, [1, 2], b"v")
                with pytest.raises(DeliveryError) as raised:
                    producer.flush()
        node = Node(2, pair.forwarders[2].host, pair.forwarders[2].port)
        for words in (str(node), f"{topic}-{led_by(pair, topic, 2)}", "kafka.delivery.timeout.ms"):
            assert words in str(raised.value)
        assert written(pair, topic, 1) == [b"before", b"v"]


def append_to(pair, producer, topic, broker_ids, value):
    """One record for the partition of each of the brokers."""
    partitions = [led_by(pair, topic, broker_id) for broker_id in broker_ids]
    batch = batch_of(value=[value] * len(partitions), partition=partitions)
    producer.append(batch, plan_of(batch, topic))


def written(pair, topic, broker_id):
    """What is in the broker's partition."""
    partition = led_by(pair, topic, broker_id)
    records = read_topic(pair.bootstrap_servers, topic)
    return [r.value for r in records if r.partition == partition]


def led_by(pair, topic, broker_id):
    """The partition that the broker leads, one of the topic's two."""
    leaders = Topics(pair.bootstrap_servers).leaders(topic)
    [partition] = [index for index, leader in leaders.items() if leader == broker_id]
    return partition


def test_a_broker_that_comes_back_at_the_same_port(kafka_3_9):
    kafka_3_9.create_topic("ad-back")
    address = kafka_3_9.address(1)
    with producer_for(kafka_3_9.bootstrap_servers) as producer:
        append(producer, "ad-back", [b"%d" % n for n in range(10)])
        producer.flush()
        kafka_3_9.stop(1)
        append(producer, "ad-back", [b"%d" % n for n in range(10, 20)])
        # It knows of the loss, and tries to connect again and again.
        node = Node(1, *address)
        assert eventually(lambda: producer.client.last_failure(node) == "Connection refused")
        kafka_3_9.restart(1)
        assert kafka_3_9.address(1) == address
        producer.flush()
        assert producer.is_healthy
    written_values = values(read_topic(kafka_3_9.bootstrap_servers, "ad-back"))
    assert written_values == [b"%d" % n for n in range(20)]
