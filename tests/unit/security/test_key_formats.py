"""JKS, PEM and PKCS12 as they are read, damaged and mangled, and how often a password may be hashed."""

import base64
import itertools
import ssl
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_key_and_certificates,
)

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.localkafka.certificates import Authority
from spark_kafka_sink.security import key_formats, pkcs12, stores
from spark_kafka_sink.security.key_formats import (
    INTEGER,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    DamagedStoreError,
    KeyPasswordError,
    StoreError,
    StorePasswordError,
    check_iterations,
    elements,
    encode_pem,
    first_element,
    pem_certificates,
    pem_private_key,
    read_jks,
    unlock_jks_key,
)
from spark_kafka_sink.security.oauth_tokens import _private_key
from spark_kafka_sink.security.pkcs12 import describe_certificate
from spark_kafka_sink.security.tls import private_file
from tests.tables import each_row
from tests.unit.security.test_stores import KEY_OPTIONS, of_file
from tests.unit.security.tls_ends import key_entry, store, trusted_entry, with_digest

# --- JKS -------------------------------------------------------------------------------------------

STORE_PASSWORD, ENTRY_PASSWORD = "store pässword \U0001f511", "key password"
OWN, ABOVE, OTHER = b"own certificate", b"the one above", b"another"
PRIVATE = b"private key " * 9


def key_store(version=2, chain=(OWN, ABOVE)):
    key = key_entry("k", PRIVATE, ENTRY_PASSWORD, list(chain), version)
    return store(STORE_PASSWORD, key, trusted_entry("t", OTHER, version), version=version)


@pytest.mark.parametrize("version", [1, 2])
def test_keys_and_trusted_certificates(version):
    found = read_jks(key_store(version), STORE_PASSWORD)
    assert found.trusted == (OTHER, OWN), "as in Java, of a key only its own certificate"
    (entry,) = found.keys
    assert entry.alias == "k"
    material = unlock_jks_key(entry, ENTRY_PASSWORD)
    assert material.chain == (OWN, ABOVE)
    assert material.key.reveal() == encode_pem("PRIVATE KEY", PRIVATE)
    assert not material.is_encrypted
    assert repr(PRIVATE)[2:20] not in repr(material)
    assert "KeyEntry" not in repr(found)


@pytest.mark.parametrize("length", [0, 1, 19, 20, 21, 40, 1000])
def test_keys_of_any_length(length):
    data = store(STORE_PASSWORD, key_entry("k", bytes(length), ENTRY_PASSWORD, [OWN]))
    (entry,) = read_jks(data, STORE_PASSWORD).keys
    key = unlock_jks_key(entry, ENTRY_PASSWORD).key
    assert key.reveal() == encode_pem("PRIVATE KEY", bytes(length))


def test_the_two_passwords_are_told_apart_and_without_one_nothing_is_checked():
    altered = key_store()[:-1] + bytes([key_store()[-1] ^ 1])
    assert read_jks(altered, None).trusted == (OTHER, OWN)
    # The last one is of an environment variable that is not in UTF-8.
    for password in (ENTRY_PASSWORD, "", "p\udce4ssword"):
        with pytest.raises(StorePasswordError, match="the store's password is wrong"):
            read_jks(key_store(), password)
    with pytest.raises(StorePasswordError, match="or the store was altered"):
        read_jks(altered, STORE_PASSWORD)
    (entry,) = read_jks(key_store(), STORE_PASSWORD).keys
    with pytest.raises(KeyPasswordError, match="the key's password is wrong"):
        unlock_jks_key(entry, STORE_PASSWORD)


def test_an_alias_in_javas_own_utf_8():
    """``DataOutput.writeUTF`` has two surrogates where UTF-8 has four bytes."""
    entry = trusted_entry("alias!", OTHER).replace(b"alias!", b"\xed\xa0\xbd\xed\xb8\x80")
    assert read_jks(store(STORE_PASSWORD, entry), STORE_PASSWORD).trusted == (OTHER,)


@pytest.mark.parametrize("password", [STORE_PASSWORD, None])
def test_what_is_cut_is_an_error_wherever_it_is_cut(password):
    whole = key_store()
    for length in range(len(whole)):
        with pytest.raises(StoreError):
            read_jks(whole[:length], password)


JKS = b"\xfe\xed\xfe\xed\0\0\0\2"


@each_row(
    ("content", "message"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\3\0\0\0\0", "its version of JKS, 3, is unknown"),
        (b"\xce\xce\xce\xce\0\0\0\2\0\0\0\0", "it is not a JKS store"),
        (JKS + b"\0\0\0\0\0", "more bytes than entries"),
        (JKS + b"\0\0\0\1\0\0\0\3\0\0" + bytes(8), "unknown kind, 3"),
        (JKS + b"\xff\xff\xff\xff", "it is cut"),
    ],
)
def test_what_is_no_jks_store(content, message):
    with pytest.raises(DamagedStoreError, match=message):
        read_jks(with_digest(content, STORE_PASSWORD), STORE_PASSWORD)


OF_JKS = "300c060a2b060104012a0211010104"


@pytest.mark.parametrize(
    ("protected", "message"),
    [
        (b"", "it is cut"),
        (b"\4\0", "not the ASN.1"),
        (b"\x30\4\4\0\4\0", "not in the form"),
        (b"\x30\6\x30\2\6\0\4\0", "encrypted in a way"),
        (bytes.fromhex(f"3010{OF_JKS}00"), "its private key is cut"),
        (bytes.fromhex(f"3037{OF_JKS}27") + bytes(39), "its private key is cut"),
    ],
)
def test_keys_in_other_forms_are_damaged(protected, message):
    with pytest.raises(DamagedStoreError, match=message):
        unlock_jks_key(key_formats.KeyEntry("k", protected, (OWN,)), ENTRY_PASSWORD)


def test_a_key_without_certificates_is_of_no_use():
    found = read_jks(key_store(chain=()), STORE_PASSWORD)
    assert found.trusted == (OTHER,)
    with pytest.raises(DamagedStoreError, match="its private key has no certificate"):
        unlock_jks_key(found.keys[0], ENTRY_PASSWORD)


# --- PEM -------------------------------------------------------------------------------------------

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


@each_row("mangled", MANGLED)
def test_certificates_and_key_of_mangled_text(mangled):
    text = MANGLED[mangled](OWNER.pem())
    chain = (OWNER.certificate, OWNER.issuer)
    assert pem_certificates(text) == tuple(one.public_bytes(Encoding.DER) for one in chain)
    key = pem_private_key(text)
    assert key.key.reveal() == OWNER.private_key()
    assert not key.is_encrypted


@each_row(
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
@each_row("kind", ["RSA", "EC"])
def test_keys_of_all_forms_are_loaded(mangled, kind, form, password):
    identity = IDENTITIES[kind]
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    text = identity.key.private_bytes(
        Encoding.PEM, getattr(PrivateFormat, form), encryption
    ).decode()
    key = pem_private_key(MANGLED[mangled](text))
    assert key.is_encrypted is (password is not None)
    assert loads(key.key.reveal(), identity, password or "")


def test_what_stands_beside_a_key_and_certificates_is_left_out():
    """Parameters of a curve, OpenSSL's trust, and headers of a block (RFC 1421)."""
    form = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    text = OWNER.key.private_bytes(*form).decode()
    parameters = encode_pem("EC PARAMETERS", bytes.fromhex("06082a8648ce3d030107"))
    assert loads(pem_private_key(parameters + text).key.reveal(), OWNER)
    certificate = OWNER.issuer.public_bytes(Encoding.DER)
    text = encode_pem("TRUSTED CERTIFICATE", certificate + bytes.fromhex("3000"))
    assert pem_certificates(text) == (certificate,)
    chain = OWNER.certificate_chain
    with_header = chain.replace("CATE-----\n", "CATE-----\nComment: its own\n\n", 1)
    assert pem_certificates(with_header) == pem_certificates(chain)


KEY_TEXT = OWNER.private_key()
IS_CUT = "it is cut: BEGIN PRIVATE KEY"
NO_CERTIFICATE = "At least one certificate expected, but none found"


@each_row(
    ("read", "text", "told"),
    [
        *(
            (
                pem_private_key,
                OWNER.certificate_chain + n * KEY_TEXT,
                f"Expected one private key, but found {n}$",
            )
            for n in (0, 2, 3)
        ),
        *((pem_certificates, text, NO_CERTIFICATE) for text in ("", "no PEM at all", KEY_TEXT)),
        (pem_certificates, KEY_TEXT[:100] + OWNER.certificate_chain, IS_CUT),
        (pem_private_key, KEY_TEXT.replace("END PRIVATE KEY", "END CERTIFICATE"), IS_CUT),
        (pem_certificates, f"-----BEGIN {'A' * 10_000}-----\n", "but none found"),
        # Without sense: a pattern that tries again at each character would not end.
        (pem_certificates, "-" * 200_000, NO_CERTIFICATE),
        (pem_certificates, "-BEGIN " * 50_000, NO_CERTIFICATE),
        (pem_certificates, "-BEGIN A" + " " * 200_000, NO_CERTIFICATE),
        (pem_certificates, ":" * 200_000, NO_CERTIFICATE),
    ],
    ids=itertools.count(),
)
def test_what_is_no_key_or_certificate(read, text, told):
    with pytest.raises(DamagedStoreError, match=told):
        read(text)


def test_text_is_cut_wherever_it_ends_inside_a_block():
    begin, end = KEY_TEXT.index("BEGIN"), KEY_TEXT.index("KEY-----\n", KEY_TEXT.index("END"))
    for length in range(begin + len("BEGIN PRIVATE KEY-"), end):
        with pytest.raises(DamagedStoreError, match=f"{IS_CUT} is there"):
            pem_private_key(KEY_TEXT[:length])


def test_no_key_is_shown_nor_what_is_not_base64():
    for body in ("secret*text", "secr*et11", "c2VjcmV", "ünïcode", ""):
        text = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
        with pytest.raises(DamagedStoreError, match="PRIVATE KEY is (not base64|empty)") as raised:
            pem_private_key(text)
        assert raised.value.__cause__ is None
        assert not body or body not in str(raised.value)
    key, body = pem_private_key(KEY_TEXT), KEY_TEXT.splitlines()[1]
    assert body in key.key.reveal()
    assert body not in repr(key)
    assert repr(base64.b64decode(body))[2:-1] not in repr(key_formats._blocks(KEY_TEXT))


# --- PKCS12 in clear -------------------------------------------------------------------------------


def der(tag, *parts):
    """Of less than 128 bytes of content, or of less than 64 KiB."""
    content = b"".join(parts)
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def der_of(element):
    return der(element.tag, element.value)


def oid(hexadecimal):
    return der(6, bytes.fromhex(hexadecimal))


DATA, SIGNED, ENCRYPTED = (oid(f"2a864886f70d0107{n}") for n in ("01", "02", "06"))
KEY, SHROUDED, CERTIFICATE_BAG, CRL = (oid(f"2a864886f70d010c0a01{n}") for n in ("01", "02", "03", "04"))  # fmt: skip
NAME, OF_A_KEY, TRUSTED = oid("2a864886f70d010914"), oid("2a864886f70d010915"), oid("6086480186f966adca7b0101")  # fmt: skip
VERSION, NOTHING = der(2, b"\3"), der(0x30)


def info(kind, content):
    return der(0x30, kind, der(0xA0, content))


def bag(kind, value, *attributes):
    marks = [der(0x31, *(der(0x30, mark, der(0x31)) for mark in attributes))]
    return der(0x30, kind, der(0xA0, value), *(marks if attributes else ()))


def certificate(content, *attributes):
    return bag(CERTIFICATE_BAG, info(oid("2a864886f70d01091601"), der(4, content)), *attributes)


def part(*bags):
    return info(DATA, der(4, der(0x30, *bags)))


def pkcs12_store(*parts, kind=DATA):
    return der(0x30, VERSION, info(kind, der(4, der(0x30, *parts))))


@pytest.mark.parametrize(
    ("data", "trusted"),
    [
        (pkcs12_store(part(certificate(b"1"), certificate(b"2"))), [b"1", b"2"]),
        (pkcs12_store(part(certificate(b"1", TRUSTED), certificate(b"2"))), [b"1", b"2"]),
        (pkcs12_store(part(bag(KEY, NOTHING), certificate(b"1", OF_A_KEY), certificate(b"2"))), [b"1"]),
        (pkcs12_store(part(bag(SHROUDED, NOTHING), certificate(b"1", NAME), certificate(b"2", TRUSTED))), [b"2"]),
        (pkcs12_store(part(bag(CRL, NOTHING), certificate(b"1"))), [b"1"]),
        (pkcs12_store(info(ENCRYPTED, NOTHING), part(certificate(b"1"))), [b"1"]),
        (pkcs12_store(part()), []),
    ],
)  # fmt: skip
def test_what_is_trusted_of_a_store_in_clear(data, trusted):
    """Of a store with a key, what keytool has marked."""
    assert [*pkcs12.trusted_certificates(data, None)] == trusted


OF_NUMBERS = der(0x30, der(2, b"\1"), der(2, b"\1"))
IN_A_SET = der(0x31, DATA, der(0xA0, der(4, der(0x30, part(certificate(b"1"))))))


@each_row(
    ("data", "error", "words"),
    [
        (pkcs12_store(info(ENCRYPTED, NOTHING)), StorePasswordError, "has a password, and none"),
        (pkcs12_store(part(certificate(b"1")), kind=SIGNED), StoreError, "by a public key"),
        (der(0x30, VERSION), DamagedStoreError, "it is cut"),
        (NOTHING, DamagedStoreError, "not a PKCS12 store; if it is a certificate"),
        (der(0x30, NOTHING), DamagedStoreError, "not a PKCS12 store; if it is a"),
        (der(0x30, VERSION, der(4, b"x")), DamagedStoreError, "or it was altered"),
        (der(0x30, VERSION, OF_NUMBERS), DamagedStoreError, "or it was altered"),
        (der(0x30, VERSION, IN_A_SET), DamagedStoreError, "or it was altered"),
    ],
)
def test_what_is_said_of_a_store_that_cannot_be_read(data, error, words):
    with pytest.raises(error, match=words):
        pkcs12.trusted_certificates(data, None)
    assert pkcs12.key_count(data) == 1


def test_keys_are_counted_where_they_are_seen():
    one, hidden = bag(KEY, NOTHING), info(ENCRYPTED, NOTHING)
    for count, *parts in (
        (2, part(one, bag(SHROUDED, NOTHING))),
        (1, part(one), hidden),
        (2, part(one, one), hidden),
        (1, part(certificate(b"1"))),
    ):
        assert pkcs12.key_count(pkcs12_store(*parts)) == count


# --- PKCS12 with a password ------------------------------------------------------------------------

MARKED = "marked"
SIGNER = Authority()
SIGNED_CLIENT = SIGNER.issue("client")
SIGNED = SIGNED_CLIENT.certificate
SIGNERS, OTHERS = SIGNER.certificate, Authority("other").certificate


def written(*others, has_key=True, own=SIGNED):
    encryption = BestAvailableEncryption(MARKED.encode())
    key = SIGNED_CLIENT.key if has_key else None
    return serialize_key_and_certificates(b"key", key, own, others or None, encryption)


def named(found, name=None):
    return PKCS12Certificate(found, (name or found.subject.rfc4514_string()).encode())


def as_der(*certificates):
    return tuple(found.public_bytes(Encoding.DER) for found in certificates)


@pytest.mark.parametrize(
    ("data", "trusted"),
    [
        (written(), (SIGNED,)),
        (written(SIGNERS), (SIGNED,)),
        (written(SIGNERS, SIGNERS), (SIGNED,)),
        (written(named(SIGNERS, "an alias"), named(OTHERS, "x")), (SIGNED, OTHERS)),
        (written(SIGNERS, named(SIGNERS, "an alias")), (SIGNED, SIGNERS)),
        (written(named(SIGNERS), named(OTHERS)), (SIGNED,)),
        (written(SIGNERS, OTHERS, has_key=False, own=None), (SIGNERS, OTHERS)),
    ],
)
def test_what_is_trusted_beside_a_key(data, trusted):
    """What has a name of its own, unless it is in the key's chain alone."""
    assert pkcs12.trusted_certificates(data, MARKED) == as_der(*trusted)


def test_a_key_comes_with_its_chain_and_has_the_stores_password():
    data = written(OTHERS, SIGNERS)
    assert pkcs12.key_material(data, MARKED, None).chain == as_der(SIGNED, SIGNERS)
    assert pkcs12.key_material(data, MARKED, MARKED).chain == as_der(SIGNED, SIGNERS)
    assert pkcs12.key_material(written(OTHERS), MARKED, None).chain == as_der(SIGNED)
    # It ends with the first authority that has signed itself.
    same_name = Authority().certificate
    assert len(pkcs12.key_material(written(SIGNERS, same_name), MARKED, None).chain) == 2
    with pytest.raises(KeyPasswordError):
        pkcs12.key_material(data, MARKED, "another")
    for without in (written(OTHERS, own=None), written(SIGNERS, has_key=False, own=None)):
        with pytest.raises(DamagedStoreError, match="no private key with a certificate"):
            pkcs12.key_material(without, MARKED, None)


def test_a_damaged_store_is_told_from_a_wrong_password():
    for password in ("wrong", "\udc80"):
        with pytest.raises(StorePasswordError):
            pkcs12.trusted_certificates(written(SIGNERS), password)
    with pytest.raises(DamagedStoreError):
        pkcs12.trusted_certificates(der(0x30, VERSION, info(DATA, der(4, b"x"))), MARKED)


def test_whose_a_certificate_is_and_until_when():
    alice = Authority("the authority").issue("alice").certificate
    data = alice.public_bytes(Encoding.DER)
    begin, end = alice.not_valid_before_utc, alice.not_valid_after_utc
    who, second = "CN=alice, signed by CN=the authority, ", timedelta(seconds=1)
    for moment, told in (
        (begin - second, f"which is not valid before {begin:%Y-%m-%d}"),
        (begin, f"valid until {end:%Y-%m-%d}"),
        (end, f"valid until {end:%Y-%m-%d}"),
        (end + second, f"which has expired on {end:%Y-%m-%d}"),
    ):
        assert describe_certificate(data, int(moment.timestamp() * 1000)) == who + told
    assert describe_certificate(b"no certificate", 0) == "which cannot be read"


# --- iterations ------------------------------------------------------------------------------------

PASSWORD = "a password: marked"
CLIENT = Authority().issue("client")
PKCS12_STORE = CLIENT.pkcs12(PASSWORD)
ENCRYPTED_KEY = base64.b64decode("".join(CLIENT.private_key(PASSWORD).splitlines()[1:-1]))
TOO_MANY = 2**31 - 1
LIMIT = "2,147,483,647 iterations with its password, and 5,000,000 at most"
KDF, PBES1 = bytes.fromhex("2a864886f70d01050c"), bytes.fromhex("2a864886f70d01050a")
OF_PKCS12 = bytes.fromhex("2a864886f70d010c0103")


def number(value):
    return der(INTEGER, value.to_bytes(5, "big").lstrip(b"\0"))


def of_kdf(data, identifier=KDF, iterations=TOO_MANY):
    """``data``, DER, where each key of a password takes so many iterations, by ``identifier``."""
    out, last = b"", b""
    for element in elements(data):
        content = element.value
        is_inside = element.tag == OCTET_STRING and content[:2] == b"\x30\x82"
        if last == KDF and element.tag == SEQUENCE:
            salt, _, *rest = elements(content)
            content = b"".join((der_of(salt), number(iterations), *map(der_of, rest)))
        elif element.tag & 0x20 or is_inside:
            content = of_kdf(content, identifier, iterations)
        last = content if element.tag == OBJECT_IDENTIFIER else b""
        out += der(element.tag, identifier if last == KDF else content)
    return out


def parts_of(data):
    return [*elements(first_element(data, SEQUENCE).content)]


def of_mac(data, iterations=TOO_MANY):
    *parts, mac = parts_of(data)
    # A count of 1 is the default, which is not written.
    digest, salt, *_ = elements(mac.content)
    fields = der(mac.tag, der_of(digest), der_of(salt), number(iterations))
    return der(SEQUENCE, *map(der_of, parts), fields)


def in_ber(data):
    """The outer length is not told, as other programs than Java and OpenSSL write it."""
    return b"\x30\x80" + first_element(data, SEQUENCE).value + b"\0\0"


def in_pieces(data, size):
    """BER, where all stands in strings of ``size`` bytes each, and more follows."""
    version, content, mac = parts_of(data)
    kind, text = elements(content.content)
    text = first_element(text.content, OCTET_STRING)
    pieces = [der(4, text.value[at : at + size]) for at in range(0, len(text.value), size)]
    # The first ones are in a string of their own, as it may be.
    cut = b"\x24\x80" + b"".join(pieces[:3]) + b"\0\0" + b"".join(pieces[3:])
    safe = der_of(kind) + der(0xA0, b"\x24\x80" + cut + b"\0\0")
    parts = der_of(version) + der(content.tag, safe)
    return b"\x30\x80" + parts + der_of(mac) + b"\0\0" + b"more"


def with_head(data, found, head):
    """A number at the end of ``data`` with another tag and length: BER knows several."""
    *parts, mac = parts_of(data)
    assert mac.value.endswith(found)
    last = der(mac.tag, mac.value[: -len(found)] + head + found[2:])
    return der(SEQUENCE, *map(der_of, parts), last)


def in_pem(data):
    return encode_pem("ENCRYPTED PRIVATE KEY", data)


def error_of(content, folder, **options):
    with pytest.raises(ConfigError) as caught:
        stores.key_material(of_file(folder, content, **options), KEY_OPTIONS)
    return str(caught.value)


LARGE = number(TOO_MANY)


@pytest.mark.parametrize(
    "content",
    [
        *(
            form(of_kdf(PKCS12_STORE, identifier))
            for form in (bytes, in_ber)
            for identifier in (KDF, PBES1, OF_PKCS12)
        ),
        of_mac(PKCS12_STORE),
        in_ber(of_mac(PKCS12_STORE)),
        in_ber(of_mac(PKCS12_STORE)) + b"\0\0",
        in_ber(of_mac(PKCS12_STORE)) + b"more",
        in_ber(with_head(of_mac(PKCS12_STORE), LARGE, b"\x02\x81\x04")),
        with_head(of_mac(PKCS12_STORE), LARGE, b"\x02\x84\0\0\0\x04"),
        # What is looked for stands across the cuts.
        *(in_pieces(of_kdf(PKCS12_STORE), size) for size in (1, 7, 100)),
    ],
    ids=itertools.count(),
)
def test_a_pkcs12_store_that_takes_minutes(content, tmp_path):
    assert LIMIT in error_of(content, tmp_path, password=Secret(PASSWORD))


@pytest.mark.parametrize(
    "content",
    [
        # A number with a tag that only OpenSSL takes for an integer.
        with_head(of_mac(PKCS12_STORE, 6_000_000), number(6_000_000), b"\x1f\x02\x03"),
        # Levels without end.
        b"\x30\x80" * 100_000,
        b"\x30\x80" + b"\x24\x80" * 100_000,
    ],
    ids=itertools.count(),
)
def test_what_is_not_asn_1(content, tmp_path):
    assert "not the ASN.1" in error_of(content, tmp_path, password=Secret(PASSWORD))


def test_what_is_written_today_is_read_also_at_javas_limit_itself(tmp_path):
    cut = (in_pieces(PKCS12_STORE, size) for size in (1, 7, 100))
    for content in (PKCS12_STORE, in_ber(PKCS12_STORE), *cut):
        config = of_file(tmp_path, content, password=Secret(PASSWORD))
        assert len(stores.key_material(config, KEY_OPTIONS).chain) == 2
    check_iterations(of_kdf(PKCS12_STORE, iterations=key_formats.MOST_ITERATIONS))
    with pytest.raises(DamagedStoreError, match="5,000,001 iterations"):
        check_iterations(of_kdf(PKCS12_STORE, iterations=key_formats.MOST_ITERATIONS + 1))


def test_an_identifier_with_a_longer_length_or_in_pieces_inside_a_whole_string():
    data = of_kdf(ENCRYPTED_KEY).replace(b"\x06\x09" + KDF, b"\x06\x81\x09" + KDF)
    parameters = der(SEQUENCE, der(OCTET_STRING, b"salt"), number(TOO_MANY))
    text = der(SEQUENCE, der(OBJECT_IDENTIFIER, KDF), parameters)
    pieces = b"".join(der(OCTET_STRING, text[at : at + 4]) for at in range(0, len(text), 4))
    for found in (data, der(OCTET_STRING, b"\x24\x80" + pieces + b"\0\0")):
        with pytest.raises(DamagedStoreError, match=LIMIT):
            check_iterations(found)
    # Strings inside strings without end.
    data = b""
    for _ in range(5_000):
        data = b"\x24\x84" + len(data).to_bytes(4, "big") + data
    check_iterations(data)


def test_numbers_with_zeros_before_them_and_those_that_python_does_not_write_out():
    """An int of more than 4,300 digits has no text since Python 3.11."""
    zeros = der(INTEGER, bytes(20) + TOO_MANY.to_bytes(4, "big"))
    assert key_formats.integer(first_element(zeros, INTEGER)) == TOO_MANY
    large = key_formats.integer(first_element(der(INTEGER, b"\x7f" * 5_000), INTEGER))
    with pytest.raises(DamagedStoreError, match="iterations with its password"):
        key_formats.check_iteration_count(large)


@pytest.mark.parametrize("form", [in_pem, lambda data: base64.b64encode(data).decode()])
def test_a_key_in_pem_and_one_that_signs_assertions(form, tmp_path):
    text = form(of_kdf(ENCRYPTED_KEY))
    if form is in_pem:
        content = text + CLIENT.certificate_chain
        assert LIMIT in error_of(content, tmp_path, key_password=Secret(PASSWORD))
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(AuthenticationError, match=LIMIT):
        _private_key(str(path), Secret(PASSWORD))


def test_a_key_of_scrypt(tmp_path):
    """Three numbers, which are multiplied; OpenSSL bounds the memory only."""
    parameters = der(OCTET_STRING, b"salt") + b"".join(map(number, (2**17, 1, 2**17)))
    scrypt = der(OBJECT_IDENTIFIER, bytes.fromhex("2b06010401da47040b"))
    content = in_pem(der(SEQUENCE, scrypt, der(SEQUENCE, parameters))) + CLIENT.certificate_chain
    assert "17,179,869,184 iterations" in error_of(content, tmp_path)
