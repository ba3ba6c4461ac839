"""Certificates of the local Kafka, as OpenSSL and Java see them."""

import ssl
import subprocess

import pytest

from spark_kafka_sink.localkafka.certificates import Authority, write_private

PASSWORD = "a store's password"


def handshake(server, client, host):
    """Both sides in memory; the TLS version that they agreed on."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(5):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0].version()


def server_context(path, password=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, password=password)
    return context


@pytest.mark.parametrize("key_type", ["RSA", "EC"])
@pytest.mark.parametrize("password", [None, PASSWORD])
def test_a_client_that_trusts_the_authority_accepts_the_server(tmp_path, key_type, password):
    authority = Authority(key_type=key_type)
    identity = authority.issue("broker", ["127.0.0.1", "localhost"], key_type)
    path = write_private(tmp_path / "broker.pem", identity.pem(password))
    client = ssl.create_default_context(cadata=authority.pem)
    for host in ("127.0.0.1", "localhost"):
        assert handshake(server_context(path, password), client, host) == "TLSv1.3"


@pytest.mark.parametrize(
    ("hosts", "expired", "reason"),
    [
        (["kafka.example"], False, "IP address mismatch"),
        (["127.0.0.1"], True, "certificate has expired"),
    ],
)
def test_certificates_that_are_refused(tmp_path, hosts, expired, reason):
    authority = Authority()
    identity = authority.issue("broker", hosts, expired=expired)
    server = server_context(write_private(tmp_path / "broker.pem", identity.pem()))
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        handshake(server, ssl.create_default_context(cadata=authority.pem), "127.0.0.1")


def test_another_authority_of_the_same_name_is_not_trusted(tmp_path):
    identity = Authority().issue("broker", ["127.0.0.1"])
    server = server_context(write_private(tmp_path / "broker.pem", identity.pem()))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, ssl.create_default_context(cadata=Authority().pem), "127.0.0.1")


@pytest.mark.slow
@pytest.mark.parametrize("key_type", ["RSA", "EC"])
def test_java_reads_the_pkcs12(tmp_path, key_type):
    identity = Authority(key_type=key_type).issue("alice", key_type=key_type)
    path = write_private(tmp_path / "alice.p12", identity.pkcs12(PASSWORD, "alice"))
    listed = subprocess.run(
        ["keytool", "-list", "-v", "-keystore", path, "-storepass:env", "STORE_PASSWORD"],
        env={"PATH": "/usr/bin:/bin", "STORE_PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Alias name: alice" in listed
    assert "Entry type: PrivateKeyEntry" in listed
    assert "Certificate chain length: 2" in listed


def test_nobody_else_may_read_what_is_written(tmp_path):
    path = tmp_path / "key.pem"
    path.write_text("before")
    path.chmod(0o644)
    assert write_private(path, "after").read_text() == "after"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_that_another_user_plants_is_not_followed(tmp_path: Path) -> None:
    other, path = tmp_path / "other", tmp_path / "key.pem"
    other.write_text("precious")
    path.with_name("key.pem.part").symlink_to(other)
    path.symlink_to(other)
    assert write_private(path, "after").read_text() == "after"
    assert not path.is_symlink()
    assert other.read_text() == "precious"


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(path, "secret")
    assert list(tmp_path.iterdir()) == [path]
