"""What an error of TLS is said to mean. Those of real handshakes are in test_tls_context.py."""

import errno
import logging
import shutil
import socket
import ssl
import string
import subprocess
import sys
import threading

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import tls_errors
from spark_kafka_sink.security.key_formats import KeyMaterial
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

TLS = TlsContext(SslConfig())
_AUTHORITY = Authority()
_CLIENT = _AUTHORITY.issue("client")
WITH_STORES = TlsContext(
    SslConfig(
        truststore=StoreConfig(certificates=_AUTHORITY.pem),
        keystore=StoreConfig(
            certificates=_CLIENT.certificate_chain, key=Secret(_CLIENT.private_key())
        ),
    )
)
WITH_STORES.context()
PATIENCE_S = 60


def ssl_error(reason):
    error = ssl.SSLError(1, f"[SSL: {reason}] words (_ssl.c:1006)")
    error.reason = reason
    return error


def refused(code, words="words of OpenSSL"):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed (_ssl.c:1006)")
    error.verify_code, error.verify_message = code, words
    return error


@pytest.mark.parametrize("tls", [TLS, WITH_STORES])
@pytest.mark.parametrize("code", tls_errors._REFUSED_CERTIFICATES)
def test_each_refusal_has_cause_words_and_advice(code, tls):
    said = tls.explain(refused(code), "b1.example", 9093)
    assert said.startswith("TLS with b1.example:9093: ")
    assert " (words of OpenSSL): " in said
    assert not set("{}") & set(said)


@pytest.mark.parametrize("tls", [TLS, WITH_STORES])
@pytest.mark.parametrize("reason", tls_errors._REASONS)
def test_each_reason_has_cause_words_and_advice(reason, tls):
    said = tls.explain(ssl_error(reason), "b1.example", 9093)
    assert f" ({reason}): " in said
    assert "_ssl.c" not in said
    assert not set("{}") & set(said)


def test_a_password_that_resembles_a_reason_hides_no_reason() -> None:
    password = Secret("wrong version")
    said = TLS.explain(ssl_error("WRONG_VERSION_NUMBER"), "b1.example", 9093)
    assert " (WRONG_VERSION_NUMBER): " in said
    assert password.reveal() not in said


@pytest.mark.parametrize("reason", tls_errors._REASONS)
def test_each_reason_is_one_of_openssls(reason):
    _ssl = pytest.importorskip("_ssl")
    if not hasattr(_ssl, "err_names_to_codes"):
        pytest.skip("Python 3.14 does not list them")
    known = set(_ssl.err_names_to_codes)
    # Those of newer versions than the one that this Python was built for.
    assert reason in known | {"RECORD_LAYER_FAILURE", "HTTP_REQUEST"}


def test_a_refusal_of_the_client_depends_on_whether_it_has_a_certificate():
    alert = ssl_error("SSLV3_ALERT_BAD_CERTIFICATE")
    assert "kafka.ssl.keystore.location is not set" in TLS.explain(alert, "b", 1)
    assert "refuses the client's certificate" in WITH_STORES.explain(alert, "b", 1)


def test_errors_that_nobody_thought_of_are_told_in_openssls_words():
    assert TLS.explain(ssl_error("SOMETHING_NEW"), "b", 1) == "TLS with b:1: SOMETHING_NEW"
    assert TLS.explain(refused(4711), "b", 1) == "TLS with b:1: words of OpenSSL"
    timeout = OSError(errno.ETIMEDOUT, "Connection timed out")
    assert TLS.explain(timeout, "b", 1) == "TLS with b:1: Connection timed out"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4abcd"])
def test_a_port_without_tls(answer):
    """A Kafka broker closes the connection; other servers answer something else than TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        with connection, pytest.raises(OSError) as raised:
            TLS.context().wrap_socket(connection, server_hostname="127.0.0.1")
        thread.join(PATIENCE_S)
    said = TLS.explain(raised.value, "127.0.0.1", port)
    assert "the port does not speak TLS" in said
    assert "kafka.security.protocol PLAINTEXT or SASL_PLAINTEXT" in said


def test_a_connection_that_is_reset_in_the_handshake():
    said = TLS.explain(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "b", 1)
    assert "the port does not speak TLS (Connection reset by peer)" in said


def test_each_meaning_names_only_what_is_filled_in():
    known = {"p", "host", "trust", "key", "own", "addresses", "without_tls"}
    meanings = [*tls_errors._REASONS.values(), *tls_errors._REFUSED_CERTIFICATES.values()]
    for text in (text for meaning in meanings for text in meaning):
        assert {name for _, name, _, _ in string.Formatter().parse(text) if name} <= known
        assert not text.endswith(".")


def test_an_address_of_ipv6_is_in_brackets():
    assert (
        TLS.explain(ssl_error("SOMETHING_NEW"), "::1", 9093) == "TLS with [::1]:9093: SOMETHING_NEW"
    )


def test_an_end_that_openssl_has_not_seen_itself():
    """The channel makes the error: without the attribute ``reason``, which OpenSSL's have."""
    said = TLS.explain(ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF occurred"), "b1.example", 9093)
    assert "the port does not speak TLS (EOF occurred): " in said


ALERT = ssl_error("SSLV3_ALERT_BAD_CERTIFICATE")


def test_a_client_without_a_certificate_is_told_what_to_set():
    said = TLS.explain(ALERT, "b1.example", 9093)
    assert "the server wants a client certificate, and kafka.ssl.keystore.location is not" in said
    said = WITH_STORES.explain(ALERT, "b1.example", 9093)
    assert "the server refuses" in said
    assert "that of kafka.ssl.keystore.certificate.chain: CN=client" in said


def test_a_certificate_is_read_only_for_a_message_about_it(monkeypatch):
    """The package cryptography takes long to load, and may itself be what fails."""
    monkeypatch.setitem(sys.modules, "spark_kafka_sink.security.pkcs12", None)
    said = WITH_STORES.explain(refused(20, "words."), "b1.example", 9093)
    assert "is not signed by an authority of kafka.ssl.truststore.certificates (words): " in said


def test_what_comes_from_the_server_is_shown_in_one_line():
    said = TLS.explain(refused(0, "words\nmore"), "b1\nb2", 9093)
    assert "\n" not in said


@pytest.mark.parametrize("error", [ConnectionResetError, BrokenPipeError, ssl.SSLZeroReturnError])
def test_a_connection_that_ends_is_told_as_that_of_a_port_without_tls(error):
    said = TLS.explain(error(), "b1.example", 9093)
    assert f"the port does not speak TLS ({error.__name__}): " in said


@pytest.mark.parametrize(
    ("paths", "told"),
    [(("file", "path"), "file"), ((None, "path"), "path"), ((None, None), "it has none")],
)
def test_where_the_systems_authorities_are_is_told(paths, told, monkeypatch):
    found = ssl.DefaultVerifyPaths(*paths, "", "", "", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: found)
    assert f"this host's system ({told}), and" in TLS.explain(refused(20), "b1.example", 9093)


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
    said = tls_errors.explain_rejected_key(error, material, StoreConfig("/key.pem"), options)
    assert said.startswith("kafka.ssl.keystore.location=/key.pem: ")
    assert told in said


OPTION = "kafka.ssl.cipher.suites"
RSA, CHACHA = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"
FIXED = "TLS_ECDH_RSA_WITH_AES_256_GCM_SHA384"
V1_2, V1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_names_are_openssls():
    command = ["openssl", "ciphers", "-stdname", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    pairs = {line.split()[0]: line.split()[2] for line in lines}
    assert {iana: pairs.get(iana, openssl) for iana, openssl in OPENSSL_NAMES.items()} == (
        OPENSSL_NAMES
    )
    assert set(TLS_1_3_SUITES) <= set(pairs)


def test_each_name_is_a_cipher_that_can_be_set():
    """Nearly all: builds of OpenSSL may lack some; those of each day are there in any."""
    for name in [n for n in OPENSSL_NAMES if "ECDHE" in n and "GCM" in n and "ARIA" not in n]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        versions_of(SslConfig(cipher_suites=(name,)), "kafka.").apply(context, OPTION)
        set_names = {cipher["name"] for cipher in context.get_ciphers()} - set(TLS_1_3_SUITES)
        assert set_names == {OPENSSL_NAMES[name]}


def test_names_by_version_in_their_order():
    found = suites_by_version((CHACHA, RSA, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV", FIXED), OPTION)
    assert found == SuitesByVersion(("ECDHE-RSA-AES256-GCM-SHA384",), (CHACHA,), (FIXED,))
    assert suites_by_version((), OPTION) == SuitesByVersion((), (), ())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA348", f"Did you mean {RSA}?"),
        ("ECDHE-RSA-AES256-GCM-SHA384", f"by IANA's names, which Kafka uses: that is {RSA}"),
        ("tls_chacha20_poly1305_sha256", f"Did you mean {CHACHA}?"),
        ("SSL_ECDHE_RSA_WITH_AES_256_GCM_SHA384", f"Did you mean {RSA}?"),
        ("HIGH", "HIGH is not a cipher suite"),
    ],
)
def test_a_name_of_no_suite_is_answered_with_the_nearest(name, message):
    with pytest.raises(ConfigError) as raised:
        suites_by_version((RSA, name), OPTION)
    assert str(raised.value).startswith(f"{OPTION}: {name} is not a cipher suite")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("suites", "lowest", "highest"),
    [((), V1_2, V1_3), ((RSA,), V1_2, V1_2), ((CHACHA,), V1_3, V1_3), ((RSA, CHACHA), V1_2, V1_3)],
)
def test_a_version_without_a_suite_is_not_spoken(suites, lowest, highest):
    found = versions_of(SslConfig(cipher_suites=suites), "kafka.")
    assert found[:2] == (lowest, highest)


def test_suites_of_a_version_that_is_not_spoken_have_no_effect(caplog):
    found = versions_of(SslConfig(protocol="TLSv1.2", cipher_suites=(RSA, CHACHA)), "kafka.")
    assert found == (V1_2, V1_2, (OPENSSL_NAMES[RSA],), ())
    assert caplog.records == []


@pytest.mark.parametrize("name", ["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"])
def test_suites_of_tls_1_3_that_openssl_does_not_offer_by_itself(name):
    assert suites_by_version((name,), OPTION) == SuitesByVersion((), (name,), ())


def test_suites_of_tls_1_3_are_set_where_python_can():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions_of(SslConfig(cipher_suites=(CHACHA,)), "kafka.").apply(context, OPTION)
    found = {cipher["name"] for cipher in context.get_ciphers()} & set(TLS_1_3_SUITES)
    can_choose = hasattr(context, "set_ciphersuites")
    assert found == ({CHACHA} if can_choose else set(TLS_1_3_SUITES))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            SslConfig(enabled_protocols=("TLSv1.3",), cipher_suites=(RSA,)),
            "has no cipher suite of TLSv1.3, which is all that kafka.ssl.protocol and",
        ),
        (SslConfig(protocol="TLSv1.2", cipher_suites=(CHACHA,)), "has no cipher suite of TLSv1.2"),
        (SslConfig(cipher_suites=(FIXED,)), "OpenSSL has none of these cipher suites"),
    ],
)
def test_a_list_that_leaves_nothing(config, message):
    with pytest.raises(ConfigError, match=message):
        versions_of(config, "kafka.")


def test_suites_that_this_machines_openssl_lacks():
    versions = TlsVersions(V1_2, V1_2, ("OF-ANOTHER-BUILD",), ())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ConfigError, match=f"{OPTION}: this machine's OpenSSL .* has none of"):
        versions.apply(context, OPTION)


def test_what_a_list_does_not_do_is_told(caplog):
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        versions_of(SslConfig(cipher_suites=TLS_1_3_SUITES), "kafka.")
        assert caplog.records == []
        versions_of(SslConfig(cipher_suites=(CHACHA, RSA, FIXED)), "kafka.")
    texts = [record.getMessage() for record in caplog.records]
    assert f"{OPTION}: OpenSSL does not have {FIXED}" in texts[0]
    can_choose = hasattr(ssl.SSLContext, "set_ciphersuites")
    assert can_choose or "cannot choose among the cipher suites of TLS 1.3" in texts[1]
