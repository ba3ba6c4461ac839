"""TLS and SASL of a configuration, shared by all connections of a process with this configuration.

As in Java's ``LoginManager``, tokens are fetched once and renewed in one place. The modules for TLS
and SASL are imported on demand: a job in clear text never loads them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from spark_kafka_sink.base.errors import CredentialsUnavailableError
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.config.security_config import SaslConfig, SecurityConfig, SslConfig
from spark_kafka_sink.protocol.connection import SaslClientFactory

if TYPE_CHECKING:
    from spark_kafka_sink.security.credentials import Login
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
        return cls(
            None if config.ssl is None else _CONTEXTS.of(config.ssl),
            None if config.sasl is None else _LOGINS.of(config.sasl),
        )

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


K = TypeVar("K")
V = TypeVar("V")


class _PerProcess(Generic[K, V]):
    """Objects of this process by configuration, each created once.

    A forked child starts without any: threads do not survive a fork, and another thread of the
    parent may hold the lock.
    """

    def __init__(self, create: Callable[[K], V]) -> None:
        self._create = create
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def of(self, config: K) -> V:
        with self._lock:
            if config not in self._created:
                self._created[config] = self._create(config)
            return self._created[config]

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._created: dict[K, V] = {}


def _new_context(config: SslConfig) -> TlsContext:
    from spark_kafka_sink.security.tls import TlsContext

    return TlsContext(config)


def _new_login(config: SaslConfig) -> Login:
    from spark_kafka_sink.security.login import new_login

    return new_login(config)


_CONTEXTS = _PerProcess(_new_context)
_LOGINS = _PerProcess(_new_login)
