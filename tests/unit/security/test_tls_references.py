"""Stores whose options are references: resolved for each connection, and never shown."""

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SaslConfig, SslConfig, StoreConfig
from spark_kafka_sink.localkafka.certificates import Authority, write_private
from spark_kafka_sink.security.credentials import login_options
from spark_kafka_sink.security.oauth import endpoint_ssl, endpoint_tls
from spark_kafka_sink.security.tls import TlsContext
from tests.unit.security.handshakes import handshake, server_context

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
AUTHORITY = Authority()
PASSWORD = "a password: marked-key"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where each option's value stands in a file of its own."""
    monkeypatch.setenv("STORES", str(tmp_path))
    write_private(tmp_path / "ca", AUTHORITY.pem)
    return tmp_path


def write_client(folder, name, password):
    client = AUTHORITY.issue(name)
    write_private(folder / "key", client.private_key(password))
    write_private(folder / "chain", client.certificate_chain)
    write_private(folder / "secrets.properties", f"key.password={password}\n")


def referring(folder):
    return SslConfig(
        truststore=StoreConfig("${env:STORES}/ca"),
        keystore=StoreConfig(
            certificates=f"${{dir:{folder}:chain}}",
            key=Secret(f"${{dir:{folder}:key}}"),
            key_password=Secret(f"${{file:{folder}/secrets.properties:key.password}}"),
        ),
    )


def peer_of(tls):
    server = server_context(AUTHORITY.issue("broker", ["localhost"]), AUTHORITY)
    return handshake(tls.context(), server).peer


def test_values_are_resolved_and_a_changed_one_is_used(folder):
    write_client(folder, "before", PASSWORD)
    tls = TlsContext(referring(folder))
    assert peer_of(tls) == "before"
    assert tls.context() is tls.context()
    write_client(folder, "after", "another password")
    assert peer_of(tls) == "after"


def test_half_of_a_rotation_leaves_the_former_context_in_use(folder, caplog):
    write_client(folder, "before", PASSWORD)
    tls = TlsContext(referring(folder))
    assert peer_of(tls) == "before"
    for content in ("key.password=marked-wrong\n", "nothing\n"):
        write_private(folder / "secrets.properties", content)
        assert [peer_of(tls), peer_of(tls)] == ["before", "before"]
    wrong, missing = (record.getMessage() for record in caplog.records)
    assert "kafka.ssl.key.password is wrong" in wrong
    assert "finds no key 'key.password'" in missing
    assert missing.startswith("kafka.ssl.key.password: ")
    assert "marked" not in caplog.text


def test_of_a_token_endpoint_what_references_stand_for_is_not_looked_through(folder, monkeypatch):
    """The options are JAAS', where references are resolved before."""
    password = "${env:STORES} and ${vault:this}"
    write_private(folder / "client.p12", AUTHORITY.issue("client").pkcs12(password))
    monkeypatch.setenv("STORE_PASSWORD", password)
    jaas = (
        f"{MODULE} required ssl.truststore.location="
        '"${env:STORES}/ca" ssl.keystore.location="${env:STORES}/client.p12" '
        'ssl.keystore.password="${env:STORE_PASSWORD}";'
    )
    options = login_options(SaslConfig("OAUTHBEARER", jaas_config=Secret(jaas)))
    endpoint = endpoint_tls(endpoint_ssl(options))
    server = server_context(AUTHORITY.issue("issuer", ["localhost"]), AUTHORITY)
    assert handshake(endpoint.context(), server).peer == "client"


def test_what_a_reference_lacks_is_told_with_its_option(folder):
    config = SslConfig(truststore=StoreConfig("${env:NO_SUCH_VARIABLE}/ca"))
    with pytest.raises(ConfigError, match="kafka.ssl.truststore.location: this process on host"):
        TlsContext(config).context()


def test_a_password_that_is_not_utf_8_is_used_as_it_stands_in_its_variable(folder, monkeypatch):
    raw = b"p\xe4ssword"
    client = AUTHORITY.issue("client")
    key = client.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(raw)
    ).decode()
    monkeypatch.setenv("PASSWORD", raw.decode("utf-8", "surrogateescape"))
    own = StoreConfig(
        certificates=client.certificate_chain,
        key=Secret(key),
        key_password=Secret("${env:PASSWORD}"),
    )
    tls = TlsContext(SslConfig(truststore=StoreConfig("${env:STORES}/ca"), keystore=own))
    assert [peer_of(tls), peer_of(tls)] == ["client", "client"]
