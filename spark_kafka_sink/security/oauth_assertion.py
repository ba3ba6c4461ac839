"""Assertions: JWTs that this client signs, or that another program writes to a file.

Headers and claims come in three layers, of which a later layer takes precedence: the options, the
template file (JSON with ``header`` and ``payload``), and the time-dependent claims. All files are
read for each assertion, so the next assertion uses a replaced key.

Source: KIP-1139, KIP-1258; ``DefaultAssertionCreator``, ``LayeredAssertionJwtTemplate``,
``DynamicAssertionJwtTemplate`` of Kafka; RFC 7515, RFC 7518. Java's ES256 signatures have the X.509
form, which RFC 7518 does not allow; this module uses the RFC's form.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import AssertionConfig
from spark_kafka_sink.security import key_formats
from spark_kafka_sink.security.key_formats import DamagedStoreError
from spark_kafka_sink.security.mechanisms import encode_utf8
from spark_kafka_sink.security.references import read_text

PREFIX = "kafka.sasl.oauthbearer.assertion."
_KEY_FILE = f"{PREFIX}private.key.file"
_PASSPHRASE = f"{PREFIX}private.key.passphrase"
_TEMPLATE = f"{PREFIX}template.file"
_NUMBER_BYTES = 32


def assertion(config: AssertionConfig, timestamp_ms: int) -> Secret:
    """Return a new assertion, or the content of the assertion's file. Raises AuthenticationError.

    config: with its references resolved
    """
    if config.file is not None:
        return Secret(read_text(config.file, f"{PREFIX}file").strip())
    now_seconds = timestamp_ms // 1000
    template = _template(config.template_file)
    header = {**template["header"], "alg": config.algorithm, "typ": "JWT"}
    claims = {"aud": config.claim_aud, "iss": config.claim_iss, "sub": config.claim_sub}
    payload = {
        **{name: value for name, value in claims.items() if value is not None},
        **template["payload"],
        "iat": now_seconds,
        "exp": now_seconds + config.claim_exp_seconds,
        "nbf": now_seconds - config.claim_nbf_seconds,
    }
    if config.claim_jti_include:
        payload["jti"] = str(uuid.uuid4())
    content = f"{_encoded_json(header)}.{_encoded_json(payload)}"
    return Secret(f"{content}.{_base64(_signature(config, content.encode('ascii')))}")


def _template(location: str | None) -> dict[str, dict[str, Any]]:
    if location is None:
        return {"header": {}, "payload": {}}
    try:
        parts = json.loads(read_text(location, _TEMPLATE))
    except (ValueError, RecursionError):
        raise AuthenticationError(f"{_TEMPLATE}: {location} is not JSON", code="AUTH-019") from None
    header, payload = (
        parts.get(name, {}) if isinstance(parts, dict) else None for name in ("header", "payload")
    )
    if not isinstance(header, dict) or not isinstance(payload, dict):
        raise AuthenticationError(
            f'{_TEMPLATE}: {location} must be a JSON object with "header" and "payload", two '
            "objects",
            code="AUTH-019",
        )
    return {"header": header, "payload": payload}


def _signature(config: AssertionConfig, content: bytes) -> bytes:
    if config.private_key_file is None:
        raise AuthenticationError(
            f"{_KEY_FILE} is missing: the key that signs the assertion", code="AUTH-005"
        )
    key = _private_key(config.private_key_file, config.private_key_passphrase)
    if config.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), SHA256())
    if config.algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey):
        if not isinstance(key.curve, ec.SECP256R1):
            raise AuthenticationError(
                f"{_KEY_FILE}: {config.private_key_file} has a key on the curve {key.curve.name}, "
                "but ES256 needs P-256",
                code="AUTH-019",
            )
        r, s = decode_dss_signature(key.sign(content, ec.ECDSA(SHA256())))
        return r.to_bytes(_NUMBER_BYTES, "big") + s.to_bytes(_NUMBER_BYTES, "big")
    wanted = "an RSA key" if config.algorithm == "RS256" else "an EC key on P-256"
    raise AuthenticationError(
        f"{PREFIX}algorithm={config.algorithm} needs {wanted}, which is not what "
        f"{config.private_key_file} holds ({_KEY_FILE})",
        code="AUTH-019",
    )


def _private_key(location: str, passphrase: Secret | None) -> PrivateKeyTypes:
    """Return the key from PEM or, as Java does, from bare PKCS#8 in base64."""
    text = read_text(location, _KEY_FILE)
    password = None if passphrase is None else encode_utf8(passphrase.reveal(), _PASSPHRASE)
    try:
        if "-----BEGIN" in text:
            key_formats.check_pem_iterations(text)
            return load_pem_private_key(text.encode(), password)
        data = base64.b64decode(text)
        key_formats.check_iterations(data)
        return load_der_private_key(data, password)
    except TypeError:
        what = (
            f"is encrypted, and {_PASSPHRASE} is missing"
            if passphrase is None
            else f"is not encrypted, but {_PASSPHRASE} is given"
        )
    except DamagedStoreError as error:
        what = f"cannot be read: {error}"
    except (ValueError, binascii.Error, UnsupportedAlgorithm):
        # Omit the cause: a library's text must not show a key.
        what = "cannot be read: it must be a private key in PEM" + (
            "" if passphrase is None else f", and {_PASSPHRASE} its password"
        )
    raise AuthenticationError(f"{_KEY_FILE}: {location} {what}", code="AUTH-019") from None


def _encoded_json(value: object) -> str:
    return _base64(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
