"""The login of GSSAPI: tickets out of a keytab or a cache, taken again now and then."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from spark_kafka_sink.base.clock import Clock, wait_seconds
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.protocol.sasl import Conversation
from spark_kafka_sink.security.credentials import login_options
from spark_kafka_sink.security.mechanisms.gssapi import (
    SERVICE_OPTION,
    KerberosUser,
    Tickets,
    are_valid,
    kerberos_user,
)
from spark_kafka_sink.security.references import resolve


class _Taken(NamedTuple):
    """GSSAPI's credentials, and since when they are used."""

    user: KerberosUser
    credentials: Any
    since_ms: int

    def may_serve(self, user: KerberosUser, not_before_ms: int) -> bool:
        """Whether they are those of ``user``, recent, and have not expired."""
        return self.user == user and self.since_ms > not_before_ms and are_valid(self.credentials)


class KerberosLogin:
    """GSSAPI.

    Credentials are taken anew for a conversation after ``sasl.kerberos.min.time.before.relogin``:
    Kerberos asks the KDC only when the ticket is past half of its life.
    """

    mechanism = "GSSAPI"

    def __init__(self, config: SaslConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._tickets: dict[KerberosUser, Tickets] = {}
        self._taken: _Taken | None = None

    def prepare(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        """Gets a ticket, in a thread: Kerberos' libraries know no deadline of ours."""
        errors: list[Exception] = []

        def take() -> None:
            try:
                self._credentials(self._user())
            except Exception as error:  # whatever it is, it is for who waits here
                errors.append(error)

        thread = threading.Thread(target=take, name="pykafka-sink-kerberos", daemon=True)
        thread.start()
        thread.join(wait_seconds(timeout_ms))
        if thread.is_alive():
            raise CredentialsUnavailableError(
                f"SASL GSSAPI: the KDC has not answered within {timeout_ms} ms: check krb5.conf "
                "(or the file that KRB5_CONFIG names) and the way to the KDC"
            )
        if errors:
            raise errors[0]

    def converse(self, host: str) -> Conversation:
        user = self._user()
        return self._tickets_of(user).conversation(host, lambda: self._credentials(user))

    def identity(self) -> None:
        """Nothing that is replaced from outside."""

    def close(self) -> None:
        """There is nothing to stop."""

    def _user(self) -> KerberosUser:
        kerberos = self._config.kerberos
        try:
            options = login_options(self._config)
            name = kerberos.service_name
            if name is not None:
                name = resolve(name, SERVICE_OPTION)
            return kerberos_user(replace(kerberos, service_name=name), options)
        except ConfigError as error:
            raise AuthenticationError(str(error)) from None

    def _tickets_of(self, user: KerberosUser) -> Tickets:
        with self._lock:
            if user not in self._tickets:
                self._tickets = {user: Tickets(user)}
            return self._tickets[user]

    def _credentials(self, user: KerberosUser) -> Any:
        """Those that were taken a short time ago, or new ones."""
        tickets = self._tickets_of(user)
        now_ms = self._clock.now_ms()
        with self._lock:
            taken = self._taken
        limit_ms = self._config.kerberos.min_time_before_relogin_ms
        if taken is not None and taken.may_serve(user, now_ms - limit_ms):
            return taken.credentials
        credentials = tickets.acquire()
        with self._lock:
            self._taken = _Taken(user, credentials, now_ms)
        return credentials
