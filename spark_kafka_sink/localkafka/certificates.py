"""Certificates of a private authority, which only a local Kafka and tests trust.

Texts are PEM, keys PKCS#8, as Kafka's option values require. The JDK's keytool converts PKCS12 to
JKS.
"""

from __future__ import annotations

import ipaddress
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import KeySerializationEncryption

    PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

KeyType = Literal["EC", "RSA"]

_RSA_BITS = 2048
_LIFE = timedelta(days=30)
# Clocks of the machines that verify a certificate may differ.
_BEFORE = timedelta(hours=1)
LOCAL_HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Identity:
    """A private key, its certificate, and the authority's certificate above it."""

    key: PrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def certificate_chain(self) -> str:
        """The certificate, then the authority's certificate, in PEM."""
        return _pem(self.certificate) + _pem(self.issuer)

    def private_key(self, password: str | None = None) -> str:
        """Return the key in PEM, PKCS#8; a ``password`` encrypts it (PBES2, as in OpenSSL 3)."""
        from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat

        return self.key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)
        ).decode()

    def pem(self, password: str | None = None) -> str:
        """Return key and chain in one text, Kafka's key store of type PEM."""
        return self.private_key(password) + self.certificate_chain

    def pkcs12(self, password: str, alias: str = "key") -> bytes:
        """Return a key store of type PKCS12."""
        from cryptography.hazmat.primitives.serialization import pkcs12

        return pkcs12.serialize_key_and_certificates(
            alias.encode(), self.key, self.certificate, [self.issuer], _encryption(password)
        )


class Authority:
    """Signs certificates. Clients and brokers trust the authority's own certificate."""

    def __init__(
        self, name: str = "pykafka-sink local authority", key_type: KeyType = "EC"
    ) -> None:
        self._key = _new_key(key_type)
        self.certificate = _signed(name, self._key, _Signer(name, self._key), _validity(), ())

    @property
    def pem(self) -> str:
        """The trust store of type PEM."""
        return _pem(self.certificate)

    def issue(
        self,
        common_name: str,
        hosts: Sequence[str] = (),
        key_type: KeyType = "EC",
        expired: bool = False,
    ) -> Identity:
        """Issue a certificate for a new key.

        hosts: names and addresses of a server; none for a client.
        expired: the certificate expired an hour ago.
        """
        key = _new_key(key_type)
        signer = _Signer(_name_of(self.certificate), self._key)
        certificate = _signed(common_name, key, signer, _validity(expired), hosts)
        return Identity(key, certificate, self.certificate)


@dataclass(frozen=True)
class _Signer:
    name: str
    key: PrivateKey


def write_private(path: Path, content: str | bytes) -> Path:
    """Write a file that only this user may read, in one step: a reader finds it whole."""
    data = content.encode() if isinstance(content, str) else content
    # The name is unforeseeable: in a shared folder, another user may have planted a link.
    descriptor, part = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
    return path


def _new_key(key_type: KeyType) -> PrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if key_type == "RSA":
        return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    return ec.generate_private_key(ec.SECP256R1())


def _validity(expired: bool = False) -> tuple[datetime, datetime]:
    now = datetime.now(timezone.utc)
    return (now - 2 * _BEFORE, now - _BEFORE) if expired else (now - _BEFORE, now + _LIFE)


def _signed(
    name: str,
    key: PrivateKey,
    signer: _Signer,
    validity: tuple[datetime, datetime],
    hosts: Sequence[str],
) -> x509.Certificate:
    """Return a certificate; if ``key`` is the signer's key, the authority's own certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    is_authority = key is signer.key
    key_identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_x509_name(name))
        .issuer_name(_x509_name(signer.name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[1])
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(key_identifier, critical=False)
        .add_extension(above, critical=False)
    )
    if is_authority:
        builder = builder.add_extension(_key_usage_of_authority(), critical=True)
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer.key, hashes.SHA256())


def _key_usage_of_authority() -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _x509_name(common_name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _name_of(certificate: x509.Certificate) -> str:
    from cryptography import x509

    (attribute,) = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(attribute.value)


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _encryption(password: str | None) -> KeySerializationEncryption:
    from cryptography.hazmat.primitives import serialization

    if password is None:
        return serialization.NoEncryption()
    return serialization.BestAvailableEncryption(password.encode())
