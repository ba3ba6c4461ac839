"""What a store's file is taken for, and stores that keytool and openssl have written."""

import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from spark_kafka_sink.base.errors import ConfigError, sentence
from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import stores, tls
from spark_kafka_sink.security.stores import key_store_options, trust_store_options
from spark_kafka_sink.security.tls import TOKEN_ENDPOINT, TlsContext
from tests.tables import each_row
from tests.unit.security.tls_ends import handshake, key_entry, server_context, store, trusted_entry

AUTHORITY = Authority()
CLIENT = AUTHORITY.issue("client")
PASSWORD = "the store's password: marked-store"
STORE = Secret(PASSWORD)
TRUST_OPTIONS, KEY_OPTIONS = trust_store_options("kafka."), key_store_options("kafka.")
WITHOUT_PASSWORD = (
    "SSL key store is specified, but key store password is not specified. "
    "Set kafka.ssl.keystore.password"
)


def of_file(folder, content, **options):
    path = folder / f"store-{len(list(folder.iterdir()))}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return StoreConfig(str(path), **options)


def trust_error(config):
    with pytest.raises(ConfigError) as raised:
        stores.trusted_certificates(config, TRUST_OPTIONS)
    assert "marked" not in str(raised.value)
    return sentence(raised.value)


def key_error(config):
    with pytest.raises(ConfigError) as raised:
        stores.key_material(config, KEY_OPTIONS)
    assert "marked" not in str(raised.value)
    return sentence(raised.value)


@each_row(
    ("content", "options", "message"),
    [
        (b"", {}, "it is empty"),
        (b"\xce\xce\xce\xce\0\0\0\2", {}, "it is a JCEKS store, which is not read here"),
        (b"\xca\xfe\xba\xbe", {}, "its content is neither JKS nor PKCS12 nor PEM"),
        (b"0\x82", {}, "it is cut"),
        (b"0\x80\x02\x01\x03", {}, "it is cut"),
        (b"0\x80\x02\x80\x03\0\0", {}, "it is not the ASN.1 that it should be"),
        (b"0\x04\x30\x02\x05\x00", {}, "not a PKCS12 store; if it is a certificate in DER form"),
        (b"\xfe\xed\xfe\xed", {}, "it is cut"),
        (b"-----BEGIN X-----", {}, "it is cut"),
        # A type that is not what the file is.
        (AUTHORITY.pem, {"type": "JKS"}, "is PEM, but the store's type is given as JKS"),
        (AUTHORITY.pem, {"type": "PKCS12"}, "is PEM, but the store's type is given as PKCS12"),
        (CLIENT.pkcs12(PASSWORD), {"type": "PEM"}, "is PKCS12, but the store's type is given"),
    ],
)
def test_files_that_are_no_stores(content, options, message, tmp_path):
    config = of_file(tmp_path, content, **options)
    assert f"kafka.ssl.truststore.location={config.location}: " in trust_error(config)
    assert message in trust_error(config)


JAVAS = store(PASSWORD, trusted_entry("ca", b"DER"))


@each_row(
    ("content", "options"),
    [
        (AUTHORITY.pem, {}),
        (AUTHORITY.pem, {"type": "PEM"}),
        (AUTHORITY.pem.replace("CERTIFICATE", "X509 CERTIFICATE"), {}),
        (b"f\xfcr uns alle\n" + AUTHORITY.pem.encode(), {}),
        (f"0 is what this comment begins with, as PKCS12 does\n{AUTHORITY.pem}", {}),
        (CLIENT.pkcs12(PASSWORD), {"password": STORE}),
        (JAVAS, {"password": STORE}),
        (CLIENT.pkcs12(PASSWORD), {"password": STORE, "type": "JKS"}),
        (JAVAS, {"password": STORE, "type": "PKCS12"}),
    ],
)
def test_a_type_that_is_not_given_or_another_of_java_is_what_the_file_is(
    content, options, tmp_path
):
    assert stores.trusted_certificates(of_file(tmp_path, content, **options), TRUST_OPTIONS)


def test_passwords_that_are_not_wanted_or_missing_or_wrong(tmp_path):
    told = trust_error(of_file(tmp_path, AUTHORITY.pem, password=STORE))
    assert told.startswith("SSL trust store password cannot be specified for PEM format. ")
    told = key_error(of_file(tmp_path, CLIENT.pem(), password=STORE))
    assert told.startswith("SSL key store password cannot be specified with PEM format, only key")
    for content in (CLIENT.pkcs12(PASSWORD), store(PASSWORD)):
        assert key_error(of_file(tmp_path, content)) == WITHOUT_PASSWORD
    config = of_file(tmp_path, store(PASSWORD), password=Secret("marked-wrong"))
    assert trust_error(config).endswith("Check kafka.ssl.truststore.password")
    assert key_error(config).endswith("Check kafka.ssl.keystore.password")
    # A key of Java's may have a password of its own.
    data = store(PASSWORD, key_entry("k", b"key", "its own: marked", [b"of k"]))
    told = "the key's password is wrong. Check kafka.ssl.key.password"
    assert told in key_error(of_file(tmp_path, data, password=STORE))
    own = of_file(tmp_path, data, password=STORE, key_password=Secret("its own: marked"))
    assert stores.key_material(own, KEY_OPTIONS) is not None


def test_a_store_without_what_is_wanted(tmp_path):
    empty = of_file(tmp_path, store(PASSWORD), password=STORE)
    assert "it holds no certificate that could be trusted" in trust_error(empty)
    assert "it holds no private key" in key_error(empty)
    for content, message in (
        (AUTHORITY.pem, "Expected one private key, but found 0"),
        (CLIENT.private_key(), "At least one certificate expected, but none found"),
    ):
        assert message in key_error(of_file(tmp_path, content))
    assert stores.trusted_certificates(StoreConfig(), TRUST_OPTIONS) is None
    assert stores.key_material(StoreConfig(), KEY_OPTIONS) is None


@pytest.mark.parametrize("aliases", ["a", "ba", "bac"])
def test_of_several_keys_the_first_by_alias_is_used(aliases, tmp_path, caplog):
    entries = [key_entry(a, a.encode(), PASSWORD, [b"of " + a.encode()]) for a in aliases]
    config = of_file(tmp_path, store(PASSWORD, *entries), password=STORE)
    assert stores.key_material(config, KEY_OPTIONS).chain == (b"of a",)
    said = f"of {len(aliases)} private keys, a, the first by its alias, is used"
    assert (said in caplog.text) == bool(caplog.records) == (len(aliases) > 1)


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_a_key_of_options_needs_a_password_if_it_is_encrypted(password):
    config = StoreConfig(
        certificates=CLIENT.certificate_chain, key=Secret(CLIENT.private_key(password))
    )
    if password is None:
        assert not stores.key_material(config, KEY_OPTIONS).is_encrypted
    else:
        assert "kafka.ssl.keystore.key: the private key is encrypted" in key_error(config)
    material = stores.key_material(replace(config, key_password=STORE), KEY_OPTIONS)
    assert material.is_encrypted == (password is not None)
    assert len(material.chain) == 2


@pytest.mark.parametrize("options", [TRUST_OPTIONS, KEY_OPTIONS])
def test_a_store_is_named_by_the_option_that_gives_it(options):
    for config, source, description in (
        (StoreConfig("/s"), options.location, f"{options.location}=/s"),
        (StoreConfig(certificates="PEM"), options.certificates, options.certificates),
    ):
        assert stores.source(config, options) == source
        assert stores.description(config, options) == description
    assert stores.source(StoreConfig(), options) is None


@pytest.mark.parametrize("option", ["certificate.chain", "key"])
def test_damaged_text_names_its_own_option(option):
    config = StoreConfig(
        certificates="" if option == "certificate.chain" else CLIENT.certificate_chain,
        key=Secret("" if option == "key" else CLIENT.private_key()),
    )
    assert key_error(config).startswith(f"kafka.ssl.keystore.{option}: ")


def test_what_cannot_be_opened_is_told(tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(17 << 20)
    # Whatever its size is said to be.
    for path, told in (
        (tmp_path, "Is a directory"),
        (large, "it is larger than 16 MiB"),
        ("/dev/zero", "it is larger than 16 MiB"),
    ):
        assert told in trust_error(StoreConfig(str(path)))
    missing = StoreConfig(str(tmp_path / "missing.jks"), STORE)
    assert key_error(missing).startswith(
        f"kafka.ssl.keystore.location={missing.location}: this process on host "
    )
    empty = SslConfig(truststore=of_file(tmp_path, ""))
    of_jaas = r"^the JAAS option ssl.truststore.location=.*: it is empty"
    with pytest.raises(ConfigError, match=of_jaas):
        TlsContext(empty, TOKEN_ENDPOINT).context()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux has such files")
def test_key_material_is_in_a_file_that_nobody_else_can_read():
    with tls.private_file(b"content") as path:
        assert Path(path).read_bytes() == b"content"
        assert Path(path).read_bytes() == b"content", "each time from its beginning"
        assert "memfd" in os.readlink(path)
    assert not os.path.exists(path)


@pytest.mark.parametrize("lacks", ["memfd_create", "/proc"])
def test_where_files_cannot_be_in_memory_one_is_written_and_deleted(lacks, monkeypatch):
    if lacks == "/proc":
        monkeypatch.setattr(tls, "_OWN_DESCRIPTORS", "/no/such/folder")
    else:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    with tls.private_file(b"content") as path:
        assert Path(path).read_bytes() == b"content"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not os.path.exists(path)
    with pytest.raises(KeyError), tls.private_file(b"") as path:
        raise KeyError
    assert not os.path.exists(path)


KEY_PASSWORD = "the key's password: marked-key"
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed"
)
OPENSSL = ("openssl", "pkcs12", "-export", "-passout", f"pass:{PASSWORD}")


def run(*command):
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


def keytool(*arguments):
    # The C1 compiler alone: this is the start of a JVM, and little else.
    run("keytool", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", *arguments, "-noprompt")


class Material:
    """An authority, a client's key that it signed, and the stores that other programs make of them."""

    def __init__(self, folder, key_type):
        self.folder = folder
        self.authority = Authority(key_type=key_type)
        client = self.authority.issue("client", key_type=key_type)
        self.server = server_context(self.authority.issue("broker", ["localhost"]), self.authority)
        write_private(folder / "client.p12", client.pkcs12(PASSWORD))
        write_private(folder / "client.pem", client.pem())
        write_private(folder / "ca.pem", self.authority.pem)

    def path(self, name):
        return str(self.folder / name)

    def import_key(self, path, kind, own=(), jvm=()):
        source = ("-srckeystore", self.path("client.p12"), "-srcstorepass", PASSWORD)
        destination = ("-destkeystore", path, "-deststoretype", kind, "-deststorepass", PASSWORD)
        keytool(*jvm, "-importkeystore", "-srcalias", "key", *source, *destination, *own)

    def import_trusted(self, path, kind, jvm=()):
        store = ("-keystore", path, "-storetype", kind, "-storepass", PASSWORD)
        keytool(*jvm, "-importcert", "-file", self.path("ca.pem"), "-alias", "trusted", *store)

    def of_openssl(self, *options):
        """A PKCS12 key store; its path."""
        path = self.path(f"openssl{''.join(options)}.p12")
        source = ("-in", self.path("client.pem"), "-certfile", self.path("ca.pem"))
        run(*OPENSSL, *source, "-out", path, *options)
        return path

    def are_good(self, truststore, keystore):
        """In a handshake in which both sides check the other."""
        client = TlsContext(SslConfig(truststore=truststore, keystore=keystore)).context()
        return handshake(client, self.server).peer == "client"


@pytest.fixture(scope="session", params=["RSA", "EC"])
def material(request, tmp_path_factory):
    return Material(tmp_path_factory.mktemp("stores"), request.param)


def trusted_names(store):
    """The names in the certificates that are trusted."""
    found = stores.trusted_certificates(store, TRUST_OPTIONS)
    subjects = [x509.load_der_x509_certificate(der).subject for der in found]
    return [subject.rfc4514_string().removeprefix("CN=") for subject in subjects]


@pytest.mark.slow
class TestOthersStores:
    @pytest.mark.parametrize(("kind", "own"), [("JKS", KEY_PASSWORD), ("PKCS12", None)])
    def test_stores_of_keytool_in_a_handshake(self, material, kind, own):
        trust, key = material.path(f"trust.{kind}"), material.path(f"key.{kind}")
        material.import_trusted(trust, kind)
        material.import_key(key, kind, () if own is None else ("-destkeypass", own))
        keystore = StoreConfig(key, STORE, key_password=None if own is None else Secret(own))
        assert material.are_good(StoreConfig(trust, STORE), keystore)
        # Of a store with a key, Java trusts the key's own certificate.
        assert trusted_names(StoreConfig(key, STORE)) == ["client"]
        # Only one of both kinds of trust stores wants a password.
        if kind == "JKS":
            assert material.are_good(StoreConfig(trust), keystore)
        else:
            told = "it has a password, and none is given. Check kafka.ssl.truststore.password"
            assert trust_error(StoreConfig(trust)).endswith(told)

    @needs_openssl
    @pytest.mark.parametrize(
        "options",
        [(), ("-legacy",), ("-certpbe", "NONE"), ("-nomac",), ("-certpbe", "NONE", "-nomac")],
        ids=lambda options: " ".join(options) or "as it is by default",
    )
    def test_key_stores_of_openssl(self, material, options):
        store = StoreConfig(material.of_openssl(*options), STORE)
        assert material.are_good(StoreConfig(certificates=material.authority.pem), store)
        # As in Java, the authority that signed a key is not trusted for that.
        assert trusted_names(store) == ["client"]

    @needs_openssl
    def test_certificates_in_clear_are_read_without_a_password(self, material):
        path = material.path("openssl-authority.p12")
        run(*OPENSSL, "-nokeys", "-in", material.path("ca.pem"), "-out", path, "-certpbe", "NONE")
        assert trusted_names(StoreConfig(path)) == ["pykafka-sink local authority"]
        # With a key beside it, it stands for the key.
        path = material.of_openssl("-certpbe", "NONE")
        assert trusted_names(StoreConfig(path)) == ["client"]

    @pytest.mark.parametrize("in_clear", [False, True], ids=["encrypted", "in clear"])
    def test_and_what_was_imported_as_trusted(self, material, in_clear):
        """Here the very authority that stands in the key's chain."""
        path = material.path(f"both-{in_clear}.PKCS12")
        jvm = ("-J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE",) if in_clear else ()
        material.import_key(path, "PKCS12", jvm=jvm)
        material.import_trusted(path, "PKCS12", jvm)
        names = trusted_names(StoreConfig(path, None if in_clear else STORE))
        assert sorted(names) == ["client", "pykafka-sink local authority"]

    def test_of_several_keys_the_first_is_used_and_that_is_told(self, tmp_path, caplog):
        path = str(tmp_path / "two.PKCS12")
        own = ("-keystore", path, "-storetype", "PKCS12", "-storepass", PASSWORD)
        for name in ("first", "second"):
            keytool("-genkeypair", "-alias", name, "-keyalg", "EC", "-dname", f"CN={name}", *own)
        TlsContext(SslConfig(keystore=StoreConfig(path, STORE))).context()
        assert "kafka.ssl.keystore.location: of 2 private keys, the first in the file is used" in (
            caplog.text
        )

    def test_the_authorities_that_come_with_java(self):
        """What Java trusts by itself, for those who want the same here."""
        home = Path(shutil.which("keytool")).resolve().parents[1]
        truststore = StoreConfig(str(home / "lib" / "security" / "cacerts"), Secret("changeit"))
        context = TlsContext(SslConfig(truststore=truststore)).context()
        assert len(context.get_ca_certs()) > 20
