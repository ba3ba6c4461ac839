"""JKS and PEM as they are read, damaged and mangled, and how often a password may be hashed."""

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

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import key_formats, stores
from spark_kafka_sink.security.key_formats import (
    DamagedStoreError,
    KeyPasswordError,
    StoreError,
    StorePasswordError,
)
from spark_kafka_sink.security.oauth_assertion import _private_key
from spark_kafka_sink.security.tls import private_file
from tests.unit.security.material import key_entry, store, trusted_entry, with_digest
from tests.unit.security.test_stores import KEY_OPTIONS, of_file

STORE_PASSWORD, ENTRY_PASSWORD = "store pässword \U0001f511", "key password"
OWN, ABOVE, OTHER = b"own certificate", b"the one above", b"another"
PRIVATE = b"private key " * 9


def key_store(version=2, chain=(OWN, ABOVE)):
    key = key_entry("k", PRIVATE, ENTRY_PASSWORD, list(chain), version)
    return store(STORE_PASSWORD, key, trusted_entry("t", OTHER, version), version=version)


@pytest.mark.parametrize("version", [1, 2])
def test_keys_and_trusted_certificates(version):
    found = key_formats.read_jks(key_store(version), STORE_PASSWORD)
    assert found.trusted == (OTHER, OWN), "as in Java, of a key only its own certificate"
    (entry,) = found.keys
    assert entry.alias == "k"
    material = key_formats.unlock_jks_key(entry, ENTRY_PASSWORD)
    assert material.chain == (OWN, ABOVE)
    assert material.key.reveal() == key_formats.encode_pem("PRIVATE KEY", PRIVATE)
    assert not material.is_encrypted


@pytest.mark.parametrize("length", [0, 1, 19, 20, 21, 40, 1000])
def test_keys_of_any_length(length):
    key = bytes(length)
    (entry,) = key_formats.read_jks(
        store(STORE_PASSWORD, key_entry("k", key, ENTRY_PASSWORD, [OWN])), STORE_PASSWORD
    ).keys
    assert key_formats.unlock_jks_key(entry, ENTRY_PASSWORD).key.reveal() == key_formats.encode_pem(
        "PRIVATE KEY", key
    )


def test_the_two_passwords_are_told_apart():
    with pytest.raises(StorePasswordError, match="the store's password is wrong"):
        key_formats.read_jks(key_store(), ENTRY_PASSWORD)
    (entry,) = key_formats.read_jks(key_store(), STORE_PASSWORD).keys
    with pytest.raises(KeyPasswordError, match="the key's password is wrong"):
        key_formats.unlock_jks_key(entry, STORE_PASSWORD)


@pytest.mark.parametrize("password", ["", "p\udce4ssword"])
def test_any_password_that_is_given_is_checked(password):
    """The second one is of an environment variable that is not in UTF-8."""
    with pytest.raises(StorePasswordError, match="the store's password is wrong"):
        key_formats.read_jks(key_store(), password)


def test_an_alias_in_javas_own_utf_8():
    """``DataOutput.writeUTF`` has two surrogates where UTF-8 has four bytes."""
    entry = trusted_entry("alias!", OTHER).replace(b"alias!", b"\xed\xa0\xbd\xed\xb8\x80")
    assert key_formats.read_jks(store(STORE_PASSWORD, entry), STORE_PASSWORD).trusted == (OTHER,)


def test_without_a_password_nothing_is_checked():
    data = bytearray(key_store())
    data[-1] ^= 1
    assert key_formats.read_jks(bytes(data), None).trusted == (OTHER, OWN)
    with pytest.raises(StorePasswordError, match="or the store was altered"):
        key_formats.read_jks(bytes(data), STORE_PASSWORD)


@pytest.mark.parametrize("password", [STORE_PASSWORD, None])
def test_what_is_cut_is_an_error_wherever_it_is_cut(password):
    whole = key_store()
    for length in range(len(whole)):
        with pytest.raises(StoreError):
            key_formats.read_jks(whole[:length], password)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\3\0\0\0\0", "its version of JKS, 3, is unknown"),
        (b"\xce\xce\xce\xce\0\0\0\2\0\0\0\0", "it is not a JKS store"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\0\0", "more bytes than entries"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\3\0\0" + bytes(8), "unknown kind, 3"),
        (b"\xfe\xed\xfe\xed\0\0\0\2\xff\xff\xff\xff", "it is cut"),
    ],
)
def test_what_is_no_jks_store(content, message):
    with pytest.raises(DamagedStoreError, match=message):
        key_formats.read_jks(with_digest(content, STORE_PASSWORD), STORE_PASSWORD)


def test_a_key_without_certificates_is_of_no_use():
    found = key_formats.read_jks(key_store(chain=()), STORE_PASSWORD)
    assert found.trusted == (OTHER,)
    with pytest.raises(DamagedStoreError, match="its private key has no certificate"):
        key_formats.unlock_jks_key(found.keys[0], ENTRY_PASSWORD)


@pytest.mark.parametrize(
    ("protected", "message"),
    [
        (b"", "it is cut"),
        (b"\4\0", "not the ASN.1"),
        (b"\x30\4\4\0\4\0", "not in the form"),
        (b"\x30\6\x30\2\6\0\4\0", "encrypted in a way"),
        (bytes.fromhex("3010300c060a2b060104012a021101010400"), "its private key is cut"),
        (
            bytes.fromhex("3037300c060a2b060104012a021101010427") + bytes(39),
            "its private key is cut",
        ),
    ],
)
def test_keys_in_other_forms_are_damaged(protected, message):
    with pytest.raises(DamagedStoreError, match=message):
        key_formats.unlock_jks_key(key_formats.KeyEntry("k", protected, (OWN,)), ENTRY_PASSWORD)


def test_no_representation_of_a_jks_store_shows_a_key():
    found = key_formats.read_jks(key_store(), STORE_PASSWORD)
    assert repr(PRIVATE)[2:20] not in repr(
        key_formats.unlock_jks_key(found.keys[0], ENTRY_PASSWORD)
    )
    assert "KeyEntry" not in repr(found)


KEY_PASSWORD = "pass word ü"
IDENTITIES = {
    kind: Authority(key_type=kind).issue("client", key_type=kind) for kind in ("RSA", "EC")
}
OWNER = IDENTITIES["EC"]
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
    text = MANGLED[mangled](OWNER.pem())
    expected = (
        OWNER.certificate.public_bytes(Encoding.DER),
        OWNER.issuer.public_bytes(Encoding.DER),
    )
    assert key_formats.pem_certificates(text) == expected
    key = key_formats.pem_private_key(text)
    assert key.text.reveal() == OWNER.private_key()
    assert not key.is_encrypted


@pytest.mark.parametrize(
    ("mangled", "form", "password"),
    [
        case
        for case in itertools.product(
            MANGLED, ("PKCS8", "TraditionalOpenSSL"), (None, KEY_PASSWORD)
        )
        # Nobody can tell where the header ends.
        if case != ("nothing", "TraditionalOpenSSL", KEY_PASSWORD)
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
    plain.write_text(OWNER.private_key())
    command = ["openssl", "pkcs8", "-topk8", "-in", str(plain), "-passout", f"pass:{KEY_PASSWORD}"]
    done = subprocess.run([*command, *cipher], check=True, capture_output=True, text=True)
    key = key_formats.pem_private_key(MANGLED["blanks"](done.stdout))
    assert key.is_encrypted
    assert loads(key.text.reveal(), OWNER, KEY_PASSWORD)


def test_parameters_of_a_curve_before_its_key_are_no_key():
    text = OWNER.key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    ).decode()
    parameters = key_formats.encode_pem("EC PARAMETERS", bytes.fromhex("06082a8648ce3d030107"))
    assert loads(key_formats.pem_private_key(parameters + text).text.reveal(), OWNER)


def test_certificates_that_openssl_trusts_are_cut_to_size():
    certificate = OWNER.issuer.public_bytes(Encoding.DER)
    text = key_formats.encode_pem("TRUSTED CERTIFICATE", certificate + bytes.fromhex("3000"))
    assert key_formats.pem_certificates(text) == (certificate,)


@pytest.mark.parametrize("count", [0, 2, 3])
def test_one_private_key_is_wanted(count):
    text = OWNER.certificate_chain + count * OWNER.private_key()
    with pytest.raises(DamagedStoreError, match=f"Expected one private key, but found {count}$"):
        key_formats.pem_private_key(text)


@pytest.mark.parametrize("text", ["", "no PEM at all", OWNER.private_key()])
def test_at_least_one_certificate_is_wanted(text):
    with pytest.raises(
        DamagedStoreError, match="At least one certificate expected, but none found"
    ):
        key_formats.pem_certificates(text)


def test_text_is_cut_wherever_it_ends_inside_a_block():
    text = OWNER.private_key()
    begin, end = text.index("BEGIN"), text.index("KEY-----\n", text.index("END"))
    for length in range(begin + len("BEGIN PRIVATE KEY-"), end):
        with pytest.raises(DamagedStoreError, match="it is cut: BEGIN PRIVATE KEY is there"):
            key_formats.pem_private_key(text[:length])


def test_a_block_inside_another_means_that_the_first_is_cut():
    cut = OWNER.private_key()[:100]
    with pytest.raises(DamagedStoreError, match="it is cut: BEGIN PRIVATE KEY"):
        key_formats.pem_certificates(cut + OWNER.certificate_chain)


def test_an_end_of_another_block_means_that_the_first_is_cut():
    text = OWNER.private_key().replace("END PRIVATE KEY", "END CERTIFICATE")
    with pytest.raises(DamagedStoreError, match="it is cut: BEGIN PRIVATE KEY"):
        key_formats.pem_private_key(text)


def test_headers_of_a_block_are_left_out():
    """As OpenSSL reads them (RFC 1421)."""
    text = OWNER.certificate_chain.replace("CATE-----\n", "CATE-----\nComment: its own\n\n", 1)
    assert key_formats.pem_certificates(text) == key_formats.pem_certificates(
        OWNER.certificate_chain
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
    key = key_formats.pem_private_key(OWNER.private_key())
    body = OWNER.private_key().splitlines()[1]
    assert body in key.text.reveal()
    assert body not in repr(key)
    assert repr(base64.b64decode(body))[2:-1] not in repr(key_formats._blocks(OWNER.private_key()))


PASSWORD = "a password: marked"
CLIENT = Authority().issue("client")
PKCS12_STORE = CLIENT.pkcs12(PASSWORD)
ENCRYPTED_KEY = base64.b64decode("".join(CLIENT.private_key(PASSWORD).splitlines()[1:-1]))
TOO_MANY = 2**31 - 1
LIMIT = "2,147,483,647 iterations with its password, and 5,000,000 at most"
_KDF = bytes.fromhex("2a864886f70d01050c")


def encoded(tag, content):
    size = len(content)
    length = bytes([size]) if size < 0x80 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def number(value):
    return encoded(key_formats.INTEGER, value.to_bytes(5, "big").lstrip(b"\0"))


def of_kdf(data, identifier, iterations):
    """``data``, DER, where each key of a password takes so many iterations, by ``identifier``."""
    out, last = b"", b""
    for element in key_formats.elements(data):
        content = element.value
        if last == _KDF and element.tag == key_formats.SEQUENCE:
            salt, _, *rest = key_formats.elements(content)
            parts = encoded(salt.tag, salt.value) + number(iterations)
            content = parts + b"".join(encoded(part.tag, part.value) for part in rest)
        elif element.tag & 0x20 or (
            element.tag == key_formats.OCTET_STRING and content[:2] == b"\x30\x82"
        ):
            content = of_kdf(content, identifier, iterations)
        last = content if element.tag == key_formats.OBJECT_IDENTIFIER else b""
        out += encoded(element.tag, identifier if last == _KDF else content)
    return out


def of_mac(data, iterations):
    *parts, mac = key_formats.elements(
        key_formats.first_element(data, key_formats.SEQUENCE).content
    )
    digest, salt, _ = key_formats.elements(mac.content)
    fields = encoded(digest.tag, digest.value) + encoded(salt.tag, salt.value) + number(iterations)
    body = b"".join(encoded(part.tag, part.value) for part in parts)
    return encoded(key_formats.SEQUENCE, body + encoded(mac.tag, fields))


def in_ber(data):
    """The outer length is not told, as some programs write it."""
    return b"\x30\x80" + key_formats.first_element(data, key_formats.SEQUENCE).value + b"\0\0"


def in_pieces(data, size):
    """BER, where all stands in strings of ``size`` bytes each, and more follows."""
    version, content, mac = key_formats.elements(
        key_formats.first_element(data, key_formats.SEQUENCE).content
    )
    kind, text = key_formats.elements(content.content)
    text = key_formats.first_element(text.content, key_formats.OCTET_STRING)
    pieces = [encoded(4, text.value[at : at + size]) for at in range(0, len(text.value), size)]
    # The first ones are in a string of their own, as it may be.
    cut = b"\x24\x80" + b"".join(pieces[:3]) + b"\0\0" + b"".join(pieces[3:])
    safe = encoded(kind.tag, kind.value) + encoded(0xA0, b"\x24\x80" + cut + b"\0\0")
    parts = encoded(version.tag, version.value) + encoded(content.tag, safe)
    return b"\x30\x80" + parts + encoded(mac.tag, mac.value) + b"\0\0" + b"more"


def in_pem(data):
    return key_formats.encode_pem("ENCRYPTED PRIVATE KEY", data)


def error_of(content, folder, **options):
    with pytest.raises(ConfigError) as caught:
        stores.key_material(of_file(folder, content, **options), KEY_OPTIONS)
    return str(caught.value)


_PBES1 = bytes.fromhex("2a864886f70d01050a")
_OF_PKCS12 = bytes.fromhex("2a864886f70d010c0103")


@pytest.mark.parametrize("identifier", [_KDF, _PBES1, _OF_PKCS12], ids=["PBES2", "PBES1", "PKCS12"])
@pytest.mark.parametrize("form", [bytes, in_ber])
def test_a_pkcs12_store_that_is_encrypted_for_minutes(identifier, form, tmp_path):
    store = form(of_kdf(PKCS12_STORE, identifier, TOO_MANY))
    assert LIMIT in error_of(store, tmp_path, password=Secret(PASSWORD))


@pytest.mark.parametrize(
    "form",
    [
        bytes,
        in_ber,
        lambda data: in_ber(data) + b"\0\0",
        lambda data: in_ber(data) + b"more",
        lambda data: in_ber(_longer(data, number(TOO_MANY), b"\x02\x81\x04")),
        lambda data: _longer(data, number(TOO_MANY), b"\x02\x84\0\0\0\x04"),
    ],
)
def test_a_pkcs12_store_whose_mac_takes_minutes(form, tmp_path):
    assert LIMIT in error_of(
        form(of_mac(PKCS12_STORE, TOO_MANY)), tmp_path, password=Secret(PASSWORD)
    )


def test_a_number_with_a_tag_that_only_openssl_takes_for_an_integer(tmp_path):
    store = of_mac(PKCS12_STORE, 6_000_000)
    store = _longer(store, number(6_000_000), b"\x1f\x02\x03")
    assert "not the ASN.1" in error_of(store, tmp_path, password=Secret(PASSWORD))


def _longer(data, found, head):
    """A number at the end of ``data`` with another tag and length: BER knows several."""
    *parts, mac = key_formats.elements(
        key_formats.first_element(data, key_formats.SEQUENCE).content
    )
    assert mac.value.endswith(found)
    body = b"".join(encoded(part.tag, part.value) for part in parts)
    last = encoded(mac.tag, mac.value[: -len(found)] + head + found[2:])
    return encoded(key_formats.SEQUENCE, body + last)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_pkcs12_store_in_pieces(size, tmp_path):
    """What is looked for stands across the cuts; whole ones are read."""
    config = of_file(tmp_path, in_pieces(PKCS12_STORE, size), password=Secret(PASSWORD))
    assert stores.key_material(config, KEY_OPTIONS) is not None
    store = in_pieces(of_kdf(PKCS12_STORE, _KDF, TOO_MANY), size)
    assert LIMIT in error_of(store, tmp_path, password=Secret(PASSWORD))


def test_an_identifier_with_a_longer_length(tmp_path):
    data = of_kdf(ENCRYPTED_KEY, _KDF, TOO_MANY).replace(b"\x06\x09" + _KDF, b"\x06\x81\x09" + _KDF)
    with pytest.raises(DamagedStoreError, match=LIMIT):
        key_formats.check_iterations(data)


def test_strings_inside_strings_without_end():
    data = b""
    for _ in range(5_000):
        data = b"\x24\x84" + len(data).to_bytes(4, "big") + data
    key_formats.check_iterations(data)


def test_a_string_in_pieces_inside_a_whole_one():
    parameters = encoded(
        key_formats.SEQUENCE, encoded(key_formats.OCTET_STRING, b"salt") + number(TOO_MANY)
    )
    text = encoded(key_formats.SEQUENCE, encoded(key_formats.OBJECT_IDENTIFIER, _KDF) + parameters)
    pieces = b"".join(
        encoded(key_formats.OCTET_STRING, text[at : at + 4]) for at in range(0, len(text), 4)
    )
    with pytest.raises(DamagedStoreError, match=LIMIT):
        key_formats.check_iterations(
            encoded(key_formats.OCTET_STRING, b"\x24\x80" + pieces + b"\0\0")
        )


def test_a_number_with_zeros_before_it():
    zeros = encoded(key_formats.INTEGER, bytes(20) + TOO_MANY.to_bytes(4, "big"))
    assert key_formats.integer(key_formats.first_element(zeros, key_formats.INTEGER)) == TOO_MANY


def test_a_number_that_python_does_not_write_out():
    """An int of more than 4,300 digits has no text since Python 3.11."""
    large = encoded(key_formats.INTEGER, b"\x7f" * 5_000)
    with pytest.raises(DamagedStoreError, match="iterations with its password"):
        key_formats.check_iteration_count(
            key_formats.integer(key_formats.first_element(large, key_formats.INTEGER))
        )


def test_levels_without_end_are_refused(tmp_path):
    for data in (b"\x30\x80" * 100_000, b"\x30\x80" + b"\x24\x80" * 100_000):
        assert "not the ASN.1" in error_of(data, tmp_path, password=Secret(PASSWORD))


def test_a_key_in_pem(tmp_path):
    key = in_pem(of_kdf(ENCRYPTED_KEY, _KDF, TOO_MANY))
    content = key + CLIENT.certificate_chain
    assert LIMIT in error_of(content, tmp_path, key_password=Secret(PASSWORD))


def test_a_key_of_scrypt(tmp_path):
    """Three numbers, which are multiplied; OpenSSL bounds the memory only."""
    parameters = encoded(key_formats.OCTET_STRING, b"salt") + b"".join(
        map(number, (2**17, 1, 2**17))
    )
    scrypt = encoded(key_formats.OBJECT_IDENTIFIER, bytes.fromhex("2b06010401da47040b"))
    data = scrypt + encoded(key_formats.SEQUENCE, parameters)
    content = in_pem(encoded(key_formats.SEQUENCE, data)) + CLIENT.certificate_chain
    assert "17,179,869,184 iterations" in error_of(content, tmp_path)


@pytest.mark.parametrize("form", [in_pem, lambda data: base64.b64encode(data).decode()])
def test_the_key_that_signs_assertions(form, tmp_path):
    path = tmp_path / "key"
    path.write_text(form(of_kdf(ENCRYPTED_KEY, _KDF, TOO_MANY)))
    with pytest.raises(AuthenticationError, match=LIMIT):
        _private_key(str(path), Secret(PASSWORD))


def test_javas_limit_itself_is_taken():
    key_formats.check_iterations(of_kdf(PKCS12_STORE, _KDF, key_formats.MOST_ITERATIONS))
    with pytest.raises(DamagedStoreError, match="5,000,001 iterations"):
        key_formats.check_iterations(of_kdf(PKCS12_STORE, _KDF, key_formats.MOST_ITERATIONS + 1))


def test_what_is_written_today_is_read(tmp_path):
    for written in (PKCS12_STORE, in_ber(PKCS12_STORE)):
        config = of_file(tmp_path, written, password=Secret(PASSWORD))
        assert stores.key_material(config, KEY_OPTIONS) is not None
