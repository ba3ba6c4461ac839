"""What secures the connections of a configuration, shared by all of this process that have it.

What TLS and SASL need is loaded where they are asked for: a job in clear text never does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.errors import CredentialsUnavailableError
from spark_kafka_sink.config.security_config import SecurityConfig, SslConfig
from spark_kafka_sink.protocol.connection import Converse

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
        """Nothing is read or asked yet. Raises ConfigError for options that cannot be used."""
        if config.ssl is None and config.sasl is None:
            return CLEAR_TEXT
        login = None
        if config.sasl is not None:
            from spark_kafka_sink.security.login import login_of

            login = login_of(config.sasl)
        return cls(None if config.ssl is None else _CONTEXTS.context_of(config.ssl), login)

    @property
    def converse(self) -> Converse | None:
        """Begins the conversation that authenticates a connection; None for none."""
        return None if self.login is None else self.login.converse

    def prepare(self, timeout_ms: int, hosts: Sequence[str]) -> None:
        """Read certificates and keys, fetch the first token: before the first connection, outside
        of any lock.

        hosts: of the bootstrap brokers

        Raises ConfigError and AuthenticationError; CredentialsUnavailableError if the token may be
        had later.
        """
        if self.tls is not None:
            self.tls.context()
        if self.login is not None:
            self.login.prepare(timeout_ms, hosts)

    def prepare_if_possible(self, timeout_ms: int, hosts: Sequence[str]) -> None:
        """As ``prepare``, for whoever waits for brokers anyway, with a deadline of its own.

        A token or ticket that may be had later is no error yet: each connection asks for it again,
        and tells why there is none. Raises ConfigError and AuthenticationError.
        """
        with suppress(CredentialsUnavailableError):
            self.prepare(timeout_ms, hosts)

    def watch(self) -> Callable[[], bool]:
        """Return what tells whether new connections have other credentials than at its last call.

        To be called after ``prepare``. It looks at the files of stores, and reads references. What
        cannot be read is told in the log, and what was read before stays in use.
        """
        last = self._in_use()

        def are_replaced() -> bool:
            nonlocal last
            before, last = last, self._in_use()
            return last != before

        return are_replaced

    def _in_use(self) -> tuple[object, object]:
        return (
            None if self.tls is None else self.tls.context(),
            None if self.login is None else self.login.identity(),
        )


CLEAR_TEXT = Security()


class _Contexts:
    """The TLS contexts of a process, by configuration: each is made once, and again on a change."""

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
        """Drop everything: a forked child must, as another thread may hold a lock of it."""
        self._lock = threading.Lock()
        self._contexts = {}


_CONTEXTS = _Contexts()
os.register_at_fork(after_in_child=_CONTEXTS.forget)
