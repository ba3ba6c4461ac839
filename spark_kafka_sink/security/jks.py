"""Java's own key stores, JKS, read with hashlib. JCEKS is another format, and is not read.

All numbers are big-endian::

    FEEDFEED  version (1 or 2)  count  entry ...  SHA-1 of password, a salt, and all before

    entry:        1  alias  date  length, key  count  certificate ...    a private key
                  2  alias  date  certificate                            a trusted certificate
    certificate:  type (only in version 2)  length, DER

A key is an EncryptedPrivateKeyInfo of PKCS#8 under an algorithm of Sun's: salt (20 bytes), the key,
check (20 bytes). The key is combined by exclusive-or with SHA-1 of password and salt, then SHA-1 of
password and that, and so on; the check is SHA-1 of password and key. Passwords are UTF-16.

Source: ``sun.security.provider.JavaKeyStore``, ``KeyProtector`` of the JDK.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import field
from typing import NamedTuple

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.security import der, pem
from spark_kafka_sink.security.material import (
    DamagedStoreError,
    KeyMaterial,
    KeyPasswordError,
    StorePasswordError,
)

JKS_MAGIC = b"\xfe\xed\xfe\xed"
JCEKS_MAGIC = b"\xce\xce\xce\xce"

_VERSIONS = (1, 2)
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_DIGEST_BYTES = 20
_STORE_SALT = b"Mighty Aphrodite"
# 1.3.6.1.4.1.42.2.17.1.1
_SUN_KEY_PROTECTOR = bytes.fromhex("2b060104012a02110101")


class KeyEntry(NamedTuple):
    """A private key, still encrypted, with its chain, its own certificate first."""

    alias: str
    protected_key: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """A store's entries. Certificates are DER.

    trusted: what Java trusts when this is a trust store: its trusted certificates, and the own
        certificate of each key
    """

    keys: tuple[KeyEntry, ...] = field(repr=False)
    trusted: tuple[bytes, ...]


def read(data: bytes, password: str | None) -> JavaKeyStore:
    """The entries of a JKS store. Without a password it is not checked that nobody altered it.

    Raises StorePasswordError where password and content do not match, DamagedStoreError where the
    content is no JKS store. The digest cannot tell a wrong password from an altered store.
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
    if not reader.is_at_end:
        raise DamagedStoreError("it has more bytes than entries")
    if password is not None and not hmac.compare_digest(_store_digest(content, password), digest):
        raise StorePasswordError("the store's password is wrong, or the store was altered")
    trusted += [key.chain[0] for key in keys if key.chain]
    return JavaKeyStore(tuple(keys), tuple(trusted))


def _read_entry(reader: _Reader, version: int, keys: list[KeyEntry], trusted: list[bytes]) -> None:
    tag = reader.u4()
    alias = reader.text()
    reader.take(8)  # when it was made
    if tag == _KEY_ENTRY:
        protected_key = reader.take(reader.u4())
        chain = tuple(reader.certificate(version) for _ in range(reader.u4()))
        keys.append(KeyEntry(alias, protected_key, chain))
    elif tag == _CERTIFICATE_ENTRY:
        trusted.append(reader.certificate(version))
    else:
        raise DamagedStoreError(f"it has an entry of an unknown kind, {tag}")


def unlock(entry: KeyEntry, password: str) -> KeyMaterial:
    """The private key of ``entry``. Raises KeyPasswordError, DamagedStoreError."""
    salted = _sun_protected(entry.protected_key)
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
    return KeyMaterial(Secret(pem.encode("PRIVATE KEY", key)), False, entry.chain)


def _sun_protected(protected_key: bytes) -> bytes:
    """The octets of an EncryptedPrivateKeyInfo: salt, key, check."""
    parts = list(der.elements(der.first(protected_key, der.SEQUENCE).content))
    if [part.tag for part in parts] != [der.SEQUENCE, der.OCTET_STRING]:
        raise DamagedStoreError("its private key is not in the form that JKS has")
    algorithm = der.first(parts[0].content, der.OBJECT_IDENTIFIER).value
    if algorithm != _SUN_KEY_PROTECTOR:
        raise DamagedStoreError("its private key is encrypted in a way that JKS does not have")
    salted = parts[1].value
    if len(salted) < 2 * _DIGEST_BYTES:
        raise DamagedStoreError("its private key is cut")
    return salted


def _store_digest(content: bytes, password: str) -> bytes:
    digest = hashlib.sha1(_password_bytes(password))
    digest.update(_STORE_SALT)
    digest.update(content)
    return digest.digest()


def _password_bytes(password: str) -> bytes:
    """Java's characters, each as two bytes."""
    return password.encode("utf-16-be", "surrogatepass")


class _Reader:
    """Java's DataInputStream."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise DamagedStoreError("it is cut")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def u4(self) -> int:
        (number,) = struct.unpack(">I", self.take(4))
        return int(number)

    def text(self) -> str:
        """An alias or a type: for messages and comparisons, so that odd bytes do not matter."""
        (length,) = struct.unpack(">H", self.take(2))
        return self.take(length).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version > 1:
            self.text()  # its type, X.509
        return self.take(self.u4())
