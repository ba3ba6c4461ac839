"""The keys of TLS and SASL against Kafka 4.4's table, and options that contradict each other."""

import pickle

import pytest

from spark_kafka_sink.base.errors import ConfigError, sentence
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.config.security_keys import SECRET_KEYS, SECURITY_CONFIG
from spark_kafka_sink.config.sink_options import (
    JAVA_CLASS_KEYS,
    KEYS_WITHOUT_EFFECT,
    LIBRDKAFKA_KEYS,
    SinkOptions,
    read_command_config,
    rejection_reason,
)
from tests.tables import each_row

OAUTH = "org.apache.kafka.common.security.oauthbearer"
IAM = "software.amazon.msk.auth.iam"
SHORT, INT, LONG, DOUBLE = "short", "int", "long", "double"
STRING, LIST, PASSWORD = "string", "list", "password"
BOOLEAN, CLASS = "boolean", "class"
KEYS = SECURITY_CONFIG.keys

# What ProducerConfig.configDef() of kafka-clients 4.4.0 lists: keys without a default by their type,
# and those with one.
NO_DEFAULT = {
    CLASS: """sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        ssl.engine.factory.class""",
    INT: "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms",
    PASSWORD: """sasl.jaas.config sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.client.credentials.client.secret ssl.key.password
        ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.password
        ssl.truststore.certificates ssl.truststore.password""",
    STRING: """sasl.kerberos.service.name sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url ssl.keystore.location
        ssl.truststore.location""",
}
JAVA = {
    **{name: (kind, None) for kind, names in NO_DEFAULT.items() for name in names.split()},
    "security.protocol": (STRING, "PLAINTEXT"),
    "sasl.kerberos.min.time.before.relogin": (LONG, 60000),
    "sasl.login.refresh.buffer.seconds": (SHORT, 300),
    "sasl.login.refresh.min.period.seconds": (SHORT, 60),
    "sasl.login.refresh.window.factor": (DOUBLE, 0.8),
    "sasl.login.refresh.window.jitter": (DOUBLE, 0.05),
    "sasl.login.retry.backoff.max.ms": (LONG, 10000),
    "sasl.login.retry.backoff.ms": (LONG, 100),
    "sasl.mechanism": (STRING, "GSSAPI"),
    "sasl.oauthbearer.assertion.algorithm": (STRING, "RS256"),
    "sasl.oauthbearer.assertion.claim.exp.seconds": (INT, 300),
    "sasl.oauthbearer.assertion.claim.jti.include": (BOOLEAN, False),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": (INT, 60),
    "sasl.oauthbearer.header.urlencode": (BOOLEAN, False),
    "sasl.oauthbearer.jwt.retriever.class": (CLASS, "DefaultJwtRetriever"),
    "sasl.oauthbearer.jwt.validator.class": (CLASS, "DefaultJwtValidator"),
    "sasl.oauthbearer.scope.claim.name": (STRING, "scope"),
    "sasl.oauthbearer.sub.claim.name": (STRING, "sub"),
    "ssl.cipher.suites": (LIST, []),
    "ssl.enabled.protocols": (LIST, ["TLSv1.2", "TLSv1.3"]),
    "ssl.endpoint.identification.algorithm": (STRING, "https"),
    "ssl.keystore.type": (STRING, "JKS"),
    "ssl.protocol": (STRING, "TLSv1.3"),
    "ssl.truststore.type": (STRING, "JKS"),
}
OWN = {"sasl.username", "sasl.password", "sasl.oauthbearer.token.provider"}
# Keys of the same table that mean nothing here.
WITHOUT_EFFECT = [
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
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
]


@each_row("name", JAVA)
def test_types_and_defaults_are_javas_or_the_difference_is_told(name):
    config_type, default = JAVA[name]
    assert KEYS[name].type is config_type
    if KEYS[name].default != default:
        assert KEYS[name].java_default == default
        assert KEYS[name].difference


def test_names_are_javas_and_three_of_our_own():
    assert KEYS.keys() - JAVA.keys() == OWN
    assert KEYS_WITHOUT_EFFECT.keys() >= set(WITHOUT_EFFECT)
    assert {rejection_reason(f"kafka.{name}") for name in KEYS_WITHOUT_EFFECT} == {None}
    assert "security.providers" in JAVA_CLASS_KEYS


@pytest.mark.parametrize(
    ("name", "harmless", "restricting"),
    [
        ("ssl.provider", "SunJSSE", "BCJSSE"),
        ("ssl.trustmanager.algorithm", "PKIX", "PinnedToCompany"),
    ],
)
def test_a_part_of_a_jvm_that_may_restrict_is_not_ignored(name, harmless, restricting, tmp_path):
    given = {"kafka.bootstrap.servers": "b:9092", f"kafka.{name}": harmless}
    assert any(name in note for note in SinkOptions.parse(given).notes)
    with pytest.raises(ConfigError, match=f"kafka.{name}: it chooses a part of a JVM") as raised:
        SinkOptions.parse({**given, f"kafka.{name}": restricting})
    assert raised.value.code == "OPTION-006"
    file = tmp_path / "client.properties"
    file.write_text(f"{name}={restricting}\n")
    with pytest.raises(ConfigError, match="it chooses a part of a JVM"):
        read_command_config(str(file), "b:9092", {})


@each_row("name", KEYS)
def test_the_table_itself(name):
    key = KEYS[name]
    assert key.doc.endswith(".")
    assert key.when.endswith(".")
    assert key.java_default is None or key.difference
    assert key.full_name == f"kafka.{name}"
    if key.default is not None and key.validator is not None:
        assert key.validator(key.default) is None
    if key.type != STRING:
        assert key.takes_references == (key.type == PASSWORD), "every password, and no number"


def test_which_keys_are_secret():
    certificates = {"ssl.truststore.certificates", "ssl.keystore.certificate.chain"}
    passwords = {name for name, key in KEYS.items() if key.type == PASSWORD}
    assert passwords == {*NO_DEFAULT[PASSWORD].split(), "sasl.password"}
    assert passwords - certificates == SECRET_KEYS


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
    key = KEYS[name]
    step = 0.01 if key.type == DOUBLE else 1
    lowest, highest = BOUNDS[name]
    assert key.parse(str(lowest)) == lowest
    assert key.parse(str(highest)) == highest
    for beyond in (lowest - step, highest + step):
        with pytest.raises(ConfigError, match=f"for configuration kafka.{name}: must be between"):
            key.parse(str(beyond))


@each_row(
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
    assert KEYS[name].parse(text) == value


@each_row("shade", ["", "kafkashaded.", "shadedmskiam."])
@each_row(
    ("name", "java_class"),
    [
        ("sasl.login.callback.handler", f"{OAUTH}.OAuthBearerLoginCallbackHandler"),
        ("sasl.login.callback.handler", f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler"),
        ("sasl.login.callback.handler", f"{IAM}.IAMOAuthBearerLoginCallbackHandler"),
        ("sasl.client.callback.handler", f"{IAM}.IAMClientCallbackHandler"),
        ("sasl.oauthbearer.jwt.retriever", f"{OAUTH}.JwtBearerJwtRetriever"),
        ("sasl.oauthbearer.jwt.validator", f"{OAUTH}.ClientJwtValidator"),
        ("sasl.login", "org.apache.kafka.common.security.kerberos.KerberosLogin"),
        ("ssl.engine.factory", "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"),
    ],
)
def test_java_classes_that_have_a_counterpart(name, java_class, shade):
    assert KEYS[f"{name}.class"].parse(shade + java_class) == java_class.rpartition(".")[2]


@each_row("name", [name for name in JAVA if JAVA[name][0] is CLASS])
@each_row("java_class", ["org.example.Own", f"{OAUTH}.BrokerJwtValidator"])
def test_other_java_classes_are_refused_by_name(name, java_class):
    said = f"Invalid value {java_class} for configuration kafka.{name}: names a Java class, and"
    with pytest.raises(ConfigError, match=f"^{said} there is no JVM here"):
        KEYS[name].parse(java_class)


@each_row(
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
        ("sasl.login.refresh.window.factor", "0,8", "must be a number"),
        ("sasl.login.refresh.window.factor", "NaN", "must be a number"),
        ("sasl.login.refresh.buffer.seconds", "40000", "must be between -32768 and 32767"),
        ("sasl.login.connect.timeout.ms", "0", "must be at least 1"),
        ("sasl.oauthbearer.token.endpoint.url", "idp/token", "must begin with https://, http://"),
        ("sasl.oauthbearer.token.provider", "module", "must be package.module:callable"),
        ("sasl.oauthbearer.token.provider", "module:", "must be package.module:callable"),
        ("sasl.oauthbearer.token.provider", ":callable", "must be package.module:callable"),
        ("sasl.login.retry.backoff.ms", "${env:MS}", "must be a whole number"),
    ],
)
def test_values_that_are_refused(name, text, problem):
    with pytest.raises(ConfigError) as raised:
        KEYS[name].parse(text)
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
    return sentence(raised.value)


@pytest.mark.parametrize(
    ("protocol", "parts"),
    [
        (None, set()),
        ("PLAINTEXT", set()),
        ("ssl", {"ssl"}),
        ("Sasl_Plaintext", {"sasl"}),
        ("SASL_SSL", {"ssl", "sasl"}),
    ],
)
def test_the_protocol_says_what_there_is(protocol, parts):
    found = security({} if protocol is None else {"kafka.security.protocol": protocol})
    assert found.protocol == (protocol or "PLAINTEXT").upper()
    assert {part for part in ("ssl", "sasl") if getattr(found, part) is not None} == parts
    assert found.sasl is None or found.sasl.mechanism == "GSSAPI", "Java's default"


def of_ssl(**options):
    return {f"kafka.ssl.{name.replace('_', '.')}": value for name, value in options.items()}


def test_tls_as_it_was_asked_for():
    own = {"keystore_password": "b", "keystore_type": "jks", "key_password": "c"}
    versions = {"protocol": "TLSv1.2", "enabled_protocols": "TLSv1.2,TLSv1.1"}
    trust = {"truststore_location": "/etc/trust.p12", "truststore_password": "a"}
    rest = {"cipher_suites": "TLS_A,TLS_B", "endpoint_identification_algorithm": ""}
    found = security(TLS, of_ssl(keystore_location="key.jks", **own, **versions, **trust, **rest))
    assert found.ssl == SslConfig(
        protocol="TLSv1.2",
        enabled_protocols=("TLSv1.2",),
        cipher_suites=("TLS_A", "TLS_B"),
        checks_host_name=False,
        truststore=StoreConfig("/etc/trust.p12", Secret("a")),
        keystore=StoreConfig("key.jks", Secret("b"), "JKS", key_password=Secret("c")),
    )
    texts = {"truststore_certificates": "authority", "keystore_certificate_chain": "chain"}
    found = security(TLS, of_ssl(**texts, keystore_key="key", keystore_type="PEM")).ssl
    assert found.truststore == StoreConfig(certificates="authority")
    assert found.keystore == StoreConfig(type="PEM", certificates="chain", key=Secret("key"))
    # References travel as they are.
    trust, own, password = "${env:TRUST}", "${env:HOME}/key.pem", "${file:/run/kafka:key.password}"
    given = {"keystore_location": own, "key_password": password}
    found = security(TLS, of_ssl(truststore_location=trust, **given)).ssl
    assert (found.truststore.location, found.keystore.location) == (trust, own)
    assert found.keystore.key_password == Secret(password)


@each_row(
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


def test_sasl_as_it_was_asked_for():
    of_sasl = {
        "mechanism": "OAUTHBEARER",
        "jaas.config": "entry",
        "login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
        "login.read.timeout.ms": "5000",
        "kerberos.service.name": "kafka",
        "kerberos.min.time.before.relogin": "1",
        "oauthbearer.token.endpoint.url": "https://idp/token",
        "oauthbearer.client.credentials.client.id": "id",
        "oauthbearer.client.credentials.client.secret": "s",
        "oauthbearer.scope": "a b",
        "oauthbearer.jwt.retriever.class": f"{OAUTH}.FileJwtRetriever",
        "oauthbearer.assertion.claim.iss": "me",
        "oauthbearer.assertion.private.key.passphrase": "p",
        "oauthbearer.token.provider": "a.b:c",
        "oauthbearer.header.urlencode": "true",
    }
    sasl = security(SASL, {f"kafka.sasl.{name}": value for name, value in of_sasl.items()}).sasl
    assert (sasl.mechanism, sasl.jaas_config) == ("OAUTHBEARER", Secret("entry"))
    assert sasl.login.read_timeout_ms == 5000
    assert sasl.kerberos.service_name == "kafka"
    assert sasl.kerberos.min_time_before_relogin_ms == 1
    oauth = sasl.oauth
    assert (oauth.client_id, oauth.client_secret, oauth.scope) == ("id", Secret("s"), "a b")
    assert (oauth.retriever, oauth.token_provider) == ("FileJwtRetriever", "a.b:c")
    assert oauth.header_urlencode
    assert oauth.assertion.claim_iss == "me"
    assert oauth.assertion.private_key_passphrase == Secret("p")
    sasl = security(SASL, USER).sasl
    assert (sasl.username, sasl.password) == ("alice", Secret("marked-secret"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.sasl.username": "u"}, "belong together: kafka.sasl.password is missing"),
        ({"kafka.sasl.password": "p"}, "belong together: kafka.sasl.username is missing"),
        ({**USER, "kafka.sasl.jaas.config": "x"}, "Both kafka.sasl.jaas.config and kafka.sasl.u"),
        ({**USER, "kafka.sasl.mechanism": "OAUTHBEARER"}, "but the mechanism is OAUTHBEARER"),
        ({**USER, "kafka.sasl.mechanism": "GSSAPI"}, "but the mechanism is GSSAPI"),
        ({LOGIN: f"{IAM}.IAMOAuthBearerLoginCallbackHandler"}, f"{LOGIN} is for {AWS}, but the"),
        ({LOGIN: f"{OAUTH}.OAuthBearerLoginCallbackHandler"}, f"{LOGIN} is for kafka.sasl.mechanis"),
        ({CLIENT: f"{IAM}.IAMClientCallbackHandler"}, f"{CLIENT} is for {AWS}, but the mechanism"),
        ({CLIENT: f"{IAM}.IAMOAuthBearerLoginCallbackHandler"}, f"{CLIENT} is for {AWS}, but the"),
    ],
)  # fmt: skip
def test_sasl_that_contradicts_itself(options, message):
    assert message in refusal(SASL, options)


def test_a_mechanism_that_was_not_given_is_said_to_be_the_default():
    protocol = {"kafka.security.protocol": "SASL_SSL"}
    assert refusal(protocol, USER).endswith("mechanism is GSSAPI, which is the default")


@pytest.mark.parametrize("handler", [LOGIN, CLIENT])
def test_aws_iam_by_its_handler(handler):
    """MSK's library offers OAUTHBEARER with a handler of its own: on the wire it is the same."""
    options = {handler: f"{IAM}.IAMOAuthBearerLoginCallbackHandler"}
    sasl = security(SASL, options, {"kafka.sasl.mechanism": "OAUTHBEARER"}).sasl
    assert sasl.mechanism == "AWS_MSK_IAM"


NO_TLS = "which does not encrypt: set kafka.security.protocol to"
NO_SASL = (
    "which does not authenticate by SASL: set kafka.security.protocol to SASL_SSL or SASL_PLAINTEXT"
)
ANY_PASSES = "so any certificate of a trusted authority passes for a broker's"
NAMES, VERSIONS = "kafka.ssl.endpoint.identification.algorithm", "kafka.ssl.enabled.protocols"
OWN_STORE = of_ssl(keystore_type="JKS", keystore_location="${env:A}", keystore_password="x")
FORGOTTEN = {"kafka.sasl.mechanism": "PLAIN", **USER, "kafka.ssl.truststore.location": "f"}
"""The usual mistake: credentials are given, and the protocol is forgotten."""


def unused(options, protocol, why):
    return f"{options} no effect with kafka.security.protocol={protocol}, {why}"


@each_row(
    ("options", "notes"),
    [
        ({**SASL, **USER, "kafka.ssl.truststore.location": "f"}, []),
        ({**TLS, "kafka.ssl.protocol": "TLSv1.3", VERSIONS: "TLSv1.3"}, []),
        ({**TLS, "kafka.ssl.keystore.type": "PKCS12"}, []),
        ({**TLS, **OWN_STORE}, []),
        (
            FORGOTTEN,
            [
                unused(f"options {', '.join(sorted(FORGOTTEN)[:3])} have", "PLAINTEXT", NO_SASL),
                unused(
                    "option kafka.ssl.truststore.location has", "PLAINTEXT", f"{NO_TLS} SASL_SSL"
                ),
            ],
        ),
        (
            {"kafka.security.protocol": "PLAINTEXT", "kafka.ssl.protocol": "TLSv1.2"},
            [unused("option kafka.ssl.protocol has", "PLAINTEXT", f"{NO_TLS} SSL")],
        ),
        (
            {**TLS, "kafka.sasl.login.retry.backoff.ms": "1"},
            [unused("option kafka.sasl.login.retry.backoff.ms has", "SSL", NO_SASL)],
        ),
        (
            {**TLS, NAMES: "None"},
            [
                f"{NAMES}=none is librdkafka's way to write it, taken as empty: brokers' host names "
                f"are not checked, {ANY_PASSES}"
            ],
        ),
        (
            {**TLS, NAMES: " "},
            [f"{NAMES} is empty: brokers' host names are not checked, {ANY_PASSES}"],
        ),
        (
            {**TLS, VERSIONS: "TLSv1.2,TLSv1.1,TLSv1"},
            [f"{VERSIONS}: TLSv1.1, TLSv1 has no effect: only TLSv1.2 and TLSv1.3 are spoken"],
        ),
        (
            # What is doubtful and has no effect is told once.
            {VERSIONS: "TLSv1,TLSv1.2", NAMES: " none "},
            [unused(f"options {VERSIONS}, {NAMES} have", "PLAINTEXT", f"{NO_TLS} SSL")],
        ),
    ],
)
def test_what_is_doubtful_or_not_used_is_told(options, notes):
    assert [sentence(note) for note in parse(options).notes] == notes


@pytest.mark.parametrize(
    ("mechanism", "options", "crossing"),
    [
        ("PLAIN", USER, "password"),
        ("OAUTHBEARER", {"kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token"}, "token"),
        ("AWS_MSK_IAM", {}, "token"),
        ("SCRAM-SHA-512", USER, None),
    ],
)  # fmt: skip
def test_what_crosses_the_network_in_clear_is_told(mechanism, options, crossing):
    given = {**SASL, **options, "kafka.sasl.mechanism": mechanism}
    note = (
        f"kafka.sasl.mechanism={mechanism} with kafka.security.protocol=SASL_PLAINTEXT: the "
        f"{crossing} crosses the network unencrypted. SASL_SSL encrypts it"
    )
    notes = parse(given, {"kafka.security.protocol": "SASL_PLAINTEXT"}).notes
    assert notes == (() if crossing is None else (f"{note} [PKS-AUTH-002]",))
    assert not any("crosses" in note for note in parse(given).notes)


@each_row("name", LIBRDKAFKA_KEYS)
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
        ("security.protocol", "kafka.security.protocol"),
        ("sasl.jaas.config", "kafka.sasl.jaas.config"),
        ("ssl.keystore.key", "kafka.ssl.keystore.key"),
    ],
)
def test_misspelt_names_are_answered_with_the_near_one(name, near):
    assert f"Did you mean '{near}'?" in (rejection_reason(name) or "")


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
