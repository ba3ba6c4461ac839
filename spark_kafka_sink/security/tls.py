"""Build the ``SSLContext`` of a configuration, and explain TLS errors such as bad certificates.

Java's clients read their stores once. Here every new connection checks whether a file (its time,
size or inode) or the value of a reference has changed. A rotated certificate is therefore used from
the next connection on. If a store cannot be read, for example because its key is written and its
certificate is not, the former context stays in use. The log reports it once. If a store or the
value of a reference is gone, no connection is opened until it is back, because an operator may have
withdrawn it.

Three options select the versions of TLS and the cipher suites. ``ssl.protocol`` is the highest
version. ``ssl.enabled.protocols`` lists the allowed versions. ``ssl.cipher.suites`` allows only the
versions that its suites belong to. A handshake that ends with another suite fails.

Kafka's option uses IANA's names of cipher suites; OpenSSL has other names for TLS 1.2. In Java a
list applies to all versions of TLS: without a suite of TLS 1.3, TLS 1.3 is disabled, and the same
holds for 1.2. This sink does the same. Python before 3.15 lacks ``SSLContext.set_ciphersuites`` and
cannot select suites of TLS 1.3. It offers all three, and this module rejects a server that chooses
another one than the list has, before anything is sent.

OpenSSL reads private keys from files only. On Linux the key is in a nameless file in memory
(memfd), which no other process can open and which disappears when it is closed. On other systems it
is in a temporary file that only this user may read, deleted after use.

:func:`explain` makes the text of an error: the cause, the option, and what to do. It has two
tables. One says why this client rejects a server's certificate (OpenSSL's verify codes). The other
says why a handshake failed otherwise (OpenSSL's reasons; the server sent those with ``_ALERT_``).
All other errors are reported in OpenSSL's words.

Source: ``DefaultSslEngineFactory``, ``DefaultSslEngineFactory.createSslEngine``, ``SslFactory``,
``SslConfigs``; ``SSLContextImpl`` of the JDK; IANA's registry "TLS Cipher Suites"; ``openssl
ciphers -stdname`` of OpenSSL 3; ``x509_vfy.h``, ``sslerr.h`` of OpenSSL 3; RFC 8446, 6.2.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import (
    ConfigError,
    CredentialsUnavailableError,
    coded,
    warn,
)
from spark_kafka_sink.base.machine import FileState, file_state
from spark_kafka_sink.base.model import format_address
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.config.security_keys import TLS_1_2, TLS_1_3
from spark_kafka_sink.security import key_formats, references, stores
from spark_kafka_sink.security.key_formats import KeyMaterial, expires_at_ms
from spark_kafka_sink.security.references import Resolve
from spark_kafka_sink.security.references import resolve as resolve_text
from spark_kafka_sink.security.stores import StoreOptions, description

# --- errors --------------------------------------------------------------------------------------


class Peer(NamedTuple):
    """The option names for one kind of servers, for messages.

    prefix: of the names of ``ssl.*``
    addresses: where the names of these servers come from
    without_tls: the setting for a server without TLS
    """

    prefix: str
    addresses: str
    without_tls: str


BROKERS = Peer(
    "kafka.",
    "kafka.bootstrap.servers and in the brokers' advertised.listeners",
    "kafka.security.protocol PLAINTEXT or SASL_PLAINTEXT",
)
TOKEN_ENDPOINT = Peer(
    "the JAAS option ",
    "kafka.sasl.oauthbearer.token.endpoint.url",
    "a URL that begins with http:",
)


class TlsErrorContext(NamedTuple):
    """The configuration of a connection whose error is explained.

    truststore, keystore: the option of the store; None without a store
    own_certificate: DER of the client's certificate; None without one
    """

    peer: Peer
    truststore: str | None
    keystore: str | None
    own_certificate: bytes | None


class _Meaning(NamedTuple):
    """A code, and texts with names such as ``{p}``, which ``explain`` fills in.

    p: the options' prefix
    """

    code: str
    cause: str
    advice: str


_OTHER = "TLS-016"
_NO_STORE = "TLS-018"
_TRUST_ITS_AUTHORITY = (
    "{p}ssl.truststore.location must be a store with the certificate of the authority that signed "
    "the server's"
)
_NOT_TRUSTED = _Meaning(
    "TLS-006", "the server's certificate is not signed by {trust}", _TRUST_ITS_AUTHORITY
)
_NAME = _Meaning(
    "TLS-007",
    "the server's certificate is not for the name or address {host}",
    "use a name of its certificate in {addresses}, or have {host} added to the certificate's "
    "subjectAltName, because a common name is not taken for a host name; to check no "
    "names, set {p}ssl.endpoint.identification.algorithm to an empty value",
)
_TOO_WEAK = _Meaning(
    "TLS-009",
    "a certificate of the server's chain has a key or a signature that OpenSSL counts as too weak",
    "renew it with RSA of 2048 bits or more, or EC, signed with SHA-256",
)

_REFUSED_CERTIFICATES: dict[int, _Meaning] = {
    2: _NOT_TRUSTED,
    7: _Meaning(
        "TLS-006",
        "the server's certificate was signed by another authority of the same name as one in the "
        "trust store",
        _TRUST_ITS_AUTHORITY,
    ),
    9: _Meaning(
        "TLS-008",
        "the server's certificate, or that of its authority, is not valid yet",
        "compare its dates with the clock of this host",
    ),
    10: _Meaning(
        "TLS-008",
        "the server's certificate, or that of its authority, has expired",
        "renew it; if it is valid, compare its dates with the clock of this host",
    ),
    18: _Meaning(
        "TLS-006",
        "the server's certificate is signed by itself, not by {trust}",
        "set {p}ssl.truststore.location to a store with this certificate",
    ),
    19: _NOT_TRUSTED,
    20: _NOT_TRUSTED,
    21: _NOT_TRUSTED,
    24: _Meaning(
        "TLS-006",
        "the server's certificate is signed with a certificate that is no authority's",
        "set {p}ssl.truststore.location to a store with the server's own certificate, or have it "
        "signed by an authority",
    ),
    26: _Meaning(
        "TLS-009",
        "the server's certificate is not made for a server (keyUsage, extendedKeyUsage)",
        "renew it with the usages digitalSignature and serverAuth",
    ),
    62: _NAME,
    64: _NAME,
    66: _TOO_WEAK,
    67: _TOO_WEAK,
    68: _TOO_WEAK,
}
"""OpenSSL's verify code -> meaning."""

_NO_TLS = _Meaning(
    "TLS-012",
    "the port does not speak TLS",
    "check the port: a server without TLS wants {without_tls}; if the port is right, a proxy or "
    "firewall between cuts connections",
)
_CLIENT_CERTIFICATE_REFUSED = _Meaning(
    "TLS-011",
    "the server refuses the client's certificate, that of {key}: {own}",
    "it must be signed by an authority that the server trusts, and not have expired",
)
_CLIENT_CERTIFICATE_MISSING = _Meaning(
    "TLS-010",
    "the server wants a client certificate, and {p}ssl.keystore.location is not set",
    "set it to a store with a key and a certificate that an authority of the server's trust store "
    "has signed",
)
_NOTHING_IN_COMMON = _Meaning(
    "TLS-013",
    "server and client have no version of TLS, or no cipher suite, in common",
    "check {p}ssl.enabled.protocols, {p}ssl.protocol and {p}ssl.cipher.suites here and on the "
    "server",
)
_CLIENT_EXPIRED = _Meaning(
    "TLS-011",
    "the server says that the client's certificate has expired, that of {key}: {own}",
    "renew it; the new file is used from the next connection on",
)
_SERVER_ERROR = _Meaning(
    _OTHER,
    "the server failed in the handshake, or does not accept what the client sent",
    "look into the server's log",
)

_HANDSHAKE_REFUSED = _Meaning(
    "TLS-013",
    "the server refuses the handshake: it has no version of TLS and no cipher suite in common "
    "with the client, or it misses a client certificate ({key})",
    "check {p}ssl.enabled.protocols, {p}ssl.cipher.suites and {p}ssl.keystore.location",
)
_NAME_UNKNOWN = _Meaning(
    "TLS-007",
    "the server knows no certificate for the name {host}",
    "check the names in {addresses}",
)

_REASONS_OF: dict[_Meaning, str] = {
    _NO_TLS: "UNEXPECTED_EOF_WHILE_READING WRONG_VERSION_NUMBER PACKET_LENGTH_TOO_LONG "
    "RECORD_LAYER_FAILURE HTTP_REQUEST",
    _CLIENT_CERTIFICATE_REFUSED: "TLSV13_ALERT_CERTIFICATE_REQUIRED SSLV3_ALERT_NO_CERTIFICATE "
    "SSLV3_ALERT_BAD_CERTIFICATE SSLV3_ALERT_CERTIFICATE_UNKNOWN "
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE SSLV3_ALERT_CERTIFICATE_REVOKED TLSV1_ALERT_UNKNOWN_CA "
    "TLSV1_ALERT_ACCESS_DENIED TLSV1_ALERT_DECRYPT_ERROR",
    _CLIENT_EXPIRED: "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    _HANDSHAKE_REFUSED: "SSLV3_ALERT_HANDSHAKE_FAILURE",
    _NOTHING_IN_COMMON: "TLSV1_ALERT_PROTOCOL_VERSION TLSV1_ALERT_INSUFFICIENT_SECURITY "
    "UNSUPPORTED_PROTOCOL NO_PROTOCOLS_AVAILABLE NO_CIPHERS_AVAILABLE WRONG_CIPHER_RETURNED",
    _NAME_UNKNOWN: "TLSV1_UNRECOGNIZED_NAME",
    _SERVER_ERROR: "TLSV1_ALERT_INTERNAL_ERROR SSLV3_ALERT_UNEXPECTED_MESSAGE "
    "SSLV3_ALERT_ILLEGAL_PARAMETER",
    _TOO_WEAK: "DH_KEY_TOO_SMALL",
}
_REASONS = {
    reason: meaning for meaning, reasons in _REASONS_OF.items() for reason in reasons.split()
}
"""OpenSSL's reason -> meaning. ``_ALERT_`` in a name: the server has sent it."""


def explain(error: OSError, host: str, port: int, context: TlsErrorContext) -> str:
    """Return address, cause, OpenSSL's words and what to do, with a code at the end.

    error: of a handshake, or of the first read after it, because with TLS 1.3 the client learns
        only then whether the server accepts its certificate
    """
    found = _meaning_of(error)
    own = context.own_certificate
    if found is _CLIENT_CERTIFICATE_REFUSED and own is None:
        found = _CLIENT_CERTIFICATE_MISSING
    host, reason = redacted(host), _reason_of(error)
    # A reason of the table is OpenSSL's own constant, which a password can only resemble.
    words = reason if reason in _REASONS else redacted(_words_of(error))
    who = f"TLS with {format_address(host, port)}"
    if found is None:
        return coded(f"{who}: {words}", _OTHER)
    values = {
        "p": context.peer.prefix,
        "addresses": context.peer.addresses,
        "without_tls": context.peer.without_tls,
        "host": host,
        "trust": _trust(context),
        "key": context.keystore or f"{context.peer.prefix}ssl.keystore.location is not set",
        "own": _describe_own_certificate(own) if "{own}" in found.cause else "",
    }
    cause, advice = found.cause.format(**values), found.advice.format(**values)
    return coded(f"{who}: {cause} ({words}): {advice}", found.code)


def _meaning_of(error: OSError) -> _Meaning | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _REFUSED_CERTIFICATES.get(error.verify_code)
    # Python 3.9 raises SSLZeroReturnError where later versions raise SSLEOFError.
    ends = (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError, ssl.SSLZeroReturnError)
    if isinstance(error, ends):
        return _NO_TLS
    return _REASONS.get(_reason_of(error))


def _reason_of(error: OSError) -> str:
    """Return OpenSSL's reason; empty for an error of Python, which lacks the attribute."""
    return getattr(error, "reason", None) or ""


def _trust(context: TlsErrorContext) -> str:
    if context.truststore is not None:
        return f"an authority of {context.truststore}"
    option = f"{context.peer.prefix}ssl.truststore.location"
    paths = ssl.get_default_verify_paths()
    system = paths.cafile or paths.capath or "it has none"
    return f"an authority of this host's system ({system}), and {option} is not set"


def _describe_own_certificate(certificate: bytes | None) -> str:
    if certificate is None:
        return "none"
    # Imported here because it loads the package cryptography.
    from spark_kafka_sink.security.pkcs12 import describe_certificate

    return describe_certificate(certificate, SystemClock().timestamp_ms())


def _words_of(error: OSError) -> str:
    """Return OpenSSL's words, without the line of C code that reported them."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".")
    return _reason_of(error) or error.strerror or type(error).__name__


def rejected_key(
    error: ssl.SSLError | ValueError,
    material: KeyMaterial,
    store: StoreConfig,
    options: StoreOptions,
) -> ConfigError:
    """Return the error for a key that OpenSSL rejects, with its certificates."""
    reason, code = getattr(error, "reason", None), _NO_STORE
    if reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
        cause = "the private key does not belong to the first certificate of the chain"
    elif reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        weak = _TOO_WEAK.cause.replace("server", "client")
        cause, code = f"{weak}: {_TOO_WEAK.advice}", _TOO_WEAK.code
    elif material.is_encrypted:
        code = "TLS-017"
        cause = (
            f"the private key cannot be decrypted: {options.key_password} is wrong, or it is "
            "encrypted with an old cipher: openssl pkcs8 -topk8 -v2 aes256 encrypts it again"
        )
    else:
        cause = "the private key is damaged, or of a kind that OpenSSL does not know"
    return ConfigError(f"{description(store, options)}: {cause}", code=code)


# --- cipher suites -------------------------------------------------------------------------------


def _suites_of_tls_1_2() -> Iterator[tuple[str, str]]:
    """Yield IANA's name and OpenSSL's, which omits WITH, CBC and the usual key exchange, RSA."""
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
"""IANA's name of each suite of TLS 1.2 with certificates -> OpenSSL's name."""

TLS_1_3_SUITES = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
"""The suites that OpenSSL offers by default, the best first."""

_TLS_1_3_BY_HAND = ("TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256")
# Java's lists contain these signals to the server, which are no suites. OpenSSL always sends them.
_SIGNALS = ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV")
_IANA_NAMES = {openssl: iana for iana, openssl in OPENSSL_NAMES.items()}
# Java's lists also contain suites with a fixed Diffie-Hellman key, which OpenSSL has removed.
_DROPPED = frozenset(
    f"TLS_ECDH_{signature}_WITH_AES_{cipher}"
    for signature in ("ECDSA", "RSA")
    for cipher in (
        *("256_GCM_SHA384", "128_GCM_SHA256", "256_CBC_SHA384"),
        *("128_CBC_SHA256", "256_CBC_SHA", "128_CBC_SHA"),
    )
)


class SuitesByVersion(NamedTuple):
    """Suites by version of TLS: OpenSSL's names for 1.2, IANA's for 1.3.

    dropped: suites that Java has and OpenSSL lacks
    """

    tls_1_2: tuple[str, ...]
    tls_1_3: tuple[str, ...]
    dropped: tuple[str, ...]


def suites_by_version(names: tuple[str, ...], option: str) -> SuitesByVersion:
    """Return ``names`` by version of TLS, in their order.

    Raises ConfigError for an unknown suite, and if no suite remains.
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
            raise ConfigError(
                f"{option}: {name} is not a cipher suite{_suggestion(name)}", code="TLS-014"
            )
    if names and not tls_1_2 and not tls_1_3:
        raise ConfigError(
            f"{option}={','.join(names)}: OpenSSL has none of these cipher suites", code="TLS-014"
        )
    return SuitesByVersion(tuple(tls_1_2), tuple(tls_1_3), tuple(dropped))


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
    """Versions and suites for an ``SSLContext``; empty suites mean OpenSSL's default."""

    lowest: ssl.TLSVersion
    highest: ssl.TLSVersion
    suites_of_1_2: tuple[str, ...]
    suites_of_1_3: tuple[str, ...]

    def apply(self, context: ssl.SSLContext, option: str) -> None:
        """Set versions and suites of ``context``.

        Raises ConfigError, naming ``option``, if OpenSSL has none of the suites.
        """
        context.minimum_version = self.lowest
        context.maximum_version = self.highest
        if self.suites_of_1_2:
            try:
                context.set_ciphers(":".join(self.suites_of_1_2))
            except ssl.SSLError:
                raise ConfigError(
                    f"{option}: this machine's {ssl.OPENSSL_VERSION} has none of the cipher suites",
                    code="TLS-014",
                ) from None
        if self.suites_of_1_3 and hasattr(context, "set_ciphersuites"):
            context.set_ciphersuites(":".join(self.suites_of_1_3))


def versions_of(config: SslConfig, prefix: str) -> TlsVersions:
    """Return the allowed versions and suites.

    Raises ConfigError for unknown suites, and if no version of TLS remains.
    """
    option = f"{prefix}ssl.cipher.suites"
    suites = suites_by_version(config.cipher_suites, option)
    enabled = config.enabled_protocols or tuple(_VERSIONS)
    allowed = [v for v in _VERSIONS if v in enabled and v <= config.protocol]
    if config.cipher_suites:
        of_suites = {TLS_1_2: suites.tls_1_2, TLS_1_3: suites.tls_1_3}
        left = [version for version in allowed if of_suites[version]]
        if not left:
            raise ConfigError(
                f"{option} has no cipher suite of {' or '.join(allowed)}, which is all that "
                f"{prefix}ssl.protocol and {prefix}ssl.enabled.protocols allow",
                code="TLS-014",
            )
        allowed = left
        _warn_of_unsupported(suites, allowed, option)
    return TlsVersions(
        _VERSIONS[allowed[0]],
        _VERSIONS[allowed[-1]],
        suites.tls_1_2 if TLS_1_2 in allowed else (),
        suites.tls_1_3 if TLS_1_3 in allowed else (),
    )


def _warn_of_unsupported(suites: SuitesByVersion, allowed: list[str], option: str) -> None:
    if suites.dropped:
        warn(logger, "TLS-015", f"{option}: OpenSSL does not have {', '.join(suites.dropped)}")
    default = TLS_1_3_SUITES
    can_choose = hasattr(ssl.SSLContext, "set_ciphersuites")
    if TLS_1_3 in allowed and not can_choose and set(suites.tls_1_3) != set(default):
        warn(
            logger,
            "TLS-015",
            f"{option}: Python's ssl cannot choose among the cipher suites of TLS 1.3 before "
            f"Python 3.15: it offers {', '.join(default)}, and the connection fails if the server "
            "chooses another one than the option allows",
        )


# --- key material as a file ----------------------------------------------------------------------

_OWN_DESCRIPTORS = "/proc/self/fd"


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with this content, which exists as long as the block."""
    descriptor, is_named = -1, True
    if hasattr(os, "memfd_create") and os.path.isdir(_OWN_DESCRIPTORS):
        with suppress(OSError):  # forbidden, as in some sandboxes
            descriptor, is_named = os.memfd_create("pykafka-sink"), False
    path = f"{_OWN_DESCRIPTORS}/{descriptor}"
    if is_named:
        descriptor, path = tempfile.mkstemp(prefix="pykafka-sink-")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield path
    finally:
        if is_named:
            os.unlink(path)


# --- contexts ------------------------------------------------------------------------------------

# OpenSSL's X509_V_FLAG_PARTIAL_CHAIN, which has no name in Python 3.9.
_PARTIAL_CHAIN: int = getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0x80000)


class _Inputs(NamedTuple):
    """The parts of a context that may change: resolved values, and files."""

    truststore: StoreConfig
    keystore: StoreConfig
    files: tuple[tuple[Path, FileState] | None, ...]


class _CheckedObject(ssl.SSLObject):
    def do_handshake(self) -> None:
        super().do_handshake()
        _check_suite(self.context, self.cipher())


class _CheckedSocket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        _check_suite(self.context, self.cipher())


def _check_suite(context: ssl.SSLContext, chosen: tuple[str, str, int] | None) -> None:
    """Raise ssl.SSLError, as OpenSSL does, if the server chose a suite of TLS 1.3 not allowed."""
    allowed = context.suites_of_1_3 if isinstance(context, ClientContext) else ()
    if allowed and chosen is not None and chosen[1] == TLS_1_3 and chosen[0] not in allowed:
        error = ssl.SSLError(1, f"the server chose {chosen[0]}")
        error.reason = "WRONG_CIPHER_RETURNED"
        raise error


class ClientContext(ssl.SSLContext):
    """A context with the client's certificate, in DER; None without one.

    expires_at_ms: of the certificate, since 1970-01-01 UTC; None without a certificate
    suites_of_1_3: the only suites of TLS 1.3 that a server may choose; empty for all
    """

    own_certificate: bytes | None = None
    expires_at_ms: int | None = None
    suites_of_1_3: tuple[str, ...] = ()
    sslobject_class = _CheckedObject
    sslsocket_class = _CheckedSocket


class TlsContext:
    """Builds the ``SSLContext`` for connections with TLS, and explains their errors.

    peer: the kind of servers, for messages
    resolve: a text of the configuration and its option -> the text with its references resolved

    One object serves all threads of a process. Raises ConfigError for unknown cipher suites; files
    are read by ``context`` only.
    """

    def __init__(
        self,
        config: SslConfig,
        peer: Peer = BROKERS,
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
        self._built: ClientContext | None = None
        self._built_of: _Inputs | None = None
        self._last_warning = ""

    def context(self) -> ClientContext:
        """Return the context for the next connection, built at the first call and on each change.

        Raises ConfigError, naming option and cause, if no context could be built so far;
        CredentialsUnavailableError if a file, key or variable that was there is gone.
        """
        with self._lock:
            try:
                inputs = self._inputs()
                if self._built is None or inputs != self._built_of:
                    is_changed = self._built is not None
                    self._built, self._built_of = self._build(inputs), inputs
                    if is_changed:
                        prefix = self._peer.prefix
                        logger.info(f"{prefix}ssl.*: a store has changed; new connections use it")
            except ConfigError as error:
                if self._built is None:
                    raise
                if isinstance(error, references.MissingError):
                    raise CredentialsUnavailableError(
                        f"{error}. What was read before is no longer used", code=error.code
                    ) from None
                problem = f"{error}. What was read before stays in use for new connections"
                if problem != self._last_warning:
                    self._last_warning = problem
                    warn(logger, error.code, problem)
            else:
                self._last_warning = ""
            return self._built

    def explain(self, error: OSError, host: str, port: int) -> str:
        """Explain an error of a connection with TLS: cause, option, and what to do.

        error: an ``ssl.SSLError``, or the socket's error in the handshake
        """
        built = self._built
        context = TlsErrorContext(
            self._peer,
            stores.source(self._config.truststore, self._trust_options),
            stores.source(self._config.keystore, self._key_options),
            None if built is None else built.own_certificate,
        )
        return explain(error, host, port, context)

    def _inputs(self) -> _Inputs:
        """Take the state of files before reading them: the next call finds a later change."""
        truststore, keystore = (
            references.resolve_fields(store, options._asdict().__getitem__, self._resolve)
            for store, options in (
                (self._config.truststore, self._trust_options),
                (self._config.keystore, self._key_options),
            )
        )
        files = (
            _state(truststore.location, self._trust_options.location),
            _state(keystore.location, self._key_options.location),
        )
        return _Inputs(truststore, keystore, files)

    def _build(self, inputs: _Inputs) -> ClientContext:
        context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
        self._versions.apply(context, f"{self._peer.prefix}ssl.cipher.suites")
        # Reject renegotiation (TLS 1.2), as Java's client does.
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.suites_of_1_3 = self._versions.suites_of_1_3
        context.check_hostname = self._config.checks_host_name
        # A common name is no host name: an authority may give a client any (RFC 9525).
        context.hostname_checks_common_name = False
        trusted = stores.trusted_certificates(inputs.truststore, self._trust_options)
        if trusted is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            # As in Java, trust ends at any certificate of the store, not only at a root.
            context.verify_flags |= _PARTIAL_CHAIN
            what = stores.description(inputs.truststore, self._trust_options)
            _load(context, trusted, what)
        material = stores.key_material(inputs.keystore, self._key_options)
        if material is not None:
            _load_client_certificate(context, material, inputs.keystore, self._key_options)
            context.own_certificate = material.chain[0]
            context.expires_at_ms = expires_at_ms(material.chain[0])
        return context


def _state(location: str | None, option: str) -> tuple[Path, FileState] | None:
    if location is None:
        return None
    path = references.find_file(location, option)
    try:
        return path, file_state(path)
    except OSError as error:
        raise ConfigError(f"{option}={path}: {error.strerror}", code="OPTION-021") from error


def _load(context: ssl.SSLContext, certificates: tuple[bytes, ...], what: str) -> None:
    """Let ``context`` trust the certificates. Raises ConfigError if OpenSSL cannot read one."""
    for number, certificate in enumerate(certificates, 1):
        try:
            context.load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError):
            raise ConfigError(
                f"{what}: certificate {number} of {len(certificates)} is damaged", code="TLS-018"
            ) from None


def _load_client_certificate(
    context: ssl.SSLContext,
    material: KeyMaterial,
    store: StoreConfig,
    options: stores.StoreOptions,
) -> None:
    """Give the client its certificate. Raises ConfigError."""
    # A scratch context rejects unreadable certificates, so the error below has another cause.
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(scratch, material.chain, stores.description(store, options))
    password = "" if store.key_password is None else store.key_password.reveal()
    chain = "".join(
        key_formats.encode_pem("CERTIFICATE", certificate) for certificate in material.chain
    )
    with private_file((chain + material.key.reveal()).encode()) as path:
        try:
            # Always pass a password: without one OpenSSL would prompt on the terminal.
            # A reference's bytes may be no UTF-8.
            context.load_cert_chain(path, password=password.encode("utf-8", "surrogateescape"))
        except (ssl.SSLError, ValueError) as error:
            raise rejected_key(error, material, store, options) from None
