"""The ``SSLContext`` of a configuration, and a new one when its certificates have changed.

Java's clients read their stores once. Here every new connection looks whether a file has changed
(its time, size or inode), or a value that is a reference, so that a certificate that was rotated is
used from the next connection on. What cannot be read then, say because the key is written already
and its certificate is not, leaves the former context in use, and is told once in the log.

Source: ``DefaultSslEngineFactory``, ``SslFactory``.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.security import locations, pem, store_options, stores, tls_errors
from spark_kafka_sink.security.der import expires_at_ms
from spark_kafka_sink.security.material import KeyMaterial
from spark_kafka_sink.security.private_file import private_file
from spark_kafka_sink.security.references import resolve as resolve_text
from spark_kafka_sink.security.tls_versions import versions_of

Resolve = Callable[[str, str], str]

logger = logging.getLogger(__name__)

# OpenSSL's X509_V_FLAG_PARTIAL_CHAIN, which Python 3.9 has no name for.
_PARTIAL_CHAIN: int = getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)


class _FileState(NamedTuple):
    """By which a changed file is known."""

    path: Path
    modified_ns: int
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class _Inputs:
    """All that a context is made of and that may change: resolved values, and files."""

    truststore: StoreConfig
    keystore: StoreConfig
    files: tuple[_FileState, ...]


class ClientContext(ssl.SSLContext):
    """A context that knows when the certificate that it shows expires.

    expires_at_ms: since 1970-01-01 UTC; None if it shows none
    """

    expires_at_ms: int | None = None


class _Made(NamedTuple):
    """own_certificate: DER of what the client shows; None if it shows none."""

    context: ClientContext
    inputs: _Inputs
    own_certificate: bytes | None


class TlsContext:
    """Makes the ``SSLContext`` for connections with TLS, and says what their errors mean.

    peer: to whom, for messages
    resolve: a text of the configuration and its option -> the text with its references resolved

    One object serves all threads of a process. Raises ConfigError for cipher suites that do not
    exist; files are not read before ``context``.
    """

    def __init__(
        self,
        config: SslConfig,
        peer: tls_errors.Peer = tls_errors.BROKERS,
        resolve: Resolve = resolve_text,
    ) -> None:
        prefix = peer.prefix
        self._config = config
        self._peer = peer
        self._resolve = resolve
        self._trust_options = store_options.trust_store_options(prefix)
        self._key_options = store_options.key_store_options(prefix)
        self._versions = versions_of(config, prefix)
        self._lock = threading.Lock()
        self._made: _Made | None = None
        self._told = ""

    def context(self) -> ClientContext:
        """For the next connection. Made at the first call, and again after a change.

        Raises ConfigError, naming option and cause, if it cannot be made and never was.
        """
        with self._lock:
            try:
                inputs = self._inputs()
                if self._made is None:
                    self._made = self._make(inputs)
                elif self._made.inputs != inputs:
                    self._made = self._make(inputs)
                    logger.info(
                        f"{self._peer.prefix}ssl.*: a store has changed; new connections use it"
                    )
            except ConfigError as error:
                if self._made is None:
                    raise
                self._tell(f"{error}. What was read before stays in use for new connections")
            else:
                self._told = ""
            return self._made.context

    def explain(self, error: OSError, host: str, port: int) -> str:
        """What an error of a connection with TLS means: cause, option, and what to do.

        ``error``: an ``ssl.SSLError``, or what a socket raised in the handshake.
        """
        return tls_errors.explain(error, host, port, self._situation())

    def _situation(self) -> tls_errors.Situation:
        made = self._made
        return tls_errors.Situation(
            self._peer,
            store_options.source(self._config.truststore, self._trust_options),
            store_options.source(self._config.keystore, self._key_options),
            None if made is None else made.own_certificate,
        )

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            logger.warning(problem)

    def _inputs(self) -> _Inputs:
        """Looks at files before they are read: who changes them later is seen the next time."""
        truststore = _resolved(self._config.truststore, self._trust_options, self._resolve)
        keystore = _resolved(self._config.keystore, self._key_options, self._resolve)
        files = (
            _state(truststore.location, self._trust_options.location),
            _state(keystore.location, self._key_options.location),
        )
        return _Inputs(truststore, keystore, tuple(f for f in files if f is not None))

    def _make(self, inputs: _Inputs) -> _Made:
        context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
        self._versions.apply(context, f"{self._peer.prefix}ssl.cipher.suites")
        # As Java's client: a server that wants to renegotiate (TLS 1.2) is refused.
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.check_hostname = self._config.checks_host_name
        trusted = stores.trusted_certificates(inputs.truststore, self._trust_options)
        if trusted is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            # As in Java, trust ends at any certificate of the store, not only at a root.
            context.verify_flags |= _PARTIAL_CHAIN
            what = store_options.described(inputs.truststore, self._trust_options)
            _load(context, trusted, what)
        material = stores.key_material(inputs.keystore, self._key_options)
        if material is None:
            return _Made(context, inputs, None)
        _use(context, material, inputs.keystore, self._key_options)
        context.expires_at_ms = expires_at_ms(material.chain[0])
        return _Made(context, inputs, material.chain[0])


def _resolved(
    store: StoreConfig, options: store_options.StoreOptions, resolve: Resolve
) -> StoreConfig:
    def text(value: str | None, option: str) -> str | None:
        return None if value is None else resolve(value, option)

    def secret(value: Secret | None, option: str) -> Secret | None:
        return None if value is None else Secret(resolve(value.reveal(), option))

    return dataclasses.replace(
        store,
        location=text(store.location, options.location),
        certificates=text(store.certificates, options.certificates),
        password=secret(store.password, options.password),
        key=secret(store.key, options.key),
        key_password=secret(store.key_password, options.key_password),
    )


def _state(location: str | None, option: str) -> _FileState | None:
    if location is None:
        return None
    path = locations.locate(location, option)
    try:
        status = os.stat(path)
    except OSError as error:
        raise ConfigError(f"{option}={path}: {error.strerror}") from error
    return _FileState(path, status.st_mtime_ns, status.st_size, status.st_ino)


def _load(context: ssl.SSLContext, certificates: tuple[bytes, ...], what: str) -> None:
    """Let ``context`` trust these. Raises ConfigError for one that OpenSSL cannot read."""
    for number, certificate in enumerate(certificates, 1):
        try:
            context.load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError):
            raise ConfigError(
                f"{what}: certificate {number} of {len(certificates)} is damaged"
            ) from None


def _use(
    context: ssl.SSLContext,
    material: KeyMaterial,
    store: StoreConfig,
    options: store_options.StoreOptions,
) -> None:
    """Give the client its own certificate. Raises ConfigError."""
    # Into another context, only to see that what cannot be read is not one of them.
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(scratch, material.chain, store_options.described(store, options))
    password = "" if store.key_password is None else store.key_password.reveal()
    chain = "".join(pem.encode("CERTIFICATE", certificate) for certificate in material.chain)
    with private_file((chain + material.key.reveal()).encode()) as path:
        try:
            # With a password in any case: without one OpenSSL would ask the terminal.
            context.load_cert_chain(path, password=lambda: _password_bytes(password))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(tls_errors.why_not_used(error, material, store, options)) from None


def _password_bytes(password: str) -> bytes:
    """As it stood in the file or variable that it was read from, even if that was not UTF-8."""
    return password.encode("utf-8", "surrogateescape")
