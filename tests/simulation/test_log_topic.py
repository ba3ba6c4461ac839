"""The topics that exactly-once relies on: how the log is created, and what is said of weak ones."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.base.errors import ConfigError, error_named
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.protocol.messages.topics import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    MetadataRequest,
)
from spark_kafka_sink.transactions.decision_log import prepare_log_topic, warn_of_low_min_isr
from tests.simulation.operating import PATIENCE_MS, TIMEOUT_MS, Prefix

CONFIG = ExactlyOnceConfig("p", TIMEOUT_MS, "new-log", 3)
UNCLEAN = "unclean.leader.election.enable"


@pytest.fixture
def made() -> Prefix:
    return Prefix()


def prepare(made: Prefix) -> None:
    prepare_log_topic(made.client.admin, CONFIG, made.world.clock.ms + PATIENCE_MS)


def answer_configs_with(made: Prefix, response: DescribeConfigsResponse | None) -> None:
    """Brokers answer DescribeConfigs so; None: not at all."""
    handle = made.world.cluster.handle

    def handle_others(broker, request, version, reply):
        if not isinstance(request, DescribeConfigsRequest):
            handle(broker, request, version, reply)
        elif response is not None:
            reply(response)

    made.world.cluster.handle = handle_others


def refused(error: str) -> DescribeConfigsResponse:
    result = DescribeConfigsResult(error_named(error).code, None, 2, "t", [])
    return DescribeConfigsResponse(0, [result])


def test_the_log_is_created_so_that_no_decision_is_given_up(
    made: Prefix, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(made)
    configs = made.world.cluster.topics["new-log"].configs
    assert configs[UNCLEAN] == "false"
    assert (configs["cleanup.policy"], configs["min.insync.replicas"]) == ("compact", "2")
    prepare(made)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (None, ":9092 did not answer DescribeConfigs"),
        (refused("TOPIC_AUTHORIZATION_FAILED"), "TOPIC_AUTHORIZATION_FAILED (29)"),
    ],
)
def test_what_cannot_be_checked_is_told(
    made: Prefix,
    caplog: pytest.LogCaptureFixture,
    response: DescribeConfigsResponse | None,
    reason: str,
) -> None:
    answer_configs_with(made, response)
    with caplog.at_level(logging.INFO):
        prepare(made)
        warn_of_low_min_isr(made.client.admin, "t", made.world.clock.ms + PATIENCE_MS)
    log, output = caplog.messages
    assert log.startswith(
        f"cleanup.policy, min.insync.replicas, {UNCLEAN} of topic new-log not checked: "
    )
    assert output.startswith("min.insync.replicas of topic t not checked: ")
    assert log.endswith(f"{reason} [PKS-TOPIC-003]")
    assert output.endswith(f"{reason} [PKS-TOPIC-003]")


def test_a_refusal_of_the_weak_topics_check_is_told(
    made: Prefix, caplog: pytest.LogCaptureFixture
) -> None:
    """It never fails a write, whatever the answer."""
    answer_configs_with(made, refused("INVALID_REQUEST"))
    with caplog.at_level(logging.INFO):
        warn_of_low_min_isr(made.client.admin, "t", made.world.clock.ms + PATIENCE_MS)
    (message,) = caplog.messages
    assert message.startswith("min.insync.replicas of topic t not checked: DescribeConfigs of t: ")


@pytest.mark.parametrize("known", range(4))
def test_brokers_that_do_not_know_the_new_log_yet(made: Prefix, known: int) -> None:
    """After so many answers comes one of a broker that lags behind."""
    answers = iter(["NONE"] * known + ["UNKNOWN_TOPIC_OR_PARTITION"])
    made.world.cluster.on_describe = lambda topic: next(answers, "NONE")
    prepare(made)
    assert "new-log" in made.world.cluster.topics


@pytest.mark.parametrize("known", range(3))
def test_brokers_that_do_not_know_the_new_logs_partition_yet(made: Prefix, known: int) -> None:
    """The topic is in their answer, its partitions are not."""
    handle, left = made.world.cluster.handle, iter([False] * known + [True])

    def handle_others(broker, request, version, reply):
        def without_partitions(response):
            for topic in response.topics:
                if topic.name == "new-log" and topic.partitions and next(left, False):
                    topic.partitions = []
            reply(response)

        is_metadata = isinstance(request, MetadataRequest)
        handle(broker, request, version, without_partitions if is_metadata else reply)

    made.world.cluster.handle = handle_others
    for _ in range(3):
        prepare(made)
    assert next(left, None) is None


def test_a_log_whose_leader_alone_may_acknowledge_is_refused_unless_it_is_for_one_replica(
    made: Prefix,
) -> None:
    prepare(made)
    made.world.cluster.topics["new-log"].configs["min.insync.replicas"] = "1"
    with pytest.raises(ConfigError, match=r"has min\.insync\.replicas=1, less than 2: .*Alter"):
        prepare(made)
    deadline_ms = made.world.clock.ms + PATIENCE_MS
    of_one = CONFIG._replace(log_replication_factor=1)
    prepare_log_topic(made.client.admin, of_one, deadline_ms)


def test_a_log_that_may_have_an_unclean_leader_is_warned_of(
    made: Prefix, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(made)
    made.world.cluster.topics["new-log"].configs[UNCLEAN] = "true"
    prepare(made)
    assert f"topic 'new-log', has {UNCLEAN}=true" in caplog.text


@pytest.mark.parametrize(
    ("replicas", "min_insync", "is_warned_of"), [(3, 1, True), (3, 2, False), (1, 1, False)]
)
def test_an_output_topic_that_one_broker_may_lose_is_warned_of(
    made: Prefix,
    caplog: pytest.LogCaptureFixture,
    replicas: int,
    min_insync: int,
    is_warned_of: bool,
) -> None:
    made.world.cluster.create_topic("weak", 2, replicas, min_insync)
    warn_of_low_min_isr(made.client.admin, "weak", made.world.clock.ms + PATIENCE_MS)
    assert ("topic 'weak' has 3 replicas and min.insync.replicas=1" in caplog.text) is is_warned_of
    assert (caplog.text != "") is is_warned_of


def test_an_output_topic_that_is_not_there_yet(
    made: Prefix, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_low_min_isr(made.client.admin, "absent", made.world.clock.ms + PATIENCE_MS)
    assert caplog.text == ""
