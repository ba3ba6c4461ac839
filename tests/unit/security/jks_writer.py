"""JKS stores, written: what `key_formats.py` reads, the other way round."""

import hashlib
import itertools
import struct

SALT = bytes(range(20))
_ALGORITHM = bytes.fromhex("060a2b060104012a021101010500")


def key_entry(alias, key, password, chain, version=2):
    """key: PKCS#8, DER."""
    protected = _sequence(_sequence(_ALGORITHM) + _element(0x04, _locked(key, password)))
    certificates = b"".join(_certificate(one, version) for one in chain)
    return b"".join(
        (
            *(struct.pack(">I", 1), _text(alias), struct.pack(">Q", 0)),
            *(struct.pack(">I", len(protected)), protected),
            *(struct.pack(">I", len(chain)), certificates),
        )
    )


def trusted_entry(alias, certificate, version=2):
    return (
        struct.pack(">I", 2)
        + _text(alias)
        + struct.pack(">Q", 0)
        + _certificate(certificate, version)
    )


def store(password, *entries, version=2):
    content = struct.pack(">III", 0xFEEDFEED, version, len(entries)) + b"".join(entries)
    return with_digest(content, password)


def with_digest(content, password):
    secret = password.encode("utf-16-be")
    return content + hashlib.sha1(secret + b"Mighty Aphrodite" + content).digest()


def _locked(key, password):
    secret = password.encode("utf-16-be")
    digests = itertools.accumulate(
        itertools.repeat(b"", len(key) // 20 + 1),
        lambda last, _: hashlib.sha1(secret + last).digest(),
        initial=SALT,
    )
    stream = b"".join(digests)[len(SALT) :]
    mixed = bytes(a ^ b for a, b in zip(key, stream))
    return SALT + mixed + hashlib.sha1(secret + key).digest()


def _certificate(certificate, version):
    kind = _text("X.509") if version > 1 else b""
    return kind + struct.pack(">I", len(certificate)) + certificate


def _text(text):
    return struct.pack(">H", len(text.encode())) + text.encode()


def _sequence(content):
    return _element(0x30, content)


def _element(tag, content):
    return bytes([tag, 0x84]) + struct.pack(">I", len(content)) + content
