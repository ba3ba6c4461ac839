"""docs/security.md: every recipe is a set of options that the sink takes without a word."""

import ast
import re
from importlib.util import find_spec

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import parse_properties
from spark_kafka_sink.config.security_config import (
    DEFAULT_REGEX,
    SUGGESTED_REGEX,
    clear_secrets,
    for_java_client,
)
from spark_kafka_sink.config.security_keys import MECHANISMS
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.security.aws import aws_user
from spark_kafka_sink.security.credentials import unresolved_jaas_entry
from spark_kafka_sink.security.login import check
from spark_kafka_sink.security.references import find_file
from tests.snippets import REPOSITORY, blocks

DOCUMENT = "docs/security.md"
TEXT = (REPOSITORY / DOCUMENT).read_text(encoding="utf-8")
RECIPES = [
    *blocks("README.md", "properties"),
    *(block for block in blocks(DOCUMENT, "properties") if "bootstrap" in block.text),
]
TOKEN_PROVIDERS = blocks(DOCUMENT, "py")
PACKAGES = {"GSSAPI": "gssapi", "AWS_MSK_IAM": "aws_msk_iam_sasl_signer"}


def options_of(block):
    return {name: value for name, value, _ in parse_properties(block.text, block.name)}


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.name)
def test_recipes_are_taken(block):
    given = options_of(block)
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:9093", **given})
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


def test_there_is_a_recipe_for_each_mechanism():
    servers = {"kafka.bootstrap.servers": "b:9093"}
    parsed = [SinkOptions.parse({**servers, **options_of(block)}) for block in RECIPES]
    securities = [options.producer.security for options in parsed]
    mechanisms = {security.sasl.mechanism for security in securities if security.sasl is not None}
    assert mechanisms == set(MECHANISMS)
    assert len(RECIPES) >= 15


@pytest.mark.parametrize("block", TOKEN_PROVIDERS, ids=lambda block: block.name)
def test_token_providers_are_python_that_the_recipes_name(block):
    functions = [n.name for n in ast.walk(ast.parse(block.text)) if isinstance(n, ast.FunctionDef)]
    named = [
        options_of(recipe).get("kafka.sasl.oauthbearer.token.provider", "") for recipe in RECIPES
    ]
    assert any(f"tokens:{name}" in named for name in functions)


def test_the_expressions_are_those_of_the_code():
    assert f"`{DEFAULT_REGEX}`" in TEXT
    assert f"spark.redaction.regex = {SUGGESTED_REGEX}\n" in TEXT
    conf = (REPOSITORY / "conf" / "secured.conf").read_text(encoding="utf-8")
    assert f" {SUGGESTED_REGEX}\n" in conf


def texts_of_the_code():
    """All texts in the package's code, one to a line; parts of one f-string apart."""
    found = set()
    for path in (REPOSITORY / "spark_kafka_sink").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return "\n".join(found)


def messages():
    """The first column of the rows about secured connections, without what is in angle brackets."""
    text = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    section = text.split("\n## Secured connections\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [row.split(" | ")[0] for row in rows if not row.startswith(("| message", "| ---"))]


# Words of brokers, and tables of codes that messages are made of.
OF_OTHERS = (
    "PLAIN: Authentication failed: Invalid username or password",
    "SCRAM-SHA-512: Authentication failed during authentication",
    "TOPIC_AUTHORIZATION_FAILED (29)",
    "CLUSTER_AUTHORIZATION_FAILED (31)",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)",
)


def test_messages_are_word_for_word_those_of_the_code():
    texts = texts_of_the_code()
    missing = []
    for message in messages():
        quoted = re.findall(r"`([^`]+)`", message)
        assert quoted, message
        for part in (part for text in quoted for part in re.split(r"…|'|\[hidden\]|=", text)):
            words = part.strip(" .,:;(")
            if len(words) >= 12 and words not in texts and words not in OF_OTHERS:
                missing.append(words)
    assert missing == []


SERVERS = {"kafka.bootstrap.servers": "b:9093", "kafka.security.protocol": "SASL_SSL"}
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
IAM_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
LOGIN_HANDLER = "kafka.sasl.login.callback.handler.class"
CLIENT_HANDLER = "kafka.sasl.client.callback.handler.class"


def sasl_of(options):
    sasl = SinkOptions.parse({**SERVERS, **options}).producer.security.sasl
    assert sasl is not None
    return sasl


def refusal(options):
    with pytest.raises(ConfigError) as raised:
        check(sasl_of(options))
    assert "S3CRET" not in str(raised.value)
    return str(raised.value)


def iam(options):
    return {
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": f"{IAM_MODULE} required {options};",
        CLIENT_HANDLER: "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }


def test_event_hubs_with_microsoft_entra_as_databricks_has_it():
    jaas = (
        f'kafkashaded.{OAUTH_MODULE} required clientId="id" clientSecret="S3CRET" '
        'scope="https://demo.servicebus.windows.net/.default" ssl.protocol="SSL";'
    )
    options = {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": jaas,
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://login.microsoftonline.com/t/token",
        LOGIN_HANDLER: "kafkashaded.org.apache.kafka.common.security.oauthbearer.secured."
        "OAuthBearerLoginCallbackHandler",
    }
    check(sasl_of(options))


@pytest.mark.parametrize("option", [LOGIN_HANDLER, CLIENT_HANDLER])
def test_msk_by_oauthbearer_as_amazon_has_it(option):
    options = {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f"{OAUTH_MODULE} required;",
        LOGIN_HANDLER: IAM_HANDLER,
        CLIENT_HANDLER: IAM_HANDLER,
    }
    sasl = sasl_of(options)
    assert sasl.mechanism == "AWS_MSK_IAM"
    assert unresolved_jaas_entry(sasl) is not None
    with pytest.raises(ConfigError, match=f"{option} is for kafka.sasl.mechanism=AWS_MSK_IAM"):
        sasl_of({option: IAM_HANDLER, "kafka.sasl.mechanism": "PLAIN"})


def test_a_region_for_sts_without_a_role_means_nothing():
    """As in Java's library, which asks STS for a role."""
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


def test_what_is_no_option_of_amazons_is_not_named():
    message = refusal(iam('awsS3CRET="x"'))
    assert message.startswith("kafka.sasl.jaas.config has an option that begins with 'aws', which")


WHERE_RECIPES_ARE = "docs/security.md (pykafka-sink docs security)"


@pytest.mark.parametrize(
    "options",
    [
        'oauth.client.id="id" oauth.client.secret="S3CRET"',
        'oauth.token.endpoint.uri="https://idp/token" oauth.scope="kafka"',
        'clientId="id" clientSecret="S3CRET" oauth.ssl.truststore.location="/ca.pem"',
    ],
)
@pytest.mark.parametrize(
    "url", [{}, {"kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token"}]
)
def test_options_of_strimzis_login_handler_are_refused(options, url):
    message = refusal(
        {
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.jaas.config": f"{OAUTH_MODULE} required {options};",
            **url,
        }
    )
    assert message == (
        "kafka.sasl.jaas.config has options that begin with 'oauth.': they are those of Strimzi's "
        f"Java classes, and are not read. {WHERE_RECIPES_ARE} has a table of what to write instead"
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
    message = refusal({"kafka.sasl.mechanism": "OAUTHBEARER", LOGIN_HANDLER: java_class})
    before, _, instead = message.partition(" Instead: ")
    assert before == (
        f"Invalid value {java_class} for configuration {LOGIN_HANDLER}: names a Java class, and "
        "there is no JVM here."
    )
    assert WHERE_RECIPES_ARE in instead.partition(". Taken by name: ")[0]


def test_other_configuration_providers_are_refused_with_where_the_recipes_are():
    options = {
        "kafka.config.providers": "secrets",
        "kafka.config.providers.secrets.class": "io.strimzi.kafka.KubernetesSecretConfigProvider",
    }
    assert f"${{dir:/path:file}}; {WHERE_RECIPES_ARE}" in refusal(options)


@pytest.mark.parametrize("name", ["interceptor.classes", "metric.reporters", "security.providers"])
@pytest.mark.parametrize("text", ["", " ", ","])
def test_an_empty_list_counts_as_not_given(name, text):
    """As templates leave it."""
    options = {"kafka.bootstrap.servers": "b:9092", f"kafka.{name}": text}
    assert SinkOptions.parse(options).notes == ()


@pytest.mark.parametrize(
    "name",
    [
        *("sasl.client.callback.handler.class", "sasl.login.callback.handler.class"),
        *("sasl.login.class", "ssl.engine.factory.class", "partitioner.class"),
    ],
)
def test_an_empty_class_is_refused_as_that(name):
    """In Java, too."""
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", f"kafka.{name}": " "})
    assert str(raised.value).endswith("is empty: leave it out")
    assert f"kafka.{name}" in str(raised.value)


@pytest.mark.parametrize(
    "name", ["databricks.serviceCredential", "databricks.serviceCredential.scope"]
)
def test_a_service_credential_of_databricks_is_refused(name):
    """Without effect, the job would talk in clear to a TLS port."""
    options = {"kafka.bootstrap.servers": "b:9093", name: "msk"}
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse(options)
    assert str(raised.value).startswith(
        f"option '{name.lower()}' is one of Databricks' own Kafka connector"
    )
    assert WHERE_RECIPES_ARE in str(raised.value)


def test_a_protocol_of_hortonworks_is_answered_with_kafkas():
    message = refusal({"kafka.security.protocol": "PLAINTEXTSASL"})
    assert message.endswith("PLAINTEXTSASL is Hortonworks' name of SASL_PLAINTEXT: write that")


def test_a_file_of_databricks_is_answered_with_its_path():
    with pytest.raises(ConfigError) as raised:
        find_file("dbfs:/FileStore/t.jks", "kafka.ssl.truststore.location")
    assert "on Databricks write /dbfs/FileStore/t.jks, or a path in /Volumes" in str(raised.value)


PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (PLAIN_MODULE, "is that of PLAIN, {but}: set kafka.sasl.mechanism=PLAIN"),
        (
            SCRAM_MODULE,
            "is that of SCRAM-SHA-256 and SCRAM-SHA-512, {but}: set kafka.sasl.mechanism="
            "SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
    ],
)
def test_a_mechanism_that_was_forgotten(module, told):
    jaas = {"kafka.sasl.jaas.config": f'{module} required username="a" password="S3CRET";'}
    but = "but kafka.sasl.mechanism is GSSAPI, the default"
    assert refusal(jaas) == (
        f"kafka.sasl.jaas.config: the login module {module} {told.format(but=but)}"
    )


def test_a_handler_of_a_mechanism_that_was_forgotten():
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert refusal({LOGIN_HANDLER: handler}).endswith(
        "is for kafka.sasl.mechanism=OAUTHBEARER, but the mechanism is GSSAPI, which is the default"
    )


def test_an_entry_of_a_jaas_file_is_answered_with_what_to_leave_out():
    entry = f'KafkaClient {{ {PLAIN_MODULE} required username="a" password="S3CRET"; }};'
    message = refusal({"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": entry})
    assert message == (
        "kafka.sasl.jaas.config is an entry of a JAAS file: leave out KafkaClient { before the "
        "login module, and }; at the end"
    )


@pytest.mark.parametrize("text", ["pa${b:S3CRET}", "${vault:kv/S3CRET:password}"])
def test_a_password_that_looks_like_a_reference(text):
    options = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "a"}
    assert refusal({**options, "kafka.sasl.password": text}).endswith(
        "a text that holds ${ itself must be given by reference"
    )


PROVIDER = "org.apache.kafka.common.config.provider"
JAVAS_PROVIDERS = {
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
    assert for_java_client(options) == {**options, **JAVAS_PROVIDERS}
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
