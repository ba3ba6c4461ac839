"""JSON web tokens, signed and verified with ``cryptography`` alone."""

import base64
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

_P256_BYTES = 32


def new_key(algorithm):
    """For RS256 or ES256."""
    if algorithm == "RS256":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert algorithm == "ES256"
    return ec.generate_private_key(ec.SECP256R1())


def sign(claims, key, **header):
    """A compact JWS."""
    algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    parts = [{"alg": algorithm, "typ": "JWT", **header}, claims]
    signed = ".".join(_encode(json.dumps(part).encode()) for part in parts)
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(_P256_BYTES, "big") + s.to_bytes(_P256_BYTES, "big")
    return f"{signed}.{_encode(signature)}"


def claims_of(token):
    """Not verified."""
    claims = json.loads(_decode(token.split(".")[1]))
    assert isinstance(claims, dict)
    return claims


def is_signed_by(token, key):
    signed, _, text = token.rpartition(".")
    signature = _decode(text)
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        else:
            r, s = (int.from_bytes(signature[i : i + _P256_BYTES], "big") for i in (0, _P256_BYTES))
            key.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def jwk(key, key_id):
    """The public key as an entry of a JWKS document. Source: RFC 7517, RFC 7518."""
    common = {"use": "sig", "kid": key_id}
    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        length = (numbers.n.bit_length() + 7) // 8
        n, e = numbers.n.to_bytes(length, "big"), numbers.e.to_bytes(3, "big")
        return {"kty": "RSA", "alg": "RS256", "n": _encode(n), "e": _encode(e), **common}
    point = key.public_numbers()
    x, y = (_encode(part.to_bytes(_P256_BYTES, "big")) for part in (point.x, point.y))
    return {"kty": "EC", "alg": "ES256", "crv": "P-256", "x": x, "y": y, **common}


def _encode(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
