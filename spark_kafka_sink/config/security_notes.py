"""What is said, once, of options that secure connections and have no effect, or a doubtful one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spark_kafka_sink.config.bootstrap import protocols_in
from spark_kafka_sink.config.producer_keys import KAFKA_PREFIX
from spark_kafka_sink.config.redaction import shown_by_spark, warning_of_shown
from spark_kafka_sink.config.sasl_keys import AWS_MSK_IAM, OAUTHBEARER, PLAIN
from spark_kafka_sink.config.security_config import (
    SASL_PLAINTEXT,
    SECURITY_PROTOCOLS,
    SecurityConfig,
)
from spark_kafka_sink.config.security_keys import SASL_CONFIG, SSL_CONFIG
from spark_kafka_sink.config.ssl_keys import OLD_PROTOCOLS

_IN_CLEAR = {PLAIN: "password", OAUTHBEARER: "token", AWS_MSK_IAM: "token"}
"""Mechanism -> what it sends as it is. SCRAM and GSSAPI send proofs."""


def notes_on_security(given: Mapping[str, str], security: SecurityConfig) -> Iterator[str]:
    """Sentences for the log. given: Kafka's keys without ``kafka.``, and their texts."""
    yield from _unused(given, security)
    named = sorted({*protocols_in(given.get("bootstrap.servers", ""))} & {*SECURITY_PROTOCOLS})
    if named and named != [security.protocol]:
        yield (
            f"{' and '.join(named)} before an address in kafka.bootstrap.servers has no effect: "
            f"kafka.security.protocol={security.protocol} is used"
        )
    if security.ssl is not None:
        algorithm = given.get("ssl.endpoint.identification.algorithm", "")
        if algorithm.strip().lower() == "none":
            yield (
                "kafka.ssl.endpoint.identification.algorithm=none is librdkafka's way to write it, "
                "taken as empty: brokers' host names are not checked"
            )
        old = [name for name in OLD_PROTOCOLS if name in _items(given, "ssl.enabled.protocols")]
        if old:
            yield (
                f"kafka.ssl.enabled.protocols: {', '.join(old)} has no effect: only TLSv1.2 and "
                "TLSv1.3 are spoken"
            )
    mechanism = None if security.sasl is None else security.sasl.mechanism
    crossing = None if mechanism is None else _IN_CLEAR.get(mechanism)
    if security.protocol == SASL_PLAINTEXT and crossing is not None:
        yield (
            f"kafka.sasl.mechanism={mechanism} with kafka.security.protocol=SASL_PLAINTEXT: the "
            f"{crossing} crosses the network unencrypted. SASL_SSL encrypts it"
        )


def notes_on_secrets(given: Mapping[str, str]) -> Iterator[str]:
    """Sentences for the log, of all options as they were given."""
    shown = shown_by_spark(given)
    if shown:
        yield warning_of_shown(shown)


def _unused(given: Mapping[str, str], security: SecurityConfig) -> Iterator[str]:
    """Options of what the protocol does not use: the protocol was probably forgotten."""
    sasl = [KAFKA_PREFIX + name for name in given if name in SASL_CONFIG.keys]
    if sasl and security.sasl is None:
        yield (
            f"{_have_no_effect(sasl)} with kafka.security.protocol={security.protocol}, which does "
            "not authenticate by SASL: set kafka.security.protocol to SASL_SSL or SASL_PLAINTEXT"
        )
    ssl = [KAFKA_PREFIX + name for name in given if name in SSL_CONFIG.keys]
    if ssl and security.ssl is None:
        wanted = "SASL_SSL" if sasl else "SSL"
        yield (
            f"{_have_no_effect(ssl)} with kafka.security.protocol={security.protocol}, which does "
            f"not encrypt: set kafka.security.protocol to {wanted}"
        )


def _have_no_effect(names: list[str]) -> str:
    listed = ", ".join(sorted(names))
    return (
        f"option {listed} has no effect" if len(names) == 1 else f"options {listed} have no effect"
    )


def _items(given: Mapping[str, str], name: str) -> list[str]:
    return [item.strip() for item in given.get(name, "").split(",")]
