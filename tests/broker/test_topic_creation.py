"""Topics that do not exist, change, or go away under a producer. All seen by confluent-kafka."""

import itertools
import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import DeliveryError, KafkaSinkError, TopicError
from spark_kafka_sink.client.admin import create_missing
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.producer import producer as producer_module
from spark_kafka_sink.producer.producer import ThreadedProducer
from tests.broker.creating import append, creating, producer_for, write
from tests.broker.described import Topics
from tests.broker.processes import eventually
from tests.broker.producing import batch_of, open_producer, plan_of
from tests.patience import AN_HOUR_MS, PATIENCE_S, reason_given_time
from tests.reading import read_topic, values

CREATORS = 8
numbers = itertools.count()


@pytest.fixture(scope="module")
def topics(strict_kafka):
    """What is on ``strict_kafka``."""
    return Topics(strict_kafka.bootstrap_servers)


class TestCreation:
    def test_partitions_and_configs_are_those_asked_for(self, strict_kafka, topics):
        config = creating(
            strict_kafka.bootstrap_servers,
            partitions="3",
            replication_factor="1",
            configs="retention.ms=86400000,cleanup.policy=compact,delete,max.message.bytes=2000000",
        )
        producer = ThreadedProducer(config)
        batch = batch_of(key=[b"%d" % n for n in range(100)], value=[b"v"] * 100)
        try:
            producer.append(batch, plan_of(batch, "tc-asked"))
            producer.flush()
        finally:
            producer.close()
        assert topics.created("tc-asked") == {0: [1], 1: [1], 2: [1]}
        assert topics.own_configs("tc-asked") == {
            "retention.ms": "86400000",
            "cleanup.policy": "compact,delete",
            "max.message.bytes": "2000000",
        }
        records = read_topic(strict_kafka.bootstrap_servers, "tc-asked")
        assert len(records) == 100
        assert {r.partition for r in records} == {0, 1, 2}

    def test_numbers_not_given_are_the_brokers(self, strict_kafka, topics):
        write(creating(strict_kafka.bootstrap_servers), "tc-defaults", [b"v"])
        assert topics.created("tc-defaults") == {0: [1]}
        assert topics.own_configs("tc-defaults") == {}
        assert values(read_topic(strict_kafka.bootstrap_servers, "tc-defaults")) == [b"v"]

    def test_replication_factor(self, pair):
        """By default the pair replicates twice, and then once where that is asked for."""
        topics = Topics(pair.bootstrap_servers)
        write(creating(pair.bootstrap_servers, partitions="2"), "tc-twice", [b"v"])
        config = creating(pair.bootstrap_servers, partitions="2", replication_factor="1")
        write(config, "tc-once", [b"v"])
        assert topics.created("tc-twice") == {0: [1, 2], 1: [1, 2]}
        assert sorted(map(len, topics.created("tc-once").values())) == [1, 1]

    def test_brokers_that_would_create_it_themselves_do_not(self, kafka, topics):
        """auto.create.topics.enable would make one partition, and be first."""
        write(creating(kafka.bootstrap_servers, partitions="5"), "tc-auto", [b"v"])
        assert len(Topics(kafka.bootstrap_servers).created("tc-auto")) == 5

    def test_all_missing_topics_of_an_arrow_batch(self, strict_kafka, topics, monkeypatch):
        """Together, in one request: each costs a pause for metadata."""
        asked = []

        def create(admin, topics, creation):
            asked.append(set(topics))
            create_missing(admin, topics, creation)

        monkeypatch.setattr(producer_module, "create_missing", create)
        names = [f"tc-column-{n}" for n in range(12)]
        strict_kafka.create_topic(names[1])
        batch = pa.record_batch({"topic": names * 5, "value": [b"%d" % n for n in range(60)]})
        producer = ThreadedProducer(creating(strict_kafka.bootstrap_servers, partitions="2"))
        try:
            producer.append(batch, ColumnPositions(topic=0, value=1))
            producer.flush()
        finally:
            producer.close()
        assert asked == [{*names} - {names[1]}]
        assert [len(topics.created(name)) for name in names] == [2, 1] + [2] * 10
        assert [topics.records_count(name) for name in names] == [5] * 12
        written = values(read_topic(strict_kafka.bootstrap_servers, names[7]))
        assert sorted(written) == sorted(b"%d" % row for row in range(7, 60, 12))

    def test_other_topics_are_written_meanwhile(self, strict_kafka, monkeypatch):
        """Creating may take seconds, in which the sender must not wait for the task."""
        strict_kafka.create_topic("tc-meanwhile")
        servers = strict_kafka.bootstrap_servers
        seen = []

        def create_slowly(*arguments):
            eventually(lambda: read_topic(servers, "tc-meanwhile"))
            seen.append(values(read_topic(servers, "tc-meanwhile")))
            create_missing(*arguments)

        monkeypatch.setattr(producer_module, "create_missing", create_slowly)
        # It lingers until the other topic is being created.
        producer = ThreadedProducer(creating(servers, {"linger.ms": "700"}))
        try:
            append(producer, "tc-meanwhile", [b"1"])
            append(producer, "tc-slow", [b"2"])
            producer.flush()
        finally:
            producer.close()
        assert values(read_topic(servers, "tc-slow")) == [b"2"]
        assert seen == [[b"1"]]

    def test_an_existing_topic_is_left_as_it_is(self, strict_kafka, topics):
        strict_kafka.create_topic("tc-there", 2, configs={"retention.ms": "7200000"})
        config = creating(strict_kafka.bootstrap_servers, partitions="9", configs="retention.ms=1")
        write(config, "tc-there", [b"v"])
        assert len(topics.created("tc-there")) == 2
        assert topics.own_configs("tc-there") == {"retention.ms": "7200000"}

    def test_several_creators_at_once(self, strict_kafka, topics):
        """As the tasks of a stage do: whoever is second finds the topic there."""
        config = creating(strict_kafka.bootstrap_servers, partitions="3")
        barrier = threading.Barrier(CREATORS)
        failures = []
        ids = set()

        def create(number):
            try:
                barrier.wait(PATIENCE_S)
                write(config, "tc-race", [b"%d:%d" % (number, n) for n in range(50)])
                ids.add(str(topics.topic_id("tc-race")))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(CREATORS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert failures == []
        assert len(ids) == 1
        assert len(topics.created("tc-race")) == 3
        expected = Counter(b"%d:%d" % (c, n) for c in range(CREATORS) for n in range(50))
        written = values(read_topic(strict_kafka.bootstrap_servers, "tc-race"))
        assert Counter(written) == expected


class TestRefused:
    @pytest.mark.parametrize(
        ("creation", "patterns"),
        [
            ({"replication_factor": "3"}, ["INVALID_REPLICATION_FACTOR", "1 broker"]),
            ({"configs": "retenshun.ms=1"}, ["INVALID_CONFIG", r"retenshun\.ms"]),
            ({"configs": "retention.ms=a week"}, ["INVALID_CONFIG", r"retention\.ms", "a week"]),
        ],
        ids=["replication-factor", "unknown-config", "wrong-value"],
    )
    def test_the_brokers_reason_is_told(self, strict_kafka, creation, patterns, topics):
        at_once = {"max.block.ms": str(AN_HOUR_MS)}
        config = creating(strict_kafka.bootstrap_servers, at_once, **creation)
        with pytest.raises(TopicError) as raised:
            write(config, "tc-refused", [b"v"])
        message = str(raised.value)
        assert message.startswith("topic 'tc-refused' cannot be created by topic.creation.enable: ")
        for pattern in patterns:
            assert raised.match(pattern)
        assert topics.replicas("tc-refused") == {}

    def test_a_name_that_no_topic_may_have(self, strict_kafka):
        with pytest.raises(TopicError, match="'no/topic': INVALID_TOPIC_EXCEPTION.*1 to 249"):
            write(creating(strict_kafka.bootstrap_servers), "no/topic", [b"v"])

    def test_the_producer_goes_on_with_other_topics(self, strict_kafka):
        """Nothing of the refused Arrow batch was sent, so nothing is lost with it."""
        strict_kafka.create_topic("tc-goes-on")
        config = creating(strict_kafka.bootstrap_servers, replication_factor="3")
        producer = ThreadedProducer(config)
        try:
            append(producer, "tc-goes-on", [b"1"])
            with pytest.raises(TopicError):
                append(producer, "tc-goes-not", [b"lost"])
            append(producer, "tc-goes-on", [b"2"])
            producer.flush()
        finally:
            producer.close()
        written = values(read_topic(strict_kafka.bootstrap_servers, "tc-goes-on"))
        assert written == [b"1", b"2"]


class TestWithoutTheOption:
    def test_a_missing_topic_is_an_error_in_time(self, strict_kafka, topics):
        """It is asked for until max.block.ms is over: somebody may be about to create it."""

        def block(timeout_ms):
            options = {"max_block_ms": str(timeout_ms)}
            with producer_for(strict_kafka.bootstrap_servers, **options) as producer:
                started = time.monotonic()
                try:
                    append(producer, "tc-none", [b"v"])
                finally:
                    # The producer counts whole milliseconds.
                    assert time.monotonic() - started >= (timeout_ms - 1) / 1000

        unknown = "'tc-none': UNKNOWN_TOPIC_OR_PARTITION"
        message = reason_given_time(block, TopicError, 1_000, unknown)
        assert unknown in message
        assert "check that the topic exists" in message
        assert topics.replicas("tc-none") == {}

    def test_a_topic_that_somebody_creates_in_time(self, strict_kafka):
        producer = open_producer(strict_kafka.bootstrap_servers)
        written = threading.Thread(target=append, args=(producer, "tc-soon", [b"v"]))
        try:
            written.start()
            assert eventually(lambda: "tc-soon" in producer._metadata.problems)
            strict_kafka.create_topic("tc-soon")
            written.join(PATIENCE_S)
            producer.flush()
        finally:
            producer.close()
        assert values(read_topic(strict_kafka.bootstrap_servers, "tc-soon")) == [b"v"]


class TestMorePartitions:
    def test_are_used_after_metadata_max_age(self, strict_kafka, topics):
        topic = "tc-grows"
        strict_kafka.create_topic(topic, 2)
        keyed = batch_of(key=[b"%d" % n for n in range(200)], value=[b"before"] * 200)
        explicit = batch_of(value=[b"explicit"], partition=[4])
        soon = {"metadata_max_age_ms": "100", "max_block_ms": "5000"}
        producer = open_producer(strict_kafka.bootstrap_servers, **soon)

        def is_accepted():
            try:
                producer.append(explicit, plan_of(explicit, topic))
            except TopicError:
                return False
            return True

        try:
            producer.append(keyed, plan_of(keyed, topic))
            with pytest.raises(TopicError, match="Invalid partition 4 .* 2 partition"):
                producer.append(explicit, plan_of(explicit, topic))
            topics.grow(topic, 5)
            assert eventually(is_accepted)
            keyed = batch_of(key=[b"%d" % n for n in range(200)], value=[b"after"] * 200)
            producer.append(keyed, plan_of(keyed, topic))
            producer.flush()
        finally:
            producer.close()
        by_value = {}
        for record in read_topic(strict_kafka.bootstrap_servers, topic):
            by_value.setdefault(record.value, Counter())[record.partition] += 1
        assert by_value[b"before"].keys() == {0, 1}
        assert by_value[b"explicit"] == {4: 1}
        assert by_value[b"after"].keys() == {0, 1, 2, 3, 4}
        assert by_value[b"before"].total() == by_value[b"after"].total() == 200


class TestTopicsThatGoAway:
    @pytest.fixture
    def producer_at_work(self, strict_kafka, request):
        """A producer that has written to a topic, and the topic's name."""
        topic = f"tc-gone-{next(numbers)}"
        strict_kafka.create_topic(topic)
        # Long enough for the first records, which must arrive.
        options = {"request_timeout_ms": "2000", "delivery_timeout_ms": "10000"}
        options.update(getattr(request, "param", {}))
        producer = open_producer(strict_kafka.bootstrap_servers, **options)
        try:
            append(producer, topic, [b"old"] * 10)
            producer.flush()
            yield producer, topic
        finally:
            producer.close()

    @pytest.mark.parametrize(
        "producer_at_work",
        [{}, {"metadata_max_age_ms": "100"}, {"enable_idempotence": "false"}],
        ids=["stale-metadata", "fresh-metadata", "not-idempotent"],
        indirect=True,
    )
    def test_nothing_goes_into_the_new_incarnation(self, strict_kafka, producer_at_work, topics):
        producer, topic = producer_at_work
        first_id = topics.topic_id(topic)
        topics.delete(topic)
        strict_kafka.create_topic(topic)
        second_id = topics.topic_id(topic)
        assert first_id != second_id
        failure = failure_of(producer, topic)
        assert isinstance(failure, (TopicError, DeliveryError))
        assert f"topic '{topic}' was deleted and created again while the job ran" in str(failure)
        assert not producer.is_healthy
        assert read_topic(strict_kafka.bootstrap_servers, topic) == []

    def test_a_deleted_topic_is_an_error_in_time(self, strict_kafka, producer_at_work, topics):
        producer, topic = producer_at_work
        topics.delete(topic)
        failure = failure_of(producer, topic)
        assert isinstance(failure, DeliveryError)
        message = str(failure)
        assert f"{topic}-0" in message
        assert "kafka.delivery.timeout.ms = 10000" in message
        assert "UNKNOWN_TOPIC" in message
        assert topics.topic_id(topic) is None

    def test_a_new_producer_writes_to_the_new_one(self, strict_kafka, producer_at_work, topics):
        _, topic = producer_at_work
        topics.delete(topic)
        strict_kafka.create_topic(topic)
        producer = open_producer(strict_kafka.bootstrap_servers)
        try:
            append(producer, topic, [b"new"])
            producer.flush()
        finally:
            producer.close()
        assert values(read_topic(strict_kafka.bootstrap_servers, topic)) == [b"new"]


def failure_of(producer, topic):
    """What writing to ``topic`` raises."""
    try:
        append(producer, topic, [b"for the old one"] * 10)
        producer.flush()
    except KafkaSinkError as error:
        return error
    pytest.fail("the producer says that everything was written")
