"""TLS contexts in handshakes, rotation, cipher suites, and what errors are said to mean."""

import errno
import logging
import os
import re
import shutil
import socket
import ssl
import string
import subprocess
import sys
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
from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.security_config import SaslConfig, SslConfig, StoreConfig
from spark_kafka_sink.localkafka.certificates import Authority, Identity
from spark_kafka_sink.security import tls
from spark_kafka_sink.security.credentials import login_options
from spark_kafka_sink.security.key_formats import KeyMaterial
from spark_kafka_sink.security.oauth import endpoint_ssl, endpoint_tls
from spark_kafka_sink.security.stores import key_store_options
from spark_kafka_sink.security.tls import (
    OPENSSL_NAMES,
    TLS_1_3_SUITES,
    SuitesByVersion,
    TlsContext,
    TlsVersions,
    suites_by_version,
    versions_of,
)
from tests.tables import each_row
from tests.unit.security.tls_ends import (
    DEADLINE_S,
    handshake,
    server_context,
    serving,
    store,
    trusted_entry,
)

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
VERSIONS = {"TLSv1.2": TLS_1_2, "TLSv1.3": TLS_1_3}
OF_EACH_VERSION = pytest.mark.parametrize("version", VERSIONS)
AUTHORITY, OTHER = Authority(), Authority("another authority")
TRUST, TRUST_OTHER = (StoreConfig(certificates=one.pem) for one in (AUTHORITY, OTHER))
BROKER = AUTHORITY.issue("broker", ["localhost", "127.0.0.1"])
SERVER = server_context(BROKER, version=TLS_1_3)
PASSWORD = "a password: marked-key"


def in_options(client, password=None, given=None, key=None):
    """A key store in options. password: of the key; given: if that is another one"""
    given = given or password
    return StoreConfig(
        certificates=client.certificate_chain,
        key=Secret(key or client.private_key(password)),
        key_password=None if given is None else Secret(given),
    )


def requiring(version=TLS_1_3):
    """A server that wants a client's certificate of its authority."""
    return server_context(BROKER, AUTHORITY, version)


def context_of(**options):
    return TlsContext(SslConfig(**{"truststore": TRUST, **options})).context()


def error_of(server=SERVER, host="localhost", **options):
    """What is said of a handshake that fails."""
    tls = TlsContext(SslConfig(**{"truststore": TRUST, **options}))
    outcome = handshake(tls.context(), server, host)
    assert outcome.error is not None
    return tls.explain(outcome.error, host, 9093)


@OF_EACH_VERSION
@pytest.mark.parametrize("password", [None, PASSWORD])
@pytest.mark.parametrize("kind", ["RSA", "EC"])
def test_who_is_trusted(version, password, kind):
    authority = Authority(key_type=kind)
    broker = authority.issue("broker", ["localhost"], kind)
    trust = StoreConfig(certificates=authority.pem)
    server = server_context(broker, version=VERSIONS[version])
    outcome = handshake(context_of(truststore=trust), server)
    assert (outcome.version, outcome.peer) == (version, None)
    own = in_options(authority.issue("client", key_type=kind), password)
    server = server_context(broker, authority, VERSIONS[version])
    assert handshake(context_of(truststore=trust, keystore=own), server).peer == "client"


@OF_EACH_VERSION
def test_a_client_whose_certificate_is_missing_or_of_another_authority(version):
    said = error_of(requiring(VERSIONS[version]))
    assert said.startswith("TLS with localhost:9093: ")
    assert "client certificate" in said
    assert "kafka.ssl.keystore.location is not set" in said
    said = error_of(requiring(VERSIONS[version]), keystore=in_options(OTHER.issue("client")))
    option = "kafka.ssl.keystore.certificate.chain"
    assert f"refuses the client's certificate, that of {option}: " in said
    assert "CN=client, signed by CN=another authority, valid until 20" in said


def signed_by_itself(begins_in_days=-1):
    """As ``openssl req -x509`` makes it: of no authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    begin = datetime.now(timezone.utc) + timedelta(days=begins_in_days)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(begin + timedelta(days=2))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    return Identity(key, certificate, certificate)


BY_ITSELF, OF_TOMORROW = signed_by_itself(), signed_by_itself(1)
NAMELESS = server_context(BROKER)
NAMELESS.sni_callback = lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
OF_AN_AUTHORITY = Identity(OTHER._key, OTHER.certificate, OTHER.certificate)
NOT_SIGNED = "not signed by an authority of kafka.ssl.truststore.certificates"
CLOCK = "the clock of this host"


def trusting(identity):
    return {"truststore": StoreConfig(certificates=identity.certificate_chain)}


@each_row(
    ("server", "options", "words"),
    [
        (SERVER, {"truststore": TRUST_OTHER}, [NOT_SIGNED, "location must be a store with"]),
        # Of the same name.
        (SERVER, trusting(Authority().issue("x")), ["authority", "kafka.ssl.truststore.location"]),
        (
            SERVER,
            {"truststore": StoreConfig()},
            ["of this host's system", "kafka.ssl.truststore.location is not set"],
        ),
        (server_context(AUTHORITY.issue("b", ["localhost"], expired=True)), {}, ["has expired", CLOCK]),
        (server_context(OF_TOMORROW), trusting(OF_TOMORROW), ["is not valid yet", CLOCK]),
        (NAMELESS, {}, ["the server knows no certificate for the name localhost"]),
        (
            server_context(BY_ITSELF),
            {},
            ["the server's certificate is signed by itself, not by an authority of"],
        ),
        (
            server_context(OF_AN_AUTHORITY),
            {"truststore": TRUST_OTHER},
            ["is not made for a server (keyUsage, extendedKeyUsage)"],
        ),
        (
            requiring(),
            {"keystore": in_options(AUTHORITY.issue("client", expired=True))},
            ["the client's certificate has expired", "authority, which has expired on 20"],
        ),
        (
            # 1.3 needs suites of its own.
            SERVER,
            {"cipher_suites": ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",)},
            ["kafka.ssl.cipher.suites"],
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_a_handshake_that_fails(server, options, words):
    for part in words:
        assert part in error_of(server, **options)


@pytest.mark.parametrize("host", ["kafka.example", "10.1.2.3", "localhost"])
def test_another_host(host):
    """The authority of the brokers gives clients certificates, too, for common names they choose."""
    server = server_context(AUTHORITY.issue(host)) if host == "localhost" else SERVER
    said = error_of(server, host)
    assert f"not for the name or address {host}" in said
    assert "kafka.ssl.endpoint.identification.algorithm" in said
    assert "a common name is not taken" in said
    assert handshake(context_of(checks_host_name=False), server, host).error is None


def connect(client, address):
    with socket.create_connection(address, DEADLINE_S) as connected:
        client.wrap_socket(connected, server_hostname="localhost").close()


@pytest.mark.parametrize("allowed", ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"])
def test_a_server_that_chooses_another_suite_of_tls_1_3_is_refused(allowed):
    """A server chooses TLS_AES_256_GCM_SHA384 if it is offered."""
    client = context_of(cipher_suites=(allowed,))
    outcome = handshake(client, SERVER)
    if not hasattr(ssl.SSLContext, "set_ciphersuites"):
        assert "no cipher suite, in common" in error_of(cipher_suites=(allowed,))
        with serving(lambda channel: None, SERVER) as server, pytest.raises(ssl.SSLError):
            connect(client, server.address)
    assert (outcome.cipher or allowed) == allowed
    agreed = handshake(context_of(cipher_suites=(allowed, "TLS_AES_256_GCM_SHA384")), SERVER)
    assert agreed.cipher == "TLS_AES_256_GCM_SHA384"


def test_trust_may_end_at_the_servers_own_certificate():
    """As in Java; OpenSSL by itself goes on to a root."""
    own = BROKER.certificate_chain.split("-----END CERTIFICATE-----")[0]
    trust = StoreConfig(certificates=f"{own}-----END CERTIFICATE-----")
    assert handshake(context_of(truststore=trust), SERVER).version == "TLSv1.3"
    server = server_context(BY_ITSELF)
    assert handshake(context_of(**trusting(BY_ITSELF)), server).version == "TLSv1.3"
    # A server cannot renegotiate, as with Java's client. Python's own servers cannot ask for it.
    assert context_of().options & ssl.OP_NO_RENEGOTIATION


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
    options = {"protocol": protocol, "enabled_protocols": enabled}
    for name, version in VERSIONS.items():
        server = server_context(BROKER, version=version)
        if name in spoken:
            assert handshake(context_of(**options), server).version == name
        else:
            assert "kafka.ssl.enabled.protocols" in error_of(server, **options)


def refusal(**options):
    with pytest.raises(ConfigError) as raised:
        context_of(**options)
    assert "marked" not in str(raised.value)
    assert raised.value.__cause__ is None
    return str(raised.value)


BAD = "-----BEGIN CERTIFICATE-----\nMAUCAwEAAQ==\n-----END CERTIFICATE-----\n"
BAD_KEY = BAD.replace("CERTIFICATE", "PRIVATE KEY")
ONE, ANOTHER = AUTHORITY.issue("one"), AUTHORITY.issue("other")
WITH_BAD_CHAIN = StoreConfig(certificates=BAD, key=Secret(ONE.private_key()))
OF_RSA = AUTHORITY.issue("third", key_type="RSA").private_key()
NO_PASSWORD = "is encrypted, but its password is not specified. Check kafka.ssl.key.password"


@each_row(
    ("own", "told"),
    [
        (in_options(ONE, key=ANOTHER.private_key()), "does not belong to the first certificate"),
        (in_options(ONE, key=OF_RSA), "does not belong to the first certificate"),
        (in_options(ONE, key=ONE.private_key(PASSWORD)), NO_PASSWORD),
        (in_options(ONE, PASSWORD, "marked-wrong"), "decrypted: kafka.ssl.key.password is wrong"),
        (in_options(ONE, key=BAD_KEY), "certificate.chain: the private key is damaged"),
        (WITH_BAD_CHAIN, "keystore.certificate.chain: certificate 1 of 1 is damaged"),
    ],
)
def test_a_key_that_cannot_be_used(own, told):
    assert told in refusal(keystore=own)


def test_damaged_certificates_are_told(tmp_path):
    said = refusal(truststore=StoreConfig(certificates=AUTHORITY.pem + BAD))
    assert "truststore.certificates: certificate 2 of 2 is damaged" in said
    path = tmp_path / "trust.jks"
    path.write_bytes(store(PASSWORD, trusted_entry("empty", b"")))
    assert "certificate 1 of 1 is damaged" in refusal(truststore=StoreConfig(str(path)))


# --- rotation --------------------------------------------------------------------------------------


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


def cut(path, content):
    path.write_text(content[:-40])


def with_the_former_key(path, content):
    certificates = path.read_text().split("-----BEGIN CERTIFICATE")
    path.write_text(certificates[0] + AUTHORITY.issue("after").certificate_chain)


@pytest.mark.parametrize("harm", [cut, with_the_former_key])
def test_half_of_a_rotation_leaves_the_former_context_in_use(harm, tmp_path, caplog):
    pem = AUTHORITY.issue("before").pem()
    tls = TlsContext(key_store_of(tmp_path, pem))
    assert peer_of(tls) == "before"
    for _ in range(2):  # the same problem is told again once it was mended
        caplog.clear()
        harm(tmp_path / "client.pem", pem)
        assert [peer_of(tls) for _ in range(3)] == ["before"] * 3
        (record,) = caplog.records
        assert "kafka.ssl.keystore.location" in record.getMessage()
        assert "What was read before stays in use" in record.getMessage()
        key_store_of(tmp_path, AUTHORITY.issue("before").pem())
        assert peer_of(tls) == "before"
    key_store_of(tmp_path, AUTHORITY.issue("after").pem())
    assert peer_of(tls) == "after"


@pytest.mark.parametrize("changed", ["time", "size", "link"])
def test_each_of_time_size_and_file_tells_that_a_store_has_changed(changed, tmp_path):
    """The file becomes another one if a link is replaced, as Kubernetes does it."""
    pems = [AUTHORITY.issue(name).pem() for name in ("before", "after")]
    length = max(map(len, pems)) + (changed == "size")
    path, first, second = (tmp_path / name for name in ("client.pem", "first", "second"))
    first.write_text(pems[0].ljust(max(map(len, pems)), "\n"))
    path.symlink_to(first)
    tls = TlsContext(SslConfig(truststore=TRUST, keystore=StoreConfig(str(path))))
    assert peer_of(tls) == "before"
    old = path.stat()
    target = second if changed == "link" else first
    target.write_text(pems[1].ljust(length, "\n"))
    os.utime(target, ns=(old.st_atime_ns, old.st_mtime_ns + (changed == "time")))
    if changed == "link":
        (tmp_path / "new").symlink_to(target)
        (tmp_path / "new").replace(path)
    new = path.stat()
    same = [old.st_mtime_ns == new.st_mtime_ns, old.st_size == new.st_size]
    assert [*same, old.st_ino == new.st_ino] == [changed != n for n in ("time", "size", "link")]
    assert peer_of(tls) == "after"


# --- references ------------------------------------------------------------------------------------

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


def test_values_are_resolved_and_a_changed_one_is_used_once_it_is_whole(folder, caplog):
    write_client(folder, "before", PASSWORD)
    tls = TlsContext(referring(folder))
    assert peer_of(tls) == "before"
    assert tls.context() is tls.context()
    for content in ("key.password=marked-wrong\n", ""):
        write_private(folder / "secrets.properties", content)
        assert [peer_of(tls), peer_of(tls)] == ["before", "before"]
    wrong, missing = (record.getMessage() for record in caplog.records)
    assert "kafka.ssl.key.password is wrong" in wrong
    assert "finds no key 'key.password'" in missing
    assert missing.startswith("kafka.ssl.key.password: ")
    assert "marked" not in caplog.text
    write_client(folder, "after", "another password")
    assert peer_of(tls) == "after"
    said = refusal(truststore=StoreConfig("${env:NO_SUCH_VARIABLE}/ca"))
    assert "kafka.ssl.truststore.location: this process on host" in said


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


def test_a_password_that_is_not_utf_8_is_used_as_it_stands_in_its_variable(folder, monkeypatch):
    raw = b"p\xe4ssword"
    client = AUTHORITY.issue("client")
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(raw))
    own = in_options(client, given="${env:PASSWORD}", key=client.key.private_bytes(*form).decode())
    monkeypatch.setenv("PASSWORD", raw.decode("utf-8", "surrogateescape"))
    tls = TlsContext(SslConfig(truststore=StoreConfig("${env:STORES}/ca"), keystore=own))
    assert [peer_of(tls), peer_of(tls)] == ["client", "client"]


# --- what an error is said to mean -----------------------------------------------------------------

TLS = TlsContext(SslConfig())
WITH_STORES = TlsContext(SslConfig(truststore=TRUST, keystore=in_options(ONE)))
WITH_STORES.context()


def ssl_error(reason):
    error = ssl.SSLError(1, f"[SSL: {reason}] words (_ssl.c:1006)")
    error.reason = reason
    return error


def refused(code, words="words of OpenSSL"):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed (_ssl.c:1006)")
    error.verify_code, error.verify_message = code, words
    return error


def said_of(error, host="b", tls=TLS):
    return tls.explain(error, host, 1)


@each_row("tls", [TLS, WITH_STORES])
@each_row("code", [*tls._REFUSED_CERTIFICATES, *tls._REASONS])
def test_each_refusal_and_reason_has_cause_words_and_advice(code, tls):
    error = refused(code) if isinstance(code, int) else ssl_error(code)
    said = said_of(error, "b1.example", tls)
    assert said.startswith("TLS with b1.example:1: ")
    assert f" ({'words of OpenSSL' if isinstance(code, int) else code}): " in said
    assert "_ssl.c" not in said
    assert not set("{}") & set(said)


@each_row("reason", tls._REASONS)
def test_each_reason_is_one_of_openssls(reason):
    _ssl = pytest.importorskip("_ssl")
    if not hasattr(_ssl, "err_names_to_codes"):
        pytest.skip("Python 3.14 does not list them")
    known = set(_ssl.err_names_to_codes)
    # Those of newer versions than the one that this Python was built for.
    assert reason in known | {"RECORD_LAYER_FAILURE", "HTTP_REQUEST"}


def test_each_meaning_names_only_what_is_filled_in():
    known = {"p", "host", "trust", "key", "own", "addresses", "without_tls"}
    meanings = [*tls._REASONS.values(), *tls._REFUSED_CERTIFICATES.values()]
    for text in (text for meaning in meanings for text in meaning):
        assert {name for _, name, _, _ in string.Formatter().parse(text) if name} <= known
        assert not text.endswith(".")


CLOSED = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
# The channel makes it: without the attribute ``reason``, which OpenSSL's have.
END = ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF occurred")
NO_TLS = "the port does not speak TLS"


@each_row(
    ("error", "host", "told"),
    [
        # What nobody thought of is told in OpenSSL's words.
        (ssl_error("SOMETHING_NEW"), "b", r"^TLS with b:1: SOMETHING_NEW \[PKS-TLS-016\]$"),
        (refused(4711), "b", r"^TLS with b:1: words of OpenSSL \[PKS-TLS-016\]$"),
        (OSError(errno.ETIMEDOUT, "Connection timed out"), "b", "b:1: Connection timed out "),
        (ssl_error("SOMETHING_NEW"), "::1", r"^TLS with \[::1\]:1: SOMETHING_NEW "),
        *((ssl_error(reason), "b", NO_TLS) for reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")),
        (ssl_error("RECORD_LAYER_FAILURE"), "b", NO_TLS),
        (CLOSED, "b", rf"{NO_TLS} \(Connection reset by peer\): "),
        (END, "b", rf"{NO_TLS} \(EOF occurred\): .* \[PKS-TLS-012\]$"),
        (ConnectionResetError(), "b", rf"{NO_TLS} \(ConnectionResetError\): "),
        (BrokenPipeError(), "b", rf"{NO_TLS} \(BrokenPipeError\): "),
        (ssl.SSLZeroReturnError(), "b", rf"{NO_TLS} \(SSLZeroReturnError\): "),
        # What comes from the server is in one line.
        (refused(0, "words\nmore"), "b1\nb2", "^[^\n]*$"),
    ],
)
def test_errors_in_the_words_of_others(error, host, told):
    assert re.search(told, said_of(error, host))


def test_a_refusal_of_the_client_depends_on_whether_it_has_a_certificate(monkeypatch):
    alert = ssl_error("SSLV3_ALERT_BAD_CERTIFICATE")
    missing = "the server wants a client certificate, and kafka.ssl.keystore.location is not set"
    assert missing in said_of(alert)
    said = said_of(alert, tls=WITH_STORES)
    assert "the server refuses the client's certificate" in said
    assert "that of kafka.ssl.keystore.certificate.chain: CN=one" in said
    # It is read only for a message about it: the package cryptography may itself be what fails.
    monkeypatch.setitem(sys.modules, "spark_kafka_sink.security.pkcs12", None)
    said = said_of(refused(20, "words."), tls=WITH_STORES)
    assert "is not signed by an authority of kafka.ssl.truststore.certificates (words): " in said


def test_a_password_that_resembles_a_reason_hides_no_reason():
    password = Secret("wrong version")
    said = said_of(ssl_error("WRONG_VERSION_NUMBER"))
    assert " (WRONG_VERSION_NUMBER): " in said
    assert password.reveal() not in said


@pytest.mark.parametrize(
    ("paths", "told"),
    [(("file", "path"), "file"), ((None, "path"), "path"), ((None, None), "it has none")],
)
def test_where_the_systems_authorities_are_is_told(paths, told, monkeypatch):
    found = ssl.DefaultVerifyPaths(*paths, "", "", "", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: found)
    assert f"this host's system ({told}), and" in said_of(refused(20))


@pytest.mark.parametrize(
    ("error", "is_encrypted", "told"),
    [
        (ssl_error("KEY_VALUES_MISMATCH"), True, "does not belong to the first certificate"),
        (ssl_error("KEY_TYPE_MISMATCH"), True, "does not belong to the first certificate"),
        (ssl_error("NO_CERTIFICATE_ASSIGNED"), True, "does not belong to the first certificate"),
        (ssl_error("EE_KEY_TOO_SMALL"), True, "of the client's chain has a key"),
        (ssl_error("CA_KEY_TOO_SMALL"), True, "of the client's chain has a key"),
        (ssl_error("CA_MD_TOO_WEAK"), True, "of the client's chain has a key"),
        (ssl_error("BAD_DECRYPT"), True, "kafka.ssl.key.password is wrong"),
        (ValueError("no key"), True, "kafka.ssl.key.password is wrong"),
        (ssl_error("BAD_DECRYPT"), False, "is damaged, or of a kind"),
    ],
)
def test_why_a_key_is_not_used(error, is_encrypted, told):
    material = KeyMaterial(Secret("key"), is_encrypted, ())
    options = key_store_options("kafka.")
    said = str(tls.rejected_key(error, material, StoreConfig("/key.pem"), options))
    assert said.startswith("kafka.ssl.keystore.location=/key.pem: ")
    assert told in said


# --- cipher suites ---------------------------------------------------------------------------------

OPTION = "kafka.ssl.cipher.suites"
RSA, CHACHA = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"
FIXED = "TLS_ECDH_RSA_WITH_AES_256_GCM_SHA384"


def applied(*suites):
    """The names of the suites that a context has then."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions_of(SslConfig(cipher_suites=suites), "kafka.").apply(context, OPTION)
    return {cipher["name"] for cipher in context.get_ciphers()}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_names_are_openssls():
    command = ["openssl", "ciphers", "-stdname", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    pairs = {line.split()[0]: line.split()[2] for line in lines}
    assert {iana: pairs.get(iana, openssl) for iana, openssl in OPENSSL_NAMES.items()} == (
        OPENSSL_NAMES
    )
    assert set(TLS_1_3_SUITES) <= set(pairs)


def test_names_can_be_set_those_of_tls_1_3_where_python_can():
    """Nearly all: builds of OpenSSL may lack some; those of each day are there in any."""
    for name in [n for n in OPENSSL_NAMES if "ECDHE" in n and "GCM" in n and "ARIA" not in n]:
        assert applied(name) - set(TLS_1_3_SUITES) == {OPENSSL_NAMES[name]}
    can_choose = hasattr(ssl.SSLContext, "set_ciphersuites")
    expected = {CHACHA} if can_choose else set(TLS_1_3_SUITES)
    assert applied(CHACHA) & set(TLS_1_3_SUITES) == expected
    server = server_context(BROKER, version=TLS_1_2)
    suites = ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",)
    outcome = handshake(context_of(cipher_suites=suites), server)
    assert outcome.cipher == "ECDHE-ECDSA-CHACHA20-POLY1305"


def test_names_by_version_in_their_order():
    found = suites_by_version((CHACHA, RSA, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV", FIXED), OPTION)
    assert found == SuitesByVersion(("ECDHE-RSA-AES256-GCM-SHA384",), (CHACHA,), (FIXED,))
    assert suites_by_version((), OPTION) == SuitesByVersion((), (), ())
    # OpenSSL does not offer these by itself.
    for name in ("TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"):
        assert suites_by_version((name,), OPTION) == SuitesByVersion((), (name,), ())


@each_row(
    ("name", "message"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA348", f"Did you mean {RSA}?"),
        ("ECDHE-RSA-AES256-GCM-SHA384", f"by IANA's names, which Kafka uses: that is {RSA}"),
        ("tls_chacha20_poly1305_sha256", f"Did you mean {CHACHA}?"),
        ("HIGH", "HIGH is not a cipher suite"),
    ],
)
def test_a_name_of_no_suite_is_answered_with_the_nearest(name, message):
    with pytest.raises(ConfigError) as raised:
        suites_by_version((RSA, name), OPTION)
    assert str(raised.value).startswith(f"{OPTION}: {name} is not a cipher suite")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (TLS_1_2, TLS_1_3)),
        ({"cipher_suites": (RSA,)}, (TLS_1_2, TLS_1_2)),
        ({"cipher_suites": (CHACHA,)}, (TLS_1_3, TLS_1_3)),
        ({"cipher_suites": (RSA, CHACHA)}, (TLS_1_2, TLS_1_3)),
        # Suites of a version that is not spoken have no effect.
        (
            {"protocol": "TLSv1.2", "cipher_suites": (RSA, CHACHA)},
            (TLS_1_2, TLS_1_2, (OPENSSL_NAMES[RSA],), ()),
        ),
    ],
)
def test_a_version_without_a_suite_is_not_spoken(options, expected, caplog):
    assert versions_of(SslConfig(**options), "kafka.")[: len(expected)] == expected
    assert len(expected) == 2 or caplog.records == []


@each_row(
    ("options", "message"),
    [
        (
            {"enabled_protocols": ("TLSv1.3",), "cipher_suites": (RSA,)},
            "no cipher suite of TLSv1.3",
        ),
        ({"protocol": "TLSv1.2", "cipher_suites": (CHACHA,)}, "has no cipher suite of TLSv1.2"),
        ({"cipher_suites": (FIXED,)}, "OpenSSL has none of these cipher suites"),
    ],
)
def test_a_list_that_leaves_nothing(options, message):
    with pytest.raises(ConfigError, match=message):
        versions_of(SslConfig(**options), "kafka.")
    versions = TlsVersions(TLS_1_2, TLS_1_2, ("OF-ANOTHER-BUILD",), ())
    with pytest.raises(ConfigError, match=f"{OPTION}: this machine's OpenSSL .* has none of"):
        versions.apply(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), OPTION)


def test_what_a_list_does_not_do_is_told(caplog):
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        versions_of(SslConfig(cipher_suites=TLS_1_3_SUITES), "kafka.")
        assert caplog.records == []
        versions_of(SslConfig(cipher_suites=(CHACHA, RSA, FIXED)), "kafka.")
    texts = [record.getMessage() for record in caplog.records]
    assert f"{OPTION}: OpenSSL does not have {FIXED}" in texts[0]
    can_choose = hasattr(ssl.SSLContext, "set_ciphersuites")
    assert can_choose or "cannot choose among the cipher suites of TLS 1.3" in texts[1]
