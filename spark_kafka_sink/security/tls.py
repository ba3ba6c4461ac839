"""The ``SSLContext`` of a configuration, and a new one when its certificates have changed.

Java's clients read their stores once. Here every new connection looks whether a file has changed
(its time, size or inode), or a value that is a reference, so that a certificate that was rotated is
used from the next connection on. What cannot be read then, say because the key is written already
and its certificate is not, leaves the former context in use, and is told once in the log.

Which versions of TLS and which cipher suites a connection may use follows from three options.
``ssl.protocol`` is the highest version, ``ssl.enabled.protocols`` lists those that are allowed, and
``ssl.cipher.suites`` allows only the versions that its suites belong to.

Kafka's option has IANA's names of cipher suites, OpenSSL has names of its own for TLS 1.2. In Java
a list is for all versions of TLS: without a suite of TLS 1.3 in it, 1.3 is not spoken, and so for
1.2. That is kept. Which suites of TLS 1.3 are used cannot be chosen in Python before 3.15, which
lacks ``SSLContext.set_ciphersuites``; then a list with one of the three stands for all three.

OpenSSL reads private keys from files only. On Linux a key is in a file in memory that has no name
(memfd): nobody else can open it, and it is gone when it is closed. Elsewhere, it is in a temporary
file that only this user may read, deleted after use.

Source: ``DefaultSslEngineFactory``, ``DefaultSslEngineFactory.createSslEngine``, ``SslFactory``,
``SslConfigs``; ``SSLContextImpl`` of the JDK; IANA's registry "TLS Cipher Suites";
``openssl ciphers -stdname`` of OpenSSL 3.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import re
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.config.ssl_keys import TLS_1_2, TLS_1_3
from spark_kafka_sink.security import key_formats, references, stores, tls_errors
from spark_kafka_sink.security.key_formats import KeyMaterial, expires_at_ms
from spark_kafka_sink.security.references import resolve as resolve_text

# --- cipher suites -------------------------------------------------------------------------------


def _suites_of_tls_1_2() -> Iterator[tuple[str, str]]:
    """IANA's name and OpenSSL's, which leaves out WITH, CBC and the usual key exchange, RSA."""
    for exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "DHE_DSS", "RSA"):
        is_elliptic = exchange.startswith("ECDHE")
        ciphers = [
            *("AES_256_GCM_SHA384", "AES_128_GCM_SHA256"),
            *("ARIA_256_GCM_SHA384", "ARIA_128_GCM_SHA256"),
            *("AES_256_CBC_SHA", "AES_128_CBC_SHA"),
            *(f"{c}_256_CBC_SHA{384 if is_elliptic else 256}" for c in ("AES", "CAMELLIA")),
            *("AES_128_CBC_SHA256", "CAMELLIA_128_CBC_SHA256"),
        ]
        if not is_elliptic:
            ciphers += ["CAMELLIA_256_CBC_SHA", "CAMELLIA_128_CBC_SHA"]
        if exchange in ("ECDHE_ECDSA", "DHE_RSA", "RSA"):
            ciphers += [f"AES_{bits}_CCM{tag}" for bits in (256, 128) for tag in ("", "_8")]
        if exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA"):
            ciphers.append("CHACHA20_POLY1305_SHA256")
        for cipher in ciphers:
            is_aria_ecdhe_rsa = cipher.startswith("ARIA") and exchange == "ECDHE_RSA"
            begin = "ECDHE" if is_aria_ecdhe_rsa else exchange.replace("_", "-")
            name = re.sub(r"_(256|128)", r"\1", cipher, count=1).replace("_CBC", "")
            name = name.replace("_8", "8").replace("1305_SHA256", "1305").replace("_", "-")
            openssl = name if exchange == "RSA" else f"{begin}-{name}"
            yield f"TLS_{exchange}_WITH_{cipher}", openssl


OPENSSL_NAMES = dict(_suites_of_tls_1_2())
"""IANA's name of each suite of TLS 1.2 with certificates -> OpenSSL's."""

TLS_1_3_SUITES = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
"""Those that OpenSSL offers by default, the best first."""

_TLS_1_3_BY_HAND = ("TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256")
# In Java's own lists: a signal to the server, no suite. OpenSSL always sends it.
_SIGNALS = ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV")
_IANA_NAMES = {openssl: iana for iana, openssl in OPENSSL_NAMES.items()}
# In Java's own lists too: with a fixed Diffie-Hellman key. OpenSSL has dropped them.
_DROPPED = frozenset(
    f"TLS_ECDH_{signature}_WITH_AES_{cipher}"
    for signature in ("ECDSA", "RSA")
    for cipher in (
        *("256_GCM_SHA384", "128_GCM_SHA256", "256_CBC_SHA384"),
        *("128_CBC_SHA256", "256_CBC_SHA", "128_CBC_SHA"),
    )
)


class Choice(NamedTuple):
    """Suites by version of TLS: those of 1.2 by OpenSSL's names, those of 1.3 by IANA's.

    dropped: those that Java has and OpenSSL has not
    """

    tls_1_2: tuple[str, ...]
    tls_1_3: tuple[str, ...]
    dropped: tuple[str, ...]


def choose(names: tuple[str, ...], option: str) -> Choice:
    """``names`` by version of TLS, in their order.

    Raises ConfigError for a name of no suite, and where no suite is left.
    """
    tls_1_2: list[str] = []
    tls_1_3: list[str] = []
    dropped: list[str] = []
    for name in names:
        if name in OPENSSL_NAMES:
            tls_1_2.append(OPENSSL_NAMES[name])
        elif name in TLS_1_3_SUITES or name in _TLS_1_3_BY_HAND:
            tls_1_3.append(name)
        elif name in _DROPPED:
            dropped.append(name)
        elif name not in _SIGNALS:
            raise ConfigError(f"{option}: {name} is not a cipher suite{_suggestion(name)}")
    if names and not tls_1_2 and not tls_1_3:
        raise ConfigError(f"{option}={','.join(names)}: OpenSSL has none of these cipher suites")
    return Choice(tuple(tls_1_2), tuple(tls_1_3), tuple(dropped))


def _suggestion(name: str) -> str:
    known = [*OPENSSL_NAMES, *TLS_1_3_SUITES, *_TLS_1_3_BY_HAND]
    written = name.upper()
    if written in _IANA_NAMES:
        return f" by IANA's names, which Kafka uses: that is {_IANA_NAMES[written]}"
    near = difflib.get_close_matches(written, known, n=1, cutoff=0.6)
    return f". Did you mean {near[0]}?" if near else ""


# --- versions of TLS -----------------------------------------------------------------------------

logger = logging.getLogger(__name__)

_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}


class TlsVersions(NamedTuple):
    """What is set in an ``SSLContext``; no suites stand for those that OpenSSL has by default."""

    lowest: ssl.TLSVersion
    highest: ssl.TLSVersion
    suites_of_1_2: tuple[str, ...]
    suites_of_1_3: tuple[str, ...]

    def apply(self, context: ssl.SSLContext, option: str) -> None:
        """Raises ConfigError, naming ``option``, where OpenSSL has none of the suites."""
        context.minimum_version = self.lowest
        context.maximum_version = self.highest
        if self.suites_of_1_2:
            try:
                context.set_ciphers(":".join(self.suites_of_1_2))
            except ssl.SSLError:
                raise ConfigError(
                    f"{option}: this machine's {ssl.OPENSSL_VERSION} has none of the cipher suites"
                ) from None
        if self.suites_of_1_3 and hasattr(context, "set_ciphersuites"):
            context.set_ciphersuites(":".join(self.suites_of_1_3))


def versions_of(config: SslConfig, prefix: str) -> TlsVersions:
    """Raises ConfigError for unknown suites, and where no version of TLS is left."""
    option = f"{prefix}ssl.cipher.suites"
    choice = choose(config.cipher_suites, option)
    enabled = config.enabled_protocols or tuple(_VERSIONS)
    allowed = [v for v in _VERSIONS if v in enabled and v <= config.protocol]
    if config.cipher_suites:
        of_suites = {TLS_1_2: choice.tls_1_2, TLS_1_3: choice.tls_1_3}
        left = [version for version in allowed if of_suites[version]]
        if not left:
            raise ConfigError(
                f"{option} has no cipher suite of {' or '.join(allowed)}, which is all that "
                f"{prefix}ssl.protocol and {prefix}ssl.enabled.protocols allow"
            )
        allowed = left
        _tell(choice, allowed, option)
    return TlsVersions(
        _VERSIONS[allowed[0]],
        _VERSIONS[allowed[-1]],
        choice.tls_1_2 if TLS_1_2 in allowed else (),
        choice.tls_1_3 if TLS_1_3 in allowed else (),
    )


def _tell(choice: Choice, allowed: list[str], option: str) -> None:
    """In the log, where a list means less or more than it says."""
    if choice.dropped:
        logger.warning(f"{option}: OpenSSL does not have {', '.join(choice.dropped)}")
    default = TLS_1_3_SUITES
    can_choose = hasattr(ssl.SSLContext, "set_ciphersuites")
    if TLS_1_3 in allowed and not can_choose and set(choice.tls_1_3) != set(default):
        logger.warning(
            f"{option}: Python's ssl cannot choose among the cipher suites of TLS 1.3 before "
            f"Python 3.15; a connection with TLS 1.3 may use any of {', '.join(default)}"
        )


# --- key material as a file ----------------------------------------------------------------------

_OWN_DESCRIPTORS = "/proc/self/fd"


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, as long as the block lasts."""
    descriptor = _in_memory()
    if descriptor is None:
        descriptor, path = tempfile.mkstemp(prefix="pykafka-sink-")
        is_named = True
    else:
        path, is_named = f"{_OWN_DESCRIPTORS}/{descriptor}", False
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield path
    finally:
        if is_named:
            os.unlink(path)


def _in_memory() -> int | None:
    """The descriptor of a nameless file; None where the system has no such files."""
    if not hasattr(os, "memfd_create") or not os.path.isdir(_OWN_DESCRIPTORS):
        return None
    try:
        return os.memfd_create("pykafka-sink")
    except OSError:
        return None  # forbidden, as in some sandboxes


# --- contexts ------------------------------------------------------------------------------------

Resolve = Callable[[str, str], str]


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
        self._trust_options = stores.trust_store_options(prefix)
        self._key_options = stores.key_store_options(prefix)
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
            stores.source(self._config.truststore, self._trust_options),
            stores.source(self._config.keystore, self._key_options),
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
            what = stores.described(inputs.truststore, self._trust_options)
            _load(context, trusted, what)
        material = stores.key_material(inputs.keystore, self._key_options)
        if material is None:
            return _Made(context, inputs, None)
        _use(context, material, inputs.keystore, self._key_options)
        context.expires_at_ms = expires_at_ms(material.chain[0])
        return _Made(context, inputs, material.chain[0])


def _resolved(store: StoreConfig, options: stores.StoreOptions, resolve: Resolve) -> StoreConfig:
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
    path = references.locate(location, option)
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
    options: stores.StoreOptions,
) -> None:
    """Give the client its own certificate. Raises ConfigError."""
    # Into another context, only to see that what cannot be read is not one of them.
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(scratch, material.chain, stores.described(store, options))
    password = "" if store.key_password is None else store.key_password.reveal()
    chain = "".join(
        key_formats.encode_pem("CERTIFICATE", certificate) for certificate in material.chain
    )
    with private_file((chain + material.key.reveal()).encode()) as path:
        try:
            # With a password in any case: without one OpenSSL would ask the terminal.
            context.load_cert_chain(path, password=lambda: _password_bytes(password))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(tls_errors.why_not_used(error, material, store, options)) from None


def _password_bytes(password: str) -> bytes:
    """As it stood in the file or variable that it was read from, even if that was not UTF-8."""
    return password.encode("utf-8", "surrogateescape")
