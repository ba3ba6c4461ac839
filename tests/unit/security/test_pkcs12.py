"""PKCS12 stores in all forms: what of them is trusted, and what is said of one that is none."""

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_key_and_certificates,
)

from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import pkcs12
from spark_kafka_sink.security.key_formats import (
    DamagedStoreError,
    KeyPasswordError,
    StoreError,
    StorePasswordError,
)


def der(tag, *parts):
    """Of less than 128 bytes of content, or of less than 64 KiB."""
    content = b"".join(parts)
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def oid(hexadecimal):
    return der(6, bytes.fromhex(hexadecimal))


DATA, SIGNED, ENCRYPTED = (oid(f"2a864886f70d0107{n}") for n in ("01", "02", "06"))
KEY, SHROUDED, CERTIFICATE, CRL = (oid(f"2a864886f70d010c0a01{n}") for n in ("01", "02", "03", "04"))  # fmt: skip
NAME, OF_A_KEY, TRUSTED = oid("2a864886f70d010914"), oid("2a864886f70d010915"), oid("6086480186f966adca7b0101")  # fmt: skip
VERSION, NOTHING = der(2, b"\3"), der(0x30)


def info(kind, content):
    return der(0x30, kind, der(0xA0, content))


def bag(kind, value, *attributes):
    marks = [der(0x31, *(der(0x30, mark, der(0x31)) for mark in attributes))]
    return der(0x30, kind, der(0xA0, value), *(marks if attributes else ()))


def certificate(content, *attributes):
    return bag(CERTIFICATE, info(oid("2a864886f70d01091601"), der(4, content)), *attributes)


def part(*bags):
    return info(DATA, der(4, der(0x30, *bags)))


def store(*parts, kind=DATA):
    return der(0x30, VERSION, info(kind, der(4, der(0x30, *parts))))


@pytest.mark.parametrize(
    ("data", "trusted"),
    [
        (store(part(certificate(b"1"), certificate(b"2"))), [b"1", b"2"]),
        (store(part(certificate(b"1", TRUSTED), certificate(b"2"))), [b"1", b"2"]),
        (store(part(bag(KEY, NOTHING), certificate(b"1", OF_A_KEY), certificate(b"2"))), [b"1"]),
        (store(part(bag(SHROUDED, NOTHING), certificate(b"1", NAME), certificate(b"2", TRUSTED))), [b"2"]),
        (store(part(bag(CRL, NOTHING), certificate(b"1"))), [b"1"]),
        (store(info(ENCRYPTED, NOTHING), part(certificate(b"1"))), [b"1"]),
        (store(part()), []),
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
        (store(info(ENCRYPTED, NOTHING)), StorePasswordError, "has a password, and none"),
        (store(part(certificate(b"1")), kind=SIGNED), StoreError, "protected by a public key"),
        (der(0x30, VERSION), DamagedStoreError, "it is cut"),
        (NOTHING, DamagedStoreError, "not a PKCS12 store; if it is a certificate"),
        (der(0x30, NOTHING), DamagedStoreError, "not a PKCS12 store; if it is a certificate"),
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
        (store(part(bag(KEY, NOTHING), bag(SHROUDED, NOTHING))), 2),
        (store(part(bag(KEY, NOTHING)), info(ENCRYPTED, NOTHING)), 1),
        (store(part(bag(KEY, NOTHING), bag(KEY, NOTHING)), info(ENCRYPTED, NOTHING)), 2),
        (store(part(certificate(b"1"))), 1),
    ],
)
def test_keys_are_counted_where_they_are_seen(data, count):
    assert pkcs12.key_count(data) == count


# --- with a password ----------------------------------------------------------------------------

PASSWORD = "marked"
AUTHORITY = Authority()
CLIENT = AUTHORITY.issue("client")
OWN = CLIENT.certificate
ABOVE, OTHER = AUTHORITY.certificate, Authority("other").certificate


def written(*others, has_key = True, own = OWN):  # fmt: skip
    encryption = BestAvailableEncryption(PASSWORD.encode())
    key = CLIENT.key if has_key else None
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
    assert pkcs12.trusted_certificates(data, PASSWORD) == as_der(*trusted)


def test_a_key_comes_with_its_chain_and_has_the_stores_password():
    data = written(OTHER, ABOVE)
    assert pkcs12.key_material(data, PASSWORD, None).chain == as_der(OWN, ABOVE)
    assert pkcs12.key_material(data, PASSWORD, PASSWORD).chain == as_der(OWN, ABOVE)
    assert pkcs12.key_material(written(OTHER), PASSWORD, None).chain == as_der(OWN)
    # It ends with the first authority that has signed itself.
    same_name = Authority().certificate
    assert len(pkcs12.key_material(written(ABOVE, same_name), PASSWORD, None).chain) == 2
    with pytest.raises(KeyPasswordError):
        pkcs12.key_material(data, PASSWORD, "another")
    for without in (written(OTHER, own=None), written(ABOVE, has_key=False, own=None)):
        with pytest.raises(DamagedStoreError, match="no private key with a certificate"):
            pkcs12.key_material(without, PASSWORD, None)


def test_a_damaged_store_is_told_from_a_wrong_password():
    data = written(ABOVE)
    for password in ("wrong", "\udc80"):
        with pytest.raises(StorePasswordError):
            pkcs12.trusted_certificates(data, password)
    with pytest.raises(DamagedStoreError):
        pkcs12.trusted_certificates(der(0x30, VERSION, info(DATA, der(4, b"x"))), PASSWORD)
    assert pkcs12.describe_certificate(b"none", 0) == "which cannot be read"
