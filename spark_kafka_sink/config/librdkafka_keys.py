"""Keys of librdkafka that secure connections and that Java spells otherwise: what to write here."""

from __future__ import annotations

_PEM_KEY_STORE = (
    "kafka.ssl.keystore.location, one PEM file with the private key and the certificate chain, or "
    "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain, PEM texts such as "
    "${dir:/run/secrets/kafka:tls.key}"
)
_IN_JAAS = "kafka.sasl.jaas.config with Krb5LoginModule"

LIBRDKAFKA_KEYS = {
    "sasl.mechanisms": "kafka.sasl.mechanism",
    "ssl.ca.location": "kafka.ssl.truststore.location, which takes PEM files, too",
    "ssl.ca.pem": "kafka.ssl.truststore.certificates",
    "ssl.crl.location": "leave it out; as in Java, certificates are not looked up in revocation "
    "lists",
    "ssl.certificate.location": _PEM_KEY_STORE,
    "ssl.key.location": _PEM_KEY_STORE,
    "ssl.certificate.pem": "kafka.ssl.keystore.certificate.chain, with kafka.ssl.keystore.key",
    "ssl.key.pem": "kafka.ssl.keystore.key, with kafka.ssl.keystore.certificate.chain",
    "enable.ssl.certificate.verification": "a trust store with the brokers' authority, "
    "kafka.ssl.truststore.location; certificates are always checked",
    "sasl.kerberos.principal": f"principal in {_IN_JAAS}",
    "sasl.kerberos.keytab": f"useKeyTab and keyTab in {_IN_JAAS}",
    "sasl.oauthbearer.client.id": "kafka.sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "kafka.sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.extensions": 'extension_<name>="value" in kafka.sasl.jaas.config',
    "sasl.oauthbearer.method": "kafka.sasl.oauthbearer.token.endpoint.url: with it, tokens are "
    "fetched as by method oidc",
}
"""Without ``kafka.`` -> the options of Java that do it."""

OTHER_NAMES = {
    "sasl.enabled.mechanisms": "kafka.sasl.mechanism",
    **dict.fromkeys(
        ("ssl.ca.cert", "ssl.ca.file", "ssl.cafile"), LIBRDKAFKA_KEYS["ssl.ca.location"]
    ),
    **dict.fromkeys(
        ("ssl.truststore", "ssl.truststore.file", "ssl.truststore.path"),
        "kafka.ssl.truststore.location",
    ),
    **dict.fromkeys(
        ("ssl.keystore", "ssl.keystore.file", "ssl.keystore.path"), "kafka.ssl.keystore.location"
    ),
}
"""The same for names of brokers and of other tools, which are written by mistake."""
