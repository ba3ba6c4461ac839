"""Kerberos: SASL GSSAPI with the system's libraries through the package ``gssapi``, and its login.

    client -> broker   AP-REQ: a ticket for <service>/<host>, which the KDC issues if necessary
    broker -> client   AP-REP
    client -> broker   an empty message
    broker -> client   wrapped: the offered layers, and the largest message (4 bytes)
    client -> broker   wrapped: 01 00 00 00, no layer, and no other identity than the ticket's

A ticket comes from a keytab, into a cache in this process's memory, or from a ticket cache that
``kinit`` has filled. Kerberos itself renews tickets from a keytab, at half of their life. The login
acquires tickets again after a minimum time.

Source: RFC 4752; ``SaslClientAuthenticator``, ``KerberosLogin`` of Kafka; ``Krb5LoginModule``.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from spark_kafka_sink.base.clock import Clock, wait_seconds
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.text import redacted
from spark_kafka_sink.config.security_config import KerberosConfig, SaslConfig
from spark_kafka_sink.protocol.connection import SaslClient
from spark_kafka_sink.security.credentials import OPTION as JAAS
from spark_kafka_sink.security.credentials import Login, login_options
from spark_kafka_sink.security.mechanisms import unexpected_challenge
from spark_kafka_sink.security.references import authentication_errors, find_file, resolve

# --- conversation and tickets --------------------------------------------------------------------

MECHANISM = "GSSAPI"
SERVICE_OPTION = "kafka.sasl.kerberos.service.name"
_NO_LAYER = 1
_ANSWER = bytes([_NO_LAYER, 0, 0, 0])


class KerberosUser(NamedTuple):
    """The principal and the source of its tickets.

    service: the first part of the brokers' principals
    keytab, ticket_cache: None if unused; an empty ticket cache is the user's default
    """

    service: str
    principal: str | None
    keytab: str | None
    ticket_cache: str | None


def kerberos_user(config: KerberosConfig, options: Mapping[str, str]) -> KerberosUser:
    """Build the user from the JAAS options of ``Krb5LoginModule``, with references resolved.

    Raises ConfigError.
    """
    uses_keytab, uses_cache = _is_true(options, "useKeyTab"), _is_true(options, "useTicketCache")
    if not uses_keytab and not uses_cache:
        raise ConfigError(
            f"{JAAS} for kafka.sasl.mechanism=GSSAPI has neither useKeyTab=true (with keyTab and "
            "principal) nor useTicketCache=true: set one of the two",
            code="AUTH-005",
        )
    principal, keytab = options.get("principal") or None, options.get("keyTab") or None
    for name, value in (("keyTab", keytab), ("principal", principal)):
        if uses_keytab and value is None:
            raise ConfigError(f"{JAAS} has useKeyTab=true, but no {name}", code="AUTH-005")
    return KerberosUser(
        _service_name(config, options),
        principal,
        keytab if uses_keytab else None,
        options.get("ticketCache", "") if uses_cache else None,
    )


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"


def _service_name(config: KerberosConfig, options: Mapping[str, str]) -> str:
    """Return the brokers' service. Option and JAAS text may both name it, if they agree."""
    of_jaas, of_option = options.get("serviceName"), config.service_name
    if of_jaas is not None and of_option is not None and of_jaas != of_option:
        raise ConfigError(
            f"Conflicting names of the brokers' Kerberos service: {SERVICE_OPTION}={of_option}, "
            f"but serviceName in {JAAS} is another one",
            code="OPTION-009",
        )
    name = of_jaas or of_option
    if not name:
        raise ConfigError(
            f"{SERVICE_OPTION} is missing: the first part of the brokers' principal, usually kafka",
            code="AUTH-005",
        )
    return name


class _State(Enum):
    NEGOTIATING = "tickets are exchanged"
    ESTABLISHED = "the broker's offer of layers is waited for"
    ANSWERED = "the offer is answered"
    COMPLETE = "the broker has accepted"


class GssapiSaslClient:
    """One authentication.

    context: creates GSSAPI's security context, at the first message

    The first message requests a ticket from the KDC if there is none for this broker yet.
    """

    configured = mechanism = MECHANISM

    def __init__(self, context: Callable[[], Any]) -> None:
        self._make_context = context
        self._context: Any = None
        self._state = _State.NEGOTIATING

    def initial_response(self) -> bytes:
        """Return AP-REQ.

        Raises AuthenticationError; CredentialsUnavailableError if the KDC is unavailable.
        """
        with _convert_gss_errors():
            self._context = self._make_context()
            return self._context.step() or b""

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """Return the answer to the broker's message; None at the end."""
        with _convert_gss_errors():
            if self._state is _State.NEGOTIATING:
                return self._negotiated(challenge)
            if self._state is _State.ESTABLISHED:
                return self._answer(self._context.unwrap(challenge).message)
        if self._state is _State.ANSWERED and not challenge:
            self._state = _State.COMPLETE
            return None
        raise unexpected_challenge(self.mechanism)

    def _negotiated(self, challenge: bytes) -> bytes:
        token = None if self._context.complete else self._context.step(challenge)
        if self._context.complete:
            self._state = _State.ESTABLISHED
        return token or b""

    def _answer(self, offer: bytes) -> bytes:
        if len(offer) != len(_ANSWER) or not offer[0] & _NO_LAYER:
            raise AuthenticationError(
                "SASL GSSAPI failed: the broker insists on a security layer, which Kafka's "
                "protocol does not have (use kafka.security.protocol=SASL_SSL to encrypt)",
                code="AUTH-010",
            )
        self._state = _State.ANSWERED
        return bytes(self._context.wrap(_ANSWER, False).message)


class KerberosCredentials:
    """The Kerberos credentials of this process for one user."""

    _numbers = itertools.count()

    def __init__(self, user: KerberosUser) -> None:
        self._user = user
        # Kerberos keeps the cache until the process ends; its name keeps tickets of users apart.
        self._cache = f"MEMORY:pykafka-sink-{next(self._numbers)}"

    def acquire(self) -> Any:
        """Return GSSAPI credentials, with a keytab from the KDC if there is no ticket yet.

        Raises AuthenticationError; CredentialsUnavailableError if the KDC is unavailable.
        """
        cache, keytab = self._user.ticket_cache, self._user.keytab
        if cache is not None:
            try:
                return self._from_store({"ccache": cache} if cache else {})
            except AuthenticationError:
                if keytab is None:
                    raise
        assert keytab is not None
        return self._from_keytab(keytab)

    def _from_keytab(self, location: str) -> Any:
        """Use a cache of its own for each process: a forked one must not share its parent's."""
        with authentication_errors():
            keytab = find_file(location, f"keyTab in {JAAS}")
        if not os.access(keytab, os.R_OK):
            raise AuthenticationError(
                f"keyTab in {JAAS}: {keytab} is not readable for this user", code="OPTION-021"
            )
        store = {"client_keytab": str(keytab), "ccache": f"{self._cache}-{os.getpid()}"}
        try:
            return self._from_store(store)
        except CredentialsUnavailableError:
            raise
        except AuthenticationError as error:
            # Without a key of the principal, Kerberos tries the cache, and reports only that.
            if re.search(_NO_TICKET, str(error)):
                raise AuthenticationError(
                    f"SASL GSSAPI failed: the keytab {keytab} has no key of the principal "
                    f"{self._user.principal}: compare with klist -k {keytab}",
                    code="AUTH-025",
                ) from None
            raise

    def _from_store(self, store: dict[str, str]) -> Any:
        import gssapi

        with _convert_gss_errors():
            name = None
            if self._user.principal is not None:
                kind = gssapi.NameType.kerberos_principal
                name = gssapi.Name(self._user.principal, kind)
            credentials = gssapi.Credentials(
                name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store
            )
            # Kerberos contacts the KDC only when the lifetime is read.
            if credentials.lifetime == 0:
                raise _error_of("Ticket expired")
            return credentials

    def sasl_client(self, host: str, credentials: Callable[[], Any]) -> GssapiSaslClient:
        """Return a conversation with the broker ``host``.

        credentials: called at the first message
        """

        def context() -> Any:
            import gssapi

            flags = gssapi.RequirementFlag
            return gssapi.SecurityContext(
                name=gssapi.Name(f"{self._user.service}@{host}", gssapi.NameType.hostbased_service),
                creds=credentials(),
                usage="initiate",
                mech=gssapi.MechType.kerberos,
                flags=[flags.mutual_authentication, flags.integrity],
            )

        return GssapiSaslClient(context)


def are_valid(credentials: Any) -> bool:
    """Return True if a ticket has not expired, without contacting the KDC."""
    try:
        with _convert_gss_errors():
            return bool(credentials.lifetime != 0)  # None: it has no end
    except AuthenticationError:
        return False


class _Cause(NamedTuple):
    """A known cause, by a pattern of Kerberos' message. is_transient: a retry may help"""

    code: str
    pattern: str
    advice: str
    is_transient: bool = False


_NO_TICKET = "No Kerberos credentials available|[Cc]redentials? cache"
_OTHER = "AUTH-027"

_CAUSES = (
    _Cause(
        "AUTH-022",
        # Both errors allow for 5 minutes of skew, so a retry within seconds would not help.
        "Clock skew too great|not yet valid",
        "the clocks of this machine, of the KDC and of the broker may differ by 5 minutes only: "
        "synchronise them (NTP)",
    ),
    _Cause(
        "AUTH-023",
        "Cannot contact any KDC",
        "no KDC of the realm answers: check krb5.conf (or the file that KRB5_CONFIG names) on this "
        "machine, and the way to the KDC",
        is_transient=True,
    ),
    _Cause(_OTHER, "Request is a replay", "the sink retries", is_transient=True),
    _Cause(
        "AUTH-023",
        "Cannot find KDC for realm|Cannot resolve network address|default realm",
        "krb5.conf (or the file that KRB5_CONFIG names) must be on every machine that runs the "
        "driver or a task, with the realm and its KDC",
    ),
    _Cause(
        "AUTH-025",
        "Client.* not found in Kerberos database",
        f"the KDC does not know the principal in {JAAS}",
    ),
    _Cause(
        "AUTH-026",
        "Server.* not found in Kerberos database",
        f"the KDC does not know the broker's principal: check {SERVICE_OPTION}, and that the "
        "broker's name in kafka.bootstrap.servers and advertised.listeners is the one of its "
        "principal",
    ),
    _Cause(
        "AUTH-025",
        "Preauthentication failed|Decrypt integrity check failed|Password incorrect",
        "the keytab holds another key than the KDC: create a new keytab",
    ),
    _Cause(
        "AUTH-026",
        "Wrong principal in request|Message stream modified|Request ticket server",
        "the broker has another key than the KDC, or another principal than its host name says",
    ),
    _Cause(
        "AUTH-025",
        "[Kk]eytab|[Kk]ey table",
        f"check keyTab and principal in {JAAS}; the file must be readable on every machine that "
        "runs the driver or a task, and hold a key of the principal (klist -k)",
    ),
    _Cause(
        "AUTH-024",
        _NO_TICKET,
        f"there is no ticket: run kinit on this machine, or set useKeyTab, keyTab and principal in "
        f"{JAAS}. Executors do not see the driver's tickets",
    ),
    _Cause(
        "AUTH-024",
        "[Tt]icket expired|credential has expired",
        "the ticket in the cache has expired: run kinit, or use a keytab, from which tickets are "
        "renewed",
    ),
)


def _error_of(text: str) -> AuthenticationError:
    """Return the error with the cause of Kerberos' message ``text``."""
    what = f"SASL GSSAPI failed ({text})"
    cause = next((cause for cause in _CAUSES if re.search(cause.pattern, text)), None)
    if cause is None:
        return AuthenticationError(what, code=_OTHER)
    kind = CredentialsUnavailableError if cause.is_transient else AuthenticationError
    return kind(f"{what}: {cause.advice}", code=cause.code)


class _convert_gss_errors:  # noqa: N801
    """Converts GSSAPI's errors to AuthenticationError; a context manager."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, AuthenticationError):
            return
        import gssapi

        if not isinstance(error, gssapi.exceptions.GSSError):
            return
        raise _error_of(kerberos_message(error)) from None


_SAYS_NOTHING = ("", "Success", "Unknown error")


def kerberos_message(error: Any) -> str:
    """Return the cause from GSSAPI's message: Kerberos' own text if it has one."""
    texts = [*error.get_all_statuses(error.min_code, False)] if error.min_code else []
    texts = [text for text in texts if text not in _SAYS_NOTHING]
    return redacted("; ".join(texts or error.get_all_statuses(error.maj_code, True)))


# --- login ---------------------------------------------------------------------------------------


class KerberosLogin(Login):
    """Login with GSSAPI.

    After ``sasl.kerberos.min.time.before.relogin`` the next conversation acquires credentials
    again. Kerberos contacts the KDC only when the ticket is past half of its life.
    """

    mechanism = "GSSAPI"

    def __init__(self, config: SaslConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._tickets: dict[KerberosUser, KerberosCredentials] = {}
        # A user, GSSAPI's credentials, and the time of their first use.
        self._cached: tuple[KerberosUser | None, Any, int] = (None, None, 0)

    def login(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        """Get a ticket in a thread, because Kerberos' libraries accept no deadline."""
        errors: list[Exception] = []

        def take() -> None:
            try:
                self._credentials(self._user())
            except Exception as error:  # raised below, in the caller's thread
                errors.append(error)

        thread = threading.Thread(target=take, name="pykafka-sink-kerberos", daemon=True)
        thread.start()
        thread.join(wait_seconds(timeout_ms))
        if thread.is_alive():
            raise CredentialsUnavailableError(
                f"SASL GSSAPI: the KDC has not answered within {timeout_ms} ms: check krb5.conf "
                "(or the file that KRB5_CONFIG names) and the way to the KDC",
                code="AUTH-023",
            )
        if errors:
            raise errors[0]

    def create_sasl_client(self, host: str) -> SaslClient:
        user = self._user()
        return self._tickets_of(user).sasl_client(host, lambda: self._credentials(user))

    def _user(self) -> KerberosUser:
        kerberos = self._config.kerberos
        with authentication_errors():
            options = login_options(self._config)
            name = kerberos.service_name
            if name is not None:
                name = resolve(name, SERVICE_OPTION)
            return kerberos_user(replace(kerberos, service_name=name), options)

    def _tickets_of(self, user: KerberosUser) -> KerberosCredentials:
        with self._lock:
            if user not in self._tickets:
                self._tickets = {user: KerberosCredentials(user)}
            return self._tickets[user]

    def _credentials(self, user: KerberosUser) -> Any:
        """Return recent credentials, or acquire new ones."""
        tickets = self._tickets_of(user)
        now_ms = self._clock.now_ms()
        oldest_ms = now_ms - self._config.kerberos.min_time_before_relogin_ms
        with self._lock:
            owner, credentials, since_ms = self._cached
        if owner == user and since_ms > oldest_ms and are_valid(credentials):
            return credentials
        credentials = tickets.acquire()
        with self._lock:
            self._cached = (user, credentials, now_ms)
        return credentials
