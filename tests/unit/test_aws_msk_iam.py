"""AWS_MSK_IAM: options, regions, and a signer in place of AWS's, which is not installed here."""

import importlib.util
import itertools
import random
import sys
import types

import pytest

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.security.aws import AwsLogin, AwsUser, aws_user, region_of
from spark_kafka_sink.security.login import check
from spark_kafka_sink.security.oauth_tokens import RetryTimer
from tests.patience import PATIENCE_S
from tests.unit.simulated_time import SimulatedClock

MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IRELAND = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com"
OREGON = "boot-xyz.c1.kafka-serverless.us-west-2.amazonaws.com"


@pytest.fixture(autouse=True)
def no_region(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


class Signer(types.ModuleType):
    """As ``MSKAuthTokenProvider``: remembers what it was asked for."""

    def __init__(self, clock):
        super().__init__("signer")
        self.clock = clock
        self.calls = []
        self.errors = iter(())

    def _sign(self, *call):
        self.calls.append(call)
        for error in itertools.islice(self.errors, 1):
            raise error
        return f"t0ken-{len(self.calls)}", self.clock.timestamp_ms() + 900_000

    def generate_auth_token(self, region):
        return self._sign("default", region)

    def generate_auth_token_from_profile(self, region, profile):
        return self._sign("profile", region, profile)

    def generate_auth_token_from_role_arn(self, region, role, session="default"):
        return self._sign("role", region, role, session)


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def signer(clock, monkeypatch):
    signer = Signer(clock)
    package = types.ModuleType("aws_msk_iam_sasl_signer")
    package.MSKAuthTokenProvider = signer
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", package)
    return signer


def login_for(clock, options=""):
    config = SaslConfig("AWS_MSK_IAM", jaas_config=Secret(f"{MODULE} required {options};"))
    return AwsLogin(config, RetryTimer(clock, clock.sleep), random.Random(1), lambda: None)


def client_error(code, status):
    """As botocore's, for a service that has answered."""
    error = type("ClientError", (Exception,), {})(f"{code} by AssumeRole")
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error.response = response
    return error


NO_CREDENTIALS = AttributeError("'NoneType' object has no attribute 'access_key'")
AWAY = type("MetadataRetrievalError", (Exception,), {})("Error retrieving metadata: timeout")


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "user"),
        [
            ({}, AwsUser(None, None, None)),
            ({"awsProfileName": "dev"}, AwsUser("dev", None, None)),
            ({"awsRoleArn": "arn", "awsRoleSessionName": "me"}, AwsUser(None, "arn", "me")),
            ({"awsDebugCreds": "true", "awsMaxRetries": "3"}, AwsUser(None, None, None)),
        ],
    )
    def test_user(self, options, user):
        assert aws_user(options) == user

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"awsProfileName": "dev", "awsRoleArn": "arn"}, "leave one of them out"),
            ({"awsRoleSessionName": "me"}, "but no awsRoleArn"),
            ({"awsRoleSecretAccessKey": "S3CRET"}, "into a profile of ~/.aws/config"),
        ],
    )
    def test_what_contradicts(self, options, message):
        with pytest.raises(ConfigError) as raised:
            aws_user(options)
        assert message in str(raised.value)
        assert "S3CRET" not in str(raised.value)

    @pytest.mark.skipif(
        importlib.util.find_spec("aws_msk_iam_sasl_signer") is not None,
        reason="the package aws-msk-iam-sasl-signer-python is installed",
    )
    @pytest.mark.parametrize("module", [MODULE, f"shadedmskiam.{MODULE}", OAUTH_MODULE, None])
    def test_without_the_package_the_command_is_told(self, module):
        jaas = None if module is None else Secret(f"{module} required;")
        with pytest.raises(ConfigError, match="pip install aws-msk-iam-sasl-signer-python"):
            check(SaslConfig("AWS_MSK_IAM", jaas_config=jaas))


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (IRELAND, "eu-west-1"),
        (IRELAND.upper(), "eu-west-1"),
        (OREGON, "us-west-2"),
        ("b-1.demo.abc.c3.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("b-1.demo.abc.c3.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("broker.example.com", None),
        ("kafka.eu-west-1.example.com", None),
        ("localhost", None),
    ],
)
def test_regions(host, region):
    assert region_of(host) == region


class TestLogin:
    def test_a_token_for_the_region_of_the_brokers_name(self, clock, signer):
        login = login_for(clock)
        login.login(1_000, [IRELAND, IRELAND.replace("b-1", "b-2")])
        assert signer.calls == [("default", "eu-west-1")]
        assert login.mechanism == "OAUTHBEARER"
        assert (
            login.create_sasl_client(IRELAND).initial_response()
            == b"n,,\x01auth=Bearer t0ken-1\x01\x01"
        )
        assert login.create_sasl_client(IRELAND).mechanism == "OAUTHBEARER"
        login.close()

    def test_two_regions_have_two_tokens(self, clock, signer):
        login = login_for(clock)
        login.login(1_000, [IRELAND, OREGON])
        assert signer.calls == [("default", "eu-west-1"), ("default", "us-west-2")]
        assert b"t0ken-2" in login.create_sasl_client(OREGON).initial_response()
        login.close()

    @pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
    def test_the_region_of_the_environment(self, clock, signer, monkeypatch, variable):
        monkeypatch.setenv(variable, "sa-east-1")
        login = login_for(clock)
        login.login(1_000)
        login.login(1_000, ["broker.example.com"])
        assert signer.calls == [("default", "sa-east-1")]
        assert b"t0ken-1" in login.create_sasl_client("broker.example.com").initial_response()
        login.close()

    def test_closed(self, clock, signer):
        """Each region's thread ends, and the pauses of a fetch do."""
        closed = []
        config = SaslConfig("AWS_MSK_IAM", jaas_config=Secret(f"{MODULE} required;"))
        waiting = RetryTimer(clock, clock.sleep)
        login = AwsLogin(config, waiting, random.Random(1), lambda: closed.append(True))
        login.login(1_000, [IRELAND, OREGON])
        threads = [keeper._thread for keeper in login._keepers.values()]
        login.close()
        assert closed == [True]
        assert len(threads) == 2
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def test_no_region_at_all(self, clock, signer):
        login = login_for(clock)
        login.login(1_000)
        with pytest.raises(AuthenticationError, match="tells no AWS region. Set AWS_REGION"):
            login.create_sasl_client("broker.example.com")

    def test_a_broker_that_was_not_known_beforehand(self, clock, signer):
        login = login_for(clock)
        login.login(1_000)
        assert signer.calls == []
        with pytest.raises(CredentialsUnavailableError):
            login.create_sasl_client(IRELAND)
        login.login(120_000, [IRELAND])
        assert b"t0ken-1" in login.create_sasl_client(IRELAND).initial_response()
        login.close()

    @pytest.mark.parametrize(
        ("options", "call"),
        [
            ("awsProfileName=dev", ("profile", "eu-west-1", "dev")),
            (
                'awsRoleArn="arn:aws:iam::1:role/x"',
                ("role", "eu-west-1", "arn:aws:iam::1:role/x", "default"),
            ),
            (
                'awsRoleArn="arn:aws:iam::1:role/x" awsRoleSessionName="me"',
                ("role", "eu-west-1", "arn:aws:iam::1:role/x", "me"),
            ),
        ],
    )
    def test_profiles_and_roles(self, clock, signer, options, call):
        login = login_for(clock, options)
        login.login(1_000, [IRELAND])
        assert signer.calls == [call]
        login.close()

    @pytest.mark.parametrize(
        ("error", "kind", "message"),
        [
            (
                ValueError("AWS Credentials can not be empty"),
                AuthenticationError,
                "there are no AWS credentials on this machine",
            ),
            (
                NO_CREDENTIALS,
                AuthenticationError,
                "there are no AWS credentials on this machine",
            ),
            (ConnectionError("no route"), CredentialsUnavailableError, "no route"),
            (
                type("EndpointConnectionError", (Exception,), {})("sts is away"),
                CredentialsUnavailableError,
                "sts is away",
            ),
            (
                type("ProfileNotFound", (Exception,), {})("no profile dev"),
                AuthenticationError,
                "no profile dev (ProfileNotFound)",
            ),
            (AWAY, CredentialsUnavailableError, "Error retrieving metadata"),
            (client_error("Throttling", 400), CredentialsUnavailableError, "Throttling"),
            (client_error("InternalFailure", 500), CredentialsUnavailableError, "InternalFailure"),
            (client_error("AccessDenied", 403), AuthenticationError, "AccessDenied"),
            (
                type("CredentialRetrievalError", (Exception,), {})("refresh failed"),
                AuthenticationError,
                "refresh failed (CredentialRetrievalError)",
            ),
        ],
    )
    def test_what_aws_says(self, clock, signer, error, kind, message):
        signer.errors = itertools.repeat(error)
        login = login_for(clock)
        with pytest.raises(kind) as raised:
            login.login(1_000, [IRELAND])
        assert message in str(raised.value)
        assert type(raised.value) is kind

    @pytest.mark.parametrize(
        "error",
        [
            NO_CREDENTIALS,
            ValueError("AWS Credentials can not be empty"),
            AWAY,
            client_error("ThrottlingException", 400),
            client_error("ServiceUnavailable", 503),
            ConnectionError("no route"),
        ],
        ids=lambda error: f"{type(error).__name__} {error}",
    )
    def test_a_short_outage_of_aws_ends_nothing(self, clock, signer, error):
        signer.errors = iter([error, error])
        login = login_for(clock)
        login.login(1_000, [IRELAND])
        assert len(signer.calls) == 3
        assert clock.elapsed_ms == 100 + 200
        login.close()

    def test_what_is_final_is_not_tried_again(self, clock, signer):
        signer.errors = itertools.repeat(client_error("AccessDenied", 403))
        with pytest.raises(AuthenticationError):
            login_for(clock).login(1_000, [IRELAND])
        assert len(signer.calls) == 1
