"""PKCS12 stores, of Java's keytool and of OpenSSL, with the package ``cryptography``.

``cryptography`` reads a store with a password. This module itself reads the unencrypted parts of a
trust store without one. A store is a sequence of parts, each encrypted or not, with certificates in
bags::

    PFX  = { version, ContentInfo, MAC }          ContentInfo = { type, [0] content }
    content of type data          = OCTET STRING of AuthenticatedSafe = { ContentInfo ... }
    part of type data             = OCTET STRING of SafeContents = { bag ... }
    bag  = { type, [0] value, attributes }        certificate bag's value = { type, [0] DER }

Source: RFC 7292; ``PKCS12KeyStore`` of the JDK, which silently skips encrypted parts if no password
is given.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.security.key_formats import (
    EXPLICIT_0,
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    DamagedStoreError,
    Element,
    KeyMaterial,
    KeyPasswordError,
    StoreError,
    StorePasswordError,
    check_iteration_count,
    check_iterations,
    elements,
    first_element,
    integer,
)

# --- a certificate in a few words, for messages --------------------------------------------------

_DATE = "%Y-%m-%d"


def describe_certificate(certificate: bytes, now_ms: int) -> str:
    """Describe a certificate: subject, issuer, end of validity, and whether it is valid now.

    certificate: DER
    now_ms: milliseconds since 1970 UTC
    """
    try:
        read = x509.load_der_x509_certificate(certificate)
        subject, issuer = read.subject.rfc4514_string(), read.issuer.rfc4514_string()
    except ValueError:
        return "which cannot be read"
    begin, end = read.not_valid_before_utc, read.not_valid_after_utc
    now = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
    validity = f"valid until {end:{_DATE}}"
    if now > end:
        validity = f"which has expired on {end:{_DATE}}"
    elif now < begin:
        validity = f"which is not valid before {begin:{_DATE}}"
    return f"{subject}, signed by {issuer}, {validity}"


# --- stores --------------------------------------------------------------------------------------

_DATA = bytes.fromhex("2a864886f70d010701")  # 1.2.840.113549.1.7.1
_ENCRYPTED_DATA = bytes.fromhex("2a864886f70d010706")  # 1.2.840.113549.1.7.6
_CERTIFICATE_BAG = bytes.fromhex("2a864886f70d010c0a0103")  # 1.2.840.113549.1.12.10.1.3
_KEY_BAGS = (
    bytes.fromhex("2a864886f70d010c0a0101"),  # 1.2.840.113549.1.12.10.1.1
    bytes.fromhex("2a864886f70d010c0a0102"),  # 1.2.840.113549.1.12.10.1.2, encrypted
)
_MARKS = frozenset(
    {
        bytes.fromhex("2a864886f70d010915"),  # 1.2.840.113549.1.9.21, of a key and its certificate
        bytes.fromhex("6086480186f966adca7b0101"),  # 2.16.840.1.113894.746875.1.1, keytool's mark
    }
)
_UNREADABLE = (
    "its password is wrong, or it is encrypted in a way that is not read here; "
    "keytool and openssl pkcs12 write what is read, unless they are told to write old ciphers"
)


def trusted_certificates(data: bytes, password: str | None) -> tuple[bytes, ...]:
    """Return the DER of all certificates; if there is a private key, of those that Java trusts.

    Java trusts the certificates with keytool's mark and the own certificate of each key, but not
    the authorities of a key's chain. OpenSSL does not write the mark, so Java trusts no certificate
    of an OpenSSL store without keys; this module trusts them all. Raises StorePasswordError,
    DamagedStoreError.
    """
    if password is None:
        return _unencrypted_certificates(data)
    store = _load(data, password)
    if store.cert is None:
        return tuple(_der(found.certificate) for found in store.additional_certs)
    others = _trusted_beside_key(store.cert.certificate, store.additional_certs)
    return (_der(store.cert.certificate), *others)


def _trusted_beside_key(
    own: x509.Certificate, others: Sequence[pkcs12.PKCS12Certificate]
) -> Iterator[bytes]:
    """Yield the certificates of ``others`` that are entries of their own, as far as names show it.

    The package ``cryptography`` does not report keytool's mark. But keytool names an entry by its
    alias, and a certificate of a chain by its subject; OpenSSL sets no name.
    """
    chain = list(_chain(own, [found.certificate for found in others])[1:])
    for found in others:
        certificate = _der(found.certificate)
        name = found.friendly_name
        if name is None or name == found.certificate.subject.rfc4514_string().encode():
            continue
        count = sum(other.certificate == found.certificate for other in others)
        if certificate not in chain or count != 1:
            yield certificate


def key_material(data: bytes, password: str, key_password: str | None) -> KeyMaterial:
    """Return the private key with its chain. A PKCS12 store has one password for all its content.

    Raises StorePasswordError, KeyPasswordError, DamagedStoreError.
    """
    store = _load(data, password)
    if store.key is None or store.cert is None:
        raise DamagedStoreError("it holds no private key with a certificate")
    if key_password is not None and key_password != password:
        raise KeyPasswordError("the key's password is not the store's, which in PKCS12 it must be")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    others = [found.certificate for found in store.additional_certs]
    return KeyMaterial(Secret(key.decode()), False, _chain(store.cert.certificate, others))


def key_count(data: bytes) -> int:
    """Return the number of private keys, of which the first is used; 1 if it is unknown."""
    try:
        kinds = [
            bag.kind for kind, content in _parts(data) if kind == _DATA for bag in _bags(content)
        ]
    except StoreError:
        return 1  # BER that only the package cryptography reads
    return max(1, sum(kind in _KEY_BAGS for kind in kinds))


def _load(data: bytes, password: str) -> pkcs12.PKCS12KeyAndCertificates:
    check_iterations(data)
    for mac in islice(elements(first_element(data, SEQUENCE).content), 2, 3):
        # MacData = { digest, salt, iterations (1 if omitted) }
        for number in islice(elements(mac.content), 2, 3):
            check_iteration_count(integer(number))
    try:
        with warnings.catch_warnings():
            # Some programs write BER: accept it.
            warnings.filterwarnings("ignore", message=".*could not be parsed as DER")
            return pkcs12.load_pkcs12(data, password.encode("utf-8", "surrogateescape"))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        list(_parts(data))  # raises DamagedStoreError if the password is not the cause
        # Omit the cause: OpenSSL's text adds nothing.
        raise StorePasswordError(_UNREADABLE) from None


def _chain(own: x509.Certificate, others: list[x509.Certificate]) -> tuple[bytes, ...]:
    """Return ``own``, then its issuer, and so on, as far as ``others`` reach."""
    chain, remaining = [own], list(others)
    while chain[-1].issuer != chain[-1].subject:
        above = next((other for other in remaining if other.subject == chain[-1].issuer), None)
        if above is None:
            break
        remaining.remove(above)
        chain.append(above)
    return tuple(_der(certificate) for certificate in chain)


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def _unencrypted_certificates(data: bytes) -> tuple[bytes, ...]:
    """Return the unencrypted certificates that Java trusts.

    If the store has a key, these are the marked ones: keytool's mark, or the id of a key.
    """
    parts = list(_parts(data))
    bags = [bag for kind, content in parts if kind == _DATA for bag in _bags(content)]
    certificates = [bag for bag in bags if bag.kind == _CERTIFICATE_BAG]
    if not certificates and any(kind == _ENCRYPTED_DATA for kind, _ in parts):
        raise StorePasswordError("it has a password, and none is given")
    if any(bag.kind in _KEY_BAGS for bag in bags):
        certificates = [bag for bag in certificates if bag.attributes & _MARKS]
    values = (_type_and_content(first_element(bag.value, SEQUENCE))[1] for bag in certificates)
    return tuple(first_element(value, OCTET_STRING).value for value in values)


def _parts(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield type and content of each part, encrypted or not, as stored."""
    pfx = list(elements(first_element(data, SEQUENCE).content))
    if not pfx or pfx[0].tag != INTEGER:
        raise DamagedStoreError(
            "it is not a PKCS12 store; if it is a certificate in DER form, turn it into PEM: "
            "openssl x509 -inform der"
        )
    if len(pfx) < 2:
        raise DamagedStoreError("it is cut")
    kind, content = _type_and_content(pfx[1])
    if kind != _DATA:
        raise StoreError("it is protected by a public key, not by a password; this is not read")
    for part in elements(first_element(content, OCTET_STRING, SEQUENCE).content):
        yield _type_and_content(part)


def _type_and_content(element: Element) -> tuple[bytes, memoryview]:
    """Return type and content of a ContentInfo, or of a bag."""
    parts = list(elements(element.content)) if element.tag == SEQUENCE else []
    kinds = [part.tag for part in parts[:2]]
    if kinds != [OBJECT_IDENTIFIER, EXPLICIT_0]:
        raise DamagedStoreError("it is not a PKCS12 store, or it was altered")
    return parts[0].value, parts[1].content


class _Bag(NamedTuple):
    """A bag of a part. attributes: their types"""

    kind: bytes
    value: memoryview
    attributes: frozenset[bytes]


def _bags(content: memoryview) -> Iterator[_Bag]:
    for bag in elements(first_element(content, OCTET_STRING, SEQUENCE).content):
        attributes = frozenset(
            first_element(attribute.content, OBJECT_IDENTIFIER).value
            for of_bag in islice(elements(bag.content), 2, 3)
            for attribute in elements(of_bag.content)
        )
        yield _Bag(*_type_and_content(bag), attributes)
