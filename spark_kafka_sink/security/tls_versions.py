"""Which versions of TLS and which cipher suites a connection may use, out of three options.

``ssl.protocol`` is the highest version, ``ssl.enabled.protocols`` lists those that are allowed, and
``ssl.cipher.suites`` allows only the versions that its suites belong to.

Source: ``DefaultSslEngineFactory.createSslEngine``, ``SslConfigs``; ``SSLContextImpl`` of the JDK.
"""

from __future__ import annotations

import logging
import ssl
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.security_config import SslConfig
from spark_kafka_sink.config.ssl_keys import TLS_1_2, TLS_1_3
from spark_kafka_sink.security import cipher_suites

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
    choice = cipher_suites.choose(config.cipher_suites, option)
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


def _tell(choice: cipher_suites.Choice, allowed: list[str], option: str) -> None:
    """In the log, where a list means less or more than it says."""
    if choice.dropped:
        logger.warning(f"{option}: OpenSSL does not have {', '.join(choice.dropped)}")
    default = cipher_suites.TLS_1_3_SUITES
    can_choose = hasattr(ssl.SSLContext, "set_ciphersuites")
    if TLS_1_3 in allowed and not can_choose and set(choice.tls_1_3) != set(default):
        logger.warning(
            f"{option}: Python's ssl cannot choose among the cipher suites of TLS 1.3 before "
            f"Python 3.15; a connection with TLS 1.3 may use any of {', '.join(default)}"
        )
