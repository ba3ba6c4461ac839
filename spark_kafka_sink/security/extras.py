"""Packages that only some mechanisms need: what to install where one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError


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
