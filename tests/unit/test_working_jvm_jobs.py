"""Options of jobs that work with Spark's own sink: taken, or refused with what to write instead."""

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.security.aws import aws_user
from spark_kafka_sink.security.credentials import unresolved_jaas_entry
from spark_kafka_sink.security.login import check
from spark_kafka_sink.security.references import find_file

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
    assert entry is not None
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


RECIPES = "docs/security.md (pykafka-sink docs security)"


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
        f"Java classes, and are not read. {RECIPES} has a table of what to write instead"
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
    assert RECIPES in instead.partition(". Taken by name: ")[0]


def test_other_configuration_providers_are_refused_with_where_the_recipes_are():
    options = {
        "kafka.config.providers": "secrets",
        "kafka.config.providers.secrets.class": "io.strimzi.kafka.KubernetesSecretConfigProvider",
    }
    assert f"${{dir:/path:file}}; {RECIPES}" in refusal(options)


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
    assert RECIPES in str(raised.value)


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
