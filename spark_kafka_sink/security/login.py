"""Choose the login of a mechanism, and check its options and packages.

Source: ``LoginManager`` of Kafka.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_sink.base.clock import SystemClock, wait_seconds
from spark_kafka_sink.base.errors import ConfigError, CredentialsUnavailableError
from spark_kafka_sink.config.config_def import has_reference
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.config.security_keys import (
    AWS_MSK_IAM,
    GSSAPI,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
)
from spark_kafka_sink.security.credentials import (
    LOGIN_MODULES,
    Login,
    PasswordLogin,
    check_password_options,
    unresolved_jaas_entry,
)

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
