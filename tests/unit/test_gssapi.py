"""Kerberos: the options, the conversation's order, and what is told where the package is missing.

The real thing, with a KDC, is in tests/security/test_kerberos_conversation.py.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import types
from typing import NamedTuple

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import KerberosConfig, SaslConfig
from spark_kafka_sink.security import login
from spark_kafka_sink.security.kerberos import (
    GssapiSaslClient,
    KerberosCredentials,
    KerberosLogin,
    KerberosUser,
    _cause_of,
    kerberos_user,
)
from spark_kafka_sink.security.login import check
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.unit.registry.server import Times

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
KEYTAB = {"useKeyTab": "true", "keyTab": "/a.keytab", "principal": "app@REALM", "storeKey": "true"}
KAFKA = KerberosConfig("kafka")


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "user"),
        [
            (KEYTAB, KerberosUser("kafka", "app@REALM", "/a.keytab", None)),
            ({"useTicketCache": "true"}, KerberosUser("kafka", None, None, "")),
            (
                {"useTicketCache": "TRUE", "ticketCache": "/cc", "principal": "app"},
                KerberosUser("kafka", "app", None, "/cc"),
            ),
            (
                {**KEYTAB, "useTicketCache": "true"},
                KerberosUser("kafka", "app@REALM", "/a.keytab", ""),
            ),
            (
                {**KEYTAB, "serviceName": "kafka"},
                KerberosUser("kafka", "app@REALM", "/a.keytab", None),
            ),
            (
                {"useTicketCache": "true", "useKeyTab": "false", "keyTab": "/ignored"},
                KerberosUser("kafka", None, None, ""),
            ),
        ],
    )
    def test_user(self, options, user):
        assert kerberos_user(KAFKA, options) == user

    def test_the_service_of_jaas(self):
        assert kerberos_user(KerberosConfig(), {**KEYTAB, "serviceName": "bank"}).service == "bank"

    @pytest.mark.parametrize(
        ("config", "options", "message"),
        [
            (
                KAFKA,
                {},
                "neither useKeyTab=true (with keyTab and principal) nor useTicketCache=true",
            ),
            (KAFKA, {"useKeyTab": "true", "principal": "a"}, "useKeyTab=true, but no keyTab"),
            (KAFKA, {"useKeyTab": "true", "keyTab": "/a"}, "useKeyTab=true, but no principal"),
            (KerberosConfig(), KEYTAB, "kafka.sasl.kerberos.service.name is missing"),
            (
                KAFKA,
                {**KEYTAB, "serviceName": "S3CRET"},
                "kafka.sasl.kerberos.service.name=kafka, but serviceName",
            ),
        ],
    )
    def test_what_is_missing_or_contradicts(self, config, options, message):
        with pytest.raises(ConfigError) as raised:
            kerberos_user(config, options)
        assert message in str(raised.value)
        assert "S3CRET" not in str(raised.value)


class TestCheck:
    def sasl(self, options, service="kafka"):
        text = f"{MODULE} required {options};"
        return SaslConfig("GSSAPI", jaas_config=Secret(text), kerberos=KerberosConfig(service))

    def test_without_jaas(self):
        with pytest.raises(ConfigError, match="GSSAPI, which is the default, needs") as raised:
            check(SaslConfig("GSSAPI"))
        assert MODULE in str(raised.value)

    def test_options_come_before_the_package(self):
        with pytest.raises(ConfigError, match="no keyTab"):
            check(self.sasl("useKeyTab=true"))

    @pytest.mark.skipif(
        importlib.util.find_spec("gssapi") is not None, reason="the package gssapi is installed"
    )
    @pytest.mark.parametrize("options", ["useTicketCache=true", 'useKeyTab="${env:X}"'])
    def test_without_the_package_the_command_is_told(self, options):
        with pytest.raises(ConfigError) as raised:
            check(self.sasl(options))
        for part in ("pip install gssapi.", "libkrb5-dev", "krb5-devel"):
            assert part in str(raised.value)

    def test_a_package_whose_libraries_are_missing(self, tmp_path, monkeypatch):
        """As where gssapi was copied from a machine with MIT Kerberos to one without."""
        why = "libgssapi_krb5.so.2: cannot open shared object file"
        (tmp_path / "gssapi").mkdir()
        (tmp_path / "gssapi" / "__init__.py").write_text(f"raise ImportError({why!r})\n")
        monkeypatch.syspath_prepend(tmp_path)
        for name in [name for name in sys.modules if name.split(".")[0] == "gssapi"]:
            monkeypatch.delitem(sys.modules, name)
        with pytest.raises(ConfigError) as raised:
            check(self.sasl("useTicketCache=true"))
        for part in (why, "cannot be loaded", "libgssapi-krb5-2"):
            assert part in str(raised.value)

    def test_whatever_goes_wrong_is_told_to_who_prepares(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "gssapi", types.ModuleType("gssapi"))
        login = KerberosLogin(self.sasl("useTicketCache=true"), SystemClock())
        with pytest.raises(AttributeError):
            login.login(PATIENCE_MS)

    def test_the_extra_is_in_the_package(self):
        text = (importlib.util.find_spec("spark_kafka_sink").origin or "").removesuffix(
            "__init__.py"
        )
        with open(f"{text}../pyproject.toml", encoding="utf-8") as file:
            project = file.read()
        for extra in (login.KERBEROS, login.AWS):
            assert f'\n{extra.name} = ["{extra.package}>=' in project


class Ticket:
    lifetime: int | None = 3_600


class TestTickets:
    """Which are used again, and when they are taken anew. ``taken``: for whom they were."""

    LIMIT_MS = 60_000

    @pytest.fixture
    def taken(self, monkeypatch):
        users = []

        def acquire(tickets):
            users.append(tickets._user.principal)
            return Ticket()

        monkeypatch.setattr(KerberosCredentials, "acquire", acquire)
        monkeypatch.setenv("TEST_PRINCIPAL", "first")
        return users

    def login(self, times):
        jaas = f'{MODULE} required useTicketCache=true principal="${{env:TEST_PRINCIPAL}}";'
        kerberos = KerberosConfig("kafka", min_time_before_relogin_ms=self.LIMIT_MS)
        return KerberosLogin(
            SaslConfig("GSSAPI", jaas_config=Secret(jaas), kerberos=kerberos), times
        )

    def test_one_that_was_taken_a_short_time_ago_is_used_again(self, taken):
        times = Times()
        login = self.login(times)
        login.login(PATIENCE_MS)
        times.ms += self.LIMIT_MS // 2
        login.login(PATIENCE_MS)
        assert taken == ["first"]

    def test_an_older_one_is_not(self, taken):
        times = Times()
        login = self.login(times)
        login.login(PATIENCE_MS)
        times.ms += self.LIMIT_MS
        login.login(PATIENCE_MS)
        assert taken == ["first", "first"]

    def test_one_that_has_expired_is_not(self, taken, monkeypatch):
        login = self.login(Times())
        login.login(PATIENCE_MS)
        monkeypatch.setattr(Ticket, "lifetime", 0)
        login.login(PATIENCE_MS)
        assert taken == ["first", "first"]

    def test_another_users_is_not(self, taken, monkeypatch):
        login = self.login(Times())
        login.login(PATIENCE_MS)
        monkeypatch.setenv("TEST_PRINCIPAL", "second")
        login.login(PATIENCE_MS)
        assert taken == ["first", "second"]

    def test_a_kdc_that_does_not_answer_is_waited_for_no_longer_than_that(self, taken, monkeypatch):
        may_end = threading.Event()
        monkeypatch.setattr(KerberosCredentials, "acquire", lambda _: may_end.wait(PATIENCE_S))
        with pytest.raises(CredentialsUnavailableError, match="the KDC has not answered within 20"):
            self.login(Times()).login(20)
        may_end.set()


class TestStores:
    """What Kerberos' libraries are asked for, by a package that only notes it."""

    @pytest.fixture
    def stores(self, monkeypatch):
        asked = []
        package = types.ModuleType("gssapi")

        def credentials(store, **_):
            asked.append(store)
            return Ticket()

        package.Credentials = credentials
        package.MechType = types.SimpleNamespace(kerberos=1)
        monkeypatch.setitem(sys.modules, "gssapi", package)
        return asked

    def test_tickets_of_a_keytab_are_in_a_cache_of_this_process_and_user_alone(
        self, stores, tmp_path
    ):
        keytab = tmp_path / "a.keytab"
        keytab.touch()
        user = KerberosUser("kafka", None, str(keytab), None)
        for tickets in (KerberosCredentials(user), KerberosCredentials(user)):
            tickets.acquire()
        caches = [store["ccache"] for store in stores]
        assert all(cache.startswith("MEMORY:") for cache in caches)
        assert all(cache.endswith(f"-{os.getpid()}") for cache in caches)
        assert caches[0] != caches[1]

    def test_a_ticket_that_has_expired_is_no_ticket(self, stores, monkeypatch):
        monkeypatch.setattr(Ticket, "lifetime", 0)
        with pytest.raises(AuthenticationError, match="run kinit"):
            KerberosCredentials(KerberosUser("kafka", None, None, "")).acquire()


class Wrapped(NamedTuple):
    message: bytes


class Context:
    """Of GSSAPI: complete after ``steps`` messages of the broker."""

    def __init__(self, steps=1):
        self.steps = steps
        self.seen = []

    @property
    def complete(self):
        return len(self.seen) > self.steps

    def step(self, token=None):
        self.seen.append(token)
        return b"AP-REQ" if token is None else None

    def unwrap(self, message):
        return Wrapped(message.removeprefix(b"wrapped"))

    def wrap(self, message, encrypt):
        assert not encrypt
        return Wrapped(b"wrapped" + message)


class TestConversation:
    @pytest.mark.parametrize(("steps", "challenge"), [(1, b"AP-REP"), (0, b"")])
    def test_with_and_without_an_answer_of_kerberos(self, steps, challenge):
        conversation = GssapiSaslClient(lambda: Context(steps))
        assert conversation.mechanism == "GSSAPI"
        assert conversation.initial_response() == b"AP-REQ"
        assert conversation.evaluate_challenge(challenge) == b""
        assert (
            conversation.evaluate_challenge(b"wrapped\x01\x00\x00\x00")
            == b"wrapped\x01\x00\x00\x00"
        )
        assert conversation.evaluate_challenge(b"") is None

    def test_of_several_layers_none_is_chosen(self):
        conversation = GssapiSaslClient(Context)
        conversation.initial_response()
        conversation.evaluate_challenge(b"AP-REP")
        assert (
            conversation.evaluate_challenge(b"wrapped\x07\x00\x10\x00")
            == b"wrapped\x01\x00\x00\x00"
        )

    @pytest.mark.parametrize(
        "offer", [b"", b"\x04\x00\x10\x00", b"\x01\x00\x00", b"\x01\x00\x00\x00\x00"]
    )
    def test_a_broker_that_wants_a_layer(self, offer):
        conversation = GssapiSaslClient(Context)
        conversation.initial_response()
        conversation.evaluate_challenge(b"AP-REP")
        with pytest.raises(AuthenticationError, match="insists on a security layer"):
            conversation.evaluate_challenge(b"wrapped" + offer)

    @pytest.mark.parametrize("last", [b"more", None])
    def test_a_broker_that_goes_on(self, last):
        conversation = GssapiSaslClient(Context)
        conversation.initial_response()
        conversation.evaluate_challenge(b"AP-REP")
        conversation.evaluate_challenge(b"wrapped\x01\x00\x00\x00")
        if last is None:
            conversation.evaluate_challenge(b"")
        with pytest.raises(AuthenticationError, match="goes on with SASL GSSAPI"):
            conversation.evaluate_challenge(last or b"")


@pytest.mark.parametrize(
    ("text", "advice", "is_transient"),
    [
        ("Clock skew too great", "NTP", False),
        ("Cannot contact any KDC for realm 'TEST.LOCAL'", "no KDC of the realm answers", True),
        ('Cannot find KDC for realm "TEST.LOCAL"', "krb5.conf", False),
        ("Client 'gone@TEST.LOCAL' not found in Kerberos database", "the principal", False),
        ("Server kafka/x@TEST.LOCAL not found in Kerberos database", "service.name", False),
        ("Decrypt integrity check failed", "keytab holds another key", False),
        ("No Kerberos credentials available (default cache: FILE:/tmp/x)", "run kinit", False),
        ("No credentials cache found", "run kinit", False),
        ("Ticket expired", "has expired", False),
        ("The referenced credential has expired", "has expired", False),
        ("Clock skew too great in KDC reply", "NTP", False),
        ("Ticket not yet valid", "NTP", False),
        ("Key table file '/x' not found", "check keyTab", False),
        ("Request ticket server a@R not found in keytab", "the broker has another key", False),
    ],
)
def test_causes(text, advice, is_transient):
    cause = _cause_of(text)
    assert cause is not None
    assert advice in cause.advice
    assert cause.is_transient is is_transient


def test_an_unknown_cause():
    assert _cause_of("something else") is None
