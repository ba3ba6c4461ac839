"""Cipher suites: Kafka's option has IANA's names, OpenSSL has names of its own for TLS 1.2.

In Java a list is for all versions of TLS: without a suite of TLS 1.3 in it, 1.3 is not spoken, and
so for 1.2. That is kept. Which suites of TLS 1.3 are used cannot be chosen in Python before 3.15,
which lacks ``SSLContext.set_ciphersuites``; then a list with one of the three stands for all three.

Source: IANA's registry "TLS Cipher Suites"; ``openssl ciphers -stdname`` of OpenSSL 3.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError


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
