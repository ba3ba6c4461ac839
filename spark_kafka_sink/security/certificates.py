"""A certificate in a few words, for messages. Loaded where something has failed."""

from __future__ import annotations

from datetime import datetime, timezone

from cryptography import x509

_DATE = "%Y-%m-%d"


def described(certificate: bytes, now_ms: int) -> str:
    """Whose it is, who signed it, until when it is valid, and whether that is over.

    ``certificate``: DER. ``now_ms``: milliseconds since 1970 UTC.
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
