"""What an error of TLS is said to mean. Those of real handshakes are in test_tls_context.py."""

import errno
import socket
import ssl
import string
import sys
import threading

import pytest

from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import tls_errors
from spark_kafka_sink.security.key_formats import KeyMaterial
from spark_kafka_sink.security.stores import key_store_options
from spark_kafka_sink.security.tls import TlsContext

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
