"""Logins: who this process is for a cluster, and the conversations that prove it.

One login is shared by all connections of a process that have the same configuration, as Java's
``LoginManager`` has it: tokens are fetched once, and renewed in one place. A process that was
forked starts with none: threads do not survive a fork.

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
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.config.reference_syntax import has_reference
from spark_kafka_sink.config.sasl_keys import AWS_MSK_IAM, GSSAPI, OAUTHBEARER, PLAIN, WITH_PASSWORD
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.protocol.connection import Conversation
from spark_kafka_sink.security.credentials import (
    LOGIN_MODULES,
    check_password_options,
    known_entry,
    user_of,
)
from spark_kafka_sink.security.mechanisms import PlainConversation, ScramConversation, ScramUser

if TYPE_CHECKING:
    from spark_kafka_sink.security.oauth.keeper import Waiting


# --- packages that only some mechanisms need -----------------------------------------------------


class Extra(NamedTuple):
    """module: what is imported; package: what pip installs; name: the extra of this package.

    more: what pip does not bring
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
    """Raises ConfigError, which tells the command that installs it, if the package is missing.

    It is imported: one whose own libraries are missing is found, and no other way tells.
    """
    try:
        import_module(extra.module)
    except ImportError as error:
        # Of one that is there, why it cannot be loaded: it names the library.
        is_there = error.name != extra.module
        why = (
            f", which is installed here, but cannot be loaded ({error}). It is needed"
            if is_there
            else ","
        )
        raise ConfigError(
            f"kafka.sasl.mechanism={extra.mechanism} needs the Python package {extra.module}{why} "
            f"here and on every machine that runs a task: pip install {extra.package}.{extra.more}"
        ) from error


# --- logins --------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)


class Login(Protocol):
    """Who this process is for one cluster."""

    @property
    def mechanism(self) -> str:
        """The mechanism's name on the wire, for SaslHandshake."""
        ...

    def prepare(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        """Gets what conversations need and waits for it: the first token, a ticket.

        Called before the first connection of a producer or client, in a thread that may wait, and
        outside of any lock. Returns at once where there is nothing to be fetched, or all is there.

        hosts: of the bootstrap brokers, where the login depends on them (the region of AWS)

        Raises AuthenticationError; CredentialsUnavailableError if it may be tried again.
        """
        ...

    def converse(self, host: str) -> Conversation:
        """Begins an authentication with the broker ``host``, now or on a connection that is open.

        Does not wait for a token: one that is missing or has expired is asked for by another
        thread. Raises CredentialsUnavailableError for as long as it is not there, and
        AuthenticationError for what trying again does not mend.
        """
        ...

    def identity(self) -> object:
        """Return what equals another one for as long as connections need not be made anew.

        None for tokens and tickets, which are renewed by themselves.
        """
        ...

    def close(self) -> None:
        """Stop renewing. For whoever made the login; what ``login_of`` returns stays open."""
        ...


class PasswordLogin:
    """PLAIN and SCRAM. References are resolved for each conversation.

    While a name or password cannot be read, say because its file is being written, the former one
    stays in use, as that of a store does.
    """

    def __init__(self, config: SaslConfig) -> None:
        self._config = config
        self._user: ScramUser | None = None
        self._told = ""

    @property
    def mechanism(self) -> str:
        return self._config.mechanism

    def prepare(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        """Raises AuthenticationError if name or password cannot be had."""
        self.converse("")

    def converse(self, host: str) -> Conversation:
        user = self.identity()
        if self._config.mechanism == PLAIN:
            return PlainConversation(user.username, user.password)
        return ScramConversation(self._config.mechanism, user)

    def identity(self) -> ScramUser:
        """Return name and password. Raises AuthenticationError if they were never there."""
        try:
            self._user, self._told = user_of(self._config), ""
        except AuthenticationError as error:
            if self._user is None:
                raise
            if self._told != str(error):
                self._told = str(error)
                logger.warning(f"{error}. What was read before stays in use")
        return self._user

    def close(self) -> None:
        """There is nothing to stop."""


def new_login(config: SaslConfig) -> Login:
    """A login of its own for ``config``. Raises ConfigError as ``check`` does.

    What a mechanism needs is imported only for it.
    """
    check(config)
    if config.mechanism == OAUTHBEARER:
        return _token_login(config)
    if config.mechanism == AWS_MSK_IAM:
        from spark_kafka_sink.security.aws import AwsLogin

        waiting, close = _waiting()
        return AwsLogin(config, waiting, random.Random(), close)
    if config.mechanism == GSSAPI:
        from spark_kafka_sink.security.kerberos import KerberosLogin

        return KerberosLogin(config, SystemClock())
    return PasswordLogin(config)


def _token_login(config: SaslConfig) -> Login:
    from spark_kafka_sink.security.oauth.login import TokenLogin

    waiting, close = _waiting()
    return TokenLogin(config, waiting, random.Random(), close)


def _waiting() -> tuple[Waiting, Callable[[], None]]:
    """How a login pauses between two attempts, and what ends the pauses."""
    from spark_kafka_sink.security.oauth.keeper import Waiting

    closed = threading.Event()
    return Waiting(SystemClock(), lambda pause_ms: _wait(closed, pause_ms)), closed.set


def _wait(closed: threading.Event, pause_ms: int) -> None:
    if closed.wait(wait_seconds(pause_ms)):
        raise CredentialsUnavailableError("the login was closed while a token was fetched")


def check(config: SaslConfig) -> None:
    """All that can be known without asking anybody: options that are missing or contradict.

    What stands behind a reference is not looked at: it may exist on the executors only. Raises
    ConfigError.
    """
    checks = _CHECKS.get(config.mechanism)
    if checks is None:
        raise ConfigError(
            f"kafka.sasl.mechanism={config.mechanism} is not known: use one of "
            f"{', '.join(LOGIN_MODULES)}"
        )
    checks(config)


def _check_oauthbearer(config: SaslConfig) -> None:
    from spark_kafka_sink.security.oauth.login import check_token_options

    check_token_options(config)


def _check_gssapi(config: SaslConfig) -> None:
    from spark_kafka_sink.security.kerberos import kerberos_user

    if config.jaas_config is None:
        raise ConfigError(
            "kafka.sasl.mechanism=GSSAPI, which is the default, needs kafka.sasl.jaas.config="
            f'{LOGIN_MODULES[GSSAPI][0]} required useKeyTab=true keyTab="…" principal="…"; (or '
            "useTicketCache=true). A JAAS file of a JVM is not read"
        )
    entry = known_entry(config)
    if entry is not None:
        texts = [*entry.options.values(), config.kerberos.service_name or ""]
        if not any(has_reference(text) for text in texts):
            kerberos_user(config.kerberos, entry.options)
    check_installed(KERBEROS)


def _check_aws(config: SaslConfig) -> None:
    from spark_kafka_sink.security.aws import aws_user

    entry = known_entry(config)
    if entry is not None:
        aws_user(entry.options)
    check_installed(AWS)


_CHECKS: dict[str, Callable[[SaslConfig], None]] = {
    **dict.fromkeys(WITH_PASSWORD, check_password_options),
    OAUTHBEARER: _check_oauthbearer,
    GSSAPI: _check_gssapi,
    AWS_MSK_IAM: _check_aws,
}


class LoginPool:
    """The logins of a process, by their configuration."""

    def __init__(self, create: Callable[[SaslConfig], Login] = new_login) -> None:
        self._create = create
        self._lock = threading.Lock()
        self._logins: dict[SaslConfig, Login] = {}

    def login_of(self, config: SaslConfig) -> Login:
        """The login of ``config``; made at the first call."""
        with self._lock:
            login = self._logins.get(config)
            if login is None:
                login = self._logins[config] = self._create(config)
            return login

    def forget(self) -> None:
        """Drop everything without closing: what a forked child must do."""
        self._lock = threading.Lock()
        self._logins = {}

    def close(self) -> None:
        """Close every login."""
        with self._lock:
            logins, self._logins = self._logins, {}
        for login in logins.values():
            login.close()


POOL = LoginPool()
"""The logins of this process."""

os.register_at_fork(after_in_child=POOL.forget)


def login_of(config: SaslConfig) -> Login:
    """The login of this process for ``config``, shared by all who have the same."""
    return POOL.login_of(config)
