"""Explanations of TLS errors for users: cause, option, and what to do.

Two tables: why this client rejects a server's certificate (OpenSSL's verify codes), and why a
handshake failed otherwise (OpenSSL's reasons; the server sent those with ``_ALERT_``). All other
errors are reported in OpenSSL's words.

Source: ``x509_vfy.h``, ``sslerr.h`` of OpenSSL 3; RFC 8446, 6.2.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.codes import coded
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import format_address
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.config.security_config import StoreConfig
from spark_kafka_sink.security.key_formats import KeyMaterial
from spark_kafka_sink.security.stores import StoreOptions, description


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
    "use a name of its certificate in {addresses}, or have {host} added to the certificate "
    "(subjectAltName); to check no names, set {p}ssl.endpoint.identification.algorithm to an "
    "empty value",
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
