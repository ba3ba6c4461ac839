"""JKS stores as they are written by hand; those of keytool are in test_java_stores.py."""

import pytest

from spark_kafka_sink.security import key_formats
from spark_kafka_sink.security.key_formats import (
    DamagedStoreError,
    KeyPasswordError,
    StoreError,
    StorePasswordError,
)
from tests.unit.security.jks_writer import key_entry, store, trusted_entry, with_digest

STORE, KEY = "store pässword \U0001f511", "key password"
OWN, ABOVE, OTHER = b"own certificate", b"the one above", b"another"
PRIVATE = b"private key " * 9


def key_store(version=2, chain=(OWN, ABOVE)):
    key = key_entry("k", PRIVATE, KEY, list(chain), version)
    return store(STORE, key, trusted_entry("t", OTHER, version), version=version)


@pytest.mark.parametrize("version", [1, 2])
def test_keys_and_trusted_certificates(version):
    found = key_formats.read_jks(key_store(version), STORE)
    assert found.trusted == (OTHER, OWN), "as in Java, of a key only its own certificate"
    (entry,) = found.keys
    assert entry.alias == "k"
    material = key_formats.unlock_jks_key(entry, KEY)
    assert material.chain == (OWN, ABOVE)
    assert material.key.reveal() == key_formats.encode_pem("PRIVATE KEY", PRIVATE)
    assert not material.is_encrypted


@pytest.mark.parametrize("length", [0, 1, 19, 20, 21, 40, 1000])
def test_keys_of_any_length(length):
    key = bytes(length)
    (entry,) = key_formats.read_jks(store(STORE, key_entry("k", key, KEY, [OWN])), STORE).keys
    assert key_formats.unlock_jks_key(entry, KEY).key.reveal() == key_formats.encode_pem(
        "PRIVATE KEY", key
    )


def test_the_two_passwords_are_told_apart():
    with pytest.raises(StorePasswordError, match="the store's password is wrong"):
        key_formats.read_jks(key_store(), KEY)
    (entry,) = key_formats.read_jks(key_store(), STORE).keys
    with pytest.raises(KeyPasswordError, match="the key's password is wrong"):
        key_formats.unlock_jks_key(entry, STORE)


@pytest.mark.parametrize("password", ["", "p\udce4ssword"])
def test_any_password_that_is_given_is_checked(password):
    """The second one is of an environment variable that is not in UTF-8."""
    with pytest.raises(StorePasswordError, match="the store's password is wrong"):
        key_formats.read_jks(key_store(), password)


def test_an_alias_in_javas_own_utf_8():
    """``DataOutput.writeUTF`` has two surrogates where UTF-8 has four bytes."""
    entry = trusted_entry("alias!", OTHER).replace(b"alias!", b"\xed\xa0\xbd\xed\xb8\x80")
    assert key_formats.read_jks(store(STORE, entry), STORE).trusted == (OTHER,)


def test_without_a_password_nothing_is_checked():
    data = bytearray(key_store())
    data[-1] ^= 1
    assert key_formats.read_jks(bytes(data), None).trusted == (OTHER, OWN)
    with pytest.raises(StorePasswordError, match="or the store was altered"):
        key_formats.read_jks(bytes(data), STORE)


@pytest.mark.parametrize("password", [STORE, None])
def test_what_is_cut_is_an_error_wherever_it_is_cut(password):
    whole = key_store()
    for length in range(len(whole)):
        with pytest.raises(StoreError):
            key_formats.read_jks(whole[:length], password)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\3\0\0\0\0", "its version of JKS, 3, is unknown"),
        (b"\xce\xce\xce\xce\0\0\0\2\0\0\0\0", "it is not a JKS store"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\0\0", "more bytes than entries"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\3\0\0" + bytes(8), "unknown kind, 3"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\xff\xff\xff\xff", "it is cut"),
    ],
)
def test_what_is_no_jks_store(content, message):
    with pytest.raises(DamagedStoreError, match=message):
        key_formats.read_jks(with_digest(content, STORE), STORE)


def test_a_key_without_certificates_is_of_no_use():
    found = key_formats.read_jks(key_store(chain=()), STORE)
    assert found.trusted == (OTHER,)
    with pytest.raises(DamagedStoreError, match="its private key has no certificate"):
        key_formats.unlock_jks_key(found.keys[0], KEY)


@pytest.mark.parametrize(
    ("protected", "message"),
    [
        (b"", "it is cut"),
        (b"\4\0", "not the ASN.1"),
        (b"\x30\4\4\0\4\0", "not in the form"),
        (b"\x30\6\x30\2\6\0\4\0", "encrypted in a way"),
        (bytes.fromhex("3010300c060a2b060104012a021101010400"), "its private key is cut"),
        (
            bytes.fromhex("3037300c060a2b060104012a021101010427") + bytes(39),
            "its private key is cut",
        ),
    ],
)
def test_keys_in_other_forms_are_damaged(protected, message):
    with pytest.raises(DamagedStoreError, match=message):
        key_formats.unlock_jks_key(key_formats.KeyEntry("k", protected, (OWN,)), KEY)


def test_no_representation_shows_a_key():
    found = key_formats.read_jks(key_store(), STORE)
    assert repr(PRIVATE)[2:20] not in repr(key_formats.unlock_jks_key(found.keys[0], KEY))
    assert "KeyEntry" not in repr(found)
