"""The same keys and certificates in every form in which Kafka's options take them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.localkafka.certificates import Authority, Identity

STORE_PASSWORD, KEY_PASSWORD = "the st0re's pa55word", "the k3y's pa55word"

Options = dict[str, str]


@dataclass(frozen=True)
class Stores:
    """Of one client: its key, and the authority that it trusts. Files are made in ``folder``."""

    authority: Authority
    identity: Identity
    folder: Path

    def options(self, form):
        """``kafka.ssl.*`` options, by the name of the form in FORMS."""
        return {f"kafka.ssl.{key}": value for key, value in FORMS[form](self).items()}

    def file(self, name, content):
        return str(write_private(self.folder / name, content))


def _pem(stores):
    return {
        "truststore.type": "PEM",
        "truststore.location": stores.file("authority.pem", stores.authority.pem),
        "keystore.type": "PEM",
        "keystore.location": stores.file("client.pem", stores.identity.pem()),
    }


def _pem_encrypted(stores):
    file = stores.file("client-encrypted.pem", stores.identity.pem(KEY_PASSWORD))
    return {**_pem(stores), "keystore.location": file, "key.password": KEY_PASSWORD}


def _pem_encrypted_for_java(stores):
    """PBES1, which Java 17 reads too."""
    command = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", "env:PASSWORD"]
    key = _run(command, input_text=stores.identity.private_key(), PASSWORD=KEY_PASSWORD)
    file = stores.file("client-pbes1.pem", key + stores.identity.certificate_chain)
    return {**_pem(stores), "keystore.location": file, "key.password": KEY_PASSWORD}


def _pem_text(stores):
    return {
        "truststore.type": "PEM",
        "truststore.certificates": stores.authority.pem,
        "keystore.type": "PEM",
        "keystore.key": stores.identity.private_key(),
        "keystore.certificate.chain": stores.identity.certificate_chain,
    }


def _pem_text_in_one_line(stores):
    """As it comes out of a properties file without line ends."""
    return {key: value.replace("\n", " ") for key, value in _pem_text(stores).items()}


def _pkcs12(stores):
    trusted = stores.folder / "authority.p12"
    if not trusted.exists():
        _import_authority(stores, trusted, "PKCS12")
    return {
        "truststore.type": "PKCS12",
        "truststore.location": str(trusted),
        "truststore.password": STORE_PASSWORD,
        "keystore.type": "PKCS12",
        "keystore.location": stores.file("client.p12", stores.identity.pkcs12(STORE_PASSWORD)),
        "keystore.password": STORE_PASSWORD,
    }


def _pkcs12_without_type(stores):
    """The type is JKS then, and Java looks into the file all the same."""
    return {key: value for key, value in _pkcs12(stores).items() if not key.endswith(".type")}


def _jks(stores):
    trusted, keys = stores.folder / "authority.jks", stores.folder / "client.jks"
    if not trusted.exists():
        _import_authority(stores, trusted, "JKS")
    if not keys.exists():
        source = stores.file("source.p12", stores.identity.pkcs12(STORE_PASSWORD, "client"))
        _keytool(
            *("-importkeystore", "-srckeystore", source, "-srcstoretype", "PKCS12"),
            *("-srcstorepass:env", "STORE", "-srckeypass:env", "STORE"),
            *("-destkeystore", str(keys), "-deststoretype", "JKS"),
            *("-deststorepass:env", "STORE", "-destkeypass:env", "KEY"),
            *("-srcalias", "client"),
        )
    return {
        "truststore.type": "JKS",
        "truststore.location": str(trusted),
        "truststore.password": STORE_PASSWORD,
        "keystore.type": "JKS",
        "keystore.location": str(keys),
        "keystore.password": STORE_PASSWORD,
        "key.password": KEY_PASSWORD,
    }


FORMS = {
    "pem": _pem,
    "pem-encrypted": _pem_encrypted,
    "pem-encrypted-for-java": _pem_encrypted_for_java,
    "pem-text": _pem_text,
    "pem-text-in-one-line": _pem_text_in_one_line,
    "pkcs12": _pkcs12,
    "pkcs12-without-type": _pkcs12_without_type,
    "jks": _jks,
}


def _import_authority(stores, path, store_type):
    source = stores.file("authority-source.pem", stores.authority.pem)
    _keytool(
        *("-importcert", "-noprompt", "-alias", "authority", "-file", source),
        *("-keystore", str(path), "-storetype", store_type, "-storepass:env", "STORE"),
    )


def _keytool(*arguments):
    _run(["keytool", *arguments], STORE=STORE_PASSWORD, KEY=KEY_PASSWORD)


def _run(command, input_text="", **environment):
    done = subprocess.run(
        command,
        input=input_text,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
