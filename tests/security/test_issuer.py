"""The tests' issuer and cluster themselves, by another client: librdkafka."""

import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.patience import PATIENCE_S
from tests.security import jwt
from tests.security.issuer import Issuer, RefusalError

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def brokers_seen(kafka, listener, token, timeout_s):
    secured = kafka.secured(listener)
    config = {
        "bootstrap.servers": kafka.bootstrap_servers_of(listener).split(",")[0],
        "security.protocol": secured.security.protocol,
        "ssl.ca.location": str(secured.authority_file) if secured.security.has_tls else "",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 300),
        "log_level": "0",
    }
    client = AdminClient({key: value for key, value in config.items() if value})
    client.poll(1)
    return len(client.list_topics(timeout=timeout_s).brokers)


@pytest.mark.parametrize("listener", ["SASL", "SASL_TLS"])
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_the_brokers_accept_its_tokens(secured, issuer, listener, algorithm):
    assert brokers_seen(secured, listener, issuer.token("alice", algorithm), PATIENCE_S) == 2


@pytest.mark.parametrize("claim", [{"aud": "others"}, {"iss": "http://others"}, {"exp": 1}])
def test_and_no_others(secured, issuer, claim):
    with pytest.raises(KafkaException):
        brokers_seen(secured, "SASL", issuer.token("alice", **claim), 2)


def test_nor_those_that_another_has_signed(secured, issuer):
    forged = jwt.sign(jwt.claims_of(issuer.token("alice")), jwt.new_key("RS256"), kid="RS256")
    with pytest.raises(KafkaException):
        brokers_seen(secured, "SASL", forged, 2)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_assertions_are_verified(algorithm):
    key = jwt.new_key(algorithm)
    with Issuer({}) as issuer:
        issuer.assertion_keys["me"] = key.public_key()
        claims = {"iss": "me", "sub": "bob", "aud": issuer.token_url, "exp": time.time() + 60}
        assert status_of(issuer, jwt.sign(claims, key)) == 200
        assert status_of(issuer, jwt.sign(claims, jwt.new_key(algorithm))) == 400
        assert status_of(issuer, jwt.sign({**claims, "exp": 1}, key)) == 400
        issuer.refusals = iter([RefusalError(503, "away")])
        assert [status_of(issuer, jwt.sign(claims, key)) for _ in range(2)] == [503, 200]


def test_it_can_be_away():
    with Issuer({}) as issuer:
        with issuer.away(), pytest.raises(urllib.error.URLError, match="refused"):
            status_of(issuer, "")
        assert status_of(issuer, "") == 400


def status_of(issuer, assertion):
    form = urllib.parse.urlencode({"grant_type": _JWT_BEARER, "assertion": assertion})
    try:
        with urllib.request.urlopen(issuer.token_url, form.encode()) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
