"""The keys of TLS and SASL against Kafka 4.3's table: types, defaults, bounds."""

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.config_def import ConfigType, Importance
from spark_kafka_sink.config.option_names import JAVA_CLASS_KEYS, KEYS_WITHOUT_EFFECT
from spark_kafka_sink.config.security_keys import SECRET_KEYS, SECURITY_CONFIG

SHORT, INT, LONG, DOUBLE = ConfigType.SHORT, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
STRING, LIST, PASSWORD = ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD
BOOLEAN, CLASS = ConfigType.BOOLEAN, ConfigType.CLASS

# What ProducerConfig.configDef() of kafka-clients 4.3.0 lists.
JAVA = {
    "security.protocol": (STRING, "PLAINTEXT"),
    "sasl.client.callback.handler.class": (CLASS, None),
    "sasl.jaas.config": (PASSWORD, None),
    "sasl.kerberos.min.time.before.relogin": (LONG, 60000),
    "sasl.kerberos.service.name": (STRING, None),
    "sasl.login.callback.handler.class": (CLASS, None),
    "sasl.login.class": (CLASS, None),
    "sasl.login.connect.timeout.ms": (INT, None),
    "sasl.login.read.timeout.ms": (INT, None),
    "sasl.login.refresh.buffer.seconds": (SHORT, 300),
    "sasl.login.refresh.min.period.seconds": (SHORT, 60),
    "sasl.login.refresh.window.factor": (DOUBLE, 0.8),
    "sasl.login.refresh.window.jitter": (DOUBLE, 0.05),
    "sasl.login.retry.backoff.max.ms": (LONG, 10000),
    "sasl.login.retry.backoff.ms": (LONG, 100),
    "sasl.mechanism": (STRING, "GSSAPI"),
    "sasl.oauthbearer.assertion.algorithm": (STRING, "RS256"),
    "sasl.oauthbearer.assertion.claim.aud": (STRING, None),
    "sasl.oauthbearer.assertion.claim.exp.seconds": (INT, 300),
    "sasl.oauthbearer.assertion.claim.iss": (STRING, None),
    "sasl.oauthbearer.assertion.claim.jti.include": (BOOLEAN, False),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": (INT, 60),
    "sasl.oauthbearer.assertion.claim.sub": (STRING, None),
    "sasl.oauthbearer.assertion.file": (STRING, None),
    "sasl.oauthbearer.assertion.private.key.file": (STRING, None),
    "sasl.oauthbearer.assertion.private.key.passphrase": (PASSWORD, None),
    "sasl.oauthbearer.assertion.template.file": (STRING, None),
    "sasl.oauthbearer.client.credentials.client.id": (STRING, None),
    "sasl.oauthbearer.client.credentials.client.secret": (PASSWORD, None),
    "sasl.oauthbearer.header.urlencode": (BOOLEAN, False),
    "sasl.oauthbearer.jwt.retriever.class": (CLASS, "DefaultJwtRetriever"),
    "sasl.oauthbearer.jwt.validator.class": (CLASS, "DefaultJwtValidator"),
    "sasl.oauthbearer.scope": (STRING, None),
    "sasl.oauthbearer.scope.claim.name": (STRING, "scope"),
    "sasl.oauthbearer.sub.claim.name": (STRING, "sub"),
    "sasl.oauthbearer.token.endpoint.url": (STRING, None),
    "ssl.cipher.suites": (LIST, []),
    "ssl.enabled.protocols": (LIST, ["TLSv1.2", "TLSv1.3"]),
    "ssl.endpoint.identification.algorithm": (STRING, "https"),
    "ssl.engine.factory.class": (CLASS, None),
    "ssl.key.password": (PASSWORD, None),
    "ssl.keystore.certificate.chain": (PASSWORD, None),
    "ssl.keystore.key": (PASSWORD, None),
    "ssl.keystore.location": (STRING, None),
    "ssl.keystore.password": (PASSWORD, None),
    "ssl.keystore.type": (STRING, "JKS"),
    "ssl.protocol": (STRING, "TLSv1.3"),
    "ssl.truststore.certificates": (PASSWORD, None),
    "ssl.truststore.location": (STRING, None),
    "ssl.truststore.password": (PASSWORD, None),
    "ssl.truststore.type": (STRING, "JKS"),
}

# Keys of the same table that mean nothing here.
WITHOUT_EFFECT = {
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "ssl.keymanager.algorithm",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
}


@pytest.mark.parametrize("name", JAVA)
def test_types_and_defaults_are_javas_or_the_difference_is_told(name):
    config_type, default = JAVA[name]
    key = SECURITY_CONFIG.keys[name]
    assert key.type is config_type
    if key.default != default:
        assert key.java_default == default
        assert key.difference


def test_keys_that_java_does_not_have():
    assert SECURITY_CONFIG.keys.keys() - JAVA.keys() == {
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.token.provider",
    }


def test_keys_of_java_that_mean_nothing_here_are_told_or_refused():
    assert KEYS_WITHOUT_EFFECT.keys() >= WITHOUT_EFFECT
    assert "security.providers" in JAVA_CLASS_KEYS


@pytest.mark.parametrize("name", SECURITY_CONFIG.keys)
def test_the_table_itself(name):
    key = SECURITY_CONFIG.keys[name]
    assert key.doc.endswith(".")
    assert isinstance(key.importance, Importance)
    assert (key.java_default is None) == (key.difference is None)
    assert key.full_name == f"kafka.{name}"
    if key.default is not None and key.validator is not None:
        assert key.validator(key.default) is None


def test_every_password_may_come_by_reference():
    passwords = [key for key in SECURITY_CONFIG.keys.values() if key.type is PASSWORD]
    assert len(passwords) == 10
    assert all(key.takes_references for key in passwords)
    assert all(
        key.takes_references is False
        for key in SECURITY_CONFIG.keys.values()
        if key.type in (SHORT, INT, LONG, DOUBLE, BOOLEAN, LIST, CLASS)
    )


def test_which_keys_are_secret():
    assert {
        "ssl.truststore.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.password",
        "sasl.jaas.config",
        "sasl.password",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    } == SECRET_KEYS


# Lowest and highest value of each bounded number.
BOUNDS = {
    "sasl.login.refresh.window.factor": (0.5, 1.0),
    "sasl.login.refresh.window.jitter": (0.0, 0.25),
    "sasl.login.refresh.min.period.seconds": (0, 900),
    "sasl.login.refresh.buffer.seconds": (0, 3600),
    "sasl.oauthbearer.assertion.claim.exp.seconds": (0, 86400),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": (0, 3600),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_javas(name):
    key = SECURITY_CONFIG.keys[name]
    step = 0.01 if key.type is DOUBLE else 1
    lowest, highest = BOUNDS[name]
    assert key.parse(str(lowest)) == lowest
    assert key.parse(str(highest)) == highest
    for beyond in (lowest - step, highest + step):
        with pytest.raises(ConfigError, match=f"for configuration kafka.{name}: must be between"):
            key.parse(str(beyond))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("security.protocol", "sasl_ssl", "SASL_SSL"),
        ("sasl.mechanism", "scram-sha-256", "SCRAM-SHA-256"),
        ("sasl.mechanism", "Plain", "PLAIN"),
        ("ssl.truststore.type", "pkcs12", "PKCS12"),
        ("ssl.keystore.type", "pem", "PEM"),
        ("ssl.protocol", "TLS", "TLSv1.3"),
        ("ssl.protocol", "SSL", "TLSv1.3"),
        ("ssl.protocol", "tlsv1.2", "TLSv1.2"),
        ("ssl.endpoint.identification.algorithm", "HTTPS", "https"),
        ("ssl.endpoint.identification.algorithm", " ", ""),
        ("ssl.endpoint.identification.algorithm", "none", ""),
        ("ssl.endpoint.identification.algorithm", "None", ""),
        ("ssl.enabled.protocols", "TLSv1.2", ["TLSv1.2"]),
        ("ssl.enabled.protocols", "TLSv1.3,TLSv1.1,TLSv1", ["TLSv1.3", "TLSv1.1", "TLSv1"]),
        ("ssl.enabled.protocols", "TLSv1.2,SSLv3,SSLv2Hello", ["TLSv1.2", "SSLv3", "SSLv2Hello"]),
        ("ssl.enabled.protocols", "", []),
        ("sasl.oauthbearer.assertion.algorithm", "es256", "ES256"),
        ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", ["TLS_AES_128_GCM_SHA256"]),
        ("ssl.cipher.suites", "SSL_RSA_WITH_RC4_128_SHA", ["SSL_RSA_WITH_RC4_128_SHA"]),
        ("sasl.oauthbearer.token.endpoint.url", "HTTPS://idp/token", "HTTPS://idp/token"),
        ("sasl.oauthbearer.token.endpoint.url", "http://idp/token", "http://idp/token"),
        ("sasl.oauthbearer.token.endpoint.url", "file:/run/token", "file:/run/token"),
        ("sasl.oauthbearer.token.provider", "a.b:c", "a.b:c"),
        ("ssl.key.password", " secret ", Secret("secret")),
        ("ssl.key.password", "", Secret("")),
    ],
)
def test_values_in_their_usual_form(name, text, value):
    assert SECURITY_CONFIG.keys[name].parse(text) == value


OAUTH = "org.apache.kafka.common.security.oauthbearer"


@pytest.mark.parametrize("shade", ["", "kafkashaded.", "shadedmskiam."])
@pytest.mark.parametrize(
    ("name", "java_class", "value"),
    [
        (
            "sasl.login.callback.handler.class",
            f"{OAUTH}.OAuthBearerLoginCallbackHandler",
            "OAuthBearerLoginCallbackHandler",
        ),
        (
            "sasl.login.callback.handler.class",
            f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler",
            "OAuthBearerLoginCallbackHandler",
        ),
        (
            "sasl.login.callback.handler.class",
            "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
            "IAMOAuthBearerLoginCallbackHandler",
        ),
        (
            "sasl.client.callback.handler.class",
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            "IAMClientCallbackHandler",
        ),
        (
            "sasl.oauthbearer.jwt.retriever.class",
            f"{OAUTH}.JwtBearerJwtRetriever",
            "JwtBearerJwtRetriever",
        ),
        (
            "sasl.oauthbearer.jwt.validator.class",
            f"{OAUTH}.ClientJwtValidator",
            "ClientJwtValidator",
        ),
        (
            "sasl.login.class",
            "org.apache.kafka.common.security.kerberos.KerberosLogin",
            "KerberosLogin",
        ),
        (
            "ssl.engine.factory.class",
            "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
            "DefaultSslEngineFactory",
        ),
    ],
)
def test_java_classes_that_have_a_counterpart(name, java_class, value, shade):
    assert SECURITY_CONFIG.keys[name].parse(shade + java_class) == value


@pytest.mark.parametrize(
    "name", [name for name, (config_type, _) in JAVA.items() if config_type is CLASS]
)
@pytest.mark.parametrize("java_class", ["org.example.Own", f"{OAUTH}.BrokerJwtValidator"])
def test_other_java_classes_are_refused_by_name(name, java_class):
    with pytest.raises(ConfigError) as raised:
        SECURITY_CONFIG.keys[name].parse(java_class)
    assert str(raised.value).startswith(
        f"Invalid value {java_class} for configuration kafka.{name}: names a Java class, and there "
        "is no JVM here"
    )


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("security.protocol", "TLS", "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("security.protocol", "PlaintextSasl", "PLAINTEXTSASL is Hortonworks' name of SASL_PLAIN"),
        ("sasl.mechanism", "SCRAM-SHA-1", "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("ssl.truststore.type", "BCFKS", "must be one of JKS, PKCS12, PEM"),
        ("ssl.protocol", "TLSv1.1", "must be one of TLSv1.3, TLSv1.2, TLS, SSL"),
        ("ssl.enabled.protocols", "TLSv1.4", "'TLSv1.4' is not one of TLSv1.2, TLSv1.3"),
        ("ssl.enabled.protocols", "TLSv1,TLSv1.1", "older ones are not spoken"),
        ("ssl.cipher.suites", "ECDHE-RSA-AES256-GCM-SHA384", "is not one of IANA's names"),
        ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256:TLS_A", "is not one of IANA's names"),
        ("ssl.endpoint.identification.algorithm", "LDAPS", "must be one of https"),
        ("ssl.truststore.location", "", "must not be empty"),
        ("sasl.username", " ", "must not be empty"),
        ("sasl.login.refresh.window.factor", "0,8", "not a double"),
        ("sasl.login.refresh.window.factor", "NaN", "not a double"),
        ("sasl.login.refresh.buffer.seconds", "40000", "must be between -32768 and 32767"),
        ("sasl.login.connect.timeout.ms", "0", "must be at least 1"),
        ("sasl.oauthbearer.token.endpoint.url", "idp/token", "must begin with https://, http://"),
        ("sasl.oauthbearer.token.provider", "module", "must be package.module:callable"),
        ("sasl.oauthbearer.token.provider", "module:", "must be package.module:callable"),
        ("sasl.oauthbearer.token.provider", ":callable", "must be package.module:callable"),
        ("sasl.login.retry.backoff.ms", "${env:MS}", "not a long"),
    ],
)
def test_values_that_are_refused(name, text, problem):
    with pytest.raises(ConfigError) as raised:
        SECURITY_CONFIG.keys[name].parse(text)
    message = str(raised.value)
    shown = "[hidden]" if name == "sasl.oauthbearer.token.endpoint.url" else text
    assert message.startswith(f"Invalid value {shown} for configuration kafka.{name}: ")
    assert problem in message
