"""What a store's file is taken for, and what does not go together."""

import os
import stat
from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import key_formats, stores, tls
from spark_kafka_sink.security.stores import key_store_options, trust_store_options
from spark_kafka_sink.security.tls import TlsContext
from spark_kafka_sink.security.tls_errors import TOKEN_ENDPOINT
from tests.unit.security.jks_writer import key_entry, store, trusted_entry

AUTHORITY = Authority()
CLIENT = AUTHORITY.issue("client")
PASSWORD = "the store's password: marked-store"
TRUST_OPTIONS, KEY_OPTIONS = trust_store_options("kafka."), key_store_options("kafka.")


def of_file(folder, content, **options):
    path = folder / f"store-{len(list(folder.iterdir()))}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return StoreConfig(str(path), **options)


def trust_error(config):
    with pytest.raises(ConfigError) as raised:
        stores.trusted_certificates(config, TRUST_OPTIONS)
    assert "marked" not in str(raised.value)
    return str(raised.value)


def key_error(config):
    with pytest.raises(ConfigError) as raised:
        stores.key_material(config, KEY_OPTIONS)
    assert "marked" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"\xce\xce\xce\xce\0\0\0\2", "it is a JCEKS store, which is not read here"),
        (b"\xca\xfe\xba\xbe", "its content is neither JKS nor PKCS12 nor PEM"),
        (b"0\x82", "it is cut"),
        (b"0\x80\x02\x01\x03", "it is cut"),
        (b"0\x80\x02\x80\x03\0\0", "it is not the ASN.1 that it should be"),
        (b"0\x04\x30\x02\x05\x00", "it is not a PKCS12 store; if it is a certificate in DER form"),
        (b"\xfe\xed\xfe\xed", "it is cut"),
        (b"-----BEGIN X-----", "it is cut"),
    ],
)
def test_files_that_are_no_stores(content, message, tmp_path):
    config = of_file(tmp_path, content)
    assert f"kafka.ssl.truststore.location={config.location}: " in trust_error(config)
    assert message in trust_error(config)


@pytest.mark.parametrize("said", ["JKS", "PKCS12"])
def test_a_type_that_is_not_what_the_file_is(said, tmp_path):
    config = of_file(tmp_path, AUTHORITY.pem, type=said)
    assert f"its content is PEM, but the store's type is given as {said}" in trust_error(config)
    config = of_file(tmp_path, CLIENT.pkcs12(PASSWORD), type="PEM")
    assert "its content is PKCS12, but the store's type is given as PEM" in trust_error(config)


def test_a_type_that_is_not_given_or_another_of_java_is_what_the_file_is(tmp_path):
    password = Secret(PASSWORD)
    for config in (
        of_file(tmp_path, AUTHORITY.pem),
        of_file(tmp_path, AUTHORITY.pem, type="PEM"),
        of_file(tmp_path, AUTHORITY.pem.replace("CERTIFICATE", "X509 CERTIFICATE")),
        of_file(tmp_path, b"f\xfcr uns alle\n" + AUTHORITY.pem.encode()),
        of_file(tmp_path, f"0 is what this comment begins with, as PKCS12 does\n{AUTHORITY.pem}"),
        of_file(tmp_path, CLIENT.pkcs12(PASSWORD), password=password),
        of_file(tmp_path, store(PASSWORD, trusted_entry("ca", b"DER")), password=password),
        of_file(tmp_path, CLIENT.pkcs12(PASSWORD), password=password, type="JKS"),
        of_file(
            tmp_path,
            store(PASSWORD, trusted_entry("ca", b"DER")),
            password=password,
            type="PKCS12",
        ),
    ):
        assert stores.trusted_certificates(config, TRUST_OPTIONS)


def test_a_pkcs12_store_in_ber_is_read_with_its_password(tmp_path):
    """As other programs than Java and OpenSSL write it: the outer length is not told."""
    data = CLIENT.pkcs12(PASSWORD)
    ber = b"\x30\x80" + key_formats.first_element(data, key_formats.SEQUENCE).value + b"\0\0"
    material = stores.key_material(of_file(tmp_path, ber, password=Secret(PASSWORD)), KEY_OPTIONS)
    assert material is not None
    assert len(material.chain) == 2


def test_a_pem_file_has_no_password_of_a_store(tmp_path):
    password = Secret(PASSWORD)
    assert trust_error(of_file(tmp_path, AUTHORITY.pem, password=password)) == (
        "SSL trust store password cannot be specified for PEM format. "
        "Leave out kafka.ssl.truststore.password"
    )
    assert key_error(of_file(tmp_path, CLIENT.pem(), password=password)) == (
        "SSL key store password cannot be specified with PEM format, only key password may be "
        "specified. Leave out kafka.ssl.keystore.password; where the key is encrypted, set "
        "kafka.ssl.key.password"
    )


@pytest.mark.parametrize("content", [CLIENT.pkcs12(PASSWORD), store(PASSWORD)])
def test_a_key_store_of_java_wants_a_password(content, tmp_path):
    assert key_error(of_file(tmp_path, content)) == (
        "SSL key store is specified, but key store password is not specified. "
        "Set kafka.ssl.keystore.password"
    )


def test_a_store_without_what_is_wanted(tmp_path):
    empty = of_file(tmp_path, store(PASSWORD), password=Secret(PASSWORD))
    assert "it holds no certificate that could be trusted" in trust_error(empty)
    assert "it holds no private key" in key_error(empty)
    no_key = of_file(tmp_path, AUTHORITY.pem)
    assert "Expected one private key, but found 0" in key_error(no_key)
    no_chain = of_file(tmp_path, CLIENT.private_key())
    assert "At least one certificate expected, but none found" in key_error(no_chain)


@pytest.mark.parametrize("aliases", ["a", "ba", "bac"])
def test_of_several_keys_the_first_by_alias_is_used(aliases, tmp_path, caplog):
    entries = [key_entry(a, a.encode(), PASSWORD, [b"of " + a.encode()]) for a in aliases]
    config = of_file(tmp_path, store(PASSWORD, *entries), password=Secret(PASSWORD))
    material = stores.key_material(config, KEY_OPTIONS)
    assert material is not None
    assert material.chain == (b"of a",)
    said = f"of {len(aliases)} private keys, a, the first by its alias, is used"
    assert (said in caplog.text) == bool(caplog.records) == (len(aliases) > 1)


def test_a_key_of_java_may_have_a_password_of_its_own(tmp_path):
    data = store(PASSWORD, key_entry("k", b"key", "its own: marked", [b"of k"]))
    for given, problem in ((None, "the key's password is wrong"), ("its own: marked", None)):
        key_password = None if given is None else Secret(given)
        config = of_file(tmp_path, data, password=Secret(PASSWORD), key_password=key_password)
        if problem is not None:
            assert f"{problem}. Check kafka.ssl.key.password" in key_error(config)
        else:
            assert stores.key_material(config, KEY_OPTIONS) is not None


def test_a_wrong_password_of_a_store_names_its_option(tmp_path):
    config = of_file(tmp_path, store(PASSWORD), password=Secret("marked-wrong"))
    assert trust_error(config).endswith("Check kafka.ssl.truststore.password")
    assert key_error(config).endswith("Check kafka.ssl.keystore.password")


@pytest.mark.parametrize("key_password", [None, PASSWORD])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_key_of_options_needs_a_password_if_it_is_encrypted(is_encrypted, key_password):
    config = StoreConfig(
        certificates=CLIENT.certificate_chain,
        key=Secret(CLIENT.private_key(PASSWORD if is_encrypted else None)),
        key_password=None if key_password is None else Secret(key_password),
    )
    if is_encrypted and key_password is None:
        assert "kafka.ssl.keystore.key: the private key is encrypted" in key_error(config)
        return
    material = stores.key_material(config, KEY_OPTIONS)
    assert material is not None
    assert material.is_encrypted == is_encrypted
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


def test_nothing_asked_for_is_nothing():
    assert stores.trusted_certificates(StoreConfig(), TRUST_OPTIONS) is None
    assert stores.key_material(StoreConfig(), KEY_OPTIONS) is None


def test_what_cannot_be_opened_is_told(tmp_path):
    assert "Is a directory" in trust_error(StoreConfig(str(tmp_path)))
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(17 << 20)
    assert "it is larger than 16 MiB" in trust_error(StoreConfig(str(large)))
    endless = StoreConfig("/dev/zero")
    assert "it is larger than 16 MiB" in trust_error(endless), "whatever its size is said to be"
    missing = StoreConfig(str(tmp_path / "missing.jks"), Secret(PASSWORD))
    assert key_error(missing).startswith(
        f"kafka.ssl.keystore.location={missing.location}: this process on host "
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_somebody_else_is_told(tmp_path):
    config = of_file(tmp_path, AUTHORITY.pem)
    (tmp_path / "store-0").chmod(0)
    assert "Permission denied" in trust_error(config)


def test_options_of_a_token_endpoint_are_named_as_they_are_given(tmp_path):
    config = SslConfig(truststore=of_file(tmp_path, ""))
    with pytest.raises(
        ConfigError, match=r"^the JAAS option ssl.truststore.location=.*: it is empty"
    ):
        TlsContext(config, TOKEN_ENDPOINT).context()


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
