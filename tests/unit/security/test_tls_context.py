"""What a context does in handshakes, and when it is made anew."""

import logging
import os
import ssl
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SaslConfig, SslConfig, StoreConfig
from spark_kafka_sink.localkafka import certificates
from spark_kafka_sink.localkafka.certificates import Authority, Identity, write_private
from spark_kafka_sink.security.credentials import login_options
from spark_kafka_sink.security.oauth import endpoint_ssl, endpoint_tls
from spark_kafka_sink.security.tls import TlsContext
from tests.unit.security.material import handshake, server_context, store, trusted_entry

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
VERSIONS = {"TLSv1.2": TLS_1_2, "TLSv1.3": TLS_1_3}
AUTHORITY, OTHER = Authority(), Authority("another authority")
TRUST = StoreConfig(certificates=AUTHORITY.pem)
SERVER = server_context(AUTHORITY.issue("broker", ["localhost", "127.0.0.1"]))
PASSWORD = "a password: marked-key"


def in_options(key, chain, password=None):
    secret = None if password is None else Secret(password)
    return StoreConfig(certificates=chain, key=Secret(key), key_password=secret)


def requiring(version=TLS_1_3):
    """A server that wants a client's certificate of its authority."""
    return server_context(AUTHORITY.issue("broker", ["localhost"]), AUTHORITY, version)


def error_of(config, server=SERVER, host="localhost"):
    """What is said of a handshake that fails."""
    tls = TlsContext(config)
    outcome = handshake(tls.context(), server, host)
    assert outcome.error is not None
    return tls.explain(outcome.error, host, 9093)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["RSA", "EC"])
def test_a_server_that_is_trusted(version, kind):
    authority = Authority(key_type=kind)
    server = server_context(authority.issue("b", ["localhost"], kind), version=VERSIONS[version])
    trust = StoreConfig(certificates=authority.pem)
    outcome = handshake(TlsContext(SslConfig(truststore=trust)).context(), server)
    assert (outcome.version, outcome.peer) == (version, None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("password", [None, PASSWORD])
@pytest.mark.parametrize("kind", ["RSA", "EC"])
def test_both_sides_check_the_other(version, password, kind):
    client = AUTHORITY.issue("client", key_type=kind)
    server = requiring(VERSIONS[version])
    own = in_options(client.private_key(password), client.certificate_chain, password)
    context = TlsContext(SslConfig(truststore=TRUST, keystore=own)).context()
    assert handshake(context, server).peer == "client"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_without_a_certificate_is_told_which_option_is_missing(version):
    server = requiring(VERSIONS[version])
    said = error_of(SslConfig(truststore=TRUST), server)
    assert said.startswith("TLS with localhost:9093: ")
    assert "client certificate" in said
    assert "kafka.ssl.keystore.location is not set" in said


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_with_a_certificate_of_another_authority(version):
    client = OTHER.issue("client")
    server = requiring(VERSIONS[version])
    own = in_options(client.private_key(), client.certificate_chain)
    said = error_of(SslConfig(truststore=TRUST, keystore=own), server)
    assert (
        "refuses the client's certificate, that of kafka.ssl.keystore.certificate.chain: " in said
    )
    assert "CN=client, signed by CN=another authority, valid until 20" in said


def test_another_authority():
    said = error_of(SslConfig(truststore=StoreConfig(certificates=OTHER.pem)))
    assert "not signed by an authority of kafka.ssl.truststore.certificates" in said
    assert "kafka.ssl.truststore.location must be a store with" in said


def test_another_authority_of_the_same_name():
    said = error_of(SslConfig(truststore=StoreConfig(certificates=Authority().pem)))
    assert "authority" in said
    assert "kafka.ssl.truststore.location" in said


def test_without_a_trust_store_the_systems_authorities_are_trusted():
    said = error_of(SslConfig())
    assert "of this host's system" in said
    assert "kafka.ssl.truststore.location is not set" in said


@pytest.mark.parametrize("host", ["kafka.example", "10.1.2.3"])
def test_another_host(host):
    said = error_of(SslConfig(truststore=TRUST), host=host)
    assert f"not for the name or address {host}" in said
    assert "kafka.ssl.endpoint.identification.algorithm" in said
    without = SslConfig(truststore=TRUST, checks_host_name=False)
    assert handshake(TlsContext(without).context(), SERVER, host).version == "TLSv1.3"


def test_without_a_check_of_names_the_chain_is_checked_all_the_same():
    trust = StoreConfig(certificates=OTHER.pem)
    assert "not signed by" in error_of(SslConfig(truststore=trust, checks_host_name=False))


def test_an_expired_server():
    server = server_context(AUTHORITY.issue("broker", ["localhost"], expired=True))
    said = error_of(SslConfig(truststore=TRUST), server)
    assert "has expired" in said
    assert "the clock of this host" in said


def test_a_server_that_is_not_valid_yet(monkeypatch):
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    validity = (tomorrow, tomorrow + timedelta(days=1))
    monkeypatch.setattr(certificates, "_validity", lambda *_: validity)
    server = server_context(AUTHORITY.issue("broker", ["localhost"]))
    said = error_of(SslConfig(truststore=TRUST), server)
    assert "is not valid yet" in said
    assert "the clock of this host" in said


def test_a_server_that_has_no_certificate_for_the_name():
    server = server_context(AUTHORITY.issue("broker", ["localhost"]))
    server.sni_callback = lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    said = error_of(SslConfig(truststore=TRUST), server)
    assert "the server knows no certificate for the name localhost" in said


def signed_by_itself():
    """As ``openssl req -x509`` makes it: of no authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return Identity(key, certificate, certificate)


def test_a_server_that_is_signed_by_itself_and_has_no_other_name_than_its_common_one():
    identity = signed_by_itself()
    server = server_context(identity)
    said = error_of(SslConfig(truststore=TRUST), server)
    assert "the server's certificate is signed by itself, not by an authority of" in said
    trust = StoreConfig(certificates=identity.certificate_chain)
    context = TlsContext(SslConfig(truststore=trust)).context()
    assert handshake(context, server).version == "TLSv1.3", "the common name counts, as in Java"


def test_a_certificate_for_another_use_than_a_servers():
    authority = Identity(OTHER._key, OTHER.certificate, OTHER.certificate)
    trust = StoreConfig(certificates=OTHER.pem)
    said = error_of(SslConfig(truststore=trust), server_context(authority))
    assert "is not made for a server (keyUsage, extendedKeyUsage)" in said


def test_an_expired_client():
    client = AUTHORITY.issue("client", expired=True)
    server = requiring()
    own = in_options(client.private_key(), client.certificate_chain)
    said = error_of(SslConfig(truststore=TRUST, keystore=own), server)
    assert "the client's certificate has expired" in said
    assert "authority, which has expired on 20" in said


def test_trust_may_end_at_the_servers_own_certificate():
    """As in Java; OpenSSL by itself goes on to a root."""
    identity = AUTHORITY.issue("broker", ["localhost"])
    own = identity.certificate_chain.split("-----END CERTIFICATE-----")[0]
    trust = StoreConfig(certificates=f"{own}-----END CERTIFICATE-----")
    context = TlsContext(SslConfig(truststore=trust)).context()
    assert handshake(context, server_context(identity)).version == "TLSv1.3"


def test_a_server_cannot_renegotiate():
    """As with Java's client. Python's own servers cannot ask for it."""
    assert TlsContext(SslConfig()).context().options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("protocol", "enabled", "spoken"),
    [
        ("TLSv1.3", (), {"TLSv1.2", "TLSv1.3"}),
        ("TLSv1.3", ("TLSv1.3",), {"TLSv1.3"}),
        ("TLSv1.3", ("TLSv1.2",), {"TLSv1.2"}),
        ("TLSv1.2", ("TLSv1.2", "TLSv1.3"), {"TLSv1.2"}),
        ("TLSv1.2", (), {"TLSv1.2"}),
    ],
)
def test_versions(protocol, enabled, spoken):
    config = SslConfig(protocol=protocol, enabled_protocols=enabled, truststore=TRUST)
    identity = AUTHORITY.issue("broker", ["localhost"])
    for name, version in VERSIONS.items():
        server = server_context(identity, version=version)
        if name in spoken:
            assert handshake(TlsContext(config).context(), server).version == name
        else:
            assert "kafka.ssl.enabled.protocols" in error_of(config, server)


def test_the_cipher_suite_is_the_one_that_was_asked_for():
    server = server_context(AUTHORITY.issue("broker", ["localhost"]), version=TLS_1_2)
    suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    config = SslConfig(truststore=TRUST, cipher_suites=(suite,))
    outcome = handshake(TlsContext(config).context(), server)
    assert outcome.cipher == "ECDHE-ECDSA-CHACHA20-POLY1305"
    assert "kafka.ssl.cipher.suites" in error_of(config, SERVER), "1.3 needs suites of its own"


def test_a_key_of_another_certificate():
    one, other = AUTHORITY.issue("one"), AUTHORITY.issue("other")
    third = AUTHORITY.issue("third", key_type="RSA")
    for key in (other.private_key(), third.private_key()):
        own = in_options(key, one.certificate_chain)
        with pytest.raises(ConfigError, match="does not belong to the first certificate"):
            TlsContext(SslConfig(keystore=own)).context()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "is encrypted, but its password is not specified. Check kafka.ssl.key.password"),
        ("marked-wrong", "cannot be decrypted: kafka.ssl.key.password is wrong"),
    ],
)
def test_the_password_of_an_encrypted_key(given, message):
    client = AUTHORITY.issue("client")
    own = in_options(client.private_key(PASSWORD), client.certificate_chain, given)
    with pytest.raises(ConfigError, match=message) as raised:
        TlsContext(SslConfig(keystore=own)).context()
    assert "marked" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_damaged_certificates_and_keys_are_told():
    client = AUTHORITY.issue("client")
    bad_certificate = "-----BEGIN CERTIFICATE-----\nMAUCAwEAAQ==\n-----END CERTIFICATE-----\n"
    trust = StoreConfig(certificates=AUTHORITY.pem + bad_certificate)
    with pytest.raises(
        ConfigError, match=r"truststore.certificates: certificate 2 of 2 is damaged"
    ):
        TlsContext(SslConfig(truststore=trust)).context()
    bad_key = bad_certificate.replace("CERTIFICATE", "PRIVATE KEY")
    for key, chain, message in (
        (bad_key, client.certificate_chain, "the private key is damaged"),
        (client.private_key(), bad_certificate, "certificate 1 of 1 is damaged"),
    ):
        with pytest.raises(ConfigError, match=f"keystore.certificate.chain: {message}"):
            TlsContext(SslConfig(keystore=in_options(key, chain))).context()


def test_a_certificate_without_content_is_damaged(tmp_path):
    path = tmp_path / "trust.jks"
    path.write_bytes(store(PASSWORD, trusted_entry("empty", b"")))
    with pytest.raises(ConfigError, match="certificate 1 of 1 is damaged"):
        TlsContext(SslConfig(truststore=StoreConfig(str(path)))).context()


def key_store_of(folder, content):
    path = write_private(folder / "client.pem", content)
    return SslConfig(truststore=TRUST, keystore=StoreConfig(str(path)))


def peer_of(tls):
    server = requiring()
    return handshake(tls.context(), server).peer


def test_a_certificate_that_was_rotated_is_used_by_the_next_connection(tmp_path, caplog):
    caplog.set_level(logging.INFO, "spark_kafka_sink")
    tls = TlsContext(key_store_of(tmp_path, AUTHORITY.issue("before").pem()))
    first = tls.context()
    assert peer_of(tls) == "before"
    assert tls.context() is first, "as long as nothing changes"
    assert caplog.records == []
    key_store_of(tmp_path, AUTHORITY.issue("after").pem())
    assert peer_of(tls) == "after"
    assert peer_of(tls) == "after"
    (record,) = caplog.records
    assert "a store has changed; new connections use it" in record.getMessage()


def test_a_rotation_by_a_link_is_seen(tmp_path):
    """As Kubernetes does it: a folder is linked to, and the link replaced."""
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        key_store_of(tmp_path / name, AUTHORITY.issue(name).pem())
        os.utime(tmp_path / name / "client.pem", ns=(0, 0))
    link = tmp_path / "current"
    link.symlink_to("before")
    tls = TlsContext(SslConfig(truststore=TRUST, keystore=StoreConfig(str(link / "client.pem"))))
    assert peer_of(tls) == "before"
    (tmp_path / "new").symlink_to("after")
    (tmp_path / "new").replace(link)
    assert peer_of(tls) == "after"


def cut(path, content):
    path.write_text(content[:-40])


def removed(path, content):
    path.unlink()


def emptied(path, content):
    path.write_text("")


def with_the_former_key(path, content):
    certificates = path.read_text().split("-----BEGIN CERTIFICATE")
    path.write_text(certificates[0] + AUTHORITY.issue("after").certificate_chain)


@pytest.mark.parametrize("harm", [cut, removed, emptied, with_the_former_key])
def test_half_of_a_rotation_leaves_the_former_context_in_use(harm, tmp_path, caplog):
    before, after = AUTHORITY.issue("before").pem(), AUTHORITY.issue("after").pem()
    tls = TlsContext(key_store_of(tmp_path, before))
    assert peer_of(tls) == "before"
    harm(tmp_path / "client.pem", before)
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        assert [peer_of(tls) for _ in range(3)] == ["before"] * 3
    (record,) = caplog.records
    assert "kafka.ssl.keystore.location" in record.getMessage()
    assert "What was read before stays in use" in record.getMessage()
    key_store_of(tmp_path, after)
    assert peer_of(tls) == "after"


def test_the_same_problem_is_told_again_once_it_was_mended(tmp_path, caplog):
    pem = AUTHORITY.issue("before").pem()
    tls = TlsContext(key_store_of(tmp_path, pem))
    assert peer_of(tls) == "before"
    for _ in range(2):
        emptied(tmp_path / "client.pem", pem)
        assert peer_of(tls) == "before"
        key_store_of(tmp_path, AUTHORITY.issue("before").pem())
        assert peer_of(tls) == "before"
    told = [r for r in caplog.records if "What was read before stays in use" in r.getMessage()]
    assert len(told) == 2


@pytest.mark.parametrize("changed", ["time", "size", "inode"])
def test_each_of_time_size_and_inode_tells_that_a_file_has_changed(changed, tmp_path):
    pems = [AUTHORITY.issue(name).pem() for name in ("before", "after")]
    length = max(map(len, pems)) + (changed == "size")
    before = pems[0].ljust(max(map(len, pems)), "\n")
    tls = TlsContext(key_store_of(tmp_path, before))
    path = tmp_path / "client.pem"
    assert peer_of(tls) == "before"
    old = path.stat()
    target = tmp_path / "new.pem" if changed == "inode" else path
    target.write_text(pems[1].ljust(length, "\n"))
    os.utime(target, ns=(old.st_atime_ns, old.st_mtime_ns + (changed == "time")))
    target.replace(path)
    new = path.stat()
    same = [
        new.st_mtime_ns == old.st_mtime_ns,
        new.st_size == old.st_size,
        new.st_ino == old.st_ino,
    ]
    assert same == [changed != "time", changed != "size", changed != "inode"]
    assert peer_of(tls) == "after"


def test_what_cannot_be_read_the_first_time_is_an_error_until_it_can(tmp_path):
    config = key_store_of(tmp_path, AUTHORITY.issue("client").pem()[:-40])
    tls = TlsContext(config)
    for _ in range(2):
        with pytest.raises(ConfigError, match="it is cut: BEGIN CERTIFICATE is there"):
            tls.context()
    key_store_of(tmp_path, AUTHORITY.issue("client").pem())
    assert peer_of(tls) == "client"


def test_a_trust_store_that_was_changed_is_used(tmp_path):
    path = write_private(tmp_path / "ca.pem", OTHER.pem)
    tls = TlsContext(SslConfig(truststore=StoreConfig(str(path))))
    assert handshake(tls.context(), SERVER).error is not None
    write_private(path, OTHER.pem + AUTHORITY.pem)
    assert handshake(tls.context(), SERVER).version == "TLSv1.3"


MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


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


def test_values_are_resolved_and_a_changed_one_is_used(folder):
    write_client(folder, "before", PASSWORD)
    tls = TlsContext(referring(folder))
    assert peer_of(tls) == "before"
    assert tls.context() is tls.context()
    write_client(folder, "after", "another password")
    assert peer_of(tls) == "after"


def test_half_of_a_rotation_of_references_leaves_the_former_context_in_use(folder, caplog):
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
