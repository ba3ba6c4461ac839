"""TLS and SASL of a configuration, shared by all connections of a process with this configuration.

As in Java's ``LoginManager``, tokens are fetched once and renewed in one place. The modules for TLS
and SASL are imported on demand: a job in clear text never loads them.

:func:`new_login` chooses the login of a mechanism; :func:`check` checks options and packages. A new
mechanism needs:

- its name in ``MECHANISMS`` of ``config/security_keys.py``
- its login in :func:`new_login`, its check in ``_CHECKS``
- its login module in ``LOGIN_MODULES`` of ``credentials.py``
- its conversation, a ``SaslClient`` of ``protocol/connection.py``: see ``mechanisms.py``

Source: ``LoginManager`` of Kafka.
"""

from __future__ import annotations

import os
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from spark_kafka_sink.base.clock import SystemClock, wait_seconds
from spark_kafka_sink.base.errors import ConfigError, CredentialsUnavailableError
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.config.config_def import has_reference
from spark_kafka_sink.config.security_config import SaslConfig, SecurityConfig, SslConfig
from spark_kafka_sink.config.security_keys import (
    AWS_MSK_IAM,
    GSSAPI,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
)
from spark_kafka_sink.protocol.connection import SaslClientFactory
from spark_kafka_sink.security.references import (
    folders_of_relative_paths,
    may_name_relative_file,
)

if TYPE_CHECKING:
    from spark_kafka_sink.security.credentials import Login
    from spark_kafka_sink.security.oauth_tokens import RetryTimer
    from spark_kafka_sink.security.tls import TlsContext


@dataclass(frozen=True, slots=True)
class Security:
    """TLS and SASL of one configuration, None where it has none."""

    tls: TlsContext | None = None
    login: Login | None = None

    @classmethod
    def of(cls, config: SecurityConfig) -> Security:
        """Return the TLS and SASL of ``config``, without reading stores or fetching tokens.

        Raises ConfigError for unusable options.
        """
        if config.ssl is None and config.sasl is None:
            return CLEAR_TEXT
        return cls(
            None if config.ssl is None else _CONTEXTS.of(config.ssl),
            None if config.sasl is None else _LOGINS.of(config.sasl),
        )

    @property
    def create_sasl_client(self) -> SaslClientFactory | None:
        """The function that begins the authentication of a connection; None without SASL."""
        return None if self.login is None else self.login.create_sasl_client

    def prepare(self, timeout_ms: int, hosts: Sequence[str]) -> None:
        """Read certificates and keys, and fetch the first token.

        Called before the first connection and outside of any lock.

        hosts: of the bootstrap brokers

        Raises ConfigError and AuthenticationError; CredentialsUnavailableError if a later attempt
        may succeed.
        """
        if self.tls is not None:
            self.tls.context()
        if self.login is not None:
            self.login.login(timeout_ms, hosts)

    def prepare_if_possible(self, timeout_ms: int, hosts: Sequence[str]) -> None:
        """Prepare like ``prepare``, for a caller that waits for brokers with a deadline of its own.

        Credentials that are unavailable are no error yet: each connection asks for them again, and
        its error gives the reason. Raises ConfigError and AuthenticationError.
        """
        with suppress(CredentialsUnavailableError):
            self.prepare(timeout_ms, hosts)

    def credentials_watcher(self) -> Callable[[], bool]:
        """Return a function that detects other credentials for new connections since its last call.

        Call ``credentials_watcher`` after ``prepare``. The function checks the files of stores and
        resolves references. If it cannot read one, it logs a warning and the former credentials
        stay in use. If one is gone, this is a change: no connection stays open.
        """
        last = self._in_use()

        def have_changed() -> bool:
            nonlocal last
            before, last = last, self._in_use()
            return last != before

        return have_changed

    def _in_use(self) -> tuple[object, object]:
        try:
            return (
                None if self.tls is None else self.tls.context(),
                None if self.login is None else self.login.credentials_version(),
            )
        except CredentialsUnavailableError:
            return _GONE


CLEAR_TEXT = Security()
_GONE = None, CredentialsUnavailableError


K = TypeVar("K")
V = TypeVar("V")


MOST_KEPT = 100
"""Configurations whose TLS and logins a process keeps: those of a driver's queries and sessions."""


class _PerProcess(Generic[K, V]):
    """Objects of this process by configuration, each created once; those used last are kept.

    The same relative path is another file for another session of Spark Connect: then the folders
    of relative paths are part of the key.

    A forked child starts without any: threads do not survive a fork, and another thread of the
    parent may hold the lock.
    """

    def __init__(self, create: Callable[[K], V]) -> None:
        self._create = create
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def of(self, config: K) -> V:
        key = (config, folders_of_relative_paths() if may_name_relative_file(config) else ())
        with self._lock:
            if key not in self._created:
                self._created[key] = self._create(config)
            self._created.move_to_end(key)
            if len(self._created) > MOST_KEPT:
                self._created.popitem(last=False)
            return self._created[key]

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._created: OrderedDict[tuple[K, tuple[Path, ...]], V] = OrderedDict()


def _new_context(config: SslConfig) -> TlsContext:
    from spark_kafka_sink.security.tls import TlsContext

    return TlsContext(config)


def _new_login(config: SaslConfig) -> Login:
    return new_login(config)


_CONTEXTS = _PerProcess(_new_context)
_LOGINS = _PerProcess(_new_login)


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


def new_login(config: SaslConfig) -> Login:
    """Return a login of its own for ``config``. Raises ConfigError as ``check`` does.

    The modules of a mechanism are imported only if the mechanism is used.
    """
    check(config)
    if config.mechanism == OAUTHBEARER:
        from spark_kafka_sink.security.oauth import TokenLogin

        return TokenLogin(config, _retry_timer(), random.Random())
    if config.mechanism == AWS_MSK_IAM:
        from spark_kafka_sink.security.aws import AwsLogin

        return AwsLogin(config, _retry_timer(), random.Random())
    if config.mechanism == GSSAPI:
        from spark_kafka_sink.security.kerberos import KerberosLogin

        return KerberosLogin(config, SystemClock())
    from spark_kafka_sink.security.credentials import PasswordLogin

    return PasswordLogin(config)


def _retry_timer() -> RetryTimer:
    from spark_kafka_sink.security.oauth_tokens import RetryTimer

    closed = threading.Event()
    return RetryTimer(SystemClock(), lambda pause_ms: _wait(closed, pause_ms), closed.set)


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
        from spark_kafka_sink.security.credentials import LOGIN_MODULES

        raise ConfigError(
            f"kafka.sasl.mechanism={config.mechanism} is not known: use one of "
            f"{', '.join(LOGIN_MODULES)}",
            code="OPTION-003",
        )
    checks(config)


def _check_password(config: SaslConfig) -> None:
    from spark_kafka_sink.security.credentials import check_password_options

    check_password_options(config)


def _check_oauthbearer(config: SaslConfig) -> None:
    from spark_kafka_sink.security.oauth import check_token_options

    check_token_options(config)


def _check_gssapi(config: SaslConfig) -> None:
    from spark_kafka_sink.security.credentials import LOGIN_MODULES, unresolved_jaas_entry
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
    from spark_kafka_sink.security.credentials import unresolved_jaas_entry

    entry = unresolved_jaas_entry(config)
    if entry is not None:
        aws_user(entry.options)
    check_installed(AWS)


_CHECKS: dict[str, Callable[[SaslConfig], None]] = {
    **dict.fromkeys(PASSWORD_MECHANISMS, _check_password),
    OAUTHBEARER: _check_oauthbearer,
    GSSAPI: _check_gssapi,
    AWS_MSK_IAM: _check_aws,
}
