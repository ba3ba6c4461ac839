"""Certificates of a private authority, which only a local Kafka and tests trust.

Texts are PEM, keys PKCS#8, as Kafka's option values require. The JDK's keytool converts PKCS12 to
JKS.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal, Union

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

PrivateKey = Union[rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey]
KeyType = Literal["EC", "RSA"]

_RSA_BITS = 2048
_LIFE = timedelta(days=30)
# Clocks of the machines that verify a certificate may differ.
_BEFORE = timedelta(hours=1)
LOCAL_HOSTS = ("127.0.0.1", "localhost")
# Only keyCertSign and cRLSign are true.
_USAGE_OF_AUTHORITY = x509.KeyUsage(False, False, False, False, False, True, True, False, False)


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
        encryption = _encryption(password)
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pem(self, password: str | None = None) -> str:
        """Return key and chain in one text, Kafka's key store of type PEM."""
        return self.private_key(password) + self.certificate_chain

    def pkcs12(self, password: str, alias: str = "key") -> bytes:
        """Return a key store of type PKCS12."""
        return pkcs12.serialize_key_and_certificates(
            alias.encode(), self.key, self.certificate, [self.issuer], _encryption(password)
        )


class Authority:
    """Signs certificates. Clients and brokers trust the authority's own certificate."""

    def __init__(
        self, name: str = "pykafka-sink local authority", key_type: KeyType = "EC"
    ) -> None:
        self._key = _new_key(key_type)
        self._name = _x509_name(name)
        self.certificate = self._signed(self._name, self._key, (), is_expired=False)

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
        certificate = self._signed(_x509_name(common_name), key, hosts, expired)
        return Identity(key, certificate, self.certificate)

    def _signed(
        self, subject: x509.Name, key: PrivateKey, hosts: Sequence[str], is_expired: bool
    ) -> x509.Certificate:
        """Return a certificate; if ``key`` is the authority's key, the authority's own."""
        is_authority = key is self._key
        begin, end = _validity(is_expired)
        key_identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(key_identifier, critical=False)
            .add_extension(above, critical=False)
        )
        if is_authority:
            builder = builder.add_extension(_USAGE_OF_AUTHORITY, critical=True)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, SHA256())


def _new_key(key_type: KeyType) -> PrivateKey:
    if key_type == "RSA":
        return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    return ec.generate_private_key(ec.SECP256R1())


def _validity(is_expired: bool) -> tuple[datetime, datetime]:
    now = datetime.now(timezone.utc)
    return (now - 2 * _BEFORE, now - _BEFORE) if is_expired else (now - _BEFORE, now + _LIFE)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _x509_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())
