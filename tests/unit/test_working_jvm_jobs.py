"""Options of jobs that work with Spark's own sink: taken, or refused with what to write instead."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.security.credentials import known_entry
from spark_kafka_sink.security.login import check
from spark_kafka_sink.security.mechanisms.aws_msk_iam import aws_user

SERVERS = {"kafka.bootstrap.servers": "b:9093", "kafka.security.protocol": "SASL_SSL"}
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
IAM_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
LOGIN_HANDLER = "kafka.sasl.login.callback.handler.class"
CLIENT_HANDLER = "kafka.sasl.client.callback.handler.class"


def sasl_of(options: dict[str, str]) -> SaslConfig:
    sasl = SinkOptions.parse({**SERVERS, **options}).producer.security.sasl
    assert sasl is not None
    return sasl


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as raised:
        check(sasl_of(options))
    assert "S3CRET" not in str(raised.value)
    return str(raised.value)


def iam(options: str) -> dict[str, str]:
    return {
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": f"{IAM_MODULE} required {options};",
        CLIENT_HANDLER: "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }


def test_event_hubs_with_microsoft_entra_as_databricks_has_it() -> None:
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
def test_msk_by_oauthbearer_as_amazon_has_it(option: str) -> None:
    options = {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f"{OAUTH_MODULE} required;",
        LOGIN_HANDLER: IAM_HANDLER,
        CLIENT_HANDLER: IAM_HANDLER,
    }
    sasl = sasl_of(options)
    assert sasl.mechanism == "AWS_MSK_IAM"
    assert known_entry(sasl) is not None
    with pytest.raises(ConfigError, match=f"{option} is for kafka.sasl.mechanism=AWS_MSK_IAM"):
        sasl_of({option: IAM_HANDLER, "kafka.sasl.mechanism": "PLAIN"})


def test_a_region_for_sts_without_a_role_means_nothing() -> None:
    """As in Java's library, which asks STS for a role."""
    entry = known_entry(sasl_of(iam('awsProfileName="dev" awsStsRegion="eu-west-1"')))
    assert entry is not None
    assert aws_user(entry.options).profile == "dev"


@pytest.mark.parametrize(
    "name",
    [
        *("awsStsRegion", "awsRoleExternalId", "awsRoleAccessKeyId", "awsRoleSecretAccessKey"),
        "awsRoleSessionToken",
    ],
)
def test_what_the_signer_has_nothing_for_is_named(name: str) -> None:
    message = refusal(iam(f'awsRoleArn="arn:aws:iam::1:role/x" {name}="S3CRET"'))
    assert message.startswith(f"kafka.sasl.jaas.config has '{name}', which AWS's signer for Python")
    assert "put it, with the role, into a profile of ~/.aws/config" in message


def test_what_is_no_option_of_amazons_is_not_named() -> None:
    message = refusal(iam('awsS3CRET="x"'))
    assert message.startswith("kafka.sasl.jaas.config has an option that begins with 'aws', which")
