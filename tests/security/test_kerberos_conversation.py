"""SASL GSSAPI with a real KDC: both sides of the conversation, and what fails for whom.

Needs the package ``gssapi`` and MIT's KDC: ``apt-get install krb5-kdc krb5-admin-server krb5-user
libkrb5-dev gcc python3-dev`` and ``pip install gssapi``. Skipped without them.
"""

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, CredentialsUnavailableError
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.security_config import KerberosConfig, SaslConfig
from spark_kafka_sink.security.security import new_login
from tests.security.kdc import REALM, Kdc, missing_programs

gssapi = pytest.importorskip("gssapi", reason="the package gssapi is not installed")
pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"no {missing_programs()}")

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
BROKER = "kafka/localhost"
PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def kdc(tmp_path_factory):
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    with kdc.running():
        yield kdc


@pytest.fixture(scope="module")
def service_keytab(kdc):
    return kdc.keytab(BROKER)


@pytest.fixture(scope="module")
def client_keytab(kdc):
    return kdc.keytab("client")


@pytest.fixture(autouse=True)
def environment(kdc, monkeypatch):
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KRB5CCNAME", raising=False)


def login_for(options, service="kafka"):
    jaas = Secret(f"{MODULE} required {options};")
    return new_login(SaslConfig("GSSAPI", jaas_config=jaas, kerberos=KerberosConfig(service)))


def by_keytab(path, principal="client"):
    return f'useKeyTab=true storeKey=true keyTab="{path}" principal="{principal}@{REALM}"'


def accept(conversation, keytab, layers=1):
    """The broker's side, to the end. Returns who the client is."""
    credentials = gssapi.Credentials(usage="accept", store={"keytab": str(keytab)})
    context = gssapi.SecurityContext(creds=credentials, usage="accept")
    message = conversation.initial_response()
    while not context.complete:
        message = conversation.evaluate_challenge(context.step(message) or b"")
    assert message == b""
    offer = context.wrap(bytes([layers, 0, 0, 0]), False).message
    answer = conversation.evaluate_challenge(offer)
    assert answer is not None
    assert context.unwrap(answer).message == b"\x01\x00\x00\x00"
    assert conversation.evaluate_challenge(b"") is None
    return str(context.initiator_name)


class TestSuccess:
    def test_a_keytab(self, service_keytab, client_keytab):
        login = login_for(by_keytab(client_keytab))
        login.login(PATIENCE_MS)
        assert login.mechanism == "GSSAPI"
        # A ticket serves many conversations.
        for layers in (1, 7):
            conversation = login.create_sasl_client("localhost")
            assert accept(conversation, service_keytab, layers) == f"client@{REALM}"

    def test_a_ticket_cache(self, kdc, service_keytab, client_keytab, tmp_path, monkeypatch):
        """A given one, the user's own, and the keytab where a cache has no ticket."""
        cache = kdc.ticket_cache("client", client_keytab)
        monkeypatch.setenv("KRB5CCNAME", str(cache))
        none = f'ticketCache="{tmp_path}/none" {by_keytab(client_keytab)}'
        for options in (f'ticketCache="{cache}"', "", none):
            login = login_for(f"useTicketCache=true {options}")
            login.login(PATIENCE_MS)
            conversation = login.create_sasl_client("localhost")
            assert accept(conversation, service_keytab) == f"client@{REALM}"

    def test_a_ticket_that_has_expired_gives_way_to_a_new_one(
        self, kdc, service_keytab, client_keytab, monkeypatch
    ):
        """Also within kafka.sasl.kerberos.min.time.before.relogin."""
        cache = kdc.ticket_cache("client", client_keytab, life="1s")
        login = login_for(f'useTicketCache=true ticketCache="{cache}"')
        told = ""
        while "has expired" not in told:
            try:
                login.login(PATIENCE_MS)
            except AuthenticationError as error:
                told = str(error)
        kdc.ticket_cache("client", client_keytab, life="1h").replace(cache)
        assert accept(login.create_sasl_client("localhost"), service_keytab) == f"client@{REALM}"


def refused(options, host="localhost", service="kafka"):
    def begin():
        login = login_for(options, service)
        login.login(PATIENCE_MS)
        login.create_sasl_client(host).initial_response()

    with pytest.raises(AuthenticationError) as raised:
        begin()
    assert not isinstance(raised.value, CredentialsUnavailableError)
    return str(raised.value)


def test_what_a_kdc_refuses(kdc, client_keytab, tmp_path, monkeypatch):
    gone, rotated = kdc.keytab("gone"), kdc.keytab("rotated")
    kdc.delete("gone")
    kdc.keytab("rotated", "rotated-again")
    told = refused(by_keytab(client_keytab, "somebody"))
    assert f"{client_keytab} has no key of the principal somebody@{REALM}" in told
    known, cache = by_keytab(client_keytab), f'useTicketCache=true ticketCache="{tmp_path}/none"'
    for words, *given in (
        ("the KDC does not know the principal", by_keytab(gone, "gone")),
        ("the keytab holds another key", by_keytab(rotated, "rotated")),
        ("keyTab in kafka.sasl.jaas.config", by_keytab(tmp_path / "none")),
        ("run kinit", cache),
        ("kafka.sasl.kerberos.service.name", known, "elsewhere", "kafka"),
        ("kafka.sasl.kerberos.service.name", known, "localhost", "bank"),
    ):
        assert words in refused(*given)
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "none"))
    assert "krb5.conf" in refused(known)


def test_a_broker_with_another_key_and_one_that_sends_nonsense(kdc, client_keytab, service_keytab):
    """The first cannot read the ticket, and answers why."""
    other = kdc.keytab("kafka/otherhost")
    login = login_for(by_keytab(client_keytab))
    login.login(PATIENCE_MS)
    with pytest.raises(AuthenticationError, match="the broker has another key than the KDC"):
        accept(login.create_sasl_client("localhost"), other)
    conversation = login.create_sasl_client("localhost")
    conversation.initial_response()
    with pytest.raises(AuthenticationError, match="SASL GSSAPI failed"):
        conversation.evaluate_challenge(b"nonsense")


def test_a_kdc_that_is_away_may_be_tried_again(tmp_path, monkeypatch):
    kdc = Kdc(tmp_path)
    keytab = kdc.keytab("client")
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    login = login_for(by_keytab(keytab))
    with pytest.raises(CredentialsUnavailableError, match="no KDC of the realm answers"):
        login.login(PATIENCE_MS)
    with kdc.running():
        login.login(PATIENCE_MS)
