"""Topics: described, created, changed and deleted; and the check of them before the first task."""

import itertools
import json
import logging
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import (
    DeliveryError,
    KafkaSinkError,
    TopicError,
    sentence,
)
from spark_kafka_sink.base.model import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.network.admin import AdminClient, create_missing
from spark_kafka_sink.producer import producer as producer_module
from spark_kafka_sink.producer.producer import ThreadedProducer
from spark_kafka_sink.protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from spark_kafka_sink.spark import preflight
from tests.broker.producing import (
    Topics,
    append,
    batch_of,
    creating,
    open_producer,
    plan_of,
    producer_for,
    why_unreachable,
    write,
)
from tests.local_kafka import PatientKafka
from tests.patience import AN_HOUR_MS, PATIENCE_MS, PATIENCE_S, eventually, reason_given_time
from tests.reading import read_topic, read_values

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


# For brokers that are away: nothing is gained by waiting for them.
TIMEOUT = "preflight.timeout.ms"
QUICK = {TIMEOUT: "500"}
# For brokers that answer, on a machine that is busy.
PATIENT = {TIMEOUT: "60000"}
WAITING = "; the tasks will wait for the brokers"


class Planned:
    """What one planning said: the error in one line, or ``planned``; and the driver's log."""

    def __init__(self, kind, options):
        done = subprocess.run(
            [sys.executable, "-m", "tests.broker.planning", kind, json.dumps(options)],
            capture_output=True,
            text=True,
            check=True,
        )
        self.result = done.stdout.strip()
        self.log = done.stderr.strip()

    @property
    def has_gone_on(self):
        return self.result == "planned" and WAITING in self.log

    @classmethod
    def telling(cls, reason, options):
        """Of a stream, with as much time as the brokers need to tell ``reason``: all of it is waited
        for where a topic is missing.
        """
        for timeout_ms in (8_000, 80_000, 800_000):
            planned = cls("stream", {**options, TIMEOUT: str(timeout_ms)})
            if reason in planned.result + planned.log:
                break
        return planned


@pytest.fixture(scope="module")
def stopped():
    """A broker that was there once."""
    with PatientKafka() as kafka:
        kafka.stop(1)
        yield kafka


@pytest.fixture
def checkpoint(tmp_path):
    """As Spark leaves it before it plans the first micro-batch."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    (tmp_path / "commits").mkdir()
    return tmp_path


@pytest.fixture
def running(checkpoint):
    """The checkpoint of a stream that has committed a micro-batch."""
    (checkpoint / "commits" / "0").write_text("v1")
    return checkpoint


def options(kafka, checkpoint=None, **more):
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "t", **QUICK}
    if checkpoint is not None:
        given["checkpointLocation"] = str(checkpoint)
    return {**given, **{name.replace("_", "."): value for name, value in more.items()}}


def test_a_running_stream_goes_on_while_the_brokers_are_away(stopped, running):
    planned = Planned("stream", options(stopped, running))
    assert planned.has_gone_on
    assert f"no broker reachable: {stopped.bootstrap_servers} (Connection refused" in planned.log


def test_a_new_stream_with_a_wrong_address_says_so_before_it_fails(stopped, checkpoint):
    refused = Planned("stream", {**options(stopped, checkpoint), TIMEOUT: "6000"})
    assert refused.result.startswith("BootstrapError: no broker reachable")
    told = r"\(Connection refused\): they are tried for \d s more \[PKS-CONNECT-001\]"
    assert re.search(told, refused.log)


def test_a_batch_write_fails_at_once(stopped, running):
    refused = Planned("batch", options(stopped, running))
    assert refused.result.startswith("BootstrapError: no broker reachable")


def test_a_topic_that_is_missing(strict_kafka, checkpoint):
    """Also what a broker says that has just come back, and has not caught up yet."""
    given = options(strict_kafka, checkpoint, topic="nowhere")
    missing = "topic 'nowhere' does not exist, and the brokers did not create it when asked"
    refused = Planned.telling(missing, given)
    assert refused.result.startswith(f"TopicError: {missing}")
    assert "topic 'nowhere' does not exist, and the brokers have not created it yet" in refused.log
    (checkpoint / "commits" / "0").write_text("v1")
    going_on = Planned.telling(missing, given)
    assert going_on.has_gone_on
    assert missing in going_on.log


def checked(kafka, topic, **more):
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **more}
    preflight.check_cluster(SinkOptions.parse(options), is_stream=False)


def test_a_topic_that_brokers_create_because_of_a_typing_error_is_one_warning(kafka, caplog):
    for name in ("paid-orders-eu", "paid-orders-us"):
        kafka.create_topic(name)
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        checked(kafka, "paid-order-eu")
        checked(kafka, "paid-order-eu", **{"kafka.client.id": "again"})
        checked(kafka, "paid-orders-eu")
    (warning,) = caplog.messages
    assert warning.startswith(
        "topic 'paid-order-eu' did not exist, and the brokers created it just now, because this "
        "write asked for it. Topics with similar names: paid-orders-eu, paid-orders-us. If the "
    )
    assert "kafka.allow.auto.create.topics=false rejects missing topics" in warning


def test_topics_that_brokers_may_not_create(kafka, admin):
    """Neither the driver nor a task asks for the topic to be created."""
    kafka.create_topic("sold-items")
    never = {"kafka.allow.auto.create.topics": "false"}
    with pytest.raises(TopicError) as refused:
        checked(kafka, "sold-itens", **never)
    assert str(refused.value).startswith(
        "topic 'sold-itens' does not exist, and kafka.allow.auto.create.topics=false forbids its "
        "creation: create it, or correct its name; "
    )
    # Other tests of this broker may have topics with similar names, too.
    assert ". Topics with similar names: sold-items" in sentence(refused.value)

    def write_within(timeout_ms):
        more = {"max_block_ms": str(timeout_ms), "allow_auto_create_topics": "false"}
        with producer_for(kafka.bootstrap_servers, **more) as producer:
            append(producer, "sold-itens", [b"1"])

    reason = "topic 'sold-itens': UNKNOWN_TOPIC_OR_PARTITION"
    assert reason in reason_given_time(write_within, TopicError, 1_000, reason)
    (topic,) = admin.metadata(["sold-itens"], False, admin.deadline_in(PATIENCE_MS)).topics
    assert topic.error_code == UNKNOWN_TOPIC


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"topic": "no spaces"}, "TopicError: topic 'no spaces': INVALID_TOPIC_EXCEPTION (17)"),
        ({"kafka_batchsize": "1"}, "ConfigError: Kafka option 'kafka.batchsize' is not"),
    ],
)
def test_what_is_permanent_ends_a_running_stream(kafka, running, more, error):
    given = {**options(kafka, running, **more), **PATIENT}
    assert Planned("stream", given).result.startswith(error)


def test_a_commit_does_not_ask_the_brokers_again(stopped, checkpoint):
    """Everything is written by then: nothing may fail it."""
    committing = Planned("commit", options(stopped, checkpoint))
    assert (committing.result, committing.log) == ("planned", "")


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

    def test_replication_factor(self, pair):
        """By default the pair replicates twice, and then once where that is asked for."""
        topics = Topics(pair.bootstrap_servers)
        write(creating(pair.bootstrap_servers, partitions="2"), "tc-twice", [b"v"])
        config = creating(pair.bootstrap_servers, partitions="2", replication_factor="1")
        write(config, "tc-once", [b"v"])
        assert topics.created("tc-twice") == {0: [1, 2], 1: [1, 2]}
        assert sorted(map(len, topics.created("tc-once").values())) == [1, 1]

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
        with closing(
            ThreadedProducer(creating(strict_kafka.bootstrap_servers, partitions="2"))
        ) as producer:
            producer.append(batch, ColumnPositions(topic=0, value=1))
            producer.flush()
        assert asked == [{*names} - {names[1]}]
        assert [len(topics.created(name)) for name in names] == [2, 1] + [2] * 10
        assert [topics.records_count(name) for name in names] == [5] * 12
        written = read_values(strict_kafka.bootstrap_servers, names[7])
        assert sorted(written) == sorted(b"%d" % row for row in range(7, 60, 12))

    def test_other_topics_are_written_meanwhile(self, strict_kafka, monkeypatch):
        """Creating may take seconds, in which the sender must not wait for the task."""
        strict_kafka.create_topic("tc-meanwhile")
        servers = strict_kafka.bootstrap_servers
        seen = []

        def create_slowly(*arguments):
            eventually(lambda: read_topic(servers, "tc-meanwhile"))
            seen.append(read_values(servers, "tc-meanwhile"))
            create_missing(*arguments)

        monkeypatch.setattr(producer_module, "create_missing", create_slowly)
        # It lingers until the other topic is being created.
        with closing(ThreadedProducer(creating(servers, {"linger.ms": "700"}))) as producer:
            append(producer, "tc-meanwhile", [b"1"])
            append(producer, "tc-slow", [b"2"])
            producer.flush()
        assert read_values(servers, "tc-slow") == [b"2"]
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
        written = read_values(strict_kafka.bootstrap_servers, "tc-race")
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

    def test_the_producer_goes_on_with_other_topics(self, strict_kafka):
        """Nothing of the refused Arrow batch was sent, so nothing is lost with it."""
        strict_kafka.create_topic("tc-goes-on")
        config = creating(strict_kafka.bootstrap_servers, replication_factor="3")
        with closing(ThreadedProducer(config)) as producer:
            append(producer, "tc-goes-on", [b"1"])
            with pytest.raises(TopicError):
                append(producer, "tc-goes-not", [b"lost"])
            append(producer, "tc-goes-on", [b"2"])
            producer.flush()
        written = read_values(strict_kafka.bootstrap_servers, "tc-goes-on")
        assert written == [b"1", b"2"]


class TestWithoutTheOption:
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
        assert read_values(strict_kafka.bootstrap_servers, "tc-soon") == [b"v"]


class TestTopicsThatGoAway:
    @pytest.fixture
    def producer_at_work(self, strict_kafka, request):
        """A producer that has written to a topic, and the topic's name."""
        topic = f"tc-gone-{next(numbers)}"
        strict_kafka.create_topic(topic)
        # Long enough for the first records, which must arrive.
        options = {"request_timeout_ms": "2000", "delivery_timeout_ms": "10000"}
        options.update(getattr(request, "param", {}))
        with producer_for(strict_kafka.bootstrap_servers, **options) as producer:
            append(producer, topic, [b"old"] * 10)
            producer.flush()
            yield producer, topic

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


def failure_of(producer, topic):
    """What writing to ``topic`` raises."""
    try:
        append(producer, topic, [b"for the old one"] * 10)
        producer.flush()
    except KafkaSinkError as error:
        return error
    pytest.fail("the producer says that everything was written")
