"""``pykafka-sink transactions --command-config`` on secured brokers, with files of Kafka's kind."""

import json

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import BrokerError, sentence

LOG_TOPIC = "log-of-the-command-line"


@pytest.fixture(scope="module", autouse=True)
def _log_topic(secured):
    """A decision log without records."""
    try:
        secured.create_topic(LOG_TOPIC, 1, configs={"cleanup.policy": "compact"})
    except BrokerError as error:
        # On a machine that is busy, the first answer may be lost, and the call be repeated.
        if error.error.name != "TOPIC_ALREADY_EXISTS":
            raise


def run(secured, listener, *more):
    servers = secured.bootstrap_servers_of(listener)
    cluster = ("--bootstrap-server", servers, "--log-topic", LOG_TOPIC)
    return main(["transactions", "list", *cluster, "--json", *more])


@pytest.mark.parametrize("listener", ["SASL", "SASL_TLS", "TLS_RSA", "MUTUAL_EC"])
def test_the_file_that_kafkas_tools_take(secured, listener, tmp_path, capsys):
    file = secured.write_client_properties(tmp_path / "client.properties", "alice", listener)
    status = run(secured, listener, "--command-config", str(file))
    shown = capsys.readouterr()
    assert (status, sentence(shown.err).replace(_unencrypted(file), "")) == (0, "")
    assert json.loads(shown.out) == {"prefixes": []}


def _unencrypted(file):
    """What is said of PLAIN in clear text."""
    return (
        f"pykafka-sink: {file}: sasl.mechanism=PLAIN with security.protocol=SASL_PLAINTEXT: the "
        "password crosses the network unencrypted. SASL_SSL encrypts it\n"
    )


@pytest.mark.parametrize(
    ("listener", "words"),
    [("SASL_TLS", "this address is a TLS listener"), ("SASL", "A listener with SASL does that")],
)
def test_without_the_file_the_error_says_what_is_missing(secured, listener, words, capsys):
    assert run(secured, listener) == 1
    assert words in capsys.readouterr().err
