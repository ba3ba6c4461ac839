r"""Keys and certificates from PEM, JKS and DER, without the package ``cryptography``.

No message of these errors quotes the content or a password.

DER: the part of ASN.1 that key stores need: elements in sequence and nested. Lengths are definite,
as in DER, or indefinite, as BER allows.

PEM: as lenient as Java's Kafka client. Text around the blocks is ignored. Properties files and
shells may have changed a block's line ends to spaces, CRLF, nothing, or a literal ``\n``. The
result is PEM that OpenSSL reads. Beyond Java, this module reads keys in PKCS#1 and SEC1 (``BEGIN
RSA PRIVATE KEY``, ``BEGIN EC PRIVATE KEY``), also with OpenSSL's own encryption. A truncated block
is an error, although Java ignores it as text around the blocks: a file that is still being written
must not count as complete.

JKS: Java's own key stores, read with hashlib. JCEKS is another format, which is not read. All
numbers are big-endian::

    FEEDFEED  version (1 or 2)  count  entry ...  SHA-1 of password, a salt, and all before

    entry:        1  alias  date  length, key  count  certificate ...    a private key
                  2  alias  date  certificate                            a trusted certificate
    certificate:  type (only in version 2)  length, DER

A key is an EncryptedPrivateKeyInfo of PKCS#8 under Sun's algorithm: salt (20 bytes), key, check (20
bytes). The key is XORed with a stream of SHA-1 digests: of password and salt, then of password and
the previous digest, and so on. The check is SHA-1 of password and key. Passwords are UTF-16.

Source: X.690; ``DefaultSslEngineFactory.PemParser``, ``PemStore``;
``sun.security.provider.JavaKeyStore``, ``KeyProtector`` of the JDK.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import itertools
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import field
from datetime import datetime, timezone
from typing import NamedTuple

from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.base.text import Secret

# --- key material and errors ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificates, in the form that OpenSSL reads.

    key: PEM; is_encrypted: with a password of its own
    chain: DER of each certificate, the key's own first
    """

    key: Secret
    is_encrypted: bool
    chain: tuple[bytes, ...] = field(repr=False)


class StoreError(ValueError):
    """A store cannot be read. The message gives the cause, without the option's name."""


class DamagedStoreError(StoreError):
    """The store is truncated, altered, or of another format."""


class StorePasswordError(StoreError):
    """The password of the whole store is wrong or missing."""


class KeyPasswordError(StoreError):
    """The password of the private key is wrong or missing."""


# --- DER -----------------------------------------------------------------------------------------

INTEGER, OCTET_STRING, OBJECT_IDENTIFIER, SEQUENCE = 0x02, 0x04, 0x06, 0x30
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
EXPLICIT_0 = 0xA0
_CONSTRUCTED = 0x20
_MANY_BYTES, _SIZE_BYTES = 0x80, 4
_END = b"\0\0"
_MOST_LEVELS = 32
"""Limit for nested elements; a store has ten levels."""

MOST_ITERATIONS = 5_000_000
"""Limit for the iterations that derive a key from a password. Source: ``MAX_ITERATION_COUNT`` of
JDK's ``PKCS12KeyStore``; the JDK's own stores have 10,000."""

# Identifiers of PBES1, PBKDF2, PKCS12's own, and scrypt (RFC 8018, 7292, 7914): without tag and
# length, because BER can encode these in several ways.
_SCRYPT = bytes.fromhex("2b06010401da47040b")
_FROM_PASSWORD = re.compile(
    rb"\x2a\x86\x48\x86\xf7\x0d\x01\x05[\x01\x03\x04\x06\x0a\x0b\x0c]"
    rb"|\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01[\x01-\x06]"
    rb"|" + re.escape(_SCRYPT)
)


class Element(NamedTuple):
    """One ASN.1 element: its tag, its content, and its end in the input."""

    tag: int
    content: memoryview
    end: int

    @property
    def value(self) -> bytes:
        return bytes(self.content)


def first_element(data: bytes | memoryview, *tags: int) -> Element:
    """Return the first element of ``data``; with several tags, the first element in it, and so on.

    Raises DamagedStoreError if one has another tag.
    """
    element = Element(0, memoryview(data), 0)
    for tag in tags:
        element = _read(element.content, 0)
        if element.tag != tag:
            raise DamagedStoreError("it is not the ASN.1 that it should be")
    return element


def elements(data: bytes | memoryview) -> Iterator[Element]:
    """Yield all elements of ``data``. Raises DamagedStoreError if the last one is truncated."""
    view, at = memoryview(data), 0
    while at < len(view):
        element = _read(view, at)
        yield element
        at = element.end


def expires_at_ms(certificate: bytes) -> int | None:
    """Return the end of a certificate's validity, in milliseconds since 1970-01-01 UTC.

    certificate: DER of an X.509 certificate

    None if it has no end (year 9999) or cannot be read. Parsed here because the package
    ``cryptography`` takes too long to load for a task. Source: RFC 5280, 4.1.2.5.
    """
    try:
        of_it = elements(first_element(certificate, SEQUENCE, SEQUENCE).content)
        # version (optional, [0]), serialNumber, signature, issuer, validity
        of_it = (element for element in of_it if element.tag != EXPLICIT_0)
        validity = next(itertools.islice(of_it, 3, None))
        _, end = elements(validity.content)
        text = end.value.decode("ascii")
        if end.tag == UTC_TIME:
            text = ("19" if text >= "5" else "20") + text
        at = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
    except (ValueError, StopIteration):
        return None
    return None if at.year == datetime.max.year else int(at.timestamp() * 1000)


def check_iterations(data: bytes) -> None:
    """Raise DamagedStoreError if a store or key in ``data`` asks for more than MOST_ITERATIONS.

    More iterations would take minutes, under a lock that connections wait for. The identifiers are
    searched in all of ``data``.
    """
    data = _join_constructed_strings(data, _MOST_LEVELS)
    for found in _FROM_PASSWORD.finditer(data):
        # The salt, then the iterations; for scrypt, three numbers that are multiplied.
        after = memoryview(data)[found.end() :]
        parameters = list(elements(first_element(after, SEQUENCE).content))
        numbers = parameters[1:4] if found[0] == _SCRYPT else parameters[1:2]
        check_iteration_count(math.prod(map(integer, numbers)))


def check_iteration_count(iterations: int) -> None:
    """Raise DamagedStoreError if ``iterations`` exceeds MOST_ITERATIONS."""
    if iterations > MOST_ITERATIONS:
        raise DamagedStoreError(
            f"it asks for {iterations:,} iterations with its password, and {MOST_ITERATIONS:,} at "
            "most are computed, as by Java: write it anew with the usual number"
        )


def integer(element: Element) -> int:
    """Return a non-negative number; of a number with more than 16 bytes, the first 16.

    Raises DamagedStoreError if ``element`` is no INTEGER.
    """
    if element.tag != INTEGER:
        raise DamagedStoreError("it is not the ASN.1 that it should be")
    return int.from_bytes(element.value.lstrip(b"\0")[:16], "big")


def _join_constructed_strings(data: bytes | memoryview, levels: int) -> bytes:
    """Return ``data`` with the pieces of BER's constructed strings joined.

    An identifier may span two pieces. Encrypted content, which is no ASN.1, stays unchanged.
    """
    parts: list[bytes] = []
    at = 0
    try:
        for element in elements(data) if levels else ():
            tag, inner = element.tag, element.value
            if tag == OCTET_STRING | _CONSTRUCTED:
                tag, inner = OCTET_STRING, _string(element, levels)
            if tag == OCTET_STRING or tag & _CONSTRUCTED:
                inner = _join_constructed_strings(inner, levels - 1)
            size = len(inner).to_bytes(_SIZE_BYTES, "big")
            parts += bytes([tag, _MANY_BYTES + _SIZE_BYTES]) + size, inner
            at = element.end
    except DamagedStoreError:
        pass
    return b"".join(parts) + data[at:]


def _string(element: Element, levels: int) -> bytes:
    """Return a whole string, whose pieces may be constructed of pieces, too."""
    if not levels or not element.tag & _CONSTRUCTED:
        return element.value
    return b"".join(_string(piece, levels - 1) for piece in elements(element.content))


def _read(data: memoryview, at: int, levels: int = _MOST_LEVELS) -> Element:
    if at + 2 > len(data):
        raise DamagedStoreError("it is cut")
    tag, length, start = data[at], data[at + 1], at + 2
    if length == _MANY_BYTES and tag & _CONSTRUCTED and levels:
        end = start
        while data[end : end + 2] != _END:
            end = _read(data, end, levels - 1).end
        return Element(tag, data[start:end], end + 2)
    if length >= _MANY_BYTES:
        size = length - _MANY_BYTES
        if not size:
            raise DamagedStoreError("it is not the ASN.1 that it should be")
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    end = start + length
    if end > len(data):
        raise DamagedStoreError("it is cut")
    return Element(tag, data[start:end], end)


# --- PEM -----------------------------------------------------------------------------------------

# One dash, because END and the next BEGIN may share a line and their dashes.
_MARKER = re.compile(r"-(BEGIN|END)\s+([A-Z0-9][A-Z0-9\s]{0,80}?)-")
_LINE_ENDS = re.compile(r"\\[nrt]|\\|\r")
_TRADITIONAL_ENCRYPTION = re.compile(
    r"\s*Proc-Type:\s*4\s*,\s*ENCRYPTED\s+DEK-Info:\s*([A-Za-z0-9-]+)\s*,\s*([0-9A-Fa-f]+)\s+"
)
_HEADER_LINE = re.compile(r"^[^:\n]*:.*$", re.MULTILINE)
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_PRIVATE_KEY, _ENCRYPTED_PRIVATE_KEY = "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"
_LINE = 64


@dataclass(frozen=True, slots=True)
class _Block:
    """The text between a BEGIN and its END.

    encryption: the two headers of a key in OpenSSL's own encryption, else empty
    """

    label: str
    encryption: str
    data: bytes = field(repr=False)


def pem_certificates(text: str) -> tuple[bytes, ...]:
    """Return all certificates of ``text`` as DER, in order. Raises DamagedStoreError if none."""
    # OpenSSL's trusted certificates have a suffix.
    found = tuple(
        block.data[: first_element(block.data, SEQUENCE).end]
        for block in _blocks(text)
        if block.label in _CERTIFICATES
    )
    if not found:
        raise DamagedStoreError("At least one certificate expected, but none found")
    return found


def pem_private_key(text: str, chain: tuple[bytes, ...] = ()) -> KeyMaterial:
    """Return the only private key of ``text``. Raises DamagedStoreError for none or several."""
    keys = [block for block in _blocks(text) if block.label.endswith(_PRIVATE_KEY)]
    if len(keys) != 1:
        raise DamagedStoreError(f"Expected one private key, but found {len(keys)}")
    (key,) = keys
    check_iterations(key.data)
    is_encrypted = bool(key.encryption) or key.label == _ENCRYPTED_PRIVATE_KEY
    pem = encode_pem(key.label, key.data, key.encryption)
    return KeyMaterial(Secret(pem), is_encrypted, chain)


def check_pem_iterations(text: str) -> None:
    """Check PEM as ``check_iterations`` does, for a key that another library reads."""
    for block in _blocks(text):
        check_iterations(block.data)


def encode_pem(label: str, data: bytes, headers: str = "") -> str:
    """Return ``data`` as PEM text, in lines of 64 characters."""
    body = base64.b64encode(data).decode()
    lines = "\n".join(body[at : at + _LINE] for at in range(0, len(body), _LINE))
    return f"-----BEGIN {label}-----\n{headers}{lines}\n-----END {label}-----\n"


def _blocks(text: str) -> list[_Block]:
    text = _LINE_ENDS.sub("\n", text)
    blocks: list[_Block] = []
    begin: re.Match[str] | None = None
    for marker in _MARKER.finditer(text):
        if marker[1] == "BEGIN":
            if begin is not None:
                raise _cut(begin)
            begin = marker
        elif begin is not None:
            if _label(marker) != _label(begin):
                raise _cut(begin)
            blocks.append(_block(_label(begin), text[begin.end() : marker.start()].strip("-")))
            begin = None
    if begin is not None:
        raise _cut(begin)
    return blocks


def _label(marker: re.Match[str]) -> str:
    return " ".join(marker[2].split())


def _cut(begin: re.Match[str]) -> DamagedStoreError:
    label = _label(begin)
    return DamagedStoreError(f"it is cut: BEGIN {label} is there, but its END {label} is not")


def _block(label: str, body: str) -> _Block:
    encryption = _TRADITIONAL_ENCRYPTION.match(body)
    headers = ""
    if encryption is not None:
        headers = f"Proc-Type: 4,ENCRYPTED\nDEK-Info: {encryption[1]},{encryption[2]}\n\n"
        body = body[encryption.end() :]
    joined = "".join(_HEADER_LINE.sub("", body).split())
    try:
        data = base64.b64decode(joined, validate=True)
    except (binascii.Error, ValueError):
        # Omit the cause, which may quote the content.
        raise DamagedStoreError(f"the text of its {label} is not base64") from None
    if not data:
        raise DamagedStoreError(f"its {label} is empty")
    return _Block(label, headers, data)


# --- JKS -----------------------------------------------------------------------------------------

JKS_MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"

_VERSIONS = (1, 2)
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_DIGEST_BYTES = 20
_STORE_SALT = b"Mighty Aphrodite"
# 1.3.6.1.4.1.42.2.17.1.1
_SUN_KEY_PROTECTOR = bytes.fromhex("2b060104012a02110101")


class KeyEntry(NamedTuple):
    """A private key, still encrypted, and its chain, the key's own certificate first."""

    alias: str
    protected_key: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """A store's entries. Certificates are DER.

    trusted: what Java trusts if this is a trust store: its trusted certificates, and the own
        certificate of each key
    """

    keys: tuple[KeyEntry, ...] = field(repr=False)
    trusted: tuple[bytes, ...]


def read_jks(data: bytes, password: str | None) -> JavaKeyStore:
    """Return the entries of a JKS store. Without a password its digest is not checked.

    Raises StorePasswordError if password and content do not match, DamagedStoreError if the content
    is no JKS store. A wrong password and an altered store give the same error, because the digest
    covers both.
    """
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    reader = _Reader(content)
    if reader.take(4) != JKS_MAGIC:
        raise DamagedStoreError("it is not a JKS store")
    version = reader.u4()
    if version not in _VERSIONS:
        raise DamagedStoreError(f"its version of JKS, {version}, is unknown")
    keys: list[KeyEntry] = []
    trusted: list[bytes] = []
    for _ in range(reader.u4()):
        _read_entry(reader, version, keys, trusted)
    if reader.at != len(content):
        raise DamagedStoreError("it has more bytes than entries")
    secret = _password_bytes(password or "")
    expected = hashlib.sha1(secret + _STORE_SALT + content).digest()
    if password is not None and not hmac.compare_digest(expected, digest):
        raise StorePasswordError("the store's password is wrong, or the store was altered")
    trusted += [key.chain[0] for key in keys if key.chain]
    return JavaKeyStore(tuple(keys), tuple(trusted))


def _read_entry(reader: _Reader, version: int, keys: list[KeyEntry], trusted: list[bytes]) -> None:
    tag = reader.u4()
    alias = reader.text()
    reader.take(8)  # creation date
    if tag == _KEY_ENTRY:
        protected_key = reader.take(reader.u4())
        chain = tuple(reader.certificate(version) for _ in range(reader.u4()))
        keys.append(KeyEntry(alias, protected_key, chain))
    elif tag == _CERTIFICATE_ENTRY:
        trusted.append(reader.certificate(version))
    else:
        raise DamagedStoreError(f"it has an entry of an unknown kind, {tag}")


def unlock_jks_key(entry: KeyEntry, password: str) -> KeyMaterial:
    """Return the private key of ``entry``. Raises KeyPasswordError, DamagedStoreError."""
    salted = _key_protector_octets(entry.protected_key)
    salt, locked, check = (
        salted[:_DIGEST_BYTES],
        salted[_DIGEST_BYTES:-_DIGEST_BYTES],
        salted[-_DIGEST_BYTES:],
    )
    secret = _password_bytes(password)
    stream, digest = bytearray(), salt
    while len(stream) < len(locked):
        digest = hashlib.sha1(secret + digest).digest()
        stream += digest
    key = bytes(a ^ b for a, b in zip(locked, stream))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise KeyPasswordError("the key's password is wrong")
    if not entry.chain:
        raise DamagedStoreError("its private key has no certificate")
    return KeyMaterial(Secret(encode_pem("PRIVATE KEY", key)), False, entry.chain)


def _key_protector_octets(protected_key: bytes) -> bytes:
    """Return the octets of an EncryptedPrivateKeyInfo: salt, key, check."""
    parts = list(elements(first_element(protected_key, SEQUENCE).content))
    if [part.tag for part in parts] != [SEQUENCE, OCTET_STRING]:
        raise DamagedStoreError("its private key is not in the form that JKS has")
    algorithm = first_element(parts[0].content, OBJECT_IDENTIFIER).value
    if algorithm != _SUN_KEY_PROTECTOR:
        raise DamagedStoreError("its private key is encrypted in a way that JKS does not have")
    salted = parts[1].value
    if len(salted) < 2 * _DIGEST_BYTES:
        raise DamagedStoreError("its private key is cut")
    return salted


def _password_bytes(password: str) -> bytes:
    """Return the password as Java's characters, two bytes each."""
    return password.encode("utf-16-be", "surrogatepass")


class _Reader:
    """Reads numbers and strings as Java's DataInputStream does."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        start, self.at = self.at, self.at + count
        if self.at > len(self._data):
            raise DamagedStoreError("it is cut")
        return self._data[start : self.at]

    def u4(self) -> int:
        (number,) = struct.unpack(">I", self.take(4))
        return int(number)

    def text(self) -> str:
        """Return an alias or a type, for messages and comparisons: bad UTF-8 is replaced."""
        (length,) = struct.unpack(">H", self.take(2))
        return self.take(length).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version > 1:
            self.text()  # its type, X.509
        return self.take(self.u4())
