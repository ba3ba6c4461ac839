"""Stores that the JDK's keytool and openssl write, of one key and its authority. Made once."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.localkafka.certificates import Authority, Identity, write_private

STORE_PASSWORD = "the store's password: marked-store"
KEY_PASSWORD = "the key's password: marked-key"
WRONG = "another password: marked-wrong"
SECRETS = ("marked-store", "marked-key", "marked-wrong", "PRIVATE KEY")
KEY_TYPES = ("RSA", "EC")


@dataclass(frozen=True)
class Material:
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
    return Material(authority, client, folder)


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
