"""A search for secrets in what was written: in clear, and in every other way to write them."""

import base64
import json
import re
import urllib.parse
from pathlib import Path

from tests.security.listeners import SECRETS
from tests.security.stores import KEY_PASSWORD, STORE_PASSWORD

_PEM_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)
_PEM_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END", re.DOTALL)
_PEM_LINE = 32
_SECRET_NAMES = (".password", ".secret", ".passphrase")


def secrets_in(options):
    """What must not be seen of these options: passwords, keys, tokens."""
    found = {*SECRETS.values(), STORE_PASSWORD, KEY_PASSWORD}
    texts = []
    for name, value in options.items():
        texts.append(value)
        found |= set(re.findall(r'(?:password|clientSecret)="([^"]+)"', value))
        if name.endswith(_SECRET_NAMES):
            found.add(value)
        path = Path(value.removeprefix("file://"))
        if value.startswith(("/", "file:///")) and path.is_file():
            texts.append(path.read_text(encoding="latin-1"))
            if ".token.endpoint.url" in name:
                found |= token_parts(texts[-1])
    # An RSA key begins with its modulus, which the certificate has, too; one time in 128 at the same
    # place of a group of base64.
    public = " ".join(body for text in texts for body in bodies_in(text, _PEM_CERTIFICATE))
    return found | {piece for text in texts for piece in keys_in(text) if piece not in public}


def secrets_at(issuer):
    """All that clients have told it to prove who they are, and all tokens that it has given."""
    found = set()
    for request in issuer.requests:
        found.add(request.headers.get("authorization", "").removeprefix("Basic "))
        for name in ("assertion", "client_assertion"):
            found |= token_parts(request.form.get(name, ""))
    return found.union(*map(token_parts, issuer.issued)) - {""}


def token_parts(token):
    """Claims and signature of a JWT; its header is the same in all."""
    return set(token.split(".")[1:])


def keys_in(text):
    """Pieces of the private keys in ``text``, wherever their lines end."""
    keys = bodies_in(text, _PEM_KEY)
    return {key[i : i + _PEM_LINE] for key in keys for i in range(40, len(key), 200)} - {""}


def bodies_in(text, pattern):
    """What stands between BEGIN and END, in one line each."""
    return ["".join(body.split()) for body in pattern.findall(text)]


def forms_of(secret):
    """How else it may be written."""
    data = secret.encode()
    return {
        secret,
        base64.b64encode(data).decode(),
        urllib.parse.quote(secret),
        json.dumps(secret)[1:-1],
        secret.replace("\\", "\\\\").replace('"', '\\"'),
        repr(secret)[1:-1],
        data.hex(),
    }


def shown(text, secrets):
    """Those that stand in ``text``."""
    return {s for s in secrets for form in forms_of(s) if form and form in text}
