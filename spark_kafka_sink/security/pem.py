r"""Certificates and keys out of PEM text, as leniently as Java's Kafka client reads it.

Text around the blocks is ignored. A block's line ends may have become what properties files and
shells make of them: spaces, CRLF, nothing, a literal ``\n``. What is handed on is PEM that OpenSSL
reads. Beyond what Java reads: keys in PKCS#1 and SEC1 (``BEGIN RSA PRIVATE KEY``, ``BEGIN EC
PRIVATE KEY``), also with OpenSSL's own encryption. A block that is cut is an error, where Java
takes it for text around the blocks: a file that is being written must not count as whole.

Source: ``DefaultSslEngineFactory.PemParser``, ``PemStore``.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import field

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.security import der
from spark_kafka_sink.security.material import DamagedStoreError

# One dash, as there may be no line end between the dashes of an END and those of a BEGIN.
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
    """What stands between a BEGIN and its END.

    encryption: the two headers of a key that OpenSSL encrypted in its own way, else empty
    """

    label: str
    encryption: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PemKey:
    """A private key as PEM text in OpenSSL's form, and whether it is encrypted."""

    text: Secret
    is_encrypted: bool


def looks_like_pem(data: bytes) -> bool:
    """Whether a file of this content is meant to be PEM, however much stands before its blocks."""
    return b"-BEGIN" in data


def certificates(text: str) -> tuple[bytes, ...]:
    """All certificates of ``text``, as DER, in order. Raises DamagedStoreError if there is none."""
    found = tuple(_certificate(block) for block in _blocks(text) if block.label in _CERTIFICATES)
    if not found:
        raise DamagedStoreError("At least one certificate expected, but none found")
    return found


def private_key(text: str) -> PemKey:
    """The only private key of ``text``. Raises DamagedStoreError if there are none or several."""
    keys = [block for block in _blocks(text) if block.label.endswith(_PRIVATE_KEY)]
    if len(keys) != 1:
        raise DamagedStoreError(f"Expected one private key, but found {len(keys)}")
    (key,) = keys
    der.check_iterations(key.data)
    is_encrypted = bool(key.encryption) or key.label == _ENCRYPTED_PRIVATE_KEY
    return PemKey(Secret(encode(key.label, key.data, key.encryption)), is_encrypted)


def check_iterations(text: str) -> None:
    """As ``der.check_iterations``, for a key that somebody else reads."""
    for block in _blocks(text):
        der.check_iterations(block.data)


def encode(label: str, data: bytes, headers: str = "") -> str:
    """PEM text of ``data``, in lines of 64 characters."""
    body = base64.b64encode(data).decode()
    lines = "\n".join(body[at : at + _LINE] for at in range(0, len(body), _LINE))
    return f"-----BEGIN {label}-----\n{headers}{lines}\n-----END {label}-----\n"


def _certificate(block: _Block) -> bytes:
    """Without what OpenSSL's trusted certificates have behind it."""
    return block.data[: der.first(block.data, der.SEQUENCE).end]


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
        # Without its cause, which may quote what it read.
        raise DamagedStoreError(f"the text of its {label} is not base64") from None
    if not data:
        raise DamagedStoreError(f"its {label} is empty")
    return _Block(label, headers, data)
