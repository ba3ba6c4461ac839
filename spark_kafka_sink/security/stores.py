"""The certificates and keys of the configured stores, of any format.

The content of a file decides its format: JKS, PKCS12 or PEM. A given ``type`` must be right about
PEM; JKS and PKCS12 are interchangeable, as in Java since 9.

``config/security_config.py`` checks the rules that need no file. The first sentence of a message is
Java's, if Java has one.

Source: ``DefaultSslEngineFactory.FileBasedStore``, ``PemStore``, ``createKeystore``,
``createTruststore``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError, warn
from spark_kafka_sink.config.security_config import StoreConfig
from spark_kafka_sink.security import key_formats, references
from spark_kafka_sink.security.key_formats import (
    DamagedStoreError,
    KeyMaterial,
    KeyPasswordError,
    StoreError,
    StorePasswordError,
)

# --- options of a store, and what does not fit to them -------------------------------------------

JKS, PKCS12, PEM = "JKS", "PKCS12", "PEM"


class StoreOptions(NamedTuple):
    """The names of one store's options.

    certificates: of a key store, its chain
    """

    type: str
    location: str
    password: str
    certificates: str
    key: str = ""
    key_password: str = ""


def trust_store_options(prefix: str) -> StoreOptions:
    """Return the option names of the trust store.

    prefix: the text before ``ssl.``; ``kafka.`` for brokers
    """
    names = ("type", "location", "password", "certificates")
    return StoreOptions(*(f"{prefix}ssl.truststore.{name}" for name in names))


def key_store_options(prefix: str) -> StoreOptions:
    """Return the option names of the key store; see ``trust_store_options``."""
    store = ("type", "location", "password", "certificate.chain", "key")
    names = [*(f"keystore.{name}" for name in store), "key.password"]
    return StoreOptions(*(f"{prefix}ssl.{name}" for name in names))


def source(store: StoreConfig, options: StoreOptions) -> str | None:
    """Return the option that a store comes from; None without a store."""
    if store.location is not None:
        return options.location
    return None if store.certificates is None else options.certificates


def description(store: StoreConfig, options: StoreOptions) -> str:
    """Return option and value of a store's location, for messages; for inline text, the option."""
    return (
        options.certificates if store.location is None else f"{options.location}={store.location}"
    )


# --- stores --------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_BEGINNING_OF_PKCS12 = b"\x30"
# The largest bundles of authorities have less than 1 MiB.
_MOST_BYTES = 16 << 20


def trusted_certificates(store: StoreConfig, options: StoreOptions) -> tuple[bytes, ...] | None:
    """Return the DER of all trusted certificates, at least one; None without a trust store.

    A Java store trusts each trusted certificate and the own certificate of each key. Raises
    ConfigError.
    """
    if store.certificates is not None:
        with _naming_option(options.certificates, options):
            return key_formats.pem_certificates(store.certificates)
    if store.location is None:
        return None
    path = references.find_file(store.location, options.location)
    with _naming_option(f"{options.location}={path}", options):
        found = _trusted_in_file(path, store, options)
        if not found:
            raise DamagedStoreError("it holds no certificate that could be trusted")
        return found


def _trusted_in_file(path: Path, store: StoreConfig, options: StoreOptions) -> tuple[bytes, ...]:
    kind, data = _read(path, store, options.location)
    if kind == PEM:
        if store.password is not None:
            raise ConfigError(
                "SSL trust store password cannot be specified for PEM format. "
                f"Leave out {options.password}",
                code="TLS-005",
            )
        return key_formats.pem_certificates(_text(data))
    password = None if store.password is None else store.password.reveal()
    if kind == JKS:
        return key_formats.read_jks(data, password).trusted
    # Imported here because it loads the package cryptography, which only PKCS12 needs.
    from spark_kafka_sink.security import pkcs12

    return pkcs12.trusted_certificates(data, password)


def key_material(store: StoreConfig, options: StoreOptions) -> KeyMaterial | None:
    """Return the private key with its certificates; None without a key store.

    Raises ConfigError.
    """
    if store.key is not None and store.certificates is not None:
        with _naming_option(options.certificates, options):
            chain = key_formats.pem_certificates(store.certificates)
        with _naming_option(options.key, options):
            return _key_of_text(store.key.reveal(), chain, store)
    if store.location is None:
        return None
    path = references.find_file(store.location, options.location)
    with _naming_option(f"{options.location}={path}", options):
        return _key_in_file(path, store, options)


def _key_in_file(path: Path, store: StoreConfig, options: StoreOptions) -> KeyMaterial:
    kind, data = _read(path, store, options.location)
    if kind == PEM:
        if store.password is not None:
            raise ConfigError(
                "SSL key store password cannot be specified with PEM format, only key password may "
                f"be specified. Leave out {options.password}; where the key is encrypted, set "
                f"{options.key_password}",
                code="TLS-005",
            )
        text = _text(data)
        return _key_of_text(text, key_formats.pem_certificates(text), store)
    if store.password is None:
        raise ConfigError(
            "SSL key store is specified, but key store password is not specified. "
            f"Set {options.password}",
            code="OPTION-008",
        )
    password = store.password.reveal()
    key_password = None if store.key_password is None else store.key_password.reveal()
    if kind == JKS:
        keys = key_formats.read_jks(data, password).keys
        if not keys:
            raise DamagedStoreError("it holds no private key")
        first = min(keys, key=lambda entry: entry.alias)
        _warn_of_several_keys(len(keys), f"{first.alias}, the first by its alias,", options)
        return key_formats.unlock_jks_key(first, password if key_password is None else key_password)
    # Imported here because it loads the package cryptography, which only PKCS12 needs.
    from spark_kafka_sink.security import pkcs12

    material = pkcs12.key_material(data, password, key_password)
    _warn_of_several_keys(pkcs12.key_count(data), "the first in the file", options)
    return material


def _warn_of_several_keys(count: int, used: str, options: StoreOptions) -> None:
    """Warn of several keys, among which Java would choose by the broker's request."""
    if count > 1:
        warn(logger, "TLS-019", f"{options.location}: of {count} private keys, {used} is used")


def _key_of_text(text: str, chain: tuple[bytes, ...], store: StoreConfig) -> KeyMaterial:
    """Return the key of PEM text.

    A password of an unencrypted key is ignored here and rejected by Java.
    """
    key = key_formats.pem_private_key(text, chain)
    if key.is_encrypted and store.key_password is None:
        raise KeyPasswordError("the private key is encrypted, but its password is not specified")
    return key


def _kind_of(data: bytes) -> str:
    if not data:
        raise DamagedStoreError("it is empty")
    if data.startswith(key_formats.JKS_MAGIC):
        return JKS
    if data.startswith(key_formats.JCEKS_MAGIC):
        raise DamagedStoreError(
            "it is a JCEKS store, which is not read here; "
            "keytool -importkeystore -deststoretype PKCS12 converts it"
        )
    if b"-BEGIN" in data:  # with any text before it
        return PEM
    if data.startswith(_BEGINNING_OF_PKCS12):
        return PKCS12
    raise DamagedStoreError("its content is neither JKS nor PKCS12 nor PEM")


def _text(data: bytes) -> str:
    """Decode PEM text.

    Replaced bytes stand outside of the blocks, or make a block invalid base64.
    """
    return data.decode("utf-8", "replace")


def _read(path: Path, store: StoreConfig, option: str) -> tuple[str, bytes]:
    """Return kind and content of a store.

    Raises DamagedStoreError if the file is no store, or contradicts the configured type.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{option}={path}: {references.process_description()}: {error.strerror}",
            code="OPTION-021",
        ) from error
    if len(data) > _MOST_BYTES:
        raise DamagedStoreError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    kind, said = _kind_of(data), store.type
    if said is not None and (said == PEM) != (kind == PEM):
        raise DamagedStoreError(f"its content is {kind}, but the store's type is given as {said}")
    return kind, data


@contextmanager
def _naming_option(what: str, options: StoreOptions) -> Iterator[None]:
    """Convert a StoreError to a ConfigError with the store's option and the option to check."""
    try:
        yield
    except StorePasswordError as error:
        raise ConfigError(f"{what}: {error}. Check {options.password}", code="TLS-017") from None
    except KeyPasswordError as error:
        raise ConfigError(
            f"{what}: {error}. Check {options.key_password}", code="TLS-017"
        ) from None
    except StoreError as error:
        raise ConfigError(f"{what}: {error}", code="TLS-018") from None
