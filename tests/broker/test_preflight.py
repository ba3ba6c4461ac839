"""The check before the first task: what ends a query there, and what is only logged.

Each planning is a process of its own, as Spark's are when triggers are a minute apart.
"""

import json
import subprocess
import sys

import pytest

from tests.local_kafka import PatientKafka

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
        return self.result == "planned" and self.log.endswith(WAITING)

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


@pytest.fixture(scope="module")
def frozen():
    """A broker that takes connections and answers nothing."""
    with PatientKafka() as kafka:
        kafka.pause(1)
        yield kafka
        kafka.resume(1)


@pytest.fixture(scope="module")
def demanding_kafka():
    """One broker that wants three replicas of every topic."""
    properties = {"auto.create.topics.enable": "false", "default.replication.factor": "3"}
    with PatientKafka(server_properties=properties) as kafka:
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


def test_a_running_stream_goes_on_while_a_broker_does_not_answer(frozen, running):
    assert Planned("stream", options(frozen, running)).has_gone_on


def test_a_checkpoint_is_found_as_a_uri_too(stopped, checkpoint):
    refused = Planned("stream", options(stopped, f"file://{checkpoint}"))
    assert refused.result.startswith("BootstrapError: no broker reachable")
    (checkpoint / "commits" / "12").write_text("v1")
    assert Planned("stream", options(stopped, f"file://{checkpoint}")).has_gone_on


@pytest.mark.parametrize("place", ["s3a://bucket/checkpoints/flights", None])
def test_a_stream_whose_checkpoint_is_elsewhere_goes_on(stopped, place):
    """It may have run for weeks."""
    assert Planned("stream", options(stopped, place)).has_gone_on


def test_a_new_stream_with_a_wrong_address_fails_at_once(stopped, checkpoint):
    refused = Planned("stream", options(stopped, checkpoint))
    assert refused.result.startswith("BootstrapError: no broker reachable")


def test_a_batch_write_fails_at_once(stopped, running):
    refused = Planned("batch", options(stopped, running))
    assert refused.result.startswith("BootstrapError: no broker reachable")


def test_a_topic_that_is_missing(strict_kafka, checkpoint):
    """Also what a broker says that has just come back, and has not caught up yet."""
    given = options(strict_kafka, checkpoint, topic="nowhere")
    missing = "topic 'nowhere' does not exist, and the brokers did not create it when asked"
    refused = Planned.telling(missing, given)
    assert refused.result.startswith(f"TopicError: {missing}")
    (checkpoint / "commits" / "0").write_text("v1")
    going_on = Planned.telling(missing, given)
    assert going_on.has_gone_on
    assert missing in going_on.log


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


@pytest.mark.parametrize(
    ("replicas", "hint"),
    [
        (
            "3",
            "topic.creation.replication.factor = 3 is more than there are brokers: set it to their "
            "number at most, to 1 for a cluster of one broker",
        ),
        (
            "-1",
            "The brokers' default.replication.factor is more than there are brokers, or they are "
            "older than Kafka 2.4 and have no default: set topic.creation.replication.factor, to "
            "1 for a cluster of one broker",
        ),
    ],
)
def test_a_creation_that_the_brokers_refuse_ends_a_running_stream(
    demanding_kafka, running, replicas, hint
):
    more = {"topic_creation_enable": "true", "topic_creation_replication_factor": replicas}
    given = {**options(demanding_kafka, running, topic="refused", **more), **PATIENT}
    refused = Planned("stream", given)
    assert refused.result.startswith(
        "TopicError: topic 'refused' cannot be created by topic.creation.enable: "
        "create topic refused: INVALID_REPLICATION_FACTOR (38)"
    )
    assert refused.result.endswith(hint)


def test_a_decision_log_that_the_brokers_cannot_replicate(kafka, running):
    more = {"delivery_guarantee": "exactly-once", "transactional_id_prefix": "alone"}
    log_topic = {"transaction_log_topic": "log-of-three"}
    given = {**options(kafka, running, **more, **log_topic), **PATIENT}
    assert Planned("stream", given).result.endswith(
        ". Set transaction.log.replication.factor to the number of brokers at most: to 1 for a "
        "cluster of one broker, where decisions are lost with its disk"
    )


def test_a_commit_does_not_ask_the_brokers_again(stopped, checkpoint):
    """Everything is written by then: nothing may fail it."""
    committing = Planned("commit", options(stopped, checkpoint))
    assert (committing.result, committing.log) == ("planned", "")
