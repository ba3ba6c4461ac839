"""Kafka's keys and texts → SecurityConfig, with the rules that go across keys.

Source: ``DefaultSslEngineFactory``, ``SaslChannelBuilder``, ``JaasContext`` of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.java_classes import (
    IAM_CLIENT_HANDLER,
    IAM_LOGIN_HANDLER,
    OAUTH_LOGIN_HANDLER,
)
from spark_kafka_sink.config.sasl_keys import AWS_MSK_IAM, OAUTHBEARER, WITH_PASSWORD
from spark_kafka_sink.config.security_config import (
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    AssertionConfig,
    KerberosConfig,
    LoginConfig,
    OAuthConfig,
    SaslConfig,
    SecurityConfig,
    SslConfig,
    StoreConfig,
)
from spark_kafka_sink.config.security_keys import SECURITY_CONFIG
from spark_kafka_sink.config.ssl_keys import TLS_1_2, TLS_1_3

WITH_TLS = (SSL, SASL_SSL)
WITH_SASL = (SASL_PLAINTEXT, SASL_SSL)
_PEM = "PEM"
_STORES = {"truststore": "trust store", "keystore": "key store"}


def parse_security(values: Mapping[str, str]) -> SecurityConfig:
    """From Kafka's keys, all of them of SECURITY_CONFIG, and texts. Raises ConfigError.

    What the protocol does not use is parsed all the same, as Java does: a wrong value is told.
    """
    parsed = SECURITY_CONFIG.parse(values)
    protocol = parsed["security_protocol"]
    return SecurityConfig(
        protocol,
        ssl=parse_ssl(parsed) if protocol in WITH_TLS else None,
        sasl=_sasl(parsed, "sasl.mechanism" in values) if protocol in WITH_SASL else None,
    )


def parse_ssl(parsed: Mapping[str, Any]) -> SslConfig:
    """From the values of SSL_CONFIG by their fields' names. Raises ConfigError."""
    enabled = tuple(v for v in parsed["ssl_enabled_protocols"] if v in (TLS_1_2, TLS_1_3))
    if parsed["ssl_protocol"] == TLS_1_2 and enabled == (TLS_1_3,):
        raise ConfigError(
            "kafka.ssl.protocol=TLSv1.2 forbids the only version in kafka.ssl.enabled.protocols, "
            "TLSv1.3: no version of TLS is left"
        )
    return SslConfig(
        protocol=parsed["ssl_protocol"],
        enabled_protocols=enabled,
        cipher_suites=tuple(parsed["ssl_cipher_suites"]),
        checks_host_name=parsed["ssl_endpoint_identification_algorithm"] == "https",
        truststore=_trust_store(parsed),
        keystore=_key_store(parsed),
    )


def _trust_store(parsed: Mapping[str, Any]) -> StoreConfig:
    certificates: Secret | None = parsed["ssl_truststore_certificates"]
    _check_store(parsed, "truststore", "certificates" if certificates is not None else None)
    return StoreConfig(
        location=parsed["ssl_truststore_location"],
        password=parsed["ssl_truststore_password"],
        type=parsed["ssl_truststore_type"],
        certificates=None if certificates is None else certificates.reveal(),
    )


def _key_store(parsed: Mapping[str, Any]) -> StoreConfig:
    chain: Secret | None = parsed["ssl_keystore_certificate_chain"]
    key: Secret | None = parsed["ssl_keystore_key"]
    if (chain is None) != (key is None):
        raise ConfigError(
            "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain belong together: "
            f"the {'chain' if chain is None else 'key'} is missing"
        )
    _check_store(parsed, "keystore", "key" if key is not None else None)
    location, password = parsed["ssl_keystore_location"], parsed["ssl_keystore_password"]
    if (
        location is not None
        and password is None
        and parsed["ssl_keystore_type"] in ("JKS", "PKCS12")
    ):
        raise ConfigError(
            f"kafka.ssl.keystore.location with kafka.ssl.keystore.type="
            f"{parsed['ssl_keystore_type']} needs kafka.ssl.keystore.password"
        )
    return StoreConfig(
        location=location,
        password=password,
        type=parsed["ssl_keystore_type"],
        certificates=None if chain is None else chain.reveal(),
        key=key,
        key_password=parsed["ssl_key_password"],
    )


def _check_store(parsed: Mapping[str, Any], store: str, text_key: str | None) -> None:
    """What goes for both stores. text_key: of the option that holds PEM text, if it is given."""
    prefix, name = f"kafka.ssl.{store}.", _STORES[store]
    has_location = parsed[f"ssl_{store}_location"] is not None
    has_password = parsed[f"ssl_{store}_password"] is not None
    store_type = parsed[f"ssl_{store}_type"]
    if text_key is not None and store_type not in (None, _PEM):
        raise ConfigError(f"{prefix}{text_key} holds PEM text, but {prefix}type is {store_type}")
    if text_key is not None and has_location:
        raise ConfigError(
            f"Both {prefix}location and {prefix}{text_key} are given: leave one of them out"
        )
    if has_password and (text_key is not None or store_type == _PEM):
        advice = (
            ". The password of the key is kafka.ssl.key.password" if store == "keystore" else ""
        )
        raise ConfigError(
            f"SSL {name} password cannot be specified for PEM format: leave {prefix}password out"
            f"{advice}"
        )
    if has_password and not has_location:
        raise ConfigError(
            f"SSL {name} is not specified, but {name} password is specified: {prefix}location is "
            "missing"
        )


def _sasl(parsed: Mapping[str, Any], has_mechanism: bool) -> SaslConfig:
    mechanism = parsed["sasl_mechanism"]
    handlers = [parsed[f"sasl_{side}_callback_handler_class"] for side in ("login", "client")]
    if IAM_LOGIN_HANDLER in handlers and mechanism == OAUTHBEARER:
        mechanism = AWS_MSK_IAM
    chosen = mechanism if has_mechanism else f"{mechanism}, which is the default"
    _check_handlers(mechanism, chosen, parsed)
    _check_password(mechanism, chosen, parsed)
    return SaslConfig(
        mechanism=mechanism,
        jaas_config=parsed["sasl_jaas_config"],
        username=parsed["sasl_username"],
        password=parsed["sasl_password"],
        login=LoginConfig(**_fields(LoginConfig, parsed, "sasl_login_")),
        kerberos=KerberosConfig(
            parsed["sasl_kerberos_service_name"], parsed["sasl_kerberos_min_time_before_relogin"]
        ),
        oauth=OAuthConfig(
            token_endpoint_url=parsed["sasl_oauthbearer_token_endpoint_url"],
            client_id=parsed["sasl_oauthbearer_client_credentials_client_id"],
            client_secret=parsed["sasl_oauthbearer_client_credentials_client_secret"],
            scope=parsed["sasl_oauthbearer_scope"],
            header_urlencode=parsed["sasl_oauthbearer_header_urlencode"],
            retriever=parsed["sasl_oauthbearer_jwt_retriever_class"],
            scope_claim_name=parsed["sasl_oauthbearer_scope_claim_name"],
            sub_claim_name=parsed["sasl_oauthbearer_sub_claim_name"],
            assertion=AssertionConfig(
                **_fields(AssertionConfig, parsed, "sasl_oauthbearer_assertion_")
            ),
            token_provider=parsed["sasl_oauthbearer_token_provider"],
        ),
    )


def _fields(made: type[Any], parsed: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The values of a dataclass whose fields are called as the keys, without the prefix."""
    return {field.name: parsed[prefix + field.name] for field in fields(made)}


def _check_handlers(mechanism: str, chosen: str, parsed: Mapping[str, Any]) -> None:
    """Raise ConfigError for Java's class of another mechanism than the one that is chosen.

    chosen: the mechanism for messages
    """
    client_handler = parsed["sasl_client_callback_handler_class"]
    login_handler = parsed["sasl_login_callback_handler_class"]
    for option, handler, wanted in (
        ("client", client_handler in (IAM_CLIENT_HANDLER, IAM_LOGIN_HANDLER), AWS_MSK_IAM),
        ("login", login_handler == OAUTH_LOGIN_HANDLER, OAUTHBEARER),
        ("login", login_handler == IAM_LOGIN_HANDLER, AWS_MSK_IAM),
    ):
        if handler and mechanism != wanted:
            raise ConfigError(
                f"kafka.sasl.{option}.callback.handler.class is for kafka.sasl.mechanism={wanted}, "
                f"but the mechanism is {chosen}"
            )


def _check_password(mechanism: str, chosen: str, parsed: Mapping[str, Any]) -> None:
    """Rules of ``sasl.username`` and ``sasl.password``."""
    user, password = parsed["sasl_username"], parsed["sasl_password"]
    if user is None and password is None:
        return
    if parsed["sasl_jaas_config"] is not None:
        raise ConfigError(
            "Both kafka.sasl.jaas.config and kafka.sasl.username or kafka.sasl.password are given: "
            "leave one of them out"
        )
    if mechanism not in WITH_PASSWORD:
        raise ConfigError(
            f"kafka.sasl.username and kafka.sasl.password are for kafka.sasl.mechanism="
            f"{', '.join(WITH_PASSWORD)}, but the mechanism is {chosen}"
        )
    if user is None or password is None:
        missing = "kafka.sasl.username" if user is None else "kafka.sasl.password"
        raise ConfigError(
            f"kafka.sasl.username and kafka.sasl.password belong together: {missing} is missing"
        )
