"""Kerberos and AWS_MSK_IAM without a KDC or AWS: options, tickets, tokens and errors."""

import itertools
import os
import random
import sys
import threading
import types
from types import SimpleNamespace

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.security_config import KerberosConfig, SaslConfig
from spark_kafka_sink.security import security
from spark_kafka_sink.security.aws import AwsLogin, AwsUser, aws_user, region_of, signed_token
from spark_kafka_sink.security.kerberos import (
    GssapiSaslClient,
    KerberosCredentials,
    KerberosLogin,
    KerberosUser,
    _error_of,
    kerberos_user,
)
from spark_kafka_sink.security.oauth_tokens import RetryTimer
from spark_kafka_sink.security.security import check
from spark_kafka_sink.spark import planning
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.snippets import REPOSITORY
from tests.tables import each_row
from tests.unit.security.token_endpoints import MODULE as OAUTH_MODULE
from tests.unit.security.token_endpoints import first_message
from tests.unit.simulated_time import SimulatedClock

KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
KEYTAB = {"useKeyTab": "true", "keyTab": "/a.keytab", "principal": "app@REALM", "storeKey": "true"}
NO_KEYTAB = {"useKeyTab": "false", "keyTab": "/ignored"}
CACHE = {"useTicketCache": "true"}
KAFKA = KerberosConfig("kafka")
BANK = {**KEYTAB, "serviceName": "bank"}


@pytest.fixture
def no_packages(monkeypatch):
    """As if gssapi and the signer were not installed."""
    for package in ("gssapi", "aws_msk_iam_sasl_signer"):
        monkeypatch.setitem(sys.modules, package, None)


@each_row(
    ("config", "options", "user"),
    [
        (KAFKA, KEYTAB, ("kafka", "app@REALM", "/a.keytab", None)),
        (KAFKA, {**CACHE, "ticketCache": "/cc", "principal": "app"}, ("kafka", "app", None, "/cc")),
        (KAFKA, {**KEYTAB, "useTicketCache": "TRUE"}, ("kafka", "app@REALM", "/a.keytab", "")),
        (KAFKA, {**BANK, "serviceName": "kafka"}, ("kafka", "app@REALM", "/a.keytab", None)),
        (KAFKA, {**NO_KEYTAB, **CACHE}, ("kafka", None, None, "")),
        (KerberosConfig(), BANK, ("bank", "app@REALM", "/a.keytab", None)),
    ],
)
def test_a_user_of_kerberos(config, options, user):
    assert kerberos_user(config, options) == user


@each_row(
    ("config", "options", "message"),
    [
        (KAFKA, {}, r"neither useKeyTab=true \(with keyTab and principal\) nor"),
        (KAFKA, {"useKeyTab": "true", "principal": "a"}, "useKeyTab=true, but no keyTab"),
        (KAFKA, {"useKeyTab": "true", "keyTab": "/a"}, "useKeyTab=true, but no principal"),
        (KerberosConfig(), KEYTAB, "kafka.sasl.kerberos.service.name is missing"),
        (KAFKA, {**KEYTAB, "serviceName": "S3CRET"}, "service.name=kafka, but serviceName"),
    ],
)
def test_what_is_missing_or_contradicts(config, options, message):
    with pytest.raises(ConfigError, match=message) as raised:
        kerberos_user(config, options)
    assert "S3CRET" not in str(raised.value)


def kerberos(options, config=KAFKA):
    text = f"{KERBEROS_MODULE} required {options};"
    return SaslConfig("GSSAPI", jaas_config=Secret(text), kerberos=config)


def refusal(config):
    with pytest.raises(ConfigError) as raised:
        check(config)
    return str(raised.value)


def test_options_come_before_the_package():
    message = refusal(SaslConfig("GSSAPI"))
    assert "GSSAPI, which is the default, needs" in message
    assert KERBEROS_MODULE in message


@pytest.mark.usefixtures("no_packages")
def test_without_a_package_the_command_is_told():
    for options in ("useTicketCache=true", 'useKeyTab="${env:X}"'):
        for part in ("pip install gssapi.", "libkrb5-dev", "krb5-devel"):
            assert part in refusal(kerberos(options))
    signer = "pip install aws-msk-iam-sasl-signer-python"
    for module in (IAM_MODULE, f"shadedmskiam.{IAM_MODULE}", OAUTH_MODULE, None):
        jaas = None if module is None else Secret(f"{module} required;")
        assert signer in refusal(SaslConfig("AWS_MSK_IAM", jaas_config=jaas))
    # The driver says so.
    texts = {"kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "SASL_SSL"}
    with pytest.raises(ConfigError, match=signer):
        planning.parse_options({**texts, "topic": "t", "kafka.sasl.mechanism": "AWS_MSK_IAM"})


def test_a_package_whose_libraries_are_missing(tmp_path, monkeypatch):
    """As where gssapi was copied from a machine with MIT Kerberos to one without."""
    why = "libgssapi_krb5.so.2: cannot open shared object file"
    (tmp_path / "gssapi").mkdir()
    (tmp_path / "gssapi" / "__init__.py").write_text(f"raise ImportError({why!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "gssapi"]:
        monkeypatch.delitem(sys.modules, name)
    for part in (why, "cannot be loaded", "libgssapi-krb5-2"):
        assert part in refusal(kerberos("useTicketCache=true"))


def test_whatever_goes_wrong_is_told_to_who_prepares(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", types.ModuleType("gssapi"))
    login = KerberosLogin(kerberos("useTicketCache=true"), SystemClock())
    with pytest.raises(AttributeError):
        login.login(PATIENCE_MS)


def test_the_extra_is_in_the_package():
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for extra in (security.KERBEROS, security.AWS):
        assert f'\n{extra.name} = ["{extra.package}>=' in project


class Ticket:
    lifetime = 3_600


class TestTickets:
    """Which are used again, and when they are taken anew. ``taken``: for whom they were."""

    LIMIT_MS = 60_000

    @pytest.fixture
    def taken(self, monkeypatch):
        users = []

        def acquire(tickets):
            users.append(tickets._user.principal)
            return Ticket()

        monkeypatch.setattr(KerberosCredentials, "acquire", acquire)
        monkeypatch.setenv("TEST_PRINCIPAL", "first")
        return users

    @pytest.fixture
    def login(self, clock):
        config = KerberosConfig("kafka", min_time_before_relogin_ms=self.LIMIT_MS)
        options = 'useTicketCache=true principal="${env:TEST_PRINCIPAL}"'
        return KerberosLogin(kerberos(options, config), clock)

    @pytest.mark.parametrize(
        ("later_ms", "lifetime", "principal", "expected"),
        [
            (LIMIT_MS // 2, 3_600, "first", ["first"]),
            (LIMIT_MS, 3_600, "first", ["first", "first"]),
            (0, 0, "first", ["first", "first"]),
            (0, 3_600, "second", ["first", "second"]),
        ],
        ids=["taken a short time ago", "older", "expired", "another user's"],
    )
    def test_which_is_used_again(
        self, taken, login, clock, monkeypatch, later_ms, lifetime, principal, expected
    ):
        login.login(PATIENCE_MS)
        clock.sleep(later_ms)
        monkeypatch.setattr(Ticket, "lifetime", lifetime)
        monkeypatch.setenv("TEST_PRINCIPAL", principal)
        login.login(PATIENCE_MS)
        assert taken == expected

    def test_a_kdc_that_does_not_answer_is_waited_for_no_longer_than_that(
        self, taken, login, monkeypatch
    ):
        may_end = threading.Event()
        monkeypatch.setattr(KerberosCredentials, "acquire", lambda _: may_end.wait(PATIENCE_S))
        with pytest.raises(CredentialsUnavailableError, match="the KDC has not answered within 20"):
            login.login(20)
        may_end.set()


def test_what_the_libraries_are_asked_for(tmp_path, monkeypatch):
    """Tickets of a keytab are in a cache of this process and user alone."""
    stores, package = [], types.ModuleType("gssapi")
    package.Credentials = lambda store, **_: stores.append(store) or Ticket()
    package.MechType = SimpleNamespace(kerberos=1)
    monkeypatch.setitem(sys.modules, "gssapi", package)
    keytab = tmp_path / "a.keytab"
    keytab.touch()
    user = KerberosUser("kafka", None, str(keytab), None)
    for tickets in (KerberosCredentials(user), KerberosCredentials(user)):
        tickets.acquire()
    one, other = (store["ccache"] for store in stores)
    for cache in (one, other):
        assert cache.startswith("MEMORY:")
        assert cache.endswith(f"-{os.getpid()}")
    assert one != other
    monkeypatch.setattr(Ticket, "lifetime", 0)
    with pytest.raises(AuthenticationError, match="run kinit"):
        KerberosCredentials(KerberosUser("kafka", None, None, "")).acquire()


class Context:
    """Of GSSAPI: complete after ``steps`` messages of the broker."""

    def __init__(self, steps=1):
        self.steps = steps
        self.seen = []

    @property
    def complete(self):
        return len(self.seen) > self.steps

    def step(self, token=None):
        self.seen.append(token)
        return b"AP-REQ" if token is None else None

    def unwrap(self, message):
        return types.SimpleNamespace(message=message.removeprefix(b"wrapped"))

    def wrap(self, message, encrypt):
        assert not encrypt
        return types.SimpleNamespace(message=b"wrapped" + message)


NO_LAYER = b"wrapped\x01\x00\x00\x00"


def begun(steps=1, challenge=b"AP-REP"):
    conversation = GssapiSaslClient(lambda: Context(steps))
    assert conversation.mechanism == "GSSAPI"
    assert conversation.initial_response() == b"AP-REQ"
    assert conversation.evaluate_challenge(challenge) == b""
    return conversation


@pytest.mark.parametrize(("steps", "challenge"), [(1, b"AP-REP"), (0, b"")])
@pytest.mark.parametrize("offer", [NO_LAYER, b"wrapped\x07\x00\x10\x00"])
def test_with_and_without_an_answer_of_kerberos(steps, challenge, offer):
    """Of several layers, none is chosen."""
    conversation = begun(steps, challenge)
    assert conversation.evaluate_challenge(offer) == NO_LAYER
    assert conversation.evaluate_challenge(b"") is None


@each_row(
    ("challenges", "told"),
    [
        *(
            ([b"wrapped" + offer], "insists on a security layer")
            for offer in (b"", b"\x04\x00\x10\x00", b"\x01\x00\x00", b"\x01\x00\x00\x00\x00")
        ),
        ([NO_LAYER, b"more"], "goes on with SASL GSSAPI"),
        ([NO_LAYER, b"", b""], "goes on with SASL GSSAPI"),
    ],
)
def test_a_broker_that_wants_a_layer_or_goes_on(challenges, told):
    conversation, (*before, last) = begun(), challenges
    for challenge in before:
        conversation.evaluate_challenge(challenge)
    with pytest.raises(AuthenticationError, match=told):
        conversation.evaluate_challenge(last)


@each_row(
    ("text", "advice", "is_transient"),
    [
        ("Clock skew too great", "NTP", False),
        ("Cannot contact any KDC for realm 'TEST.LOCAL'", "no KDC of the realm answers", True),
        ('Cannot find KDC for realm "TEST.LOCAL"', "krb5.conf", False),
        ("Client 'gone@TEST.LOCAL' not found in Kerberos database", "the principal", False),
        ("Server kafka/x@TEST.LOCAL not found in Kerberos database", "service.name", False),
        ("Decrypt integrity check failed", "keytab holds another key", False),
        ("No Kerberos credentials available (default cache: FILE:/tmp/x)", "run kinit", False),
        ("No credentials cache found", "run kinit", False),
        ("Ticket expired", "has expired", False),
        ("The referenced credential has expired", "has expired", False),
        ("Clock skew too great in KDC reply", "NTP", False),
        ("Ticket not yet valid", "NTP", False),
        ("Key table file '/x' not found", "check keyTab", False),
        ("Request ticket server a@R not found in keytab", "the broker has another key", False),
        ("something else", "(something else) [PKS-AUTH-027]", False),
    ],
)
def test_causes(text, advice, is_transient):
    error = _error_of(text)
    assert str(error).startswith(f"SASL GSSAPI failed ({text})")
    assert advice in str(error)
    assert isinstance(error, CredentialsUnavailableError) is is_transient
    assert error.code


IAM_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"

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
        self.valid_s = None  # of credentials that do not end

    def session(self, profile):
        """As ``botocore.session.Session``: its credentials."""
        found = SimpleNamespace(profile=profile)
        if self.valid_s is not None:
            found.refresh_needed = lambda refresh_in: self.valid_s < refresh_in
        return SimpleNamespace(get_credentials=lambda: found)

    def _sign(self, *call):
        self.calls.append(call)
        for error in itertools.islice(self.errors, 1):
            raise error
        return f"t0ken-{len(self.calls)}", self.clock.timestamp_ms() + 900_000

    def generate_auth_token_from_credentials_provider(self, region, provider):
        profile = provider.load().profile
        return self._sign(
            *(("default", region) if profile is None else ("profile", region, profile))
        )

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
    for name, content in (
        ("session", {"Session": signer.session}),
        ("credentials", {"CredentialProvider": object}),
    ):
        module = types.ModuleType(f"botocore.{name}")
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, f"botocore.{name}", module)
    monkeypatch.setitem(sys.modules, "botocore", types.ModuleType("botocore"))
    return signer


def aws_login(clock, options="", close=lambda: None):
    config = SaslConfig("AWS_MSK_IAM", jaas_config=Secret(f"{IAM_MODULE} required {options};"))
    return AwsLogin(config, RetryTimer(clock, clock.sleep, close), random.Random(1))


@pytest.fixture
def aws(clock, signer):
    made = aws_login(clock)
    yield made
    made.close()


def client_error(code, status):
    """As botocore's, for a service that has answered."""
    raised = type("ClientError", (Exception,), {})(f"{code} by AssumeRole")
    raised.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return raised


ROLE = "arn:aws:iam::1:role/x"
NO_CREDENTIALS = AttributeError("'NoneType' object has no attribute 'access_key'")
EMPTY = ValueError("AWS Credentials can not be empty")


def error(name, text):
    """As botocore's, by its name."""
    return type(name, (Exception,), {})(text)


AWAY = error("MetadataRetrievalError", "Error retrieving metadata: timeout")


@each_row(
    ("options", "user"),
    [
        ({}, AwsUser(None, None, None)),
        ({"awsProfileName": "dev"}, AwsUser("dev", None, None)),
        ({"awsRoleArn": "arn", "awsRoleSessionName": "me"}, AwsUser(None, "arn", "me")),
        ({"awsDebugCreds": "true", "awsMaxRetries": "3"}, AwsUser(None, None, None)),
        ({"awsProfileName": "dev", "awsRoleArn": "arn"}, "leave one of them out"),
        ({"awsRoleSessionName": "me"}, "but no awsRoleArn"),
        ({"awsRoleSecretAccessKey": "S3CRET"}, "into a profile of ~/.aws/config"),
    ],
)
def test_a_user_of_aws(options, user):
    if isinstance(user, AwsUser):
        assert aws_user(options) == user
        return
    with pytest.raises(ConfigError, match=user) as raised:
        aws_user(options)
    assert "S3CRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("valid_s", "expected_s"), [(None, 900), (0, 0), (1, 1), (90.5, 90), (899.9, 899), (3600, 900)]
)
def test_a_token_does_not_outlive_its_credentials(signer, clock, valid_s, expected_s):
    signer.valid_s = valid_s
    for user in (AwsUser(None, None, None), AwsUser("dev", None, None)):
        token = signed_token(user, "eu-west-1")
        assert token.expires_at_ms == clock.timestamp_ms() + 1000 * expected_s


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
    def test_a_token_for_each_region_of_the_brokers_names(self, aws, signer):
        aws.login(1_000, [IRELAND, IRELAND.replace("b-1", "b-2")])
        assert signer.calls == [("default", "eu-west-1")]
        assert aws.mechanism == aws.create_sasl_client(IRELAND).mechanism == "OAUTHBEARER"
        assert aws.create_sasl_client(IRELAND).configured == "AWS_MSK_IAM"
        assert first_message(aws, IRELAND) == "n,,\x01auth=Bearer t0ken-1\x01\x01"
        # A broker that was not known beforehand.
        with pytest.raises(CredentialsUnavailableError):
            aws.create_sasl_client(OREGON)
        aws.login(PATIENCE_MS, [IRELAND, OREGON])
        assert signer.calls == [("default", "eu-west-1"), ("default", "us-west-2")]
        assert "t0ken-2" in first_message(aws, OREGON)

    @pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
    def test_the_region_of_the_environment(self, aws, signer, monkeypatch, variable):
        monkeypatch.setenv(variable, "sa-east-1")
        aws.login(1_000)
        aws.login(1_000, ["broker.example.com"])
        assert signer.calls == [("default", "sa-east-1")]
        assert "t0ken-1" in first_message(aws, "broker.example.com")

    def test_no_region_at_all(self, aws, signer):
        aws.login(1_000)
        assert signer.calls == []
        with pytest.raises(AuthenticationError, match="has no AWS region. Set AWS_REGION"):
            aws.create_sasl_client("broker.example.com")

    def test_closed(self, clock, signer):
        """Each region's thread ends, and the pauses of a fetch do."""
        closed = []
        login = aws_login(clock, close=lambda: closed.append(True))
        login.login(1_000, [IRELAND, OREGON])
        threads = [keeper._thread for keeper in login._keepers.values()]
        login.close()
        assert closed == [True]
        assert len(threads) == 2
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    @pytest.mark.parametrize(
        ("options", "call"),
        [
            ("awsProfileName=dev", ("profile", "eu-west-1", "dev")),
            (f'awsRoleArn="{ROLE}"', ("role", "eu-west-1", ROLE, "default")),
            (f'awsRoleArn="{ROLE}" awsRoleSessionName="me"', ("role", "eu-west-1", ROLE, "me")),
        ],
    )
    def test_profiles_and_roles(self, clock, signer, options, call):
        login = aws_login(clock, options)
        login.login(1_000, [IRELAND])
        assert signer.calls == [call]
        login.close()

    @pytest.mark.parametrize(
        ("error", "kind", "message"),
        [
            (EMPTY, AuthenticationError, "there are no AWS credentials on this machine"),
            (NO_CREDENTIALS, AuthenticationError, "there are no AWS credentials on this machine"),
            (ConnectionError("no route"), CredentialsUnavailableError, "no route"),
            (error("EndpointConnectionError", "is away"), CredentialsUnavailableError, "is away"),
            (error("ProfileNotFound", "dev"), AuthenticationError, r"dev \(ProfileNotFound\)"),
            (AWAY, CredentialsUnavailableError, "Error retrieving metadata"),
            (client_error("Throttling", 400), CredentialsUnavailableError, "Throttling"),
            (client_error("InternalFailure", 500), CredentialsUnavailableError, "InternalFailure"),
            (client_error("AccessDenied", 403), AuthenticationError, "AccessDenied"),
            (error("CredentialRetrievalError", "no"), AuthenticationError, r"no \(Credential"),
        ],
    )
    def test_what_aws_says(self, aws, clock, signer, error, kind, message):
        """Also whether a short outage ends anything: AWS may answer at the third attempt."""
        signer.errors = itertools.repeat(error)
        with pytest.raises(kind, match=message) as raised:
            aws.login(1_000, [IRELAND])
        assert type(raised.value) is kind
        is_final = message in ("AccessDenied", r"dev \(ProfileNotFound\)")
        assert (len(signer.calls) == 1) is is_final
        if not is_final:
            signer.calls, started_ms = [], clock.elapsed_ms
            signer.errors = iter([error, error])
            aws.login(1_000, [OREGON])
            assert len(signer.calls) == 3
            assert clock.elapsed_ms == started_ms + 100 + 200
