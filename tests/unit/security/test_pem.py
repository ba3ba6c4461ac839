"""PEM text as people have it in files and options, and what is made of it."""

import base64
import itertools
import shutil
import ssl
import subprocess

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import key_formats
from spark_kafka_sink.security.key_formats import DamagedStoreError
from spark_kafka_sink.security.tls import private_file

PASSWORD = "pass word ü"
IDENTITIES = {
    kind: Authority(key_type=kind).issue("client", key_type=kind) for kind in ("RSA", "EC")
}
CLIENT = IDENTITIES["EC"]
MANGLED = {
    "as it is": lambda text: text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "CR": lambda text: text.replace("\n", "\r"),
    "literal \\n": lambda text: text.replace("\n", "\\n"),
    "literal \\r\\n": lambda text: text.replace("\n", "\\r\\n"),
    "blanks": lambda text: text.replace("\n", " "),
    "tabs": lambda text: text.replace("\n", "\t"),
    "nothing": lambda text: text.replace("\n", ""),
    "lines continued": lambda text: text.replace("\n", "\\\n    "),
    "indented": lambda text: "   " + text.replace("\n", "\n   "),
    "no last line end": lambda text: text.rstrip(),
    "text around": lambda text: f"subject=CN = client\n\n{text}\nBag Attributes: <none>\n",
    "a byte order mark": lambda text: "\ufeff" + text,
    "quotes": lambda text: f'"{text}"',
}


def loads(text, identity, password=""):
    """Whether OpenSSL takes the key for the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with private_file((identity.certificate_chain + text).encode()) as path:
        context.load_cert_chain(path, password=lambda: password)
    return True


@pytest.mark.parametrize("mangled", MANGLED)
def test_certificates_and_key_of_mangled_text(mangled):
    text = MANGLED[mangled](CLIENT.pem())
    expected = (
        CLIENT.certificate.public_bytes(Encoding.DER),
        CLIENT.issuer.public_bytes(Encoding.DER),
    )
    assert key_formats.pem_certificates(text) == expected
    key = key_formats.pem_private_key(text)
    assert key.text.reveal() == CLIENT.private_key()
    assert not key.is_encrypted


@pytest.mark.parametrize(
    ("mangled", "form", "password"),
    [
        case
        for case in itertools.product(MANGLED, ("PKCS8", "TraditionalOpenSSL"), (None, PASSWORD))
        # Nobody can tell where the header ends.
        if case != ("nothing", "TraditionalOpenSSL", PASSWORD)
    ],
)
@pytest.mark.parametrize("kind", ["RSA", "EC"])
def test_keys_of_all_forms_are_loaded(mangled, kind, form, password):
    identity = IDENTITIES[kind]
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    text = identity.key.private_bytes(
        Encoding.PEM, getattr(PrivateFormat, form), encryption
    ).decode()
    key = key_formats.pem_private_key(MANGLED[mangled](text))
    assert key.is_encrypted is (password is not None)
    assert loads(key.text.reveal(), identity, password or "")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize(
    "cipher",
    [
        ("-v1", "PBE-SHA1-3DES"),
        ("-v2", "aes-256-cbc"),
        ("-v2", "aes256", "-v2prf", "hmacWithSHA512"),
    ],
    ids=["PBES1", "PBES2", "PBES2 with SHA-512"],
)
def test_keys_that_openssl_has_encrypted(cipher, tmp_path):
    plain = tmp_path / "key.pem"
    plain.write_text(CLIENT.private_key())
    command = ["openssl", "pkcs8", "-topk8", "-in", str(plain), "-passout", f"pass:{PASSWORD}"]
    done = subprocess.run([*command, *cipher], check=True, capture_output=True, text=True)
    key = key_formats.pem_private_key(MANGLED["blanks"](done.stdout))
    assert key.is_encrypted
    assert loads(key.text.reveal(), CLIENT, PASSWORD)


def test_parameters_of_a_curve_before_its_key_are_no_key():
    text = CLIENT.key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    ).decode()
    parameters = key_formats.encode_pem("EC PARAMETERS", bytes.fromhex("06082a8648ce3d030107"))
    assert loads(key_formats.pem_private_key(parameters + text).text.reveal(), CLIENT)


def test_certificates_that_openssl_trusts_are_cut_to_size():
    certificate = CLIENT.issuer.public_bytes(Encoding.DER)
    text = key_formats.encode_pem("TRUSTED CERTIFICATE", certificate + bytes.fromhex("3000"))
    assert key_formats.pem_certificates(text) == (certificate,)


@pytest.mark.parametrize("count", [0, 2, 3])
def test_one_private_key_is_wanted(count):
    text = CLIENT.certificate_chain + count * CLIENT.private_key()
    with pytest.raises(DamagedStoreError, match=f"Expected one private key, but found {count}$"):
        key_formats.pem_private_key(text)


@pytest.mark.parametrize("text", ["", "no PEM at all", CLIENT.private_key()])
def test_at_least_one_certificate_is_wanted(text):
    with pytest.raises(
        DamagedStoreError, match="At least one certificate expected, but none found"
    ):
        key_formats.pem_certificates(text)


def test_text_is_cut_wherever_it_ends_inside_a_block():
    text = CLIENT.private_key()
    begin, end = text.index("BEGIN"), text.index("KEY-----\n", text.index("END"))
    for length in range(begin + len("BEGIN PRIVATE KEY-"), end):
        with pytest.raises(DamagedStoreError, match="it is cut: BEGIN PRIVATE KEY is there"):
            key_formats.pem_private_key(text[:length])


def test_a_block_inside_another_means_that_the_first_is_cut():
    cut = CLIENT.private_key()[:100]
    with pytest.raises(DamagedStoreError, match="it is cut: BEGIN PRIVATE KEY"):
        key_formats.pem_certificates(cut + CLIENT.certificate_chain)


def test_an_end_of_another_block_means_that_the_first_is_cut():
    text = CLIENT.private_key().replace("END PRIVATE KEY", "END CERTIFICATE")
    with pytest.raises(DamagedStoreError, match="it is cut: BEGIN PRIVATE KEY"):
        key_formats.pem_private_key(text)


def test_headers_of_a_block_are_left_out():
    """As OpenSSL reads them (RFC 1421)."""
    text = CLIENT.certificate_chain.replace("CATE-----\n", "CATE-----\nComment: its own\n\n", 1)
    assert key_formats.pem_certificates(text) == key_formats.pem_certificates(
        CLIENT.certificate_chain
    )


def test_a_name_of_a_block_that_is_too_long_is_none():
    with pytest.raises(DamagedStoreError, match="but none found"):
        key_formats.pem_certificates(f"-----BEGIN {'A' * 10_000}-----\n")


@pytest.mark.parametrize("body", ["secret*text", "secr*et11", "c2VjcmV", "ünïcode", ""])
def test_what_is_not_base64_is_refused_and_not_shown(body):
    text = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
    with pytest.raises(DamagedStoreError, match="PRIVATE KEY is (not base64|empty)") as raised:
        key_formats.pem_private_key(text)
    assert raised.value.__cause__ is None
    assert not body or body not in str(raised.value)


def test_long_texts_without_sense_are_read_in_no_time():
    """A pattern that tries again at each character would not end."""
    for text in ("-" * 200_000, "-BEGIN " * 50_000, "-BEGIN A" + " " * 200_000, ":" * 200_000):
        with pytest.raises(DamagedStoreError):
            key_formats.pem_certificates(text)


def test_no_representation_shows_a_key():
    key = key_formats.pem_private_key(CLIENT.private_key())
    body = CLIENT.private_key().splitlines()[1]
    assert body in key.text.reveal()
    assert body not in repr(key)
    assert repr(base64.b64decode(body))[2:-1] not in repr(key_formats._blocks(CLIENT.private_key()))
