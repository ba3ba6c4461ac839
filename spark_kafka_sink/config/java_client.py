"""The sink's options of a secured cluster, as Java's client understands them.

For a job that reads with Spark's own Kafka source from the cluster that it writes to.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.config.config_def import ConfigType
from spark_kafka_sink.config.producer_keys import KAFKA_PREFIX
from spark_kafka_sink.config.reference_providers import KINDS_OF_JAVA, is_of_providers
from spark_kafka_sink.config.reference_syntax import has_reference
from spark_kafka_sink.config.security_keys import SECURITY_CONFIG

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_NOT_OF_JAVA = ("sasl.username", "sasl.password", "sasl.oauthbearer.token.provider")
_PEM_FILES = (".pem", ".crt", ".cer", ".key")


def for_java_client(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the sink's ``options`` that secure connections, with ``kafka.`` before their names.

    A user name and a password become a JAAS text, PEM files are named as such, words are put as
    Java compares them, and references get Java's configuration providers. What Java has nothing for
    (a token provider) is left out.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    given = {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in lowered.items()
        if name.startswith(KAFKA_PREFIX)
    }
    taken = {
        name: _as_java_writes(name, value)
        for name, value in given.items()
        if is_of_providers(name) or (name in SECURITY_CONFIG.keys and name not in _NOT_OF_JAVA)
    }
    taken.update(_jaas(given))
    taken.update(_store_types(given))
    if any(has_reference(value) for value in taken.values()) and "config.providers" not in taken:
        taken["config.providers"] = ",".join(KINDS_OF_JAVA.values())
        for java_class, kind in KINDS_OF_JAVA.items():
            taken[f"config.providers.{kind}.class"] = java_class
    return {KAFKA_PREFIX + name: value for name, value in taken.items()}


def _as_java_writes(name: str, value: str) -> str:
    """Of words that the sink takes in upper and lower case, the one that Java knows."""
    key = SECURITY_CONFIG.keys.get(name)
    # A class stays as it is: the sink shortens its name, which Java looks up.
    if key is None or key.type is not ConfigType.STRING or key.convert is None:
        return value
    return value if has_reference(value) else str(key.convert(value.strip()))


def _jaas(given: Mapping[str, str]) -> dict[str, str]:
    user, password = given.get("sasl.username"), given.get("sasl.password")
    module = _LOGIN_MODULES.get(given.get("sasl.mechanism", "").upper().partition("-")[0])
    if user is None or password is None or module is None:
        return {}
    entry = f'{module} required username="{_quoted(user)}" password="{_quoted(password)}";'
    return {"sasl.jaas.config": entry}


def _quoted(text: str) -> str:
    """As it stands between quotes in a JAAS text; Java resolves references before it parses."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _store_types(given: Mapping[str, str]) -> dict[str, str]:
    """Java takes a store for JKS or PKCS12 if nothing is said."""
    found = {}
    for store, text in (("truststore", "certificates"), ("keystore", "certificate.chain")):
        location = given.get(f"ssl.{store}.location", "").lower()
        is_pem = f"ssl.{store}.{text}" in given or location.endswith(_PEM_FILES)
        if is_pem and f"ssl.{store}.type" not in given:
            found[f"ssl.{store}.type"] = "PEM"
    return found
