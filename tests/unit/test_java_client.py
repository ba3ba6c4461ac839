"""The sink's options as Java's client takes them; Spark's own source reads by them."""

import pytest

from spark_kafka_sink.config.security_config import for_java_client

PROVIDER = "org.apache.kafka.common.config.provider"
PROVIDERS = {
    "kafka.config.providers": "env,file,dir",
    "kafka.config.providers.env.class": f"{PROVIDER}.EnvVarConfigProvider",
    "kafka.config.providers.file.class": f"{PROVIDER}.FileConfigProvider",
    "kafka.config.providers.dir.class": f"{PROVIDER}.DirectoryConfigProvider",
}


def test_only_what_secures_connections_is_taken():
    options = {
        "topic": "t",
        "sasl.mechanism": "PLAIN",
        "kafka.linger.ms": "5",
        "Kafka.Security.Protocol": "SSL",
        "kafka.ssl.protocol": "TLSv1.2",
        "kafka.sasl.oauthbearer.token.provider": "a:b",
    }
    assert for_java_client(options) == {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.protocol": "TLSv1.2",
    }
    assert for_java_client({}) == {}


@pytest.mark.parametrize(
    ("mechanism", "of_java", "module"),
    [
        ("PLAIN", "PLAIN", "plain.Plain"),
        ("scram-sha-512", "SCRAM-SHA-512", "scram.Scram"),
    ],
)
def test_user_and_password_become_a_jaas_text(mechanism, of_java, module):
    found = for_java_client(
        {
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.username": 'a"b',
            "kafka.sasl.password": "c\\d",
        }
    )
    assert found == {
        "kafka.sasl.mechanism": of_java,
        "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.{module}LoginModule required "
        'username="a\\"b" password="c\\\\d";',
    }


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "a"},
        {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.password": "b"},
        {"kafka.sasl.mechanism": "GSSAPI", "kafka.sasl.username": "a", "kafka.sasl.password": "b"},
        {"kafka.sasl.username": "a", "kafka.sasl.password": "b"},
    ],
)
def test_half_of_it_or_another_mechanism_becomes_no_jaas_text(options):
    assert "kafka.sasl.jaas.config" not in for_java_client(options)


def test_references_get_javas_providers():
    options = {"kafka.ssl.truststore.location": "${env:TRUST}"}
    assert for_java_client(options) == {**options, **PROVIDERS}
    own = {
        "kafka.config.providers": "env",
        "kafka.config.providers.env.class": f"{PROVIDER}.EnvVarConfigProvider",
    }
    assert for_java_client({**options, **own}) == {**options, **own}


@pytest.mark.parametrize(
    ("options", "types"),
    [
        ({"kafka.ssl.truststore.location": "/a/ca.PEM"}, {"kafka.ssl.truststore.type": "PEM"}),
        ({"kafka.ssl.truststore.location": "/a/ca.crt"}, {"kafka.ssl.truststore.type": "PEM"}),
        ({"kafka.ssl.truststore.location": "/a/ca.cer"}, {"kafka.ssl.truststore.type": "PEM"}),
        ({"kafka.ssl.keystore.location": "/a/own.key"}, {"kafka.ssl.keystore.type": "PEM"}),
        ({"kafka.ssl.truststore.certificates": "x"}, {"kafka.ssl.truststore.type": "PEM"}),
        ({"kafka.ssl.keystore.certificate.chain": "x"}, {"kafka.ssl.keystore.type": "PEM"}),
        ({"kafka.ssl.keystore.location": "/a/key.p12"}, {}),
        ({"kafka.ssl.keystore.location": "/a/k.pem", "kafka.ssl.keystore.type": "JKS"}, {}),
    ],
)
def test_java_is_told_of_pem(options, types):
    assert for_java_client(options) == {**options, **types}


@pytest.mark.parametrize(
    ("name", "typed", "of_java"),
    [
        ("security.protocol", "sasl_ssl", "SASL_SSL"),
        ("sasl.mechanism", " scram-sha-512 ", "SCRAM-SHA-512"),
        ("ssl.truststore.type", "pem", "PEM"),
        ("ssl.keystore.type", "jks", "JKS"),
        ("ssl.endpoint.identification.algorithm", "none", ""),
        ("ssl.endpoint.identification.algorithm", "HTTPS", "https"),
        ("ssl.protocol", "tlsv1.3", "TLSv1.3"),
        ("sasl.mechanism", "${env:mechanism}", "${env:mechanism}"),
        ("ssl.truststore.location", "/pem/none", "/pem/none"),
        (
            "sasl.login.callback.handler.class",
            "kafkashaded.org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
            "kafkashaded.org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
        ),
    ],
)
def test_words_are_those_that_java_compares_with(name, typed, of_java):
    assert for_java_client({f"kafka.{name}": typed})[f"kafka.{name}"] == of_java
