"""Handshakes in memory, and stores: by the JDK's keytool, by openssl, and JKS written by hand."""

from __future__ import annotations

import hashlib
import itertools
import ssl
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.localkafka.certificates import Authority, Identity, write_private
from spark_kafka_sink.security.tls import private_file

ENOUGH_TURNS = 6


class Outcome(NamedTuple):
    """What both sides agreed on, or the client's error. peer: the client's name to the server."""

    version: str | None = None
    cipher: str | None = None
    peer: str | None = None
    error: ssl.SSLError | None = None


def server_context(identity, clients=None, version=ssl.TLSVersion.TLSv1_3):
    """clients: whose certificates are required; None if none are. version: the only one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    with private_file(identity.pem().encode()) as path:
        context.load_cert_chain(path)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.pem)
    return context


def handshake(client, server, host="localhost"):
    """Until both are done, and the client has read a byte that the server sent after it."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=host)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    for _ in range(ENOUGH_TURNS):
        try:
            near.do_handshake() if "near" not in done else near.read(1)
            done.add("near" if "near" not in done else "all")
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return Outcome(error=error)
        if "far" not in done:
            try:
                far.do_handshake()
                far.write(b"x")
                done.add("far")
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                done.add("far")  # its alert is in the buffer, for the client
    assert "all" in done
    cipher = near.cipher()
    return Outcome(near.version(), cipher[0] if cipher else None, _name(far.getpeercert()))


def _name(certificate):
    """The common name of who sent a certificate; None without one."""
    if not certificate:
        return None
    subject = certificate["subject"]
    assert isinstance(subject, tuple)
    return str(dict(part[0] for part in subject)["commonName"])


STORE_PASSWORD = "the store's password: marked-store"
KEY_PASSWORD = "the key's password: marked-key"
WRONG = "another password: marked-wrong"
SECRETS = ("marked-store", "marked-key", "marked-wrong", "PRIVATE KEY")
KEY_TYPES = ("RSA", "EC")


@dataclass(frozen=True)
class StoreMaterial:
    """An authority, a client's key that it signed, and the folder of the stores made of them."""

    authority: Authority
    client: Identity
    folder: Path

    def store(self, name):
        return str(self.folder / name)


def new_material(folder, key_type):
    authority = Authority(key_type=key_type)
    client = authority.issue("client", key_type=key_type)
    write_private(folder / "client.p12", client.pkcs12(STORE_PASSWORD))
    write_private(folder / "client.pem", client.pem())
    write_private(folder / "client-encrypted.pem", client.pem(KEY_PASSWORD))
    write_private(folder / "ca.pem", authority.pem)
    return StoreMaterial(authority, client, folder)


def run(*command):
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


def with_keytool(material):
    """Key stores and trust stores of both of Java's formats, and one that is not read."""
    of_store = ("-deststorepass", STORE_PASSWORD)
    for kind, own in (
        ("JKS", ("-destkeypass", KEY_PASSWORD)),
        ("PKCS12", ()),
        ("JCEKS", ("-destkeypass", KEY_PASSWORD)),
    ):
        source = ("-srckeystore", material.store("client.p12"), "-srcstorepass", STORE_PASSWORD)
        destination = ("-destkeystore", material.store(f"key.{kind}"), "-deststoretype", kind)
        keytool("-importkeystore", "-srcalias", "key", *source, *destination, *of_store, *own)
    for kind in ("JKS", "PKCS12"):
        certificate = ("-file", material.store("ca.pem"), "-alias", "ca")
        store = ("-keystore", material.store(f"trust.{kind}"), "-storetype", kind)
        keytool("-importcert", *certificate, *store, "-storepass", STORE_PASSWORD)


def with_key_and_trusted(material, authority, in_clear):
    """A PKCS12 store of keytool's: the client's key, and an authority as a trusted entry."""
    path = Path(material.store(f"both-{authority.certificate.serial_number}-{in_clear}.PKCS12"))
    certificate = path.with_suffix(".pem")
    certificate.write_text(authority.pem)
    clear = ("-J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE",) if in_clear else ()
    store = ("-storetype", "PKCS12", "-storepass", STORE_PASSWORD)
    source = ("-srckeystore", material.store("client.p12"), "-srcstorepass", STORE_PASSWORD)
    destination = ("-destkeystore", str(path), "-deststoretype", "PKCS12")
    password = ("-deststorepass", STORE_PASSWORD)
    keytool(*clear, "-importkeystore", "-srcalias", "key", *source, *destination, *password)
    entry = ("-file", str(certificate), "-alias", "trusted")
    keytool(*clear, "-importcert", *entry, "-keystore", str(path), *store)
    return str(path)


def with_two_keys(material):
    """A PKCS12 store of keytool's with two private keys; its path."""
    path = material.store("two.PKCS12")
    store = ("-keystore", path, "-storetype", "PKCS12", "-storepass", STORE_PASSWORD)
    for name in ("first", "second"):
        keytool("-genkeypair", "-alias", name, "-keyalg", "EC", "-dname", f"CN={name}", *store)
    return path


def keytool(*arguments):
    # The C1 compiler alone: this is the start of a JVM, and little else.
    run("keytool", "-J-XX:TieredStopAtLevel=1", *arguments, "-noprompt")


def with_openssl(material, *options):
    """A PKCS12 key store by openssl; its path."""
    path = material.store(f"openssl{''.join(options)}.p12")
    key, chain = material.store("client.pem"), material.store("ca.pem")
    out = ("-out", path, "-passout", f"pass:{STORE_PASSWORD}")
    run("openssl", "pkcs12", "-export", "-in", key, "-certfile", chain, *out, *options)
    return path


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
