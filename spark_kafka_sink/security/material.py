"""What is read out of stores: keys and certificates, and why one cannot be read.

No message of these errors quotes what was read, nor a password.
"""

from __future__ import annotations

from dataclasses import field

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.secret import Secret


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificates, as OpenSSL takes them.

    key: PEM
    is_encrypted: the key, with its own password
    chain: DER of each certificate, the key's own first
    """

    key: Secret
    is_encrypted: bool
    chain: tuple[bytes, ...] = field(repr=False)


class StoreError(ValueError):
    """A store cannot be read. The message says why, without the option's name."""


class DamagedStoreError(StoreError):
    """It is cut or altered, or is not what it was taken for."""


class StorePasswordError(StoreError):
    """The password of the whole store is wrong, or is needed and was not given."""


class KeyPasswordError(StoreError):
    """The password of the private key is wrong, or is needed and was not given."""
