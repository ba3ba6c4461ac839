"""Logins: the identity of this process for a cluster, and the conversations that prove it.

All connections of a process with the same configuration share one login, as in Java's
``LoginManager``: tokens are fetched once and renewed in one place. A forked process starts without
logins, because threads do not survive a fork.

Source: ``LoginManager``, ``Login`` of Kafka.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from spark_kafka_sink.base.clock import SystemClock, wait_seconds
from spark_kafka_sink.base.codes import warn
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.config.config_def import has_reference
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.config.security_keys import (
    AWS_MSK_IAM,
    GSSAPI,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    PLAIN,
)
from spark_kafka_sink.protocol.connection import SaslClient
from spark_kafka_sink.security.credentials import (
    LOGIN_MODULES,
    check_password_options,
    resolve_user,
    unresolved_jaas_entry,
)
from spark_kafka_sink.security.mechanisms import PlainSaslClient, ScramSaslClient, ScramUser

if TYPE_CHECKING:
    from spark_kafka_sink.security.oauth_tokens import RetryTimer


# --- packages that only some mechanisms need -----------------------------------------------------


class Extra(NamedTuple):
    """An optional package, which one mechanism needs.

    module: the module to import
    package: the name for pip
    name: the extra of this package
    more: what pip does not install
    """

    mechanism: str
    module: str
    package: str
    name: str
    more: str = ""


KERBEROS = Extra(
    "GSSAPI",
    "gssapi",
    "gssapi",
    "kerberos",
    " It is built there, and needs a C compiler, Python's headers and MIT Kerberos: on Debian and "
    "Ubuntu apt-get install gcc python3-dev libkrb5-dev, on RHEL and Fedora dnf install gcc "
    "python3-devel krb5-devel. Where it only runs, libgssapi-krb5-2 (krb5-libs) is enough.",
)
AWS = Extra("AWS_MSK_IAM", "aws_msk_iam_sasl_signer", "aws-msk-iam-sasl-signer-python", "aws")


def check_installed(extra: Extra) -> None:
    """Raise ConfigError with the command that installs the package if it is missing.

    Import the package, because only an import shows that its own libraries are missing.
    """
    try:
        import_module(extra.module)
    except ImportError as error:
        # If the package is installed, the error names the library that cannot be loaded.
        is_there = error.name != extra.module
        why = (
            f", which is installed here, but cannot be loaded ({error}). It is needed"
            if is_there
            else ","
        )
        raise ConfigError(
            f"kafka.sasl.mechanism={extra.mechanism} needs the Python package {extra.module}{why} "
            f"here and on every machine that runs a task: pip install {extra.package}.{extra.more}",
            code="AUTH-008",
        ) from error


# --- logins --------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)


class Login(Protocol):
    """The identity of this process for one cluster."""

    @property
    def mechanism(self) -> str:
        """The mechanism's name on the wire, for SaslHandshake."""
        ...

    def login(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        """Get what conversations need and wait for it: the first token, a ticket.

        Called before the first connection of a producer or client, in a thread that may wait, and
        outside of any lock. Returns at once if nothing has to be fetched.

        hosts: of the bootstrap brokers, where the login depends on them (the region of AWS)

        Raises AuthenticationError; CredentialsUnavailableError if a retry may succeed.
        """
        ...

    def create_sasl_client(self, host: str) -> SaslClient:
        """Begin an authentication with the broker ``host``, on a new or an open connection.

        Does not wait for a token: another thread fetches one that is missing or has expired. Raises
        CredentialsUnavailableError until the token has arrived, and AuthenticationError if a retry
        cannot succeed.
        """
        ...

    def credentials_version(self) -> object:
        """Return a value that changes when connections must be opened again with other credentials.

        None for tokens and tickets, which the login renews itself.
        """
        ...

    def close(self) -> None:
        """Stop renewing. Only the creator of a login closes it, never a user of ``login_of``."""
        ...


class PasswordLogin:
    """PLAIN and SCRAM. References are resolved for each conversation.

    While a name or password cannot be read, for example because its file is being written, the
    former value stays in use, like the former content of a store.
    """

    def __init__(self, config: SaslConfig) -> None:
        self._config = config
        self._user: ScramUser | None = None
        self._last_warning = ""

    @property
    def mechanism(self) -> str:
        return self._config.mechanism

    def login(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        """Raise AuthenticationError if the name or the password cannot be read."""
        self.create_sasl_client("")

    def create_sasl_client(self, host: str) -> SaslClient:
        user = self.credentials_version()
        if self._config.mechanism == PLAIN:
            return PlainSaslClient(user.username, user.password)
        return ScramSaslClient(self._config.mechanism, user)

    def credentials_version(self) -> ScramUser:
        """Return name and password. Raises AuthenticationError if they were never readable."""
        try:
            self._user, self._last_warning = resolve_user(self._config), ""
        except AuthenticationError as error:
            if self._user is None:
                raise
            if self._last_warning != str(error):
                self._last_warning = str(error)
                warn(logger, error.code, f"{error}. What was read before stays in use")
        return self._user

    def close(self) -> None:
        """Do nothing: no thread renews a password."""


def new_login(config: SaslConfig) -> Login:
    """Return a login of its own for ``config``. Raises ConfigError as ``check`` does.

    The modules of a mechanism are imported only if the mechanism is used.
    """
    check(config)
    if config.mechanism == OAUTHBEARER:
        return _token_login(config)
    if config.mechanism == AWS_MSK_IAM:
        from spark_kafka_sink.security.aws import AwsLogin

        timer, close = _retry_timer()
        return AwsLogin(config, timer, random.Random(), close)
    if config.mechanism == GSSAPI:
        from spark_kafka_sink.security.kerberos import KerberosLogin

        return KerberosLogin(config, SystemClock())
    return PasswordLogin(config)


def _token_login(config: SaslConfig) -> Login:
    from spark_kafka_sink.security.oauth import TokenLogin

    timer, close = _retry_timer()
    return TokenLogin(config, timer, random.Random(), close)


def _retry_timer() -> tuple[RetryTimer, Callable[[], None]]:
    """Return the pause between two attempts of a login, and the function that ends the pauses."""
    from spark_kafka_sink.security.oauth_tokens import RetryTimer

    closed = threading.Event()
    return RetryTimer(SystemClock(), lambda pause_ms: _wait(closed, pause_ms)), closed.set


def _wait(closed: threading.Event, pause_ms: int) -> None:
    if closed.wait(wait_seconds(pause_ms)):
        raise CredentialsUnavailableError(
            "the login was closed while a token was fetched", code="AUTH-012"
        )


def check(config: SaslConfig) -> None:
    """Reject options that are missing or contradict each other, before any request.

    References are not resolved, because their values may exist on the executors only. Raises
    ConfigError.
    """
    checks = _CHECKS.get(config.mechanism)
    if checks is None:
        raise ConfigError(
            f"kafka.sasl.mechanism={config.mechanism} is not known: use one of "
            f"{', '.join(LOGIN_MODULES)}",
            code="OPTION-003",
        )
    checks(config)


def _check_oauthbearer(config: SaslConfig) -> None:
    from spark_kafka_sink.security.oauth import check_token_options

    check_token_options(config)


def _check_gssapi(config: SaslConfig) -> None:
    from spark_kafka_sink.security.kerberos import kerberos_user

    if config.jaas_config is None:
        raise ConfigError(
            "kafka.sasl.mechanism=GSSAPI, which is the default, needs kafka.sasl.jaas.config="
            f'{LOGIN_MODULES[GSSAPI][0]} required useKeyTab=true keyTab="…" principal="…"; (or '
            "useTicketCache=true). A JAAS file of a JVM is not read",
            code="AUTH-005",
        )
    entry = unresolved_jaas_entry(config)
    if entry is not None:
        texts = [*entry.options.values(), config.kerberos.service_name or ""]
        if not any(has_reference(text) for text in texts):
            kerberos_user(config.kerberos, entry.options)
    check_installed(KERBEROS)


def _check_aws(config: SaslConfig) -> None:
    from spark_kafka_sink.security.aws import aws_user

    entry = unresolved_jaas_entry(config)
    if entry is not None:
        aws_user(entry.options)
    check_installed(AWS)


_CHECKS: dict[str, Callable[[SaslConfig], None]] = {
    **dict.fromkeys(PASSWORD_MECHANISMS, check_password_options),
    OAUTHBEARER: _check_oauthbearer,
    GSSAPI: _check_gssapi,
    AWS_MSK_IAM: _check_aws,
}


class LoginManager:
    """The logins of a process by configuration."""

    def __init__(self, create: Callable[[SaslConfig], Login] = new_login) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._logins: dict[SaslConfig, Login] = {}

    def login_of(self, config: SaslConfig) -> Login:
        """Return the login of ``config``, which the first call creates."""
        with self._lock:
            login = self._logins.get(config)
            if login is None:
                login = self._logins[config] = self._create(config)
            return login

    def forget(self) -> None:
        """Drop everything without closing, as a forked child must."""
        self._lock = threading.Lock()
        self._logins = {}

    def close(self) -> None:
        """Close every login."""
        with self._lock:
            logins, self._logins = self._logins, {}
        for login in logins.values():
            login.close()


LOGIN_MANAGER = LoginManager()
"""The logins of this process."""

os.register_at_fork(after_in_child=LOGIN_MANAGER.forget)


def login_of(config: SaslConfig) -> Login:
    """Return the login of this process for ``config``, shared by all callers with it."""
    return LOGIN_MANAGER.login_of(config)
