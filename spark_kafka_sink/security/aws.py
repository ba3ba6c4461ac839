"""AWS_MSK_IAM: a signed URL as a token, which MSK accepts with OAUTHBEARER, and its login.

Java's library has a mechanism of its own for the same signature; MSK's brokers accept both. The
package ``aws-msk-iam-sasl-signer-python`` signs with the credentials that AWS's SDK finds: the
environment, a profile, the role of the machine, or a role to assume. The login keeps a token for
each AWS region.

Source: ``aws-msk-iam-auth``: ``IAMLoginModule``, ``MSKCredentialProvider``.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spark_kafka_sink.base.clock import RandomSource
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.text import Secret, redacted
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.protocol.connection import SaslClient
from spark_kafka_sink.security.credentials import KNOWN_OPTIONS, Login, login_options, shown_word
from spark_kafka_sink.security.credentials import OPTION as JAAS
from spark_kafka_sink.security.mechanisms import OAuthBearerSaslClient
from spark_kafka_sink.security.oauth_tokens import (
    RetryTimer,
    Token,
    TokenKeeper,
    with_retries,
)
from spark_kafka_sink.security.references import authentication_errors

# --- tokens --------------------------------------------------------------------------------------

PROFILE, ROLE, SESSION = "awsProfileName", "awsRoleArn", "awsRoleSessionName"
_STS_REGION = "awsStsRegion"
_IGNORED = ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REGION_IN_HOST = re.compile(
    r"\.kafka(?:-serverless)?\.(?P<region>[a-z]{2,4}(?:-[a-z]+)+-[0-9]+)\.(?:[a-z0-9-]+\.)*amazonaws\."
)


class AwsUser(NamedTuple):
    """The credentials that sign; if all fields are None, those that the SDK finds."""

    profile: str | None
    role_arn: str | None
    session_name: str | None


def aws_user(options: Mapping[str, str]) -> AwsUser:
    """Build the user from the JAAS options of ``IAMLoginModule``. Raises ConfigError."""
    known = (PROFILE, ROLE, SESSION)
    for name in options:
        # Java's library, too, uses the STS region only for a role, and for its logs of credentials.
        is_unused = name in _IGNORED or (name == _STS_REGION and not options.get(ROLE))
        if name.startswith("aws") and name not in known and not is_unused:
            what = shown_word(name) if name in KNOWN_OPTIONS else "an option that begins with 'aws'"
            raise ConfigError(
                f"{JAAS} has {what}, which AWS's signer for Python does not support "
                f"({', '.join(known)} are known): put it, with the role, into a profile of "
                f"~/.aws/config, and name that by {PROFILE}",
                code="AUTH-007",
            )
    user = AwsUser(*(options.get(name) or None for name in known))
    if user.profile is not None and user.role_arn is not None:
        raise ConfigError(
            f"{JAAS} has {PROFILE} and {ROLE}: leave one of them out", code="OPTION-009"
        )
    if user.session_name is not None and user.role_arn is None:
        raise ConfigError(f"{JAAS} has {SESSION}, but no {ROLE}", code="OPTION-008")
    return user


def region_of(host: str) -> str | None:
    """Return the AWS region of a broker's name; None if the name is not MSK's."""
    found = _REGION_IN_HOST.search(f".{host.lower()}")
    return None if found is None else found["region"]


def region_of_environment() -> str | None:
    """Return the AWS region of the environment, for brokers with custom names."""
    return next((os.environ[name] for name in _REGION_VARIABLES if os.environ.get(name)), None)


def signed_token(user: AwsUser, region: str, is_last: bool = True) -> Token:
    """Return a new token for the brokers of ``region``. May request credentials from AWS and wait.

    is_last: no retry follows. The SDK asks a machine's metadata service once, for a second, and
        treats no answer as no credentials. Therefore missing credentials are final at the last
        attempt only

    Raises AuthenticationError; CredentialsUnavailableError if a retry may succeed.
    """
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    signer: Any = MSKAuthTokenProvider
    try:
        if user.role_arn is not None:
            # AWS gives these credentials for 900 s at least.
            more = () if user.session_name is None else (user.session_name,)
            signed = signer.generate_auth_token_from_role_arn(region, user.role_arn, *more)
            missing_s = 0
        else:
            signed, missing_s = _signed_within_validity(signer, user, region)
        text, expires_at_ms = signed
    except Exception as error:
        raise _converted_error(error, is_last) from None
    return Token(Secret(text), None, int(expires_at_ms) - 1000 * missing_s)


_TOKEN_S = 900
"""Validity of a token that the signer returns, s: ``DEFAULT_TOKEN_EXPIRY_SECONDS``."""


def _signed_within_validity(signer: Any, user: AwsUser, region: str) -> tuple[Any, int]:
    """Return the signer's answer, and by how many seconds its token outlives its credentials."""
    from botocore.credentials import CredentialProvider
    from botocore.session import Session

    credentials = Session(profile=user.profile).get_credentials()

    class Loaded(CredentialProvider):  # type: ignore[misc]
        def load(self) -> Any:
            return credentials

    signed = signer.generate_auth_token_from_credentials_provider(region, Loaded())
    return signed, _TOKEN_S - _seconds_left(credentials)


def _seconds_left(credentials: Any) -> int:
    """Return how long the credentials are valid, s, at most _TOKEN_S.

    Temporary credentials say no more than whether they must be refreshed so many seconds before
    their end.
    """
    ends_within = getattr(credentials, "refresh_needed", None)
    low, high = 0, _TOKEN_S
    while ends_within is not None and low < high:
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if ends_within(refresh_in=middle) else (middle, high)
    return high


_UNAVAILABLE_ERRORS = {
    *("ConnectionError", "EndpointConnectionError", "HTTPClientError", "MetadataRetrievalError"),
    "OSError",
}
"""Class names, mostly botocore's: AWS, or the provider of a container's credentials, is
unavailable."""


def _converted_error(error: Exception, is_last: bool) -> AuthenticationError:
    """Convert an error of botocore by its class: errors of network or load are retriable."""
    names = {kind.__name__ for kind in type(error).__mro__}
    may_pass = AuthenticationError if is_last else CredentialsUnavailableError
    # The signer reads an attribute of the credentials before it checks that they exist.
    has_none = isinstance(error, AttributeError) and "NoneType" in str(error)
    if has_none or (isinstance(error, ValueError) and "empty" in str(error).lower()):
        return may_pass(
            "kafka.sasl.mechanism=AWS_MSK_IAM: there are no AWS credentials on this machine: give "
            f"it a role, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile by "
            f"{PROFILE} in {JAAS}",
            code="AUTH-017",
        )
    text = f"kafka.sasl.mechanism=AWS_MSK_IAM: AWS gives no credentials: {redacted(error)}"
    if names & _UNAVAILABLE_ERRORS or _is_busy(error):
        return CredentialsUnavailableError(text, code="AUTH-017")
    if "CredentialRetrievalError" in names:
        return may_pass(f"{text} (CredentialRetrievalError)", code="AUTH-017")
    return AuthenticationError(f"{text} ({type(error).__name__})", code="AUTH-017")


def _is_busy(error: Exception) -> bool:
    """Return True if ``error`` is the ``ClientError`` of a service that is overloaded."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return False
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    is_overloaded = isinstance(status, int) and (status == 429 or status >= 500)
    return (
        is_overloaded or re.search("Throttl|TooManyRequests|RequestLimitExceeded", code) is not None
    )


# --- login ---------------------------------------------------------------------------------------

_MAX_ATTEMPTS = 3
"""Attempts before missing credentials are final. Source: ``awsMaxRetries`` of Java's library."""


class AwsLogin(Login):
    """Login with AWS_MSK_IAM, which is OAUTHBEARER on the wire.

    A token serves the brokers of one region, which is that of the broker's name, else that of the
    environment.
    """

    mechanism = "OAUTHBEARER"

    def __init__(self, config: SaslConfig, timer: RetryTimer, rng: RandomSource) -> None:
        self._config = config
        self._timer = timer
        self._rng = rng
        self._lock = threading.Lock()
        self._keepers: dict[str, TokenKeeper] = {}

    def login(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        """Fetch a token for each region of ``hosts``; without hosts, for the environment's."""
        regions = {region_of(host) for host in hosts} or {None}
        for region in sorted({known or region_of_environment() or "" for known in regions}):
            # An unknown region is an error later, when the broker's name is known.
            if region:
                self._keeper(region).prepare(timeout_ms)

    def create_sasl_client(self, host: str) -> SaslClient:
        region = region_of(host) or region_of_environment()
        if region is None:
            raise AuthenticationError(
                f"kafka.sasl.mechanism=AWS_MSK_IAM: the name of the broker {host} has no AWS "
                f"region. Set {_REGION_VARIABLES[0]} for the driver, and by "
                f"spark.executorEnv.{_REGION_VARIABLES[0]} for executors",
                code="AUTH-018",
            )
        return OAuthBearerSaslClient(self._keeper(region).token(), {}, "AWS_MSK_IAM")

    def close(self) -> None:
        with self._lock:
            keepers = list(self._keepers.values())
        for keeper in keepers:
            keeper.close()
        self._timer.close()

    def _keeper(self, region: str) -> TokenKeeper:
        def fetch(timeout_ms: int) -> Token:
            return self._fetch(region, timeout_ms)

        with self._lock:
            keeper = self._keepers.get(region)
            if keeper is None:
                keeper = TokenKeeper(fetch, self._config.login, self._timer.clock, self._rng)
                self._keepers[region] = keeper
            return keeper

    def _fetch(self, region: str, timeout_ms: int) -> Token:
        with authentication_errors():
            user = aws_user(login_options(self._config))
        tries = 0

        def attempt(_: int) -> Token:
            nonlocal tries
            tries += 1
            return signed_token(user, region, is_last=tries >= _MAX_ATTEMPTS)

        return with_retries(attempt, self._config.login, self._timer, timeout_ms)
