"""Stores with any bytes in them: StoreError is all that comes of reading them. PEM text of any form."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import key_formats, pkcs12
from spark_kafka_sink.security.key_formats import StoreError
from tests.property.test_protocol_fuzz import SEED, mutated
from tests.unit.security.jks_writer import key_entry, store, trusted_entry, with_digest

CASES = 4000
PASSWORD = "password"
CLIENT = Authority().issue("client")
JKS = store(PASSWORD, key_entry("k", b"key" * 9, PASSWORD, [b"own"]), trusted_entry("t", b"other"))
PKCS12 = CLIENT.pkcs12(PASSWORD)
LINE_ENDS = ("\n", "\r\n", "\r", " ", "\t", "\\n", "\\r\\n", "", "\\\n  ", "\n\n")


def read_jks(data: bytes) -> None:
    for entry in key_formats.read_jks(data, None).keys:
        key_formats.unlock_jks_key(entry, PASSWORD)


def read_jks_with_right_digest(data: bytes) -> None:
    for entry in key_formats.read_jks(with_digest(data[:-20], PASSWORD), PASSWORD).keys:
        key_formats.unlock_jks_key(entry, PASSWORD)


def read_pkcs12_without_password(data: bytes) -> None:
    pkcs12.trusted_certificates(data, None)


def read_pkcs12(data: bytes) -> None:
    pkcs12.key_material(data, PASSWORD, None)


def read_pem(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    key_formats.pem_certificates(text)
    key_formats.pem_private_key(text)


def in_clear() -> bytes:
    """A store that keytool would write without passwords: certificates in clear, no MAC."""
    from cryptography.hazmat.primitives.serialization import NoEncryption
    from cryptography.hazmat.primitives.serialization import pkcs12 as writer

    return writer.serialize_key_and_certificates(
        b"k", CLIENT.key, CLIENT.certificate, [CLIENT.issuer], NoEncryption()
    )


READERS: dict[str, tuple[Callable[[bytes], None], bytes, int]] = {
    "JKS": (read_jks, JKS, CASES),
    "JKS, digest right": (read_jks_with_right_digest, JKS, CASES),
    "PKCS12 in clear": (read_pkcs12_without_password, in_clear(), CASES),
    # Each case derives a key from the password.
    "PKCS12": (read_pkcs12, PKCS12, CASES // 20),
    "PEM": (read_pem, CLIENT.pem().encode(), CASES // 4),
}


@pytest.mark.parametrize("name", READERS)
def test_broken_stores_raise_nothing_but_store_error(name: str) -> None:
    read, whole, cases = READERS[name]
    read(whole)
    rng = random.Random(SEED)
    refused = 0
    for _ in range(cases):
        try:
            read(mutated(whole, rng))
        except StoreError:
            refused += 1
    assert refused > cases // 20


@given(st.binary(max_size=300))
def test_bytes_without_sense_raise_nothing_but_store_error(data: bytes) -> None:
    for read, whole, _ in READERS.values():
        for content in (data, whole[:8] + data):
            try:
                read(content)
            except StoreError:
                continue


@given(
    blocks=st.lists(st.binary(min_size=1, max_size=400), min_size=1, max_size=4),
    line_end=st.sampled_from(LINE_ENDS),
    around=st.text(st.characters(exclude_characters="-", exclude_categories=("Cs",)), max_size=40),
)
def test_mangled_text_is_read_as_it_was(blocks: list[bytes], line_end: str, around: str) -> None:
    certificates = tuple(b"0\x82" + len(data).to_bytes(2, "big") + data for data in blocks)
    texts = [key_formats.encode_pem("CERTIFICATE", certificate) for certificate in certificates]
    text = around + around.join([*texts, key_formats.encode_pem("PRIVATE KEY", blocks[0])]) + around
    mangled = text.replace("\n", line_end)
    assert key_formats.pem_certificates(mangled) == certificates
    assert key_formats.pem_private_key(mangled).text.reveal() == key_formats.encode_pem(
        "PRIVATE KEY", blocks[0]
    )
