"""What the options of a store are called, and what is said where a file does not fit to them.

Rules that need no file are ``config/security_rules.py``'s. The first sentence of a message is
Java's, where Java has one.

Source: ``DefaultSslEngineFactory.createKeystore``, ``createTruststore``.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.config.security_config import StoreConfig

JKS, PKCS12, PEM = "JKS", "PKCS12", "PEM"


class StoreOptions(NamedTuple):
    """What the options of one store are called. ``certificates``: of a key store, its chain."""

    type: str
    location: str
    password: str
    certificates: str
    key: str
    key_password: str


def trust_store_options(prefix: str) -> StoreOptions:
    """Of the trust store. ``prefix``: what stands before ``ssl.``, ``kafka.`` for brokers."""
    store = f"{prefix}ssl.truststore."
    return StoreOptions(
        type=f"{store}type",
        location=f"{store}location",
        password=f"{store}password",
        certificates=f"{store}certificates",
        key="",
        key_password="",
    )


def key_store_options(prefix: str) -> StoreOptions:
    """Of the key store; see ``trust_store_options``."""
    store = f"{prefix}ssl.keystore."
    return StoreOptions(
        type=f"{store}type",
        location=f"{store}location",
        password=f"{store}password",
        certificates=f"{store}certificate.chain",
        key=f"{store}key",
        key_password=f"{prefix}ssl.key.password",
    )


def source(store: StoreConfig, options: StoreOptions) -> str | None:
    """The option that a store comes from; None where none was asked for."""
    if store.location is not None:
        return options.location
    return None if store.certificates is None else options.certificates


def described(store: StoreConfig, options: StoreOptions) -> str:
    """Option and value of where a store is, for messages; of text in an option, the option."""
    return (
        options.certificates if store.location is None else f"{options.location}={store.location}"
    )


def password_of_pem_trust_store(options: StoreOptions) -> str:
    """What is said where a trust store is PEM and has a password."""
    return (
        f"SSL trust store password cannot be specified for PEM format. Leave out {options.password}"
    )


def password_of_pem_key_store(options: StoreOptions) -> str:
    """What is said where a key store is PEM and has a password of the store."""
    return (
        "SSL key store password cannot be specified with PEM format, only key password may be "
        f"specified. Leave out {options.password}; where the key is encrypted, set "
        f"{options.key_password}"
    )


def no_password_of_key_store(options: StoreOptions) -> str:
    """What is said where a key store is JKS or PKCS12 and has no password."""
    return (
        "SSL key store is specified, but key store password is not specified. "
        f"Set {options.password}"
    )
