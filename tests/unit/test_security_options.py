"""The keys of TLS and SASL against Kafka 4.3's table: types, defaults, bounds."""

import pickle

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.config_def import ConfigType, Importance
from spark_kafka_sink.config.option_names import (
    JAVA_CLASS_KEYS,
    KEYS_WITHOUT_EFFECT,
    LIBRDKAFKA_KEYS,
    rejection_reason,
)
from spark_kafka_sink.config.security_config import SecurityConfig, SslConfig, StoreConfig
from spark_kafka_sink.config.security_keys import SECRET_KEYS, SECURITY_CONFIG
from spark_kafka_sink.config.sink_options import SinkOptions

OAUTH = "org.apache.kafka.common.security.oauthbearer"
IAM = "software.amazon.msk.auth.iam"
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


@pytest.mark.parametrize("shade", ["", "kafkashaded.", "shadedmskiam."])
@pytest.mark.parametrize(
    ("name", "java_class"),
    [
        ("sasl.login.callback.handler.class", f"{OAUTH}.OAuthBearerLoginCallbackHandler"),
        ("sasl.login.callback.handler.class", f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler"),
        ("sasl.login.callback.handler.class", f"{IAM}.IAMOAuthBearerLoginCallbackHandler"),
        ("sasl.client.callback.handler.class", f"{IAM}.IAMClientCallbackHandler"),
        ("sasl.oauthbearer.jwt.retriever.class", f"{OAUTH}.JwtBearerJwtRetriever"),
        ("sasl.oauthbearer.jwt.validator.class", f"{OAUTH}.ClientJwtValidator"),
        ("sasl.login.class", "org.apache.kafka.common.security.kerberos.KerberosLogin"),
        (
            "ssl.engine.factory.class",
            "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
        ),
    ],
)
def test_java_classes_that_have_a_counterpart(name, java_class, shade):
    assert SECURITY_CONFIG.keys[name].parse(shade + java_class) == java_class.rpartition(".")[2]


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


SERVERS = {"kafka.bootstrap.servers": "b:9092"}
TLS = {"kafka.security.protocol": "SSL"}
SASL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
USER = {"kafka.sasl.username": "alice", "kafka.sasl.password": "marked-secret"}
PEM = "-----BEGIN CERTIFICATE-----"
TRUST_FILE = {"truststore.password": "x", "truststore.location": "f"}
KEY_FILE = {"keystore.password": "x", "keystore.location": "f"}
CHAIN_AND_KEY = {"keystore.certificate.chain": PEM, "keystore.key": "x"}
LOGIN, CLIENT = (f"kafka.sasl.{side}.callback.handler.class" for side in ("login", "client"))
AWS = "kafka.sasl.mechanism=AWS_MSK_IAM"


def parse(*options):
    merged = dict(SERVERS)
    for some in options:
        merged.update(some)
    return SinkOptions.parse(merged)


def security(*options):
    return parse(*options).producer.security


def refusal(*options):
    with pytest.raises(ConfigError) as raised:
        parse(*options)
    return str(raised.value)


def test_plaintext_is_the_default():
    assert security() == SecurityConfig("PLAINTEXT", None, None)


@pytest.mark.parametrize(
    ("protocol", "has_tls", "has_sasl"),
    [
        ("PLAINTEXT", False, False),
        ("ssl", True, False),
        ("Sasl_Plaintext", False, True),
        ("SASL_SSL", True, True),
    ],
)
def test_the_protocol_says_what_there_is(protocol, has_tls, has_sasl):
    found = security({"kafka.security.protocol": protocol})
    assert found.protocol == protocol.upper()
    assert (found.ssl is not None) is has_tls
    assert (found.sasl is not None) is has_sasl


def test_tls_as_it_was_asked_for():
    found = security(
        TLS,
        {
            "kafka.ssl.truststore.location": "/etc/trust.p12",
            "kafka.ssl.truststore.password": "a",
            "kafka.ssl.keystore.location": "key.jks",
            "kafka.ssl.keystore.password": "b",
            "kafka.ssl.keystore.type": "jks",
            "kafka.ssl.key.password": "c",
            "kafka.ssl.protocol": "TLSv1.2",
            "kafka.ssl.enabled.protocols": "TLSv1.2,TLSv1.1",
            "kafka.ssl.cipher.suites": "TLS_A,TLS_B",
            "kafka.ssl.endpoint.identification.algorithm": "",
        },
    ).ssl
    assert found == SslConfig(
        protocol="TLSv1.2",
        enabled_protocols=("TLSv1.2",),
        cipher_suites=("TLS_A", "TLS_B"),
        checks_host_name=False,
        truststore=StoreConfig("/etc/trust.p12", Secret("a")),
        keystore=StoreConfig("key.jks", Secret("b"), "JKS", key_password=Secret("c")),
    )


def test_stores_in_the_options():
    found = security(
        TLS,
        {
            "kafka.ssl.truststore.certificates": "authority",
            "kafka.ssl.keystore.certificate.chain": "chain",
            "kafka.ssl.keystore.key": "key",
            "kafka.ssl.keystore.type": "PEM",
        },
    ).ssl
    assert found.truststore == StoreConfig(certificates="authority")
    assert found.keystore == StoreConfig(type="PEM", certificates="chain", key=Secret("key"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truststore.type": "PEM", **TRUST_FILE}, "leave kafka.ssl.truststore.password out"),
        ({"keystore.type": "PEM", **KEY_FILE}, "The password of the key is kafka.ssl.key.password"),
        ({"truststore.password": "x"}, "is specified: kafka.ssl.truststore.location is missing"),
        ({"keystore.password": "x"}, "is specified: kafka.ssl.keystore.location is missing"),
        (
            {"truststore.certificates": PEM, "truststore.type": "JKS"},
            "kafka.ssl.truststore.type is",
        ),
        ({"truststore.certificates": PEM, "truststore.location": "f"}, "leave one of them out"),
        ({"truststore.certificates": PEM, "truststore.password": "x"}, "truststore.password out"),
        ({"keystore.key": "x"}, "belong together: the chain is missing"),
        ({"keystore.certificate.chain": PEM}, "belong together: the key is missing"),
        (
            {**CHAIN_AND_KEY, "keystore.location": "f"},
            "kafka.ssl.keystore.key are given: leave one",
        ),
        ({"keystore.location": "f", "keystore.type": "pkcs12"}, "PKCS12 needs kafka.ssl.keystore."),
        ({"keystore.location": "f", "keystore.type": "jks"}, "type=JKS needs kafka.ssl.keystore."),
        ({"protocol": "TLSv1.2", "enabled.protocols": "TLSv1.3"}, "TLSv1.3: no version of TLS is"),
    ],
)
def test_stores_that_contradict_themselves(options, message):
    given = {f"kafka.ssl.{name}": value for name, value in options.items()}
    assert message in refusal(TLS, given)
    assert parse(given).producer.security.ssl is None, "PLAINTEXT uses none of it"


def test_a_mechanism_that_is_not_named_is_kerberos():
    sasl = security({"kafka.security.protocol": "SASL_SSL"}).sasl
    assert sasl.mechanism == "GSSAPI"


def test_sasl_as_it_was_asked_for():
    sasl = security(
        {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.jaas.config": "entry",
            "kafka.sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            "kafka.sasl.oauthbearer.client.credentials.client.id": "id",
            "kafka.sasl.oauthbearer.client.credentials.client.secret": "s",
            "kafka.sasl.oauthbearer.scope": "a b",
            "kafka.sasl.oauthbearer.jwt.retriever.class": f"{OAUTH}.FileJwtRetriever",
            "kafka.sasl.oauthbearer.assertion.claim.iss": "me",
            "kafka.sasl.oauthbearer.assertion.private.key.passphrase": "p",
            "kafka.sasl.oauthbearer.token.provider": "a.b:c",
            "kafka.sasl.oauthbearer.header.urlencode": "true",
            "kafka.sasl.login.read.timeout.ms": "5000",
            "kafka.sasl.kerberos.service.name": "kafka",
            "kafka.sasl.kerberos.min.time.before.relogin": "1",
        }
    ).sasl
    assert sasl.mechanism == "OAUTHBEARER"
    assert sasl.jaas_config == Secret("entry")
    assert sasl.login.read_timeout_ms == 5000
    assert sasl.kerberos.service_name == "kafka"
    assert sasl.kerberos.min_time_before_relogin_ms == 1
    oauth = sasl.oauth
    assert (oauth.client_id, oauth.client_secret, oauth.scope) == ("id", Secret("s"), "a b")
    assert (oauth.retriever, oauth.token_provider) == ("FileJwtRetriever", "a.b:c")
    assert oauth.header_urlencode
    assert oauth.assertion.claim_iss == "me"
    assert oauth.assertion.private_key_passphrase == Secret("p")


def test_plain_options_of_our_own():
    sasl = security(SASL, USER).sasl
    assert (sasl.username, sasl.password) == ("alice", Secret("marked-secret"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.sasl.username": "u"}, "belong together: kafka.sasl.password is missing"),
        ({"kafka.sasl.password": "p"}, "belong together: kafka.sasl.username is missing"),
        (
            {**USER, "kafka.sasl.jaas.config": "x"},
            "Both kafka.sasl.jaas.config and kafka.sasl.user",
        ),
        ({**USER, "kafka.sasl.mechanism": "OAUTHBEARER"}, "but the mechanism is OAUTHBEARER"),
        ({LOGIN: f"{IAM}.IAMOAuthBearerLoginCallbackHandler"}, f"{LOGIN} is for {AWS}, but the"),
        (
            {LOGIN: f"{OAUTH}.OAuthBearerLoginCallbackHandler"},
            f"{LOGIN} is for kafka.sasl.mechanism=O",
        ),
        (
            {CLIENT: f"{IAM}.IAMClientCallbackHandler"},
            f"{CLIENT} is for {AWS}, but the mechanism is",
        ),
        ({CLIENT: f"{IAM}.IAMOAuthBearerLoginCallbackHandler"}, f"{CLIENT} is for {AWS}, but the"),
    ],
)
def test_sasl_that_contradicts_itself(options, message):
    assert message in refusal(SASL, options)


def test_a_password_without_a_mechanism():
    assert refusal({"kafka.security.protocol": "SASL_SSL"}, USER).endswith(
        "but the mechanism is GSSAPI, which is the default"
    )


@pytest.mark.parametrize("side", ["login", "client"])
def test_aws_iam_by_its_login_handler(side):
    """MSK's library offers OAUTHBEARER with a handler of its own: on the wire it is the same."""
    handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    options = {f"kafka.sasl.{side}.callback.handler.class": handler}
    sasl = security(SASL, options, {"kafka.sasl.mechanism": "OAUTHBEARER"}).sasl
    assert sasl.mechanism == "AWS_MSK_IAM"


def test_sasl_without_a_protocol_for_it_is_told():
    """The usual mistake: credentials are given, and the protocol is forgotten."""
    options = {"kafka.sasl.mechanism": "PLAIN", **USER, "kafka.ssl.truststore.location": "f"}
    assert parse(options).notes == (
        "options kafka.sasl.mechanism, kafka.sasl.password, kafka.sasl.username have no effect "
        "with kafka.security.protocol=PLAINTEXT, which does not authenticate by SASL: set "
        "kafka.security.protocol to SASL_SSL or SASL_PLAINTEXT",
        "option kafka.ssl.truststore.location has no effect with kafka.security.protocol="
        "PLAINTEXT, which does not encrypt: set kafka.security.protocol to SASL_SSL",
    )


@pytest.mark.parametrize(
    ("protocol", "name", "note"),
    [
        (
            "PLAINTEXT",
            "ssl.protocol",
            "option kafka.ssl.protocol has no effect with kafka.security.protocol=PLAINTEXT, which "
            "does not encrypt: set kafka.security.protocol to SSL",
        ),
        (
            "SSL",
            "sasl.login.retry.backoff.ms",
            "option kafka.sasl.login.retry.backoff.ms has no effect with kafka.security.protocol="
            "SSL, which does not authenticate by SASL: set kafka.security.protocol to SASL_SSL or "
            "SASL_PLAINTEXT",
        ),
    ],
)
def test_what_the_protocol_does_not_use_is_told(protocol, name, note):
    value = "TLSv1.2" if name == "ssl.protocol" else "1"
    options = {"kafka.security.protocol": protocol, f"kafka.{name}": value}
    assert parse(options).notes == (note,)


def test_what_is_used_is_not_told():
    used = {**SASL, **USER, "kafka.ssl.truststore.location": "f"}
    assert parse(used).notes == ()


def test_doubtful_options_are_told():
    assert parse(TLS, {"kafka.ssl.endpoint.identification.algorithm": "None"}).notes == (
        "kafka.ssl.endpoint.identification.algorithm=none is librdkafka's way to write it, taken as "
        "empty: brokers' host names are not checked",
    )
    assert parse(TLS, {"kafka.ssl.enabled.protocols": "TLSv1.2,TLSv1.1,TLSv1"}).notes == (
        "kafka.ssl.enabled.protocols: TLSv1.1, TLSv1 has no effect: only TLSv1.2 and TLSv1.3 are "
        "spoken",
    )


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.ssl.protocol": "TLSv1.3", "kafka.ssl.enabled.protocols": "TLSv1.3"},
        {"kafka.ssl.keystore.type": "PKCS12"},
        {"kafka.ssl.keystore.type": "JKS", "kafka.ssl.keystore.location": "${env:A}", "kafka.ssl.keystore.password": "x"},
    ],
)  # fmt: skip
def test_what_contradicts_nothing_is_accepted(options):
    assert parse(TLS, options).notes == ()


def test_doubtful_options_without_an_effect_are_told_once():
    names = "kafka.ssl.enabled.protocols", "kafka.ssl.endpoint.identification.algorithm"
    (note,) = parse(dict(zip(names, ("TLSv1,TLSv1.2", " none ")))).notes
    assert note.startswith(f"options {', '.join(names)} have no effect ")
    assert len(parse(TLS, {names[1]: " none "}).notes) == 1


_TOKENS = {"kafka.sasl.oauthbearer.token.endpoint.url": "https://idp.example/token"}


@pytest.mark.parametrize(
    ("mechanism", "options", "crossing"),
    [
        ("PLAIN", USER, "password"),
        ("OAUTHBEARER", _TOKENS, "token"),
        ("AWS_MSK_IAM", {}, "token"),
        ("SCRAM-SHA-512", USER, None),
    ],
)
def test_what_crosses_the_network_in_clear_is_told(mechanism, options, crossing):
    given = {"kafka.sasl.mechanism": mechanism, "kafka.security.protocol": "SASL_PLAINTEXT"}
    note = (
        f"kafka.sasl.mechanism={mechanism} with kafka.security.protocol=SASL_PLAINTEXT: the "
        f"{crossing} crosses the network unencrypted. SASL_SSL encrypts it"
    )
    assert parse(SASL, options, given).notes == (() if crossing is None else (note,))
    assert not any(
        "crosses" in n
        for n in parse(SASL, options, {**given, "kafka.security.protocol": "SASL_SSL"}).notes
    )


@pytest.mark.parametrize("name", LIBRDKAFKA_KEYS)
def test_librdkafkas_names_are_answered_with_javas(name):
    assert refusal({f"kafka.{name}": "marked-secret"}) == (
        f"Kafka option 'kafka.{name}' is librdkafka's, and this sink has the options of Kafka's "
        f"Java client. Instead: {LIBRDKAFKA_KEYS[name]}."
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("kafka.ssl.trustore.location", "kafka.ssl.truststore.location"),
        ("kafka.sasl.jaas.conf", "kafka.sasl.jaas.config"),
        ("kafka.sasl.user", "kafka.sasl.username"),
        ("kafka.security.protocoll", "kafka.security.protocol"),
    ],
)
def test_misspelt_names_are_answered_with_the_near_one(name, near):
    assert f"Did you mean '{near}'?" in (rejection_reason(name) or "")


@pytest.mark.parametrize("name", ["security.protocol", "sasl.jaas.config", "ssl.keystore.key"])
def test_names_without_their_prefix_are_answered_with_it(name):
    assert f"Did you mean 'kafka.{name}'?" in (rejection_reason(name) or "")


def test_keys_without_effect_may_be_given():
    for name in KEYS_WITHOUT_EFFECT:
        assert rejection_reason(f"kafka.{name}") is None


def test_no_representation_and_no_pickle_shows_a_secret():
    options = parse(SASL, USER, {"kafka.ssl.truststore.location": "f"})
    for shown in (repr(options), str(options.producer), repr(options.producer.security)):
        assert "[hidden]" in shown
        assert "marked-secret" not in shown
    pickled = pickle.dumps(options)
    assert b"marked-secret" not in pickled
    assert pickle.loads(pickled) == options


@pytest.mark.parametrize(
    "value", ["${vault:marked-secret}", "${file:marked-secret}", "${env:a:marked-secret}"]
)
def test_an_error_about_a_secret_does_not_show_it(value):
    message = refusal(SASL, {"kafka.sasl.username": "u", "kafka.sasl.password": value})
    assert message.startswith("Invalid value [hidden] for configuration kafka.sasl.password: it ")
    assert "marked-secret" not in message


def test_references_travel_as_they_are():
    found = security(
        TLS,
        {
            "kafka.ssl.truststore.location": "${env:TRUST}",
            "kafka.ssl.keystore.location": "${env:HOME}/key.pem",
            "kafka.ssl.key.password": "${file:/run/secrets/kafka.properties:key.password}",
        },
    ).ssl
    assert found.truststore.location == "${env:TRUST}"
    assert found.keystore.location == "${env:HOME}/key.pem"
    assert found.keystore.key_password == Secret(
        "${file:/run/secrets/kafka.properties:key.password}"
    )
