"""Secrets that Spark would show: which, and what is said of them. Nothing of ours shows one."""

import pickle

import pytest

from spark_kafka_sink.base.secret import HIDDEN, Secret
from spark_kafka_sink.config.security_config import (
    DEFAULT_REGEX,
    SUGGESTED_REGEX,
    clear_secrets,
    secrets_shown_by_spark,
    warning_about_shown_secrets,
)
from spark_kafka_sink.config.security_keys import SECRET_KEYS
from spark_kafka_sink.config.sink_options import SinkOptions

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECRETS = {f"kafka.{name}": "marked-hush" for name in SECRET_KEYS}
URLS = (
    "metrics.otlp.endpoint",
    "metrics.prometheus.push.url",
    "schema.registry.url",
    "schema.registry.bearer.auth.issuer.endpoint.url",
    "kafka.sasl.oauthbearer.token.endpoint.url",
)
WORDS = ("api_key", "token", "client_secret", "Password", "auth", "sig", "credentials")
SECRETS["kafka.sasl.jaas.config"] = f'{PLAIN} username="u" password="marked-hush";'


@pytest.mark.parametrize(
    ("name", "value", "is_clear"),
    [
        ("kafka.ssl.keystore.key", "x", True),
        ("Kafka.SSL.Keystore.Key", "x", True),
        ("kafka.ssl.keystore.key", "${dir:/run:key}", False),
        ("kafka.sasl.password", " ", False),
        ("ssl.keystore.key", "x", False),
        ("kafka.ssl.truststore.certificates", "x", False),
        ("schema.registry.ssl.keystore.key", "x", True),
        ("schema.registry.basic.auth.user.info", "user:x", True),
        ("schema.registry.bearer.auth.token", "x", True),
        ("schema.registry.bearer.auth.client.secret", "x", True),
        ("metrics.otlp.headers", "api-key=x", True),
        *((name, "https://user:x@h:1/path", True) for name in URLS),
        *((name, "https://user:1/x@h:1", True) for name in URLS),
        *((name, "https://h:1/?a=b&API_Key=x", True) for name in URLS),
        *(("metrics.otlp.endpoint", f"https://h:1/?a=b&{word}=x", True) for word in WORDS),
        *((name, "https://h:1/path", False) for name in URLS),
        ("metrics.path", "abfss://container@account.dfs.core.windows.net/lines", False),
        *((name, "https://h:1/path?tenant=x", False) for name in URLS),
        *((name, "https://u:${env:P}@h:1/path", False) for name in URLS),
        ("kafka.sasl.jaas.config", f'{PLAIN} password="x";', True),
        ("kafka.sasl.jaas.config", f"{PLAIN} password=x;", True),
        ("kafka.sasl.jaas.config", f"{PLAIN} Password = 'x';", True),
        ("kafka.sasl.jaas.config", 'x.Y required key.passphrase="x";', True),
        ("kafka.sasl.jaas.config", f'{PLAIN} password="${{env:P}}";', False),
        ("kafka.sasl.jaas.config", f'{PLAIN} password="a${{env:P}}";', True),
        ("kafka.sasl.jaas.config", 'x.Y required clientId="${env:A}" clientSecret="x";', True),
        ("kafka.sasl.jaas.config", "${file:/run/a:jaas}", False),
        ("kafka.sasl.jaas.config", 'Krb5LoginModule required keyTab="/etc/key.tab";', False),
    ],
)
def test_what_is_a_secret_in_clear(name, value, is_clear):
    assert clear_secrets({name: value}) == ([name.lower()] if is_clear else [])


def test_what_sparks_default_does_not_hide():
    """Spark looks at names and at values: a JAAS text with a password in it is hidden."""
    assert secrets_shown_by_spark(SECRETS) == [
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase",
        "kafka.ssl.keystore.key",
    ]


def test_names_are_in_any_case():
    assert secrets_shown_by_spark({"Kafka.SSL.Keystore.Key": "x"}) == ["kafka.ssl.keystore.key"]


def test_the_suggested_expression_hides_everything():
    assert secrets_shown_by_spark(SECRETS, SUGGESTED_REGEX) == []
    for url in ("https://user:x@h:1", "https://user:1/x@h", "https://h/?api_key=x"):
        assert len(secrets_shown_by_spark(dict.fromkeys(URLS, url))) == 4
        assert secrets_shown_by_spark(dict.fromkeys(URLS, url), SUGGESTED_REGEX) == []


def test_another_expression_may_hide_less():
    assert len(secrets_shown_by_spark(SECRETS, "(?i)token")) == len(SECRETS)
    assert secrets_shown_by_spark(SECRETS, "spark[.]pykafka", "spark.pykafka.") == []
    assert secrets_shown_by_spark(SECRETS, "(?i)[[:broken") == secrets_shown_by_spark(SECRETS)


def test_the_warning_names_options_and_what_to_do():
    assert warning_about_shown_secrets(["a", "b"]) == (
        "a, b: a secret in clear text, which Spark shows in its UI, plans and event logs, for the "
        "default of spark.redaction.regex does not match. Write a reference, ${file:/path:key}, "
        "${env:NAME} or ${dir:/path:file}, instead; or start Spark with "
        f"spark.redaction.regex={SUGGESTED_REGEX}"
    )
    assert " for spark.redaction.regex does" in warning_about_shown_secrets(["a"], "x")
    assert DEFAULT_REGEX in SUGGESTED_REGEX


def options(**more):
    return SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "b:9092",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.keystore.certificate.chain": "chain",
            "kafka.ssl.keystore.key": "marked-hush",
            **more,
        }
    )


def test_the_sink_warns_of_what_spark_shows():
    assert options().notes == (warning_about_shown_secrets(["kafka.ssl.keystore.key"]),)
    assert options(**{"kafka.ssl.keystore.key": "${env:KEY}"}).notes == ()


def test_nothing_of_ours_shows_it():
    parsed = options()
    assert "marked-hush" not in f"{parsed} {parsed.notes} {parsed.producer!r}"
    assert b"marked-hush" not in pickle.dumps(parsed)


# The last one: a variable of the environment that is not UTF-8, as Python reads it.
TEXTS = ["", "a password: marked", "pässwörd \U0001f511", "caf\udce9"]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_kept_compared_and_pickled(text):
    secret = Secret(text)
    assert secret.reveal() == text
    assert secret == Secret(text)
    assert hash(secret) == hash(Secret(text))
    assert secret != Secret(f"{text}.")
    assert pickle.loads(pickle.dumps(secret)) == secret


def test_no_representation_shows_it():
    secret = Secret("marked")
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret:>20}", f"{[secret]}"):
        assert "marked" not in shown
        assert HIDDEN in shown
    assert b"marked" not in pickle.dumps(secret)
