"""The broker that a connection with SASL expects is named after authentication, and only then."""

import pytest

from spark_kafka_sink.base.errors import (
    MisroutedConnectionError,
    RemoteProtocolError,
    error_named,
)
from spark_kafka_sink.protocol.connection import Connection, ExpectedBroker, OwnRequest, Ready
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest, ApiVersionsResponse
from tests.unit.security.test_sasl import VERSIONS, Dialogue

EXPECTED = ExpectedBroker("cluster", 3)
OF_4_4 = {**VERSIONS, 18: (0, 5)}


class Expecting(Dialogue):
    def __init__(self):
        super().__init__()
        authentication = self.connection._authentication
        self.connection = Connection("client", authentication, EXPECTED)


def compared():
    """A dialogue whose last request names the expected broker."""
    dialogue = Expecting().open()
    assert (dialogue.asked.version, dialogue.asked.request.cluster_id) == (4, None)
    dialogue.tell_versions(OF_4_4)
    [event] = dialogue.authenticate(lifetime_ms=60_000)
    assert isinstance(event, OwnRequest)
    asked = dialogue.asked.request
    assert isinstance(asked, ApiVersionsRequest)
    assert (asked.cluster_id, asked.node_id, dialogue.asked.version) == ("cluster", 3, 5)
    return dialogue


def test_the_connection_is_usable_after_the_comparison():
    dialogue = compared()
    assert dialogue.tell_versions(OF_4_4, throttle_time_ms=7) == [Ready(7)]
    assert dialogue.connection.ends_at_ms < 100_000


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("REBOOTSTRAP_REQUIRED", MisroutedConnectionError),
        ("INVALID_REQUEST", RemoteProtocolError),
    ],
)
def test_the_broker_rejects_the_comparison(name, error):
    answer = ApiVersionsResponse(error_code=error_named(name).code)
    assert name in compared().refuses(answer, error)


def test_a_broker_that_compares_nothing_is_not_asked():
    dialogue = Expecting().open()
    dialogue.tell_versions(VERSIONS)
    assert dialogue.authenticate() == [Ready(0)]


def test_a_renewed_session_is_not_compared_again():
    dialogue = compared()
    dialogue.tell_versions(OF_4_4)
    dialogue.connection.authenticate_again(2_000, 3_000)
    assert dialogue.authenticate() == [Ready(0)]


def test_a_broker_that_takes_the_version_back_is_not_asked_again():
    """Brokers answer UNSUPPORTED_VERSION in version 0."""
    dialogue = compared()
    answer = ApiVersionsResponse(error_code=error_named("UNSUPPORTED_VERSION").code)
    with pytest.raises(RemoteProtocolError, match="UNSUPPORTED_VERSION"):
        dialogue.answer(answer, dialogue.asked._replace(version=0))
