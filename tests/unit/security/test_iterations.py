"""How often a password is hashed is told by the file: Java's limit holds for each kind of it."""

import base64

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import key_formats, stores
from spark_kafka_sink.security.key_formats import DamagedStoreError
from spark_kafka_sink.security.oauth_assertion import _private_key
from tests.unit.security.test_stores import KEY_OPTIONS, of_file

PASSWORD = "a password: marked"
CLIENT = Authority().issue("client")
STORE = CLIENT.pkcs12(PASSWORD)
KEY = base64.b64decode("".join(CLIENT.private_key(PASSWORD).splitlines()[1:-1]))
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
    store = form(of_kdf(STORE, identifier, TOO_MANY))
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
    assert LIMIT in error_of(form(of_mac(STORE, TOO_MANY)), tmp_path, password=Secret(PASSWORD))


def test_a_number_with_a_tag_that_only_openssl_takes_for_an_integer(tmp_path):
    store = of_mac(STORE, 6_000_000)
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
    config = of_file(tmp_path, in_pieces(STORE, size), password=Secret(PASSWORD))
    assert stores.key_material(config, KEY_OPTIONS) is not None
    store = in_pieces(of_kdf(STORE, _KDF, TOO_MANY), size)
    assert LIMIT in error_of(store, tmp_path, password=Secret(PASSWORD))


def test_an_identifier_with_a_longer_length(tmp_path):
    data = of_kdf(KEY, _KDF, TOO_MANY).replace(b"\x06\x09" + _KDF, b"\x06\x81\x09" + _KDF)
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
    key = in_pem(of_kdf(KEY, _KDF, TOO_MANY))
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
    path.write_text(form(of_kdf(KEY, _KDF, TOO_MANY)))
    with pytest.raises(AuthenticationError, match=LIMIT):
        _private_key(str(path), Secret(PASSWORD))


def test_javas_limit_itself_is_taken():
    key_formats.check_iterations(of_kdf(STORE, _KDF, key_formats.MOST_ITERATIONS))
    with pytest.raises(DamagedStoreError, match="5,000,001 iterations"):
        key_formats.check_iterations(of_kdf(STORE, _KDF, key_formats.MOST_ITERATIONS + 1))


def test_what_is_written_today_is_read(tmp_path):
    for store in (STORE, in_ber(STORE)):
        config = of_file(tmp_path, store, password=Secret(PASSWORD))
        assert stores.key_material(config, KEY_OPTIONS) is not None
