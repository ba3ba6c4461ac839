import pytest

from spark_kafka_sink.localkafka import LocalKafka, LocalOAuth, LocalSecurity
from spark_kafka_sink.localkafka.security import listeners_of

ISSUER = LocalOAuth("http://i/token", "http://i/jwks", "http://i", "kafka")


def test_a_protocol_is_enough():
    (name, security), *others = listeners_of("sasl_plaintext").items()
    assert not others
    assert (name, security.protocol) == ("SECURED", "SASL_PLAINTEXT")
    assert security.mechanisms == ("SCRAM-SHA-512",)
    assert set(security.users) == {"alice"}
    assert not security.has_tls
    assert security.has_sasl


def test_passwords_are_made_on_the_fly_and_not_shown():
    one, two = LocalSecurity(), LocalSecurity()
    assert one.users != two.users
    assert one.users["alice"] not in repr(one)


def test_no_security():
    assert listeners_of(None) == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"protocol": "TLS"}, "protocol 'TLS' is none of SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"mechanisms": ["SCRAM"]}, "mechanism 'SCRAM' is none of PLAIN"),
        ({"client_auth": "yes"}, "client_auth 'yes' is none of none, requested, required"),
        ({"users": {"a b": "x"}}, "'a b' is not a user's name"),
        ({"mechanisms": ["OAUTHBEARER"]}, "OAUTHBEARER needs oauth=LocalOAuth"),
    ],
)
def test_what_does_not_exist_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LocalSecurity(**arguments)


def test_a_wrong_protocol_is_told_before_anything_starts():
    with pytest.raises(ValueError, match="protocol 'PLAINTEXT' is none of"):
        LocalKafka(security="plaintext")


def test_an_issuer_goes_with_the_mechanism():
    security = LocalSecurity("sasl_ssl", ["OAUTHBEARER"], {"app": "secret"}, oauth=ISSUER)
    assert security.has_tls
