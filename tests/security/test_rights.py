"""What a principal must be allowed, and what it is told without: which right, on what."""

import json

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import KafkaSinkError
from tests.patience import PATIENCE_MS
from tests.security.acls import allow, allow_transactions
from tests.security.test_failures import failure, tells
from tests.security.writing import (
    values_in,
    write_a_micro_batch,
    write_through_the_sink,
)

pytestmark = pytest.mark.timeout(2400, func_only=True)


@pytest.fixture
def options(world):
    """Of bob, who has no rights but those that a test gives him."""
    return world.kafka.client_options("bob", "SASL_TLS", "SCRAM-SHA-256")


def failure_of_the_sink(options, topic):
    with pytest.raises(KafkaSinkError) as raised:
        write_through_the_sink(options, topic)
    return str(raised.value)


class TestOfTopics:
    def test_to_describe_the_topic(self, new_topic, options):
        """The driver tells: to a producer, the missing right to its id may be told first."""
        topic = new_topic()
        message = failure_of_the_sink(options, topic)
        tells(
            message, "TOPIC_AUTHORIZATION_FAILED", topic, "grant the principal WRITE on the topic"
        )

    def test_to_write_to_any_topic(self, world, new_topic, options):
        """An idempotent producer is refused before it names a topic."""
        topic = new_topic()
        allow(world.kafka, "bob", "describe", topic)
        message = failure(options, topic)
        tells(message, "CLUSTER_AUTHORIZATION_FAILED", "WRITE on the topic")
        tells(message, "kafka.enable.idempotence=false")

    def test_to_write_to_the_topic(self, world, new_topic, options):
        topic = new_topic()
        allow(world.kafka, "bob", "describe", topic)
        options["kafka.enable.idempotence"] = "false"
        message = failure(options, topic)
        tells(
            message, "TOPIC_AUTHORIZATION_FAILED", topic, "grant the principal WRITE on the topic"
        )


class TestOfExactlyOnce:
    """On the driver, before the first task."""

    @pytest.fixture
    def topic(self, world, new_topic):
        """Bob may write to it."""
        topic = new_topic()
        allow(world.kafka, "bob", "write", topic)
        return topic

    @pytest.fixture
    def log(self, world, topic):
        """A decision log that Bob has no right to."""
        world.kafka.create_topic(f"{topic}-log", 1, configs={"cleanup.policy": "compact"})
        return f"{topic}-log"

    @pytest.fixture
    def options(self, world, topic, log):
        return {
            **world.kafka.client_options("bob", "SASL_TLS", "SCRAM-SHA-256"),
            "delivery.guarantee": "exactly-once",
            "transactional.id.prefix": f"{topic}-id",
            "transaction.log.topic": log,
            "transaction.log.replication.factor": "1",
        }

    def test_to_the_transactional_ids(self, world, topic, log, options):
        """Also of another query, whose prefix this one's begins with."""
        allow_transactions(world.kafka, "bob", f"{topic}-id-of-another.")
        allow(world.kafka, "bob", "read", log)
        message = failure_of_the_sink(options, topic)
        tells(message, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", f" {topic}-id.driver")
        tells(message, "WRITE on all ids", "transactional.id.prefix", "PREFIXED")

    @pytest.mark.parametrize("right", [None, "read", "write"])
    def test_to_read_and_write_the_decision_log(self, world, topic, log, options, right):
        """Who has neither, or one of both."""
        if right is not None:
            allow_transactions(world.kafka, "bob", f"{topic}-id.")
            allow(world.kafka, "bob", right, log)
        message = failure_of_the_sink(options, topic)
        tells(message, "TOPIC_AUTHORIZATION_FAILED", log, "READ", "transaction.log.topic")
        assert right is None or "WRITE" in message

    def test_the_command_line_tells_what_is_missing(self, world, topic, log, options, capsys):
        """All of it at once: the right to the ids, and one of two to the decision log."""
        allow(world.kafka, "bob", "write", log)
        patient = {**options, "topic": topic, "preflight.timeout.ms": str(PATIENCE_MS)}
        arguments = [text for pair in patient.items() for text in ("--option", "=".join(pair))]
        assert main(["check", "--json", *arguments]) == 1
        findings = json.loads(capsys.readouterr().out)["findings"]
        failed = {one["subject"]: one["text"] for one in findings if one["outcome"] == "failed"}
        assert failed.keys() == {
            f"rights on transactional ids {topic}-id.",
            f"rights on topic {log}",
        }
        assert failed[f"rights on topic {log}"] == "no READ"
        assert {one["outcome"] for one in findings if one["subject"] == "quotas"} == {"unknown"}
        assert {one["outcome"] for one in findings if one["subject"] == "clock"} == {"unknown"}

    def test_one_rule_for_the_ids_of_all_queries(
        self, world, new_topic, topic, log, options, capsys
    ):
        """The rule is for what stands before {query}, and the command line says so."""
        options["transactional.id.prefix"] = f"{topic}-id-{{query}}"
        for right in ("read", "write"):
            allow(world.kafka, "bob", right, log)
        with pytest.raises(KafkaSinkError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED") as raised:
            write_a_micro_batch(options, topic, "early")
        tells(str(raised.value), f" {topic}-id-early.driver")
        patient = {**options, "topic": topic, "preflight.timeout.ms": str(PATIENCE_MS)}
        arguments = [text for pair in patient.items() for text in ("--option", "=".join(pair))]
        assert main(["check", *arguments]) == 1
        assert f"with the prefix '{topic}-id-'" in capsys.readouterr().out
        allow_transactions(world.kafka, "bob", f"{topic}-id-")
        allow(world.kafka, "bob", "describe", new_topic())
        for query in ("early", "late"):
            write_a_micro_batch(options, topic, query)
        assert values_in(world.kafka, topic) == [b"a value"] * 2
        assert main(["check", *arguments]) == 0
