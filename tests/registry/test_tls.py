"""A real registry behind TLS, with authorities of the tests' own: rows written, and every refusal."""

from __future__ import annotations

import ssl

import pytest

from spark_kafka_sink.localkafka.certificates import Authority, Identity
from spark_kafka_sink.registry.client import RegistryError
from tests.registry.test_registry import ROWS, Writing, writing  # noqa: F401
from tests.registry.tls_front import tls_in_front_of
from tests.unit.tls_server import authority, other_authority, server_context

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def trusting(trusted: Authority) -> dict[str, str]:
    return {
        "schema_registry_ssl_truststore_type": "PEM",
        "schema_registry_ssl_truststore_certificates": trusted.pem,
    }


def showing(client: Identity) -> dict[str, str]:
    return {
        "schema_registry_ssl_keystore_type": "PEM",
        "schema_registry_ssl_keystore_key": client.private_key(),
        "schema_registry_ssl_keystore_certificate_chain": client.certificate_chain,
    }


TRUST = trusting(authority())
CLIENT = {**TRUST, **showing(authority().issue("client", []))}
STRANGER = {**TRUST, **showing(other_authority().issue("stranger", []))}


@pytest.mark.parametrize("wants_client", [False, True])
def test_rows_are_written(writing, wants_client):  # noqa: F811
    context = server_context(wants_client=wants_client)
    with tls_in_front_of(writing.registry.url, context) as url:
        writing.write(schema_registry_url=url, **(CLIENT if wants_client else TRUST))
    assert writing.values() == ROWS


def elsewhere() -> ssl.SSLContext:
    return server_context(authority().issue("elsewhere", ["registry.example"]))


def expired() -> ssl.SSLContext:
    return server_context(authority().issue("registry", ["localhost"], expired=True))


REFUSALS = {
    "nobody is trusted": (server_context, {}, "schema.registry.ssl.truststore.location is not set"),
    "another authority": (server_context, trusting(other_authority()), "is not signed by an authority of schema.registry.ssl.truststore.certificates"),
    "another name": (elsewhere, TRUST, "is not for the name or address localhost"),
    "expired": (expired, TRUST, "has expired"),
    "no client certificate": (lambda: server_context(wants_client=True), TRUST, "wants a client certificate, and schema.registry.ssl.keystore.location is not set"),
    "a stranger's certificate": (lambda: server_context(wants_client=True), STRANGER, "refuses the client's certificate"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_told_at_once_and_nothing_is_written(
    writing,  # noqa: F811
    name,
):
    context, options, words = REFUSALS[name]
    with (
        tls_in_front_of(writing.registry.url, context()) as url,
        pytest.raises(RegistryError) as refused,
    ):
        writing.write(schema_registry_url=url, **options)
    told = str(refused.value)
    assert words in told
    # What is tried again says for how long it was; an alert may be lost with the connection.
    assert "tried for" not in told or "client" in words
    assert writing.records() == []


def test_clear_text_to_a_port_with_tls(writing):  # noqa: F811
    with (
        tls_in_front_of(writing.registry.url, server_context()) as url,
        pytest.raises(RegistryError, match=r"the port speaks TLS: schema\.registry\.url must"),
    ):
        writing.write(schema_registry_url=url.replace("https:", "http:"))


def test_tls_to_a_port_with_clear_text(writing):  # noqa: F811
    with pytest.raises(RegistryError, match="the port does not speak TLS"):
        writing.write(schema_registry_url=writing.registry.url.replace("http:", "https:"))
