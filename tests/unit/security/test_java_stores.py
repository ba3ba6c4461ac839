"""Stores that keytool and openssl have written, of each format and both kinds of keys."""

import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import stores
from spark_kafka_sink.security.stores import trust_store_options
from spark_kafka_sink.security.tls import TlsContext
from tests.unit.security.material import (
    KEY_PASSWORD,
    KEY_TYPES,
    SECRETS,
    STORE_PASSWORD,
    WRONG,
    handshake,
    new_material,
    run,
    server_context,
    with_key_and_trusted,
    with_keytool,
    with_openssl,
    with_two_keys,
)

# The stores are made by a dozen JVMs, within the limit of the first test that wants them.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed"
)
STORE = Secret(STORE_PASSWORD)


@pytest.fixture(scope="session", params=KEY_TYPES)
def material(request, tmp_path_factory):
    made = new_material(tmp_path_factory.mktemp("stores"), request.param)
    with_keytool(made)
    return made


def peer_seen_by_server(material, config):
    """The client's name, out of a handshake in which both sides check the other."""
    server = material.authority.issue("broker", ["localhost"])
    context = server_context(server, clients=material.authority)
    outcome = handshake(TlsContext(config).context(), context)
    assert outcome.error is None
    return outcome.peer


def key_store(material, kind, **other):
    password = other.get("password", STORE)
    key_password = other.get("key_password", Secret(KEY_PASSWORD) if kind == "JKS" else None)
    return StoreConfig(material.store(f"key.{kind}"), password, key_password=key_password)


def trusted_names(store):
    """The names in the certificates that are trusted."""
    found = stores.trusted_certificates(store, trust_store_options("kafka."))
    assert found is not None
    certificates = [x509.load_der_x509_certificate(certificate) for certificate in found]
    return [
        certificate.subject.rfc4514_string().removeprefix("CN=") for certificate in certificates
    ]


def failure(config):
    """What is said; no secret is in it."""
    with pytest.raises(ConfigError) as raised:
        TlsContext(config).context()
    message = str(raised.value)
    assert not [secret for secret in SECRETS if secret in message]
    assert raised.value.__cause__ is None
    return message


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_key_store_and_trust_store_in_a_handshake(material, kind):
    trust = StoreConfig(material.store(f"trust.{kind}"), STORE)
    config = SslConfig(truststore=trust, keystore=key_store(material, kind))
    assert peer_seen_by_server(material, config) == "client"


@pytest.mark.parametrize("said", ["JKS", "PKCS12"])
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_either_type_stands_for_both(material, kind, said):
    TlsContext(
        SslConfig(truststore=StoreConfig(material.store(f"trust.{kind}"), STORE, said))
    ).context()


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_wrong_store_password_is_told(material, kind):
    trust = StoreConfig(material.store(f"trust.{kind}"), Secret(WRONG))
    message = failure(SslConfig(truststore=trust))
    assert f"kafka.ssl.truststore.location={trust.location}: " in message
    assert message.endswith("Check kafka.ssl.truststore.password")

    own = key_store(material, kind, password=Secret(WRONG))
    message = failure(SslConfig(keystore=own))
    assert f"kafka.ssl.keystore.location={own.location}: " in message
    assert message.endswith("Check kafka.ssl.keystore.password")


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_wrong_key_password_is_told(material, kind):
    message = failure(SslConfig(keystore=key_store(material, kind, key_password=Secret(WRONG))))
    assert "the key's password is" in message
    assert message.endswith("Check kafka.ssl.key.password")


def test_without_a_key_password_the_stores_is_tried(material):
    message = failure(SslConfig(keystore=key_store(material, "JKS", key_password=None)))
    assert message.endswith("the key's password is wrong. Check kafka.ssl.key.password")
    TlsContext(SslConfig(keystore=key_store(material, "PKCS12", key_password=STORE))).context()


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_key_store_wants_a_password(material, kind):
    assert failure(SslConfig(keystore=key_store(material, kind, password=None))) == (
        "SSL key store is specified, but key store password is not specified. "
        "Set kafka.ssl.keystore.password"
    )


def test_a_jks_trust_store_wants_no_password(material):
    trust = StoreConfig(material.store("trust.JKS"))
    server = server_context(material.authority.issue("broker", ["localhost"]))
    context = TlsContext(SslConfig(truststore=trust)).context()
    assert handshake(context, server).version == "TLSv1.3"


def test_an_encrypted_pkcs12_trust_store_does(material):
    message = failure(SslConfig(truststore=StoreConfig(material.store("trust.PKCS12"))))
    assert message.endswith(
        "it has a password, and none is given. Check kafka.ssl.truststore.password"
    )


def test_jceks_is_refused_by_name(material):
    assert "it is a JCEKS store, which is not read here" in failure(
        SslConfig(keystore=key_store(material, "JCEKS"))
    )


def test_a_trust_store_has_no_private_key(material):
    for kind in ("JKS", "PKCS12"):
        store = StoreConfig(material.store(f"trust.{kind}"), STORE)
        assert "it holds no private key" in failure(SslConfig(keystore=store))


@needs_openssl
@pytest.mark.parametrize(
    "options",
    [(), ("-legacy",), ("-certpbe", "NONE"), ("-nomac",), ("-certpbe", "NONE", "-nomac")],
    ids=lambda options: " ".join(options) or "as it is by default",
)
def test_key_stores_of_openssl(material, options):
    store = StoreConfig(with_openssl(material, *options), STORE)
    trust = StoreConfig(certificates=material.authority.pem)
    assert peer_seen_by_server(material, SslConfig(truststore=trust, keystore=store)) == "client"
    # As in Java, the authority that signed a key is not trusted for that.
    assert trusted_names(store) == ["client"]


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_of_a_store_with_a_key_java_trusts_the_keys_own_certificate(material, kind):
    assert trusted_names(StoreConfig(material.store(f"key.{kind}"), STORE)) == ["client"]


@pytest.mark.parametrize("in_clear", [False, True], ids=["encrypted", "in clear"])
@pytest.mark.parametrize("entry", ["another", "the authority of the key"])
def test_and_what_was_imported_as_trusted(material, entry, in_clear):
    """Also the very authority that stands in the key's chain."""
    authority = Authority("another") if entry == "another" else material.authority
    path = with_key_and_trusted(material, authority, in_clear)
    names = trusted_names(StoreConfig(path, None if in_clear else STORE))
    expected = "another" if entry == "another" else "pykafka-sink local authority"
    assert sorted(names) == sorted(["client", expected])


@needs_openssl
def test_certificates_in_clear_are_read_without_a_password(material):
    path = material.store("openssl-authority.p12")
    command = ("openssl", "pkcs12", "-export", "-nokeys", "-in", material.store("ca.pem"))
    run(*command, "-out", path, "-passout", f"pass:{STORE_PASSWORD}", "-certpbe", "NONE")
    context = TlsContext(SslConfig(truststore=StoreConfig(path))).context()
    server = server_context(material.authority.issue("broker", ["localhost"]))
    assert handshake(context, server).version == "TLSv1.3"
    # With a key beside it, it stands for the key.
    assert trusted_names(StoreConfig(with_openssl(material, "-certpbe", "NONE"))) == ["client"]


def test_of_several_keys_the_first_is_used_and_that_is_told(material, caplog):
    TlsContext(SslConfig(keystore=StoreConfig(with_two_keys(material), STORE))).context()
    assert "kafka.ssl.keystore.location: of 2 private keys, the first in the file is used" in (
        caplog.text
    )


@pytest.mark.parametrize("password", [Secret("changeit"), None])
def test_the_authorities_that_come_with_java(password):
    """What Java trusts by itself, for those who want the same here."""
    keytool = shutil.which("keytool")
    assert keytool is not None
    path = Path(keytool).resolve().parents[1] / "lib" / "security" / "cacerts"
    context = TlsContext(SslConfig(truststore=StoreConfig(str(path), password))).context()
    assert len(context.get_ca_certs()) > 20


def test_the_same_certificates_come_out_of_each_format(material):
    expected = {material.authority.certificate.public_bytes(Encoding.DER)}
    for store in (
        StoreConfig(material.store("trust.JKS"), STORE),
        StoreConfig(material.store("trust.PKCS12"), STORE),
        StoreConfig(material.store("ca.pem")),
    ):
        found = TlsContext(SslConfig(truststore=store)).context().get_ca_certs(binary_form=True)
        assert set(found) == expected


def test_another_authority_is_not_trusted(material, tmp_path):
    server = server_context(Authority().issue("broker", ["localhost"]))
    trust = StoreConfig(material.store("trust.JKS"))
    tls = TlsContext(SslConfig(truststore=trust))
    outcome = handshake(tls.context(), server)
    assert outcome.error is not None
    assert "kafka.ssl.truststore.location" in tls.explain(outcome.error, "localhost", 9093)
