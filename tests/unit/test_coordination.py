"""What coordinators are asked and what their answers mean, without any I/O."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ERRORS, error_for_code, error_named
from spark_kafka_sink.base.model import Node, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.client.coordinators import (
    RULES,
    Verdict,
    add_partitions_request,
    decisive_error,
    find_requests,
    parse_coordinators,
    parse_results,
    verdict_on,
)
from spark_kafka_sink.protocol.api import BrokerApiVersions, VersionRange
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

IDS = ["q.0", "q.1"]
NONE, NOT_AVAILABLE = error_named("NONE"), error_named("COORDINATOR_NOT_AVAILABLE")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def versions(last: int) -> BrokerApiVersions:
    return BrokerApiVersions({FindCoordinatorRequest.api_key: VersionRange(0, last)})


class TestVerdicts:
    def test_each_rule_has_one_error_and_a_reason(self):
        assert len({rule.error for rule in RULES}) == len(RULES)
        assert all(rule.reason for rule in RULES)
        assert {verdict_on(error_named(r.error)) for r in RULES} == {r.verdict for r in RULES}

    def test_without_a_rule_the_brokers_say_whether_it_passes(self):
        with_rule = {rule.error for rule in RULES}
        for error in ERRORS.values():
            if error.name not in with_rule:
                expected = Verdict.RETRY if error.retriable else Verdict.FATAL
                assert verdict_on(error) is expected

    def test_an_error_from_the_future_does_not_pass(self):
        assert verdict_on(error_for_code(32_000)) is Verdict.FATAL


class TestFindCoordinator:
    @pytest.mark.parametrize("last", [4, 5, 6])
    def test_one_request_for_all(self, last):
        assert find_requests(IDS, versions(last)) == [FindCoordinatorRequest("", 1, IDS)]

    @pytest.mark.parametrize("last", [0, 1, 3])
    def test_one_request_for_each(self, last):
        assert find_requests(IDS, versions(last)) == [
            FindCoordinatorRequest("q.0", 1, []),
            FindCoordinatorRequest("q.1", 1, []),
        ]

    def test_answers_for_several(self):
        code = error_named("TRANSACTIONAL_ID_AUTHORIZATION_FAILED").code
        response = FindCoordinatorResponse(
            coordinators=[
                Coordinator("q.1", -1, "", -1, code, "no"),
                Coordinator("q.0", 3, "host3", 9092),
                Coordinator("another's", 1, "host1", 9092),
            ]
        )
        first, second = parse_coordinators(FindCoordinatorRequest("", 1, IDS), response)
        assert first == ("q.0", Node(3, "host3", 9092), NONE, None)
        assert (second.transactional_id, second.error.code, second.detail) == ("q.1", code, "no")

    def test_an_id_that_the_answer_leaves_out_has_no_coordinator_yet(self):
        response = FindCoordinatorResponse(coordinators=[Coordinator("q.1", 3, "host3", 9092)])
        first, second = parse_coordinators(FindCoordinatorRequest("", 1, IDS), response)
        assert (first.transactional_id, first.error) == ("q.0", NOT_AVAILABLE)
        assert second.error is NONE

    def test_the_answer_of_an_old_broker(self):
        request = FindCoordinatorRequest("q.0", 1, [])
        [found] = parse_coordinators(request, FindCoordinatorResponse(0, 0, None, 3, "host3", 9092))
        assert found == ("q.0", Node(3, "host3", 9092), NONE, None)
        [found] = parse_coordinators(request, FindCoordinatorResponse(0, 15, "later", -1, "", -1))
        assert (found.error, found.detail) == (NOT_AVAILABLE, "later")
        [found] = parse_coordinators(request, FindCoordinatorResponse(0, 0, None, -1, "", -1))
        assert found.error is NOT_AVAILABLE


def response_of(errors: dict[TopicPartition, str]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        0,
        [
            AddPartitionsToTxnTopicResult(
                topic, [AddPartitionsToTxnPartitionResult(partition, error_named(error).code)]
            )
            for (topic, partition), error in errors.items()
        ],
    )


class TestAddPartitions:
    request = add_partitions_request("q.0", ProducerIdAndEpoch(7, 1), [T0, U0, T1])

    def test_partitions_are_grouped_by_topic(self):
        assert [(t.name, t.partitions) for t in self.request.v3_and_below_topics] == [
            ("t", [0, 1]),
            ("u", [0]),
        ]

    def test_what_the_answer_leaves_out_was_not_attempted_and_what_nobody_asked_is_ignored(self):
        response = response_of({T0: "NONE", TopicPartition("other", 0): "INVALID_TXN_STATE"})
        names = {tp: error.name for tp, error in parse_results(self.request, response).items()}
        assert names == {T0: "NONE", T1: "OPERATION_NOT_ATTEMPTED", U0: "OPERATION_NOT_ATTEMPTED"}

    @pytest.mark.parametrize(
        ("errors", "worst"),
        [
            (("NONE", "NONE", "NONE"), "NONE"),
            (("NONE", "OPERATION_NOT_ATTEMPTED", "NONE"), "OPERATION_NOT_ATTEMPTED"),
            (
                ("OPERATION_NOT_ATTEMPTED", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"),
                "UNKNOWN_TOPIC_OR_PARTITION",
            ),
            (
                ("UNKNOWN_TOPIC_OR_PARTITION", "TOPIC_AUTHORIZATION_FAILED", "NONE"),
                "TOPIC_AUTHORIZATION_FAILED",
            ),
        ],
    )
    def test_what_will_not_pass_comes_first(self, errors, worst):
        response = response_of(dict(zip((T0, T1, U0), errors)))
        assert decisive_error(parse_results(self.request, response))[1].name == worst
