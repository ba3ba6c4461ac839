"""TLS and SASL of a configuration, shared by all connections of a process with this configuration.

The modules for TLS and SASL are imported on demand: a job in clear text never loads them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import CredentialsUnavailableError
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.config.security_config import SecurityConfig, SslConfig
from spark_kafka_sink.protocol.connection import SaslClientFactory

if TYPE_CHECKING:
    from spark_kafka_sink.security.login import Login
    from spark_kafka_sink.security.tls import TlsContext


@dataclass(frozen=True, slots=True)
class Security:
    """TLS and SASL of one configuration, None where it has none."""

    tls: TlsContext | None = None
    login: Login | None = None

    @classmethod
    def of(cls, config: SecurityConfig) -> Security:
        """Return the TLS and SASL of ``config``, without reading stores or fetching tokens.

        Raises ConfigError for unusable options.
        """
        if config.ssl is None and config.sasl is None:
            return CLEAR_TEXT
        login = None
        if config.sasl is not None:
            from spark_kafka_sink.security.login import login_of

            login = login_of(config.sasl)
        return cls(None if config.ssl is None else _CONTEXTS.context_of(config.ssl), login)

    @property
    def create_sasl_client(self) -> SaslClientFactory | None:
        """The function that begins the authentication of a connection; None without SASL."""
        return None if self.login is None else self.login.create_sasl_client

    def prepare(self, timeout_ms: int, hosts: Sequence[str]) -> None:
        """Read certificates and keys, and fetch the first token.

        Called before the first connection and outside of any lock.

        hosts: of the bootstrap brokers

        Raises ConfigError and AuthenticationError; CredentialsUnavailableError if a later attempt
        may succeed.
        """
        if self.tls is not None:
            self.tls.context()
        if self.login is not None:
            self.login.login(timeout_ms, hosts)

    def prepare_if_possible(self, timeout_ms: int, hosts: Sequence[str]) -> None:
        """Prepare like ``prepare``, for a caller that waits for brokers with a deadline of its own.

        A token or ticket that is unavailable is no error yet: each connection requests it again,
        and its error gives the reason. Raises ConfigError and AuthenticationError.
        """
        with suppress(CredentialsUnavailableError):
            self.prepare(timeout_ms, hosts)

    def credentials_watcher(self) -> Callable[[], bool]:
        """Return a function that detects other credentials for new connections since its last call.

        Call ``credentials_watcher`` after ``prepare``. The function checks the files of stores and
        resolves references. If it cannot read one, it logs a warning and the former credentials
        stay in use.
        """
        last = self._in_use()

        def have_changed() -> bool:
            nonlocal last
            before, last = last, self._in_use()
            return last != before

        return have_changed

    def _in_use(self) -> tuple[object, object]:
        return (
            None if self.tls is None else self.tls.context(),
            None if self.login is None else self.login.credentials_version(),
        )


CLEAR_TEXT = Security()


class _TlsContextCache:
    """The TLS contexts of a process by configuration: each is built once, and again on a change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts: dict[SslConfig, TlsContext] = {}

    def context_of(self, config: SslConfig) -> TlsContext:
        from spark_kafka_sink.security.tls import TlsContext

        with self._lock:
            context = self._contexts.get(config)
            if context is None:
                context = self._contexts[config] = TlsContext(config)
            return context

    def forget(self) -> None:
        """Drop everything in a forked child: another thread of the parent may hold the lock."""
        self._lock = threading.Lock()
        self._contexts = {}


_CONTEXTS = _TlsContextCache()
os.register_at_fork(after_in_child=_CONTEXTS.forget)
