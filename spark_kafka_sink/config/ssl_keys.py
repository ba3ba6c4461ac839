"""The table of ``ssl.*`` keys.

Source: ``SslConfigs`` of Kafka 4.3.
"""

from __future__ import annotations

import re

from spark_kafka_sink.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    in_usual_case,
    non_empty,
    one_of,
)
from spark_kafka_sink.config.java_classes import ENGINE_FACTORIES, one_of_classes, simple_name

STRING, LIST, PASSWORD = ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
OLD_PROTOCOLS = ("TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello")
STORE_TYPES = ("JKS", "PKCS12", "PEM")
NO_CHECK = ("", "none")
"""Values of ssl.endpoint.identification.algorithm: Java's, and librdkafka's."""

_ANY_VERSION = ("TLS", "SSL")
_BY_CONTENT = "The type of a file is recognised by its first bytes."
# The TLS 1.3 suites have no _WITH_; the last ones are signals, which no list needs.
_SUITE = re.compile(r"(TLS|SSL)_[A-Z0-9_]+")


def _suites(names: list[str]) -> str | None:
    for name in names:
        if not _SUITE.fullmatch(name):
            return (
                f"'{name}' is not one of IANA's names, such as "
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384; OpenSSL's names are not taken"
            )
    return None


def _protocols(names: list[str]) -> str | None:
    known = (TLS_1_2, TLS_1_3, *OLD_PROTOCOLS)
    for name in names:
        if name not in known:
            return f"'{name}' is not one of {', '.join(known)}"
    if names and not {TLS_1_2, TLS_1_3} & set(names):
        return f"must contain {TLS_1_2} or {TLS_1_3}: older ones are not spoken"
    return None


def _protocol(text: str) -> str:
    """Java's names TLS and SSL are of contexts with every version that the JVM has."""
    usual: str = in_usual_case(TLS_1_2, TLS_1_3, *_ANY_VERSION)(text)
    return TLS_1_3 if usual in _ANY_VERSION else usual


def _type_of(name: str) -> ConfigKey:
    """The row of a store's type."""
    return ConfigKey(
        name,
        STRING,
        None,
        one_of(*STORE_TYPES),
        MEDIUM,
        "JKS, PKCS12 or PEM.",
        "JKS",
        _BY_CONTENT,
        convert=in_usual_case(*STORE_TYPES),
    )


SSL_KEYS = [
    ConfigKey(
        "ssl.truststore.location",
        STRING,
        None,
        non_empty,
        HIGH,
        "File with the certificates of the authorities that brokers are trusted by, PEM, PKCS12 or "
        "JKS, on every machine that runs the driver or a task. A name without a folder is also "
        "looked for among the files of spark-submit --files. Without a trust store, the system's "
        "authorities are trusted.",
        takes_references=True,
    ),
    ConfigKey(
        "ssl.truststore.password",
        PASSWORD,
        None,
        None,
        HIGH,
        "Password of a trust store file in PKCS12 or JKS. A JKS file is also read without, but "
        "then it is not checked whether it was altered. PEM files have none.",
        takes_references=True,
    ),
    ConfigKey(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        None,
        HIGH,
        "The certificates themselves, as PEM text, instead of a file. Line ends may be blanks or "
        "\\n, as properties files leave them.",
        takes_references=True,
    ),
    _type_of("ssl.truststore.type"),
    ConfigKey(
        "ssl.keystore.location",
        STRING,
        None,
        non_empty,
        HIGH,
        "File with this client's private key and certificate chain, if the brokers want one: "
        "PKCS12, JKS, or PEM with key and chain in one file. Read again when it has changed: the "
        "next connection uses what is in it then, and from the next task on all do.",
        takes_references=True,
    ),
    ConfigKey(
        "ssl.keystore.password",
        PASSWORD,
        None,
        None,
        HIGH,
        "Password of a key store file in PKCS12 or JKS. PEM files have none.",
        takes_references=True,
    ),
    ConfigKey(
        "ssl.keystore.key",
        PASSWORD,
        None,
        None,
        HIGH,
        "The private key itself, as PEM text of PKCS#8, instead of a file; with "
        "kafka.ssl.keystore.certificate.chain. Encrypted or not.",
        takes_references=True,
    ),
    ConfigKey(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        None,
        HIGH,
        "The certificate chain that belongs to kafka.ssl.keystore.key, as PEM text.",
        takes_references=True,
    ),
    _type_of("ssl.keystore.type"),
    ConfigKey(
        "ssl.key.password",
        PASSWORD,
        None,
        None,
        HIGH,
        "Password of the private key itself. Without it, the key store's is tried.",
        takes_references=True,
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        one_of("https", ""),
        LOW,
        "https: a broker's certificate must be for the host name that is connected to. Empty: the "
        "chain is checked, the name is not. librdkafka's none is taken as empty.",
        convert=lambda text: "" if text.lower() in NO_CHECK else in_usual_case("https")(text),
    ),
    ConfigKey(
        "ssl.protocol",
        STRING,
        TLS_1_3,
        lambda value: (
            None
            if value in (TLS_1_3, TLS_1_2)
            else "must be one of " + ", ".join((TLS_1_3, TLS_1_2, *_ANY_VERSION))
        ),
        MEDIUM,
        "The newest version that may be spoken: TLSv1.3, or TLSv1.2, which forbids 1.3 even if it "
        "is enabled. TLS and SSL stand for TLSv1.3.",
        convert=_protocol,
    ),
    ConfigKey(
        "ssl.enabled.protocols",
        LIST,
        [TLS_1_2, TLS_1_3],
        _protocols,
        MEDIUM,
        "Versions that may be spoken. Empty: both. Older versions in the list are left out.",
    ),
    ConfigKey(
        "ssl.cipher.suites",
        LIST,
        [],
        _suites,
        LOW,
        "Cipher suites that may be used, by IANA's names as in Java, such as "
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384. Empty: OpenSSL's defaults.",
    ),
    ConfigKey(
        "ssl.engine.factory.class",
        ConfigType.CLASS,
        None,
        one_of_classes(ENGINE_FACTORIES, "the other kafka.ssl.* options"),
        LOW,
        "A Java class: only Kafka's own DefaultSslEngineFactory is taken, which changes nothing.",
        convert=simple_name(ENGINE_FACTORIES),
    ),
]
