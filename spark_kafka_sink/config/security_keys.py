"""The table of all keys that secure a connection."""

from __future__ import annotations

from spark_kafka_sink.config.config_def import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    in_usual_case,
    one_of,
)
from spark_kafka_sink.config.oauth_keys import OAUTH_KEYS
from spark_kafka_sink.config.producer_keys import KAFKA_PREFIX
from spark_kafka_sink.config.sasl_keys import SASL_KEYS
from spark_kafka_sink.config.security_config import PLAINTEXT, SECURITY_PROTOCOLS
from spark_kafka_sink.config.ssl_keys import SSL_KEYS

_HORTONWORKS = "PLAINTEXTSASL"


def _protocol(text: str) -> str | None:
    if text.upper() == _HORTONWORKS:
        return f"{_HORTONWORKS} is Hortonworks' name of SASL_PLAINTEXT: write that"
    return one_of(*SECURITY_PROTOCOLS)(text)


_PROTOCOL = ConfigKey(
    "security.protocol",
    ConfigType.STRING,
    PLAINTEXT,
    _protocol,
    Importance.MEDIUM,
    "How to talk to brokers: PLAINTEXT; SSL, which is TLS; SASL_PLAINTEXT or SASL_SSL, which add "
    "authentication by SASL.",
    convert=in_usual_case(*SECURITY_PROTOCOLS),
)

PROTOCOL_CONFIG = ConfigDef([_PROTOCOL], KAFKA_PREFIX)
SSL_CONFIG = ConfigDef(SSL_KEYS, KAFKA_PREFIX)
RESOLVED_SSL_CONFIG = ConfigDef(
    [key._replace(takes_references=False) for key in SSL_KEYS], KAFKA_PREFIX
)
"""The same for texts in which nothing is a reference any more, whatever it looks like."""
SASL_CONFIG = ConfigDef([*SASL_KEYS, *OAUTH_KEYS], KAFKA_PREFIX)
SECURITY_CONFIG = ConfigDef([_PROTOCOL, *SSL_KEYS, *SASL_KEYS, *OAUTH_KEYS], KAFKA_PREFIX)

# Kafka gives them the type of a password, for they may be long; what is in them is public.
_PUBLIC = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain")
SECRET_KEYS = frozenset(
    key.name
    for key in SECURITY_CONFIG.keys.values()
    if key.type is ConfigType.PASSWORD and key.name not in _PUBLIC
)
"""Keys whose values nobody may see; without ``kafka.``."""
