"""Kafka's error table, the advice, and the exceptions that carry both."""

import pytest

from spark_kafka_sink.base import errors
from spark_kafka_sink.base.errors import (
    ERRORS,
    BrokerError,
    ConfigError,
    KafkaErrorCode,
    KafkaSinkError,
    ProtocolError,
    RecordError,
    RecordTooLargeError,
    RemoteProtocolError,
    SchemaError,
    advice_for,
    error_for_code,
    error_named,
    sentence,
    transaction_advice_for,
)

# Of ``Errors`` and the exceptions' ancestors in Kafka 4.4.0's sources: all that are
# RetriableException, and of these all that are InvalidMetadataException.
RETRIABLE = {
    2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80, 83, 84, 88, 89,
    100, 103, 106, 122, 123, 133,
}  # fmt: skip
REFRESH_METADATA = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}


def test_every_code_of_kafka_4_4_once():
    assert list(ERRORS) == list(range(-1, 137))
    names = [error.name for error in ERRORS.values()]
    assert len(set(names)) == len(names)
    assert all(error.code == code for code, error in ERRORS.items())
    known = {-1: "UNKNOWN_SERVER_ERROR", 0: "NONE", 6: "NOT_LEADER_OR_FOLLOWER", 59: "UNKNOWN_"}
    known |= {10: "MESSAGE_TOO_LARGE", 87: "INVALID_RECORD", 129: "REBOOTSTRAP_REQUIRED"}
    known |= {47: "INVALID_PRODUCER_EPOCH", 100: "UNKNOWN_TOPIC_ID", 35: "UNSUPPORTED_VERSION"}
    assert all(error_for_code(code).name.startswith(name) for code, name in known.items())
    assert error_named("NOT_LEADER_OR_FOLLOWER") is error_for_code(6)
    assert str(error_for_code(6)) == "NOT_LEADER_OR_FOLLOWER (6)"
    with pytest.raises(KeyError):
        error_named("NOT_LEADER_FOR_PARTITION")


def test_flags():
    assert {code for code, error in ERRORS.items() if error.retriable} == RETRIABLE
    assert {code for code, e in ERRORS.items() if e.refresh_metadata} == REFRESH_METADATA


@pytest.mark.parametrize("code", [137, 32_767, -2, -32_768])
def test_a_code_from_the_future_fails_and_says_its_number(code):
    error = error_for_code(code)
    assert error == KafkaErrorCode(code, "UNKNOWN_ERROR_CODE", False, False)
    assert sentence(error) == f"UNKNOWN_ERROR_CODE ({code})"
    assert code not in ERRORS


def test_advice_reads_as_the_end_of_a_sentence_and_that_of_transactions_is_their_own():
    # A misspelt name in the advice would never be shown.
    told = errors._ADVICE.keys() | errors._TRANSACTION_ADVICE.keys()
    assert told <= {error.name for error in ERRORS.values()}
    assert advice_for(error_named("NOT_ENOUGH_REPLICAS"))
    assert advice_for(error_for_code(9999)) == ""
    for error in ERRORS.values():
        for advice in (advice_for(error), transaction_advice_for(error)):
            assert advice == advice.strip()
            assert not advice.endswith(".")
        is_own = transaction_advice_for(error) != advice_for(error)
        assert is_own == (error.name in errors._TRANSACTION_ADVICE)


def test_a_broker_error_has_what_code_detail_and_advice_in_this_order():
    error = BrokerError(error_named("POLICY_VIOLATION"), "creating 't'", "no upper case")
    assert sentence(error) == (
        "creating 't': POLICY_VIOLATION (44). no upper case. "
        "a policy of the cluster refused it (create.topic.policy, a quota)"
    )
    assert error.error.code == 44
    for detail in (None, ""):
        error = BrokerError(error_named("INVALID_GROUP_ID"), "Metadata", detail)
        assert sentence(error) == "Metadata: INVALID_GROUP_ID (24)"


def test_everything_raised_on_purpose_has_one_base():
    raised = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert len(raised) > 10
    assert all(issubclass(cls, KafkaSinkError) for cls in raised)


def test_wrong_input_is_a_value_error_and_a_wrong_peer_is_not():
    for cls in (ConfigError, SchemaError, RecordError, RecordTooLargeError):
        assert issubclass(cls, ValueError)
    # decode_message sorts its own ValueErrors from these by class.
    assert issubclass(RemoteProtocolError, ProtocolError)
    assert not issubclass(RemoteProtocolError, ValueError)
