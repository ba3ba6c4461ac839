"""What a store's file is taken for, and what does not go together."""

import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_key_and_certificates,
)

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SslConfig, StoreConfig
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import key_formats, pkcs12, stores, tls
from spark_kafka_sink.security.key_formats import (
    DamagedStoreError,
    KeyPasswordError,
    StoreError,
    StorePasswordError,
)
from spark_kafka_sink.security.pkcs12 import describe_certificate
from spark_kafka_sink.security.stores import key_store_options, trust_store_options
from spark_kafka_sink.security.tls import TlsContext
from spark_kafka_sink.security.tls_errors import TOKEN_ENDPOINT
from tests.unit.security.material import key_entry, store, trusted_entry

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
            tmp_path, store(PASSWORD, trusted_entry("ca", b"DER")), password=password, type="PKCS12"
        ),
    ):
        assert stores.trusted_certificates(config, TRUST_OPTIONS)


def test_a_pkcs12_store_in_ber_is_read_with_its_password(tmp_path):
    """As other programs than Java and OpenSSL write it: the outer length is not told."""
    data = CLIENT.pkcs12(PASSWORD)
    ber = b"\x30\x80" + key_formats.first_element(data, key_formats.SEQUENCE).value + b"\0\0"
    material = stores.key_material(of_file(tmp_path, ber, password=Secret(PASSWORD)), KEY_OPTIONS)
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


def der(tag, *parts):
    """Of less than 128 bytes of content, or of less than 64 KiB."""
    content = b"".join(parts)
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def oid(hexadecimal):
    return der(6, bytes.fromhex(hexadecimal))


DATA, SIGNED, ENCRYPTED = (oid(f"2a864886f70d0107{n}") for n in ("01", "02", "06"))
KEY, SHROUDED, CERTIFICATE_BAG, CRL = (oid(f"2a864886f70d010c0a01{n}") for n in ("01", "02", "03", "04"))  # fmt: skip
NAME, OF_A_KEY, TRUSTED = oid("2a864886f70d010914"), oid("2a864886f70d010915"), oid("6086480186f966adca7b0101")  # fmt: skip
VERSION, NOTHING = der(2, b"\3"), der(0x30)


def info(kind, content):
    return der(0x30, kind, der(0xA0, content))


def bag(kind, value, *attributes):
    marks = [der(0x31, *(der(0x30, mark, der(0x31)) for mark in attributes))]
    return der(0x30, kind, der(0xA0, value), *(marks if attributes else ()))


def certificate(content, *attributes):
    return bag(CERTIFICATE_BAG, info(oid("2a864886f70d01091601"), der(4, content)), *attributes)


def part(*bags):
    return info(DATA, der(4, der(0x30, *bags)))


def pkcs12_store(*parts, kind=DATA):
    return der(0x30, VERSION, info(kind, der(4, der(0x30, *parts))))


@pytest.mark.parametrize(
    ("data", "trusted"),
    [
        (pkcs12_store(part(certificate(b"1"), certificate(b"2"))), [b"1", b"2"]),
        (pkcs12_store(part(certificate(b"1", TRUSTED), certificate(b"2"))), [b"1", b"2"]),
        (pkcs12_store(part(bag(KEY, NOTHING), certificate(b"1", OF_A_KEY), certificate(b"2"))), [b"1"]),
        (pkcs12_store(part(bag(SHROUDED, NOTHING), certificate(b"1", NAME), certificate(b"2", TRUSTED))), [b"2"]),
        (pkcs12_store(part(bag(CRL, NOTHING), certificate(b"1"))), [b"1"]),
        (pkcs12_store(info(ENCRYPTED, NOTHING), part(certificate(b"1"))), [b"1"]),
        (pkcs12_store(part()), []),
    ],
)  # fmt: skip
def test_what_is_trusted_of_a_store_in_clear(data, trusted):
    """Of a store with a key, what keytool has marked."""
    assert [*pkcs12.trusted_certificates(data, None)] == trusted


OF_NUMBERS = der(0x30, der(2, b"\1"), der(2, b"\1"))
IN_A_SET = der(0x31, DATA, der(0xA0, der(4, der(0x30, part(certificate(b"1"))))))


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (pkcs12_store(info(ENCRYPTED, NOTHING)), StorePasswordError, "has a password, and none"),
        (
            pkcs12_store(part(certificate(b"1")), kind=SIGNED),
            StoreError,
            "protected by a public key",
        ),
        (der(0x30, VERSION), DamagedStoreError, "it is cut"),
        (NOTHING, DamagedStoreError, "not a PKCS12 store; if it is a certificate"),
        (der(0x30, NOTHING), DamagedStoreError, "not a PKCS12 store; if it is a"),
        (der(0x30, VERSION, der(4, b"x")), DamagedStoreError, "or it was altered"),
        (der(0x30, VERSION, OF_NUMBERS), DamagedStoreError, "or it was altered"),
        (der(0x30, VERSION, IN_A_SET), DamagedStoreError, "or it was altered"),
    ],
)
def test_what_is_said_of_a_store_that_cannot_be_read(data, error, words):
    with pytest.raises(error, match=words):
        pkcs12.trusted_certificates(data, None)
    assert pkcs12.key_count(data) == 1


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (pkcs12_store(part(bag(KEY, NOTHING), bag(SHROUDED, NOTHING))), 2),
        (pkcs12_store(part(bag(KEY, NOTHING)), info(ENCRYPTED, NOTHING)), 1),
        (pkcs12_store(part(bag(KEY, NOTHING), bag(KEY, NOTHING)), info(ENCRYPTED, NOTHING)), 2),
        (pkcs12_store(part(certificate(b"1"))), 1),
    ],
)
def test_keys_are_counted_where_they_are_seen(data, count):
    assert pkcs12.key_count(data) == count


# --- with a password ----------------------------------------------------------------------------

MARKED = "marked"
SIGNER = Authority()
SIGNED_CLIENT = SIGNER.issue("client")
OWN = SIGNED_CLIENT.certificate
ABOVE, OTHER = SIGNER.certificate, Authority("other").certificate


def written(*others, has_key = True, own = OWN):  # fmt: skip
    encryption = BestAvailableEncryption(MARKED.encode())
    key = SIGNED_CLIENT.key if has_key else None
    return serialize_key_and_certificates(b"key", key, own, others or None, encryption)


def named(found, name=None):
    return PKCS12Certificate(found, (name or found.subject.rfc4514_string()).encode())


def as_der(*certificates):
    return tuple(found.public_bytes(Encoding.DER) for found in certificates)


@pytest.mark.parametrize(
    ("data", "trusted"),
    [
        (written(), (OWN,)),
        (written(ABOVE), (OWN,)),
        (written(ABOVE, ABOVE), (OWN,)),
        (written(named(ABOVE, "an alias"), named(OTHER, "x")), (OWN, OTHER)),
        (written(ABOVE, named(ABOVE, "an alias")), (OWN, ABOVE)),
        (written(named(ABOVE), named(OTHER)), (OWN,)),
        (written(ABOVE, OTHER, has_key=False, own=None), (ABOVE, OTHER)),
    ],
)
def test_what_is_trusted_beside_a_key(data, trusted):
    """What has a name of its own, unless it is in the key's chain alone."""
    assert pkcs12.trusted_certificates(data, MARKED) == as_der(*trusted)


def test_a_key_comes_with_its_chain_and_has_the_stores_password():
    data = written(OTHER, ABOVE)
    assert pkcs12.key_material(data, MARKED, None).chain == as_der(OWN, ABOVE)
    assert pkcs12.key_material(data, MARKED, MARKED).chain == as_der(OWN, ABOVE)
    assert pkcs12.key_material(written(OTHER), MARKED, None).chain == as_der(OWN)
    # It ends with the first authority that has signed itself.
    same_name = Authority().certificate
    assert len(pkcs12.key_material(written(ABOVE, same_name), MARKED, None).chain) == 2
    with pytest.raises(KeyPasswordError):
        pkcs12.key_material(data, MARKED, "another")
    for without in (written(OTHER, own=None), written(ABOVE, has_key=False, own=None)):
        with pytest.raises(DamagedStoreError, match="no private key with a certificate"):
            pkcs12.key_material(without, MARKED, None)


def test_a_damaged_store_is_told_from_a_wrong_password():
    data = written(ABOVE)
    for password in ("wrong", "\udc80"):
        with pytest.raises(StorePasswordError):
            pkcs12.trusted_certificates(data, password)
    with pytest.raises(DamagedStoreError):
        pkcs12.trusted_certificates(der(0x30, VERSION, info(DATA, der(4, b"x"))), MARKED)
    assert pkcs12.describe_certificate(b"none", 0) == "which cannot be read"


CERTIFICATE = Authority("the authority").issue("alice").certificate
DER = CERTIFICATE.public_bytes(Encoding.DER)
BEGIN, END = CERTIFICATE.not_valid_before_utc, CERTIFICATE.not_valid_after_utc
SECOND = timedelta(seconds=1)


def at(moment):
    return describe_certificate(DER, int(moment.timestamp() * 1000))


def test_whose_it_is_and_until_when():
    who = "CN=alice, signed by CN=the authority, "
    assert at(BEGIN - SECOND) == f"{who}which is not valid before {BEGIN:%Y-%m-%d}"
    assert at(BEGIN) == at(END) == f"{who}valid until {END:%Y-%m-%d}"
    assert at(END + SECOND) == f"{who}which has expired on {END:%Y-%m-%d}"


def test_what_cannot_be_read_is_said_to_be_so():
    assert describe_certificate(b"no certificate", 0) == "which cannot be read"
