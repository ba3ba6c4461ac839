"""docs/security.md: recipes, what other clients write, and what Spark shows."""

import ast
import pickle
from importlib.util import find_spec

import pytest

from spark_kafka_sink.base.errors import ConfigError, sentence
from spark_kafka_sink.config.config_def import parse_properties
from spark_kafka_sink.config.security_config import (
    DEFAULT_REGEX,
    SUGGESTED_REGEX,
    clear_secrets,
    for_java_client,
    secrets_shown_by_spark,
    warning_about_shown_secrets,
)
from spark_kafka_sink.config.security_keys import MECHANISMS, SECRET_KEYS
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.security.aws import aws_user
from spark_kafka_sink.security.credentials import unresolved_jaas_entry
from spark_kafka_sink.security.references import find_file
from spark_kafka_sink.security.security import check
from tests.snippets import REPOSITORY, blocks
from tests.tables import each_row

DOCUMENT = "docs/security.md"
TEXT = (REPOSITORY / DOCUMENT).read_text(encoding="utf-8")

RECIPES = [
    *blocks("README.md", "properties"),
    *(block for block in blocks(DOCUMENT, "properties") if "bootstrap" in block.text),
]


PACKAGES = {"GSSAPI": "gssapi", "AWS_MSK_IAM": "aws_msk_iam_sasl_signer"}
SERVERS = {"kafka.bootstrap.servers": "b:9093"}


def options_of(block):
    return {name: value for name, value, _ in parse_properties(block.text, block.name)}


@each_row("block", RECIPES, ids=lambda block: block.name)
def test_recipes_are_taken(block):
    given = options_of(block)
    options = SinkOptions.parse({**SERVERS, **given})
    assert options.notes == ()
    assert clear_secrets(given) == []
    sasl = options.producer.security.sasl
    if sasl is None:
        assert options.producer.security.protocol == "SSL"
        return
    package = PACKAGES.get(sasl.mechanism)
    if package is None or find_spec(package) is not None:
        check(sasl)
    else:
        with pytest.raises(ConfigError, match=f"needs the Python package {package}"):
            check(sasl)


def test_there_is_a_recipe_for_each_mechanism_and_token_provider():
    given = [options_of(block) for block in RECIPES]
    securities = [SinkOptions.parse({**SERVERS, **options}).producer.security for options in given]
    mechanisms = {security.sasl.mechanism for security in securities if security.sasl is not None}
    assert mechanisms == set(MECHANISMS)
    assert len(RECIPES) >= 15
    named = [options.get("kafka.sasl.oauthbearer.token.provider", "") for options in given]
    for block in blocks(DOCUMENT, "py"):
        nodes = ast.walk(ast.parse(block.text))
        functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
        assert any(f"tokens:{name}" in named for name in functions), block.name


def test_the_expressions_are_those_of_the_code():
    assert f"`{DEFAULT_REGEX}`" in TEXT
    assert f"spark.redaction.regex = {SUGGESTED_REGEX}\n" in TEXT
    conf = (REPOSITORY / "conf" / "secured.conf").read_text(encoding="utf-8")
    assert f" {SUGGESTED_REGEX}\n" in conf


JAAS, MECHANISM = "kafka.sasl.jaas.config", "kafka.sasl.mechanism"
MODULES = "org.apache.kafka.common.security"
OAUTH_MODULE = f"{MODULES}.oauthbearer.OAuthBearerLoginModule"
PLAIN_MODULE, SCRAM_MODULE = (
    f"{MODULES}.plain.PlainLoginModule",
    f"{MODULES}.scram.ScramLoginModule",
)
IAM = "software.amazon.msk.auth.iam"
IAM_HANDLER = f"{IAM}.IAMOAuthBearerLoginCallbackHandler"
LOGIN_HANDLER = "kafka.sasl.login.callback.handler.class"
CLIENT_HANDLER = "kafka.sasl.client.callback.handler.class"
OAUTH = {MECHANISM: "OAUTHBEARER"}
URL = {"kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token"}
WHERE_RECIPES_ARE = "docs/security.md (pykafka-sink docs security)"


def sasl_of(options):
    given = {**SERVERS, "kafka.security.protocol": "SASL_SSL", **options}
    return SinkOptions.parse(given).producer.security.sasl


def refusal(options):
    with pytest.raises(ConfigError) as raised:
        check(sasl_of(options))
    assert "S3CRET" not in str(raised.value)
    return sentence(raised.value)


def iam(options):
    handler = {CLIENT_HANDLER: f"{IAM}.IAMClientCallbackHandler"}
    return {MECHANISM: "AWS_MSK_IAM", JAAS: f"{IAM}.IAMLoginModule required {options};", **handler}


def test_event_hubs_with_microsoft_entra_as_databricks_has_it():
    jaas = (
        f'kafkashaded.{OAUTH_MODULE} required clientId="id" clientSecret="S3CRET" '
        'scope="https://demo.servicebus.windows.net/.default" ssl.protocol="SSL";'
    )
    handler = f"kafkashaded.{MODULES}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    check(sasl_of({**OAUTH, **URL, JAAS: jaas, LOGIN_HANDLER: handler}))


def test_msk_by_oauthbearer_as_amazon_has_it():
    handlers = dict.fromkeys((LOGIN_HANDLER, CLIENT_HANDLER), IAM_HANDLER)
    sasl = sasl_of({**OAUTH, JAAS: f"{OAUTH_MODULE} required;", **handlers})
    assert sasl.mechanism == "AWS_MSK_IAM"
    assert unresolved_jaas_entry(sasl) is not None
    # As in Java's library, which asks STS for a role, a region for it means nothing without one.
    entry = unresolved_jaas_entry(sasl_of(iam('awsProfileName="dev" awsStsRegion="eu-west-1"')))
    assert aws_user(entry.options).profile == "dev"


@pytest.mark.parametrize(
    "name",
    [
        *("awsStsRegion", "awsRoleExternalId", "awsRoleAccessKeyId", "awsRoleSecretAccessKey"),
        "awsRoleSessionToken",
    ],
)
def test_what_the_signer_has_nothing_for_is_named(name):
    message = refusal(iam(f'awsRoleArn="arn:aws:iam::1:role/x" {name}="S3CRET"'))
    assert message.startswith(f"kafka.sasl.jaas.config has '{name}', which AWS's signer for Python")
    assert "put it, with the role, into a profile of ~/.aws/config" in message


@pytest.mark.parametrize("url", [{}, URL])
@pytest.mark.parametrize(
    "options",
    [
        'oauth.client.id="id" oauth.client.secret="S3CRET"',
        'oauth.token.endpoint.uri="https://idp/token" oauth.scope="kafka"',
        'clientId="id" clientSecret="S3CRET" oauth.ssl.truststore.location="/ca.pem"',
    ],
)
def test_options_of_strimzis_login_handler_are_refused(options, url):
    assert refusal({**OAUTH, JAAS: f"{OAUTH_MODULE} required {options};", **url}) == (
        "kafka.sasl.jaas.config has options that begin with 'oauth.': they belong to Strimzi's "
        f"Java classes, and the sink does not read them. {WHERE_RECIPES_ARE} has a table of what to "
        "write instead"
    )


@pytest.mark.parametrize(
    "java_class",
    [
        "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
        "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
        "com.example.CustomAuthenticateCallbackHandler",
    ],
)
def test_other_login_handlers_are_refused_with_where_the_recipes_are(java_class):
    message = refusal({**OAUTH, LOGIN_HANDLER: java_class})
    before, _, instead = message.partition(" Instead: ")
    assert before == (
        f"Invalid value {java_class} for configuration {LOGIN_HANDLER}: names a Java class, and "
        "there is no JVM here."
    )
    assert WHERE_RECIPES_ARE in instead.partition(". Taken by name: ")[0]


STRIMZIS_PROVIDER = {
    "kafka.config.providers": "secrets",
    "kafka.config.providers.secrets.class": "io.strimzi.kafka.KubernetesSecretConfigProvider",
}
USER = 'username="a" password="S3CRET"'
FORGOTTEN = "but kafka.sasl.mechanism is GSSAPI, the default: set kafka.sasl.mechanism="
OF_PLAIN = f"^{JAAS}: the login module {PLAIN_MODULE} is that of PLAIN, {FORGOTTEN}PLAIN$"
OF_SCRAM = f"SCRAM-SHA-256 and SCRAM-SHA-512, {FORGOTTEN}SCRAM-SHA-256 or SCRAM-SHA-512$"
OAUTH_HANDLER = f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
ENTRY = {MECHANISM: "PLAIN", JAAS: f"KafkaClient {{ {PLAIN_MODULE} required {USER}; }};"}
ALICE = {MECHANISM: "PLAIN", "kafka.sasl.username": "a"}
BY_REFERENCE = "a text that holds ${ itself must be given by reference$"


@each_row(
    ("options", "told"),
    [
        (iam('awsS3CRET="x"'), f"^{JAAS} has an option that begins with 'aws', which"),
        (STRIMZIS_PROVIDER, f"${{dir:/path:file}}; {WHERE_RECIPES_ARE}"),
        ({"databricks.serviceCredential": "msk"}, "^option 'databricks.servicecredential' is one"),
        ({"databricks.serviceCredential.scope": "msk"}, WHERE_RECIPES_ARE),
        ({"kafka.security.protocol": "PLAINTEXTSASL"}, "name of SASL_PLAINTEXT: write that$"),
        ({JAAS: f"{PLAIN_MODULE} required {USER};"}, OF_PLAIN),
        ({JAAS: f"{SCRAM_MODULE} required {USER};"}, OF_SCRAM),
        ({LOGIN_HANDLER: OAUTH_HANDLER}, "the mechanism is GSSAPI, which is the default$"),
        (ENTRY, "leave out KafkaClient { before the login module, and }; at the end$"),
        ({**ALICE, "kafka.sasl.password": "pa${b:S3CRET}"}, BY_REFERENCE),
        ({**ALICE, "kafka.sasl.password": "${vault:kv/S3CRET:password}"}, BY_REFERENCE),
    ],
)
def test_what_others_write_is_answered(options, told):
    assert told in f"^{refusal(options)}$"


def test_a_file_of_databricks_is_answered_with_its_path():
    with pytest.raises(
        ConfigError, match="on Databricks write /dbfs/FileStore/t.jks, or a path in"
    ):
        find_file("dbfs:/FileStore/t.jks", "kafka.ssl.truststore.location")


@pytest.mark.parametrize("name", ["interceptor.classes", "metric.reporters", "security.providers"])
def test_an_empty_list_counts_as_not_given(name):
    """As templates leave it."""
    for text in ("", " ", ","):
        assert SinkOptions.parse({**SERVERS, f"kafka.{name}": text}).notes == ()


@pytest.mark.parametrize(
    "name",
    [
        *("kafka.sasl.login.class", "kafka.ssl.engine.factory.class", "kafka.partitioner.class"),
        *(LOGIN_HANDLER, CLIENT_HANDLER),
    ],
)
def test_an_empty_class_is_refused_as_that(name):
    """In Java, too."""
    with pytest.raises(ConfigError, match=f"{name}.* is empty: leave it out "):
        SinkOptions.parse({**SERVERS, name: " "})


PROVIDER = f"{MODULES.removesuffix('.security')}.config.provider"

JAVAS_PROVIDERS = {
    "kafka.config.providers": "env,file,dir",
    "kafka.config.providers.env.class": f"{PROVIDER}.EnvVarConfigProvider",
    "kafka.config.providers.file.class": f"{PROVIDER}.FileConfigProvider",
    "kafka.config.providers.dir.class": f"{PROVIDER}.DirectoryConfigProvider",
}


OWN_PROVIDER = {
    "kafka.config.providers": "env",
    "kafka.config.providers.env.class": f"{PROVIDER}.EnvVarConfigProvider",
}
BY_ENV = {"kafka.ssl.truststore.location": "${env:TRUST}"}
TRUST, KEY = "kafka.ssl.truststore", "kafka.ssl.keystore"
PEM_TRUST, PEM_KEY = {f"{TRUST}.type": "PEM"}, {f"{KEY}.type": "PEM"}


@each_row(
    ("options", "more"),
    [
        ({}, {}),
        # References get Java's providers.
        (BY_ENV, JAVAS_PROVIDERS),
        ({**BY_ENV, **OWN_PROVIDER}, {}),
        # PEM is told.
        ({f"{TRUST}.location": "/a/ca.PEM"}, PEM_TRUST),
        ({f"{TRUST}.location": "/a/ca.crt"}, PEM_TRUST),
        ({f"{TRUST}.location": "/a/ca.cer"}, PEM_TRUST),
        ({f"{KEY}.location": "/a/own.key"}, PEM_KEY),
        ({f"{TRUST}.certificates": "x"}, PEM_TRUST),
        ({f"{KEY}.certificate.chain": "x"}, PEM_KEY),
        ({f"{KEY}.location": "/a/key.p12"}, {}),
        ({f"{KEY}.location": "/a/k.pem", f"{KEY}.type": "JKS"}, {}),
    ],
)
def test_what_java_is_told_beside_the_options(options, more):
    assert for_java_client(options) == {**options, **more}


def test_only_what_secures_connections_is_taken():
    others = {"topic": "t", "sasl.mechanism": "PLAIN", "kafka.linger.ms": "5"}
    provider = {"kafka.sasl.oauthbearer.token.provider": "a:b"}
    secured = {"Kafka.Security.Protocol": "SSL", "kafka.ssl.protocol": "TLSv1.2"}
    taken = {name.lower(): value for name, value in secured.items()}
    assert for_java_client({**others, **secured, **provider}) == taken


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", PLAIN_MODULE), ("scram-sha-512", SCRAM_MODULE), ("GSSAPI", None), (None, None)],
)
def test_user_and_password_become_a_jaas_text(mechanism, module):
    user = {"kafka.sasl.username": 'a"b', "kafka.sasl.password": "c\\d"}
    given = {} if mechanism is None else {MECHANISM: mechanism}
    jaas = {JAAS: f'{module} required username="a\\"b" password="c\\\\d";'} if module else {}
    of_java = {name: text.upper() for name, text in given.items()}
    found = for_java_client({**given, **user})
    assert found == {**of_java, **jaas}
    for name, value in user.items():
        assert JAAS not in for_java_client({**given, name: value}), "half of it"


SHADED = f"kafkashaded.{OAUTH_HANDLER}"


@each_row(
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
        ("sasl.login.callback.handler.class", SHADED, SHADED),
    ],
)
def test_words_are_those_that_java_compares_with(name, typed, of_java):
    assert for_java_client({f"kafka.{name}": typed})[f"kafka.{name}"] == of_java


PLAIN = f"{PLAIN_MODULE} required"
SECRETS = {f"kafka.{name}": "marked-hush" for name in SECRET_KEYS}

URLS = (
    "metrics.otlp.endpoint",
    "metrics.prometheus.push.url",
    "schema.registry.url",
    "schema.registry.bearer.auth.issuer.endpoint.url",
    "kafka.sasl.oauthbearer.token.endpoint.url",
)


WORDS = ("api_key", "token", "client_secret", "Password", "auth", "sig", "credentials")

SECRETS[JAAS] = f'{PLAIN} username="u" password="marked-hush";'


@each_row(
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
        *((name, "https://user:@x@h:1", True) for name in URLS),
        *((name, "https://@x@h:1", True) for name in URLS),
        *((name, "https://h:1/?a=b&API_Key=x", True) for name in URLS),
        *(("metrics.otlp.endpoint", f"https://h:1/?a=b&{word}=x", True) for word in WORDS),
        *((name, "https://h:1/path", False) for name in URLS),
        ("metrics.path", "abfss://container@account.dfs.core.windows.net/lines", False),
        *((name, "https://h:1/path?tenant=x", False) for name in URLS),
        *((name, "https://u:${env:P}@h:1/path", False) for name in URLS),
        # A reference beside a secret hides nothing: its value may be empty.
        ("kafka.sasl.password", "x${env:EMPTY}", True),
        ("kafka.sasl.password", "${env:A}${env:B}", False),
        (
            "kafka.ssl.keystore.key",
            "-----BEGIN PRIVATE KEY----- ${env:K} -----END PRIVATE KEY-----",
            False,
        ),
        ("metrics.otlp.headers", "Authorization=Bearer%20x,tenant=${env:T}", True),
        ("metrics.otlp.headers", "Authorization=x${env:EMPTY}", True),
        ("metrics.otlp.headers", "Authorization=Bearer x${env:EMPTY}", True),
        ("metrics.otlp.headers", "Authorization=Bearer%20${env:T}", False),
        ("metrics.otlp.headers", "a=${env:A}, Authorization = Basic ${env:T}", False),
        ("schema.registry.basic.auth.user.info", "user:x${env:EMPTY}", True),
        ("schema.registry.basic.auth.user.info", "user:${env:P}", False),
        ("schema.registry.bearer.auth.token", "x${env:EMPTY}", True),
        *((name, "https://u:x${env:EMPTY}@h:1", True) for name in URLS),
        *((name, "https://u:x@h:1/?tenant=${env:T}", True) for name in URLS),
        *((name, "https://h:1/?api_key=x${env:EMPTY}", True) for name in URLS),
        *((name, "https://h:1/?api_key=${env:K}", False) for name in URLS),
        *((name, "https://h1:1,https://${env:U}:${env:P}@h2:1", False) for name in URLS),
        *((name, "https://${env:U}:${env:P}@h1:1,https://u:x@h2:1", True) for name in URLS),
        (JAAS, f'{PLAIN} password="x";', True),
        (JAAS, f"{PLAIN} password=x;", True),
        (JAAS, f"{PLAIN} Password = 'x';", True),
        (JAAS, 'x.Y required key.passphrase="x";', True),
        (JAAS, f'{PLAIN} password="${{env:P}}";', False),
        (JAAS, f'{PLAIN} password="a${{env:P}}";', True),
        (JAAS, 'x.Y required clientId="${env:A}" clientSecret="x";', True),
        (JAAS, "${file:/run/a:jaas}", False),
        (JAAS, 'Krb5LoginModule required keyTab="/etc/key.tab";', False),
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
    assert secrets_shown_by_spark({"Kafka.SSL.Keystore.Key": "x"}) == ["kafka.ssl.keystore.key"]
    assert secrets_shown_by_spark(SECRETS, SUGGESTED_REGEX) == []
    for url in ("https://user:x@h:1", "https://user:1/x@h", "https://h/?api_key=x"):
        assert len(secrets_shown_by_spark(dict.fromkeys(URLS, url))) == 4
        assert secrets_shown_by_spark(dict.fromkeys(URLS, url), SUGGESTED_REGEX) == []
    # Another expression may hide less.
    assert len(secrets_shown_by_spark(SECRETS, "(?i)token")) == len(SECRETS)
    assert secrets_shown_by_spark(SECRETS, "spark[.]pykafka", "spark.pykafka.") == []
    assert secrets_shown_by_spark(SECRETS, "(?i)[[:broken") == secrets_shown_by_spark(SECRETS)


def test_the_warning_names_options_and_what_to_do():
    assert sentence(warning_about_shown_secrets(["a", "b"])) == (
        "a, b: a secret in clear text, which Spark shows in its UI, plans and event logs, for the "
        "default of spark.redaction.regex does not match. Write a reference, ${file:/path:key}, "
        "${env:NAME} or ${dir:/path:file}, instead; or start Spark with "
        f"spark.redaction.regex={SUGGESTED_REGEX}"
    )
    assert " for spark.redaction.regex does" in warning_about_shown_secrets(["a"], "x")
    assert DEFAULT_REGEX in SUGGESTED_REGEX


def test_the_sink_warns_of_what_spark_shows_and_shows_it_nowhere_itself():
    key = f"{KEY}.key"
    given = {**SERVERS, "kafka.security.protocol": "SSL", f"{KEY}.certificate.chain": "chain"}
    parsed = SinkOptions.parse({**given, key: "marked-hush"})
    assert parsed.notes == (warning_about_shown_secrets([key]),)
    assert "marked-hush" not in f"{parsed} {parsed.notes} {parsed.producer!r}"
    assert b"marked-hush" not in pickle.dumps(parsed)
    assert SinkOptions.parse({**given, key: "${env:KEY}"}).notes == ()
