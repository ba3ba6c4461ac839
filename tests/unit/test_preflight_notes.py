"""What is told before brokers are asked: options without effect, a file that cannot be written."""

import logging
import socket
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from uuid import UUID

import pytest
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import BootstrapError, ConfigError, sentence
from spark_kafka_sink.base.model import Node, PlannedTopic
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS, SinkOptions
from spark_kafka_sink.jobs.settings import defaults_of_jobs
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.protocol.messages.topics import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from spark_kafka_sink.spark import preflight, versions
from spark_kafka_sink.spark import topics as topics_module
from spark_kafka_sink.spark.planning import plan_schemas, plan_transactions
from spark_kafka_sink.spark.preflight import check_metrics_outputs, log_notes
from spark_kafka_sink.spark.row_planning import plan_rows
from spark_kafka_sink.spark.source import advise_on_sockets
from spark_kafka_sink.spark.topics import ask_for_topics, topics_of
from spark_kafka_sink.tools.check import _spark_settings
from spark_kafka_sink.tools.check_cluster import Outcome
from tests.answering import SameAnswer
from tests.simulation.time import SimClock
from tests.unit.batches import answer, topic
from tests.unit.scripted_network import ScriptedNetwork


def options(**more):
    return SinkOptions.parse({"kafka.bootstrap.servers": "noted:1", "topic": "t", **more})


def test_a_metrics_path_that_cannot_be_written(tmp_path):
    path = tmp_path / "missing" / "metrics.jsonl"
    for wrong, words in ((path, "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"cannot append to {wrong} on the driver: {words}"):
            check_metrics_outputs(options(**{"metrics.path": str(wrong)}), is_stream=False)
    path.parent.mkdir()
    path.write_text("line\n")
    check_metrics_outputs(options(**{"metrics.path": str(path)}), is_stream=False)
    assert path.read_text() == "line\n"
    # It does not end a running stream.
    more = {"metrics.path": str(tmp_path), "checkpointLocation": str(tmp_path)}
    check_metrics_outputs(options(**more), is_stream=True)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    with pytest.raises(ConfigError):
        check_metrics_outputs(options(**more), is_stream=True)


def test_what_has_no_effect_is_told_once(caplog):
    """Also when another write to the same cluster and topic was told about others before.
    Micro-batches of a named write have options of their own: the number is one of them.
    """
    kept = len(preflight._noted)
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        log_notes(options())
        for number in range(3):
            log_notes(replace(options(numpartitionsofmine="1"), write_version=number))
        log_notes(options(numpartitionsofyours="1"))
    assert [message.split("'")[1] for message in caplog.messages] == [
        "numpartitionsofmine",
        "numpartitionsofyours",
    ]
    assert all("OPTION-019" in message for message in caplog.messages)
    assert len(preflight._noted) == kept + 2


def test_what_is_noted_of_columns_is_told_once_per_query(caplog):
    schema = StructType([StructField("id", LongType()), StructField("gone", BooleanType())])
    noted = {"value.format": "json", "value.null.when": "gone"}
    of_checkpoint = options(**noted, checkpointlocation="/c")
    queries = [
        (options(**noted), None, "topic 't'"),
        (options(**{**noted, "topic": "u"}), None, "topic 'u'"),
        (options(**noted, queryname="q"), "t-1", "topic 't', query 'q'"),
        (of_checkpoint, "t-2", "topic 't', query with checkpoint '/c'"),
        (options(**noted), "an-id", "topic 't', query an-id"),
    ]
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        for _ in range(2):
            for given, query, _ in queries:
                plan_schemas(plan_rows(schema, given), given, query=query)
    assert [message.partition("(")[2] for message in caplog.messages] == [
        f"{where}) [PKS-COLUMN-009]" for _, _, where in queries
    ]
    assert all(m.startswith("value.null.when without a key") for m in caplog.messages)


SECURED = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": "p",
}
DEAD = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}


@pytest.fixture
def described(monkeypatch, caplog):
    """The topics that are found, for each description of topic t that a broker gives."""

    def ask(server, *descriptions):
        answers = iter(descriptions)
        admin = SimpleNamespace(
            renew_if_credentials_changed=lambda: None,
            deadline_in=lambda ms: ms,
            metadata=lambda *_: answer(next(answers)),
        )
        monkeypatch.setattr(topics_module.AdminClient, "of", lambda *_: admin)
        producer = options(**{"kafka.bootstrap.servers": server}).producer
        with caplog.at_level(logging.WARNING, "spark_kafka_sink.spark.topics"):
            return [set(ask_for_topics(producer, ["t"], SimClock())) for _ in descriptions]

    return ask


def test_a_verdict_is_of_one_cluster_one_identity_and_one_topic_for_a_while(monkeypatch):
    asked = []
    monkeypatch.setattr(preflight, "_passed_at_ms", {})
    monkeypatch.setattr(preflight, "_letters_with_limits", {})
    monkeypatch.setattr(preflight, "ask_for_topics", lambda *_: {})

    def check(options, _):
        asked.append(options)
        return preflight._Found(None, {})

    monkeypatch.setattr(preflight, "_check", check)
    others = (
        *({}, {"kafka.bootstrap.servers": "noted:2"}, {"topic": "u"}, SECURED),
        {**SECURED, "kafka.sasl.username": "bob"},
        {**SECURED, "kafka.sasl.password": "q"},
        {**SECURED, "kafka.ssl.truststore.location": "f", "kafka.security.protocol": "SASL_SSL"},
        DEAD,
        {**DEAD, "errors.deadletterqueue.topic.name": "others"},
    )
    clock = SimClock(0)
    for given in others * 2:
        preflight.check_cluster(options(**given), True, clock)
    assert len(asked) == len(others)
    clock.ms = options().producer.metadata_max_age_ms
    preflight.check_cluster(options(), True, clock)
    assert len(asked) == len(others) + 1


def test_the_topics_of_a_plan_are_those_that_a_broker_describes():
    twice = topic((1, 0), (2, 0), topic_id=UUID(int=1))
    twice.partitions.append(twice.partitions[0])
    without, failed = topic(name="without"), topic((1, 0), name="failed", error_code=3)
    found = topics_of(answer(twice, without, failed))
    assert found == {"t": PlannedTopic(UUID(int=1), 2)}


def test_a_plan_has_no_topics_while_no_broker_answers_which_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(topics_module, "_PATIENCE_MS", 1)
    (port,) = free_ports(1, "127.0.0.1")
    given = options(**{"kafka.bootstrap.servers": f"127.0.0.1:{port}"})
    with caplog.at_level(logging.WARNING, "spark_kafka_sink.spark.topics"):
        for names in (["t"], ["dead"], ["t"]):
            assert ask_for_topics(given.producer, names, SystemClock()) == {}
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "topic 't'",
        "topic 'dead'",
    ]
    assert all("[PKS-TOPIC-008]" in message for message in caplog.messages)


def test_each_time_that_a_topic_is_not_described_any_more_is_told(described, caplog):
    known, unknown = topic((1, 0)), topic(error_code=3)
    found = described("described:1", known, unknown, unknown, known, topic(error_code=5))
    assert found == [{"t"}, set(), set(), {"t"}, set()]
    assert [m.split(": ")[2].split(". ")[0] for m in caplog.messages] == [
        "UNKNOWN_TOPIC_OR_PARTITION (3)",
        "LEADER_NOT_AVAILABLE (5)",
    ]


def test_an_exactly_once_plan_without_brokers_names_the_topic_and_what_to_do():
    (port,) = free_ports(1, "127.0.0.1")
    once = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": "flights"}
    servers = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.max.block.ms": "100"}
    given = options(topic="flights", **once, **servers)
    with pytest.raises(BootstrapError) as raised:
        plan_transactions(given, is_job=True)
    text = str(raised.value)
    assert text.startswith("the write to topic 'flights' cannot be planned: no broker reachable: ")
    assert "Check that the brokers run" in text
    assert raised.value.code == "CONNECT-001"


def test_a_topic_that_is_created_again_is_told_once(described, caplog):
    """Also if no broker knew it for a while; a topic that gets partitions is the same one."""
    first = topic((1, 0), (2, 0), topic_id=UUID(int=1))
    more = topic((1, 0), (2, 0), (3, 0), topic_id=UUID(int=1))
    again, without_ids = topic((1, 0), topic_id=UUID(int=2)), topic((1, 0))
    described("again:1", first, more, topic(error_code=3), again, again, without_ids)
    (line,) = (message for message in caplog.messages if "TOPIC-009" in message)
    assert line.startswith(
        f"topic 't' was deleted and created again: it has id {again.topic_id} instead of "
        f"{first.topic_id}, and 1 partition(s) instead of 3, so that keys move. "
    )


NO_TIMEOUT = {"preflight.timeout.ms": "3600000"}


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this address is an HTTP server"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "this address is not a Kafka listener"),
        (b"\xff\xff\xff\xff", "not a Kafka listener: its first response announces -1 bytes"),
        (b"<!DOCTYPE HTML>", "this address is not a Kafka listener"),
    ],
)
def test_a_port_that_is_not_kafka_is_named_after_its_first_answer(answer, cause, caplog):
    """A stream that may have committed waits for it. Services read a zone from the client id."""
    with SameAnswer(answer) as server, caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        more = {"kafka.bootstrap.servers": server.address, "kafka.client.id": "f,zone=a"}
        given = options(**more, **NO_TIMEOUT)
        with pytest.raises(BootstrapError, match=cause):
            preflight.check_cluster(given, is_stream=False)
        assert server.accepted == 1
        assert b"f,zone=a" in server.asked[0]
        preflight.check_cluster(given, is_stream=True)
    (told,) = caplog.messages
    assert cause in told
    assert sentence(told).endswith("the tasks will wait for the brokers")


def test_each_address_of_a_bootstrap_name_is_asked_before_the_check_gives_up(monkeypatch):
    """As of localhost, whose IPv6 address may have another server at the port of the broker."""
    find, http = socket.getaddrinfo, b"HTTP/1.1 400 Bad Request\r\n\r\n"

    def find_both(host, *arguments, flags=0, **more):
        if host != "two-addresses":
            return find(host, *arguments, flags=flags, **more)
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not an address")
        ips = ("127.0.0.1", "127.0.0.2")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, first.port)) for ip in ips]

    monkeypatch.setattr(socket, "getaddrinfo", find_both)
    with SameAnswer(http) as first, SameAnswer(http, ("127.0.0.2", first.port)) as second:
        servers = {"kafka.bootstrap.servers": f"two-addresses:{first.port}"}
        with pytest.raises(BootstrapError, match="this address is an HTTP server"):
            preflight.check_cluster(options(**servers, **NO_TIMEOUT), is_stream=False)
    assert (first.accepted, second.accepted) == (1, 1)


# --- what brokers do not offer -------------------------------------------------------------------


def test_brokers_without_idempotence_are_known_before_the_first_task(monkeypatch):
    """In streams that may have committed, too, and after a check for a job that needs none."""

    def answer(asked):
        brokers = [MetadataResponseBroker(1, "noted", 1)]
        return MetadataResponse(brokers=brokers, topics=[topic((1, 0))])

    def of(config, clock, patience_ms=None):
        return AdminClient([("noted", 1)], DEFAULT_SETTINGS, network, clock, Random(1))

    clock, nodes = SimClock(0), {1: Node(1, "noted", 1)}
    network = ScriptedNetwork(nodes, clock, answer, {MetadataRequest: (0, 12)})
    monkeypatch.setattr(AdminClient, "of", of)
    for is_stream in (False, True):
        without = options(**{"kafka.enable.idempotence": "false"})
        plan = preflight.check_cluster(without, is_stream, clock).topics_plan
        assert plan.topics["t"].partitions_count == 1
        with pytest.raises(ConfigError, match="Set kafka.enable.idempotence=false") as raised:
            preflight.check_cluster(options(), is_stream, clock)
        assert raised.value.code == "CONNECT-012"


# --- Spark's setting for Unix domain sockets -----------------------------------------------------

VARIABLE = "PYTHON_UNIX_DOMAIN_ENABLED"


@pytest.mark.parametrize(
    ("name", "value"),
    [(UNIX_SOCKETS, "true"), ("spark.sql.execution.arrow.maxBytesPerBatch", "4m")],
)
def test_jobs_set_what_their_user_has_not_set(name, value):
    assert defaults_of_jobs({}.__contains__)[name] == value
    assert name not in defaults_of_jobs({name}.__contains__)


@pytest.mark.parametrize(
    ("spark", "variable", "lacks"),
    [
        *(((4, 0), "", False), ((4, 1), "", True), ((4, 1), "false", True)),
        *(((4, 1), "true", False), ((4, 3), "True", False)),
    ],
)
def test_the_log_advises_it_once(monkeypatch, caplog, tmp_path, spark, variable, lacks):
    """Spark plans in process after process, which know nothing of each other."""
    local = tmp_path / "blockmgr-1"
    local.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(local))
    monkeypatch.setattr(versions, "FOUND", spark)
    monkeypatch.setenv(VARIABLE, variable)
    if not variable:
        monkeypatch.delenv(VARIABLE)
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        for _ in range(2):
            monkeypatch.setattr(preflight, "_noted", set())
            advise_on_sockets()
    assert [f"{UNIX_SOCKETS}=true" in text for text in caplog.messages] == [True] * lacks


@pytest.mark.parametrize(
    ("line", "findings"),
    [("", 1), (f"{UNIX_SOCKETS} true", 0), (f"{UNIX_SOCKETS} false", 0)],
)
def test_check_advises_it_where_a_job_does_not_decide(tmp_path, line, findings):
    file = tmp_path / "job.conf"
    file.write_text(f"spark.pykafka.topic t\n{line}\n", encoding="utf-8")
    assert len(list(_spark_settings(str(file)))) == findings
    assert list(_spark_settings(None)) == []


@pytest.mark.parametrize(("start", "lost"), [("", True), ("# a comment\n", False), ("\n", False)])
def test_check_names_the_property_that_a_byte_order_mark_costs(tmp_path, start, lost):
    """spark-submit takes the mark for a part of the first line."""
    file = tmp_path / "job.conf"
    line = f"{start}spark.pykafka.delivery.guarantee exactly-once\n{UNIX_SOCKETS} true\n"
    file.write_text(line, encoding="utf-8-sig")
    texts = [f.text for f in _spark_settings(str(file)) if f.outcome is Outcome.FAILED]
    assert ["ignores spark.pykafka.delivery.guarantee" in text for text in texts] == [True] * lost
