"""Parse the security of connections: TLS, SASL, and the source of credentials.

``parse_security`` parses Kafka's keys and texts and checks the rules that span several keys. Texts
may hold references (``${env:NAME}``, ``${file:/path:key}``, ``${dir:/path:file}``). The process
that connects resolves them.

Spark shows options and its own configuration in plans, in its UI and in event logs. It redacts a
value if the name or the text matches ``spark.redaction.regex``. Function ``secrets_shown_by_spark``
finds secrets that Spark would show. Function ``for_java_client`` writes the same options for Java's
client, for a job that reads with Spark's Kafka source from the same cluster.

Source: ``SslConfigs``, ``SaslConfigs``, ``DefaultSslEngineFactory``, ``SaslChannelBuilder``,
``JaasContext`` of Kafka 4.4; ``Utils.redact`` of Spark.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.config_def import (
    KAFKA_PREFIX,
    REFERENCE,
    has_reference,
)
from spark_kafka_sink.config.config_providers import (
    JAVA_CONFIG_PROVIDERS,
    is_config_provider_key,
)
from spark_kafka_sink.config.security_keys import (
    AWS_MSK_IAM,
    IAM_CLIENT_HANDLER,
    IAM_LOGIN_HANDLER,
    OAUTH_LOGIN_HANDLER,
    OAUTHBEARER,
    OLD_PROTOCOLS,
    PASSWORD_MECHANISMS,
    PLAIN,
    PLAINTEXT,
    SASL_CONFIG,
    SASL_PLAINTEXT,
    SASL_SSL,
    SECRET_KEYS,
    SECURITY_CONFIG,
    SECURITY_PROTOCOLS,
    SSL,
    SSL_CONFIG,
    TLS_1_2,
    TLS_1_3,
)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """A trust store or a key store; Kafka's ``ssl.truststore.*`` or ``ssl.keystore.*``.

    location: path of a file; its content shows its type
    certificates: PEM text (for a key store: the chain) in the option itself, instead of a location
    key: PEM text of the private key, for a key store with ``certificates``
    key_password: Kafka's ``ssl.key.password``, for a key store
    """

    location: str | None = None
    password: Secret | None = None
    type: str | None = None
    certificates: str | None = None
    key: Secret | None = None
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True)
class SslConfig:
    """``ssl.*`` of connections to brokers, or to a token endpoint if read from JAAS options.

    protocol: TLSv1.3, or TLSv1.2, which forbids 1.3; enabled_protocols: empty stands for both
    cipher_suites: IANA's names; empty stands for OpenSSL's defaults
    checks_host_name: whether ``ssl.endpoint.identification.algorithm`` is https
    """

    protocol: str = "TLSv1.3"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    checks_host_name: bool = True
    truststore: StoreConfig = StoreConfig()
    keystore: StoreConfig = StoreConfig()


@dataclass(frozen=True, slots=True)
class LoginConfig:
    """``sasl.login.*``: when a token is refreshed, and how long a token request may take."""

    refresh_window_factor: float = 0.8
    refresh_window_jitter: float = 0.05
    refresh_min_period_seconds: int = 60
    refresh_buffer_seconds: int = 300
    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class KerberosConfig:
    """Options of ``sasl.kerberos.*`` that have an effect outside a JVM."""

    service_name: str | None = None
    min_time_before_relogin_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class AssertionConfig:
    """``sasl.oauthbearer.assertion.*``: a JWT that this client signs (KIP-1139, KIP-1258)."""

    algorithm: str = "RS256"
    claim_aud: str | None = None
    claim_exp_seconds: int = 300
    claim_iss: str | None = None
    claim_jti_include: bool = False
    claim_nbf_seconds: int = 60
    claim_sub: str | None = None
    file: str | None = None
    private_key_file: str | None = None
    private_key_passphrase: Secret | None = None
    template_file: str | None = None


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """``sasl.oauthbearer.*``.

    token_provider: the user's ``package.module:callable``, which replaces the other options;
        the sink's option ``kafka.sasl.oauthbearer.token.provider``
    retriever: the simple name of Java's class (``DefaultJwtRetriever``, ``FileJwtRetriever``,
        ``ClientCredentialsJwtRetriever``, ``JwtBearerJwtRetriever``)
    """

    token_endpoint_url: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    scope: str | None = None
    header_urlencode: bool = False
    retriever: str = "DefaultJwtRetriever"
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"
    assertion: AssertionConfig = AssertionConfig()
    token_provider: str | None = None


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """``sasl.*``.

    mechanism: Java's name: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM
    jaas_config: ``sasl.jaas.config``, not parsed
    username, password: this sink's plain options, instead of ``jaas_config``
    """

    mechanism: str
    jaas_config: Secret | None = None
    username: str | None = None
    password: Secret | None = None
    login: LoginConfig = LoginConfig()
    kerberos: KerberosConfig = KerberosConfig()
    oauth: OAuthConfig = OAuthConfig()


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """``security.protocol`` with its settings. ssl, sasl: None if the protocol does not use it"""

    protocol: str = PLAINTEXT
    ssl: SslConfig | None = None
    sasl: SaslConfig | None = None


_Config = TypeVar("_Config")
TLS_PROTOCOLS = (SSL, SASL_SSL)
SASL_PROTOCOLS = (SASL_PLAINTEXT, SASL_SSL)

BEFORE_ADDRESS = re.compile(r"(?P<name>[0-9A-Za-z%._-]*)://")
"""A protocol before an address of kafka.bootstrap.servers; Java ignores it, too."""


def parse_security(values: Mapping[str, str]) -> SecurityConfig:
    """Parse Kafka's keys, all in SECURITY_CONFIG, and their texts. Raises ConfigError.

    Options that the protocol does not use are validated too, as in Java.
    """
    parsed = SECURITY_CONFIG.parse(values)
    protocol = parsed["security_protocol"]
    return SecurityConfig(
        protocol,
        ssl=parse_ssl(parsed) if protocol in TLS_PROTOCOLS else None,
        sasl=_sasl(parsed, "sasl.mechanism" in values) if protocol in SASL_PROTOCOLS else None,
    )


def parse_ssl(parsed: Mapping[str, Any]) -> SslConfig:
    """Build the TLS settings from the values of SSL_CONFIG by field name. Raises ConfigError."""
    enabled = tuple(v for v in parsed["ssl_enabled_protocols"] if v in (TLS_1_2, TLS_1_3))
    if parsed["ssl_protocol"] == TLS_1_2 and enabled == (TLS_1_3,):
        raise ConfigError(
            "kafka.ssl.protocol=TLSv1.2 forbids the only version in kafka.ssl.enabled.protocols, "
            "TLSv1.3: no version of TLS is left",
            code="TLS-003",
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
    certificates = parsed["ssl_truststore_certificates"]
    _check_store(parsed, "truststore", "certificates" if certificates is not None else None)
    text = None if certificates is None else certificates.reveal()
    return _from_keys(StoreConfig, parsed, "ssl_truststore_", certificates=text)


def _key_store(parsed: Mapping[str, Any]) -> StoreConfig:
    chain, key = parsed["ssl_keystore_certificate_chain"], parsed["ssl_keystore_key"]
    if (chain is None) != (key is None):
        raise ConfigError(
            "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain belong together: "
            f"the {'chain' if chain is None else 'key'} is missing",
            code="OPTION-008",
        )
    _check_store(parsed, "keystore", "key" if key is not None else None)
    text, key_password = None if chain is None else chain.reveal(), parsed["ssl_key_password"]
    store = _from_keys(
        StoreConfig, parsed, "ssl_keystore_", certificates=text, key_password=key_password
    )
    if store.location is not None and store.password is None and store.type in ("JKS", "PKCS12"):
        raise ConfigError(
            f"kafka.ssl.keystore.location with kafka.ssl.keystore.type={store.type} needs "
            "kafka.ssl.keystore.password",
            code="OPTION-008",
        )
    return store


def _check_store(parsed: Mapping[str, Any], store: str, text_key: str | None) -> None:
    """Raise ConfigError for options of a store that exclude each other.

    text_key: last part of the option that holds PEM text, or None if it is not set
    """
    prefix, name = f"kafka.ssl.{store}.", store.replace("store", " store")
    has_location = parsed[f"ssl_{store}_location"] is not None
    has_password = parsed[f"ssl_{store}_password"] is not None
    store_type = parsed[f"ssl_{store}_type"]
    if text_key is not None and store_type not in (None, "PEM"):
        raise ConfigError(
            f"{prefix}{text_key} holds PEM text, but {prefix}type is {store_type}", code="TLS-004"
        )
    if text_key is not None and has_location:
        raise ConfigError(
            f"Both {prefix}location and {prefix}{text_key} are given: leave one of them out",
            code="OPTION-009",
        )
    if has_password and (text_key is not None or store_type == "PEM"):
        advice = (
            ". The password of the key is kafka.ssl.key.password" if store == "keystore" else ""
        )
        raise ConfigError(
            f"SSL {name} password cannot be specified for PEM format: leave {prefix}password out"
            f"{advice}",
            code="TLS-005",
        )
    if has_password and not has_location:
        raise ConfigError(
            f"SSL {name} is not specified, but {name} password is specified: {prefix}location is "
            "missing",
            code="OPTION-008",
        )


def _sasl(parsed: Mapping[str, Any], has_mechanism: bool) -> SaslConfig:
    mechanism = parsed["sasl_mechanism"]
    handlers = [parsed[f"sasl_{side}_callback_handler_class"] for side in ("login", "client")]
    if IAM_LOGIN_HANDLER in handlers and mechanism == OAUTHBEARER:
        mechanism = AWS_MSK_IAM
    shown_mechanism = mechanism if has_mechanism else f"{mechanism}, which is the default"
    _check_handlers(mechanism, shown_mechanism, parsed)
    _check_password(mechanism, shown_mechanism, parsed)
    oauth = "sasl_oauthbearer_"
    return _from_keys(
        SaslConfig,
        parsed,
        "sasl_",
        mechanism=mechanism,
        login=_from_keys(LoginConfig, parsed, "sasl_login_"),
        kerberos=KerberosConfig(
            parsed["sasl_kerberos_service_name"], parsed["sasl_kerberos_min_time_before_relogin"]
        ),
        oauth=_from_keys(
            OAuthConfig,
            parsed,
            oauth,
            client_id=parsed[f"{oauth}client_credentials_client_id"],
            client_secret=parsed[f"{oauth}client_credentials_client_secret"],
            retriever=parsed[f"{oauth}jwt_retriever_class"],
            assertion=_from_keys(AssertionConfig, parsed, f"{oauth}assertion_"),
        ),
    )


def _from_keys(
    config_class: type[_Config], parsed: Mapping[str, Any], prefix: str, **others: Any
) -> _Config:
    """Return a dataclass: ``others``, and fields whose key has their name after ``prefix``."""
    names = {field.name for field in fields(config_class)} - others.keys()  # type: ignore[arg-type]
    found = {name: parsed[prefix + name] for name in names if prefix + name in parsed}
    return config_class(**found, **others)


def _check_handlers(mechanism: str, shown_mechanism: str, parsed: Mapping[str, Any]) -> None:
    """Raise ConfigError for a Java class of a mechanism other than the chosen one.

    shown_mechanism: the mechanism as messages show it
    """
    client_handler = parsed["sasl_client_callback_handler_class"]
    login_handler = parsed["sasl_login_callback_handler_class"]
    for option, handler, required in (
        ("client", client_handler in (IAM_CLIENT_HANDLER, IAM_LOGIN_HANDLER), AWS_MSK_IAM),
        ("login", login_handler == OAUTH_LOGIN_HANDLER, OAUTHBEARER),
        ("login", login_handler == IAM_LOGIN_HANDLER, AWS_MSK_IAM),
    ):
        if handler and mechanism != required:
            raise ConfigError(
                f"kafka.sasl.{option}.callback.handler.class is for "
                f"kafka.sasl.mechanism={required}, but the mechanism is {shown_mechanism}",
                code="AUTH-004",
            )


def _check_password(mechanism: str, shown_mechanism: str, parsed: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong use of ``sasl.username`` and ``sasl.password``."""
    user, password = parsed["sasl_username"], parsed["sasl_password"]
    if user is None and password is None:
        return
    if parsed["sasl_jaas_config"] is not None:
        raise ConfigError(
            "Both kafka.sasl.jaas.config and kafka.sasl.username or kafka.sasl.password are given: "
            "leave one of them out",
            code="OPTION-009",
        )
    if mechanism not in PASSWORD_MECHANISMS:
        raise ConfigError(
            f"kafka.sasl.username and kafka.sasl.password are for kafka.sasl.mechanism="
            f"{', '.join(PASSWORD_MECHANISMS)}, but the mechanism is {shown_mechanism}",
            code="AUTH-004",
        )
    if user is None or password is None:
        missing = "kafka.sasl.username" if user is None else "kafka.sasl.password"
        raise ConfigError(
            f"kafka.sasl.username and kafka.sasl.password belong together: {missing} is missing",
            code="OPTION-008",
        )


REGEX_OPTION = "spark.redaction.regex"
DEFAULT_REGEX = "(?i)secret|password|token|access[.]?key"
SUGGESTED_REGEX = (
    f"{DEFAULT_REGEX}|passphrase|keystore[.]key|jaas[.]config|otlp[.]headers|user[.]info"
    "|://.*@|[?&].*key="
)
REFERENCE_HINT = "a reference, ${file:/path:key}, ${env:NAME} or ${dir:/path:file}"

_REGISTRY = "schema.registry."
_OWN_SECRETS = frozenset(
    {
        "metrics.otlp.headers",
        f"{_REGISTRY}basic.auth.user.info",
        f"{_REGISTRY}bearer.auth.token",
        f"{_REGISTRY}bearer.auth.client.secret",
        *(_REGISTRY + key for key in SECRET_KEYS if key.startswith("ssl.")),
    }
)
# Options whose values may hold a secret, as user:password@ or as ?api_key=.
_URLS = frozenset(
    {
        "metrics.otlp.endpoint",
        "metrics.prometheus.push.url",
        f"{_REGISTRY}url",
        f"{_REGISTRY}bearer.auth.issuer.endpoint.url",
        f"{KAFKA_PREFIX}sasl.oauthbearer.token.endpoint.url",
    }
)
_LOGIN_IN_URL = re.compile(r"://(\S*)@")
_SECRET_IN_QUERY = re.compile(
    r"(?i)[?&][^=&\s]*(?:key|token|secret|pass|auth|sig|credential)[^=&\s]*=[^&#\s,]"
)
_NEXT_URL = re.compile(r",(?=\s*\w+://)")
_SCHEME = re.compile(r"(?i)\s*(?:bearer|basic|token|api-?key|splunk)(?:%20|\s)+")
"""The scheme of a header, which may stand in clear text before a reference to its secret."""
_PEM_LINE = re.compile(r"-----[A-Z ]+-----")
# Options of login modules whose values are secrets; Kerberos' options name files.
_SECRET_IN_JAAS = re.compile(r"""(?i)(password|secret|passphrase)\s*=\s*["']?([^"'\s;]*)""")


def clear_secrets(options: Mapping[str, str]) -> list[str]:
    """Return the names, in lower case, of options with a secret that is not in a reference.

    A reference beside a secret does not hide it: its value may be empty.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    return sorted(name for name, value in lowered.items() if _is_clear_secret(name, value))


def _is_clear_secret(name: str, value: str) -> bool:
    key = name.removeprefix(KAFKA_PREFIX)
    clear = REFERENCE.sub("", value).strip()
    if name == f"{KAFKA_PREFIX}sasl.jaas.config":
        return any(match[2] for match in _SECRET_IN_JAAS.finditer(clear))
    if name in _URLS:
        found = (_LOGIN_IN_URL.search(url) for url in _NEXT_URL.split(clear))
        has_login = any(match is not None and _has_password(match[1]) for match in found)
        return has_login or _SECRET_IN_QUERY.search(clear) is not None
    if name == "metrics.otlp.headers" and has_reference(value):
        texts = (header.partition("=")[2] for header in REFERENCE.sub("", value).split(","))
        return any(text.strip() and not _SCHEME.fullmatch(text) for text in texts)
    if name == f"{_REGISTRY}basic.auth.user.info" and has_reference(value):
        return bool(clear.partition(":")[2])
    is_secret = name in _OWN_SECRETS or (key in SECRET_KEYS and key != name)
    return is_secret and bool(_PEM_LINE.sub("", clear).strip())


def _has_password(login: str) -> bool:
    """Return True for ``user:password``, and for ``token`` alone."""
    user, colon, password = login.partition(":")
    return bool(password or (user and not colon))


def secrets_shown_by_spark(
    options: Mapping[str, str], regex: str = DEFAULT_REGEX, prefix: str = ""
) -> list[str]:
    """Return the names of ``clear_secrets`` whose values Spark does not redact.

    regex: ``spark.redaction.regex``; prefix: text before the names where Spark shows them
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # syntax that later Pythons may change
            redaction = re.compile(regex)
    except re.error:  # a syntax of Java's that Python does not know
        redaction = re.compile(DEFAULT_REGEX)
    values = {name.lower(): value for name, value in options.items()}
    return [
        name
        for name in clear_secrets(options)
        if not (redaction.search(prefix + name) or redaction.search(values[name]))
    ]


def warning_about_shown_secrets(names: list[str], regex: str = DEFAULT_REGEX) -> str:
    """Return the warning about secrets that Spark shows, with advice."""
    default = " the default of" if regex == DEFAULT_REGEX else ""
    warning = (
        f"{', '.join(names)}: a secret in clear text, which Spark shows in its UI, plans and event "
        f"logs, for{default} {REGEX_OPTION} does not match. Write {REFERENCE_HINT}, instead; or "
        f"start Spark with {REGEX_OPTION}={SUGGESTED_REGEX}"
    )
    return coded(warning, "AUTH-001")


_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_WITHOUT_JAVA_COUNTERPART = ("sasl.username", "sasl.password", "sasl.oauthbearer.token.provider")
_PEM_FILES = (".pem", ".crt", ".cer", ".key")


def for_java_client(options: Mapping[str, str]) -> dict[str, str]:
    """Return the security options, with prefix ``kafka.``, in the form that Java's client takes.

    User name and password become a JAAS text. PEM files get their store type. Words get the case
    that Java compares. References get Java's configuration providers. Options without a counterpart
    in Java (a token provider) are omitted.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    originals = {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in lowered.items()
        if name.startswith(KAFKA_PREFIX)
    }
    java_options = {
        name: _in_java_case(name, value)
        for name, value in originals.items()
        if is_config_provider_key(name)
        or (name in SECURITY_CONFIG.keys and name not in _WITHOUT_JAVA_COUNTERPART)
    }
    java_options.update(_jaas(originals))
    java_options.update(_store_types(originals))
    if (
        any(has_reference(value) for value in java_options.values())
        and "config.providers" not in java_options
    ):
        java_options["config.providers"] = ",".join(JAVA_CONFIG_PROVIDERS.values())
        for java_class, kind in JAVA_CONFIG_PROVIDERS.items():
            java_options[f"config.providers.{kind}.class"] = java_class
    return {KAFKA_PREFIX + name: value for name, value in java_options.items()}


def _in_java_case(name: str, value: str) -> str:
    """Return a word that the sink accepts in any case in the case that Java knows."""
    key = SECURITY_CONFIG.keys.get(name)
    # A class stays unchanged: the sink would shorten the name that Java looks up.
    if key is None or key.type != "string" or key.convert is None:
        return value
    return str(key.convert(value.strip()))


def _jaas(originals: Mapping[str, str]) -> dict[str, str]:
    user, password = originals.get("sasl.username"), originals.get("sasl.password")
    module = _LOGIN_MODULES.get(originals.get("sasl.mechanism", "").upper().partition("-")[0])
    if user is None or password is None or module is None:
        return {}
    entry = f'{module} required username="{_quoted(user)}" password="{_quoted(password)}";'
    return {"sasl.jaas.config": entry}


def _quoted(text: str) -> str:
    """Escape a text for quotes in a JAAS entry; Java resolves references before it parses."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _store_types(originals: Mapping[str, str]) -> dict[str, str]:
    """Return ``ssl.*.type=PEM`` for PEM stores without a type, because Java's default is JKS."""
    found = {}
    for store, text in (("truststore", "certificates"), ("keystore", "certificate.chain")):
        location = originals.get(f"ssl.{store}.location", "").lower()
        is_pem = f"ssl.{store}.{text}" in originals or location.endswith(_PEM_FILES)
        if is_pem and f"ssl.{store}.type" not in originals:
            found[f"ssl.{store}.type"] = "PEM"
    return found


_SENT_IN_CLEAR = {PLAIN: "password", OAUTHBEARER: "token", AWS_MSK_IAM: "token"}
"""Mechanism -> the secret that it sends unencrypted. SCRAM and GSSAPI send proofs."""


def notes_on_security(originals: Mapping[str, str], security: SecurityConfig) -> Iterator[str]:
    """Yield log sentences about security. originals: Kafka's keys without ``kafka.`` -> texts."""
    yield from _notes_on_unused(originals, security)
    entries = originals.get("bootstrap.servers", "").split(",")
    found = (BEFORE_ADDRESS.match(entry.strip()) for entry in entries)
    names = {match["name"].upper() for match in found if match is not None}
    protocols = sorted(names & {*SECURITY_PROTOCOLS})
    if protocols and protocols != [security.protocol]:
        yield (
            f"{' and '.join(protocols)} before an address in kafka.bootstrap.servers has no "
            f"effect: kafka.security.protocol={security.protocol} is used"
        )
    if security.ssl is not None:
        if not security.ssl.checks_host_name:
            is_empty = not originals["ssl.endpoint.identification.algorithm"].strip()
            what = (
                "kafka.ssl.endpoint.identification.algorithm is empty"
                if is_empty
                else "kafka.ssl.endpoint.identification.algorithm=none is librdkafka's way to "
                "write it, taken as empty"
            )
            note = (
                f"{what}: brokers' host names are not checked, so any certificate of a trusted "
                "authority passes for a broker's"
            )
            yield coded(note, "TLS-002")
        enabled = [name.strip() for name in originals.get("ssl.enabled.protocols", "").split(",")]
        old_versions = [name for name in OLD_PROTOCOLS if name in enabled]
        if old_versions:
            yield (
                f"kafka.ssl.enabled.protocols: {', '.join(old_versions)} has no effect: only "
                "TLSv1.2 and TLSv1.3 are spoken"
            )
    mechanism = None if security.sasl is None else security.sasl.mechanism
    secret = None if mechanism is None else _SENT_IN_CLEAR.get(mechanism)
    if security.protocol == SASL_PLAINTEXT and secret is not None:
        note = (
            f"kafka.sasl.mechanism={mechanism} with kafka.security.protocol=SASL_PLAINTEXT: the "
            f"{secret} crosses the network unencrypted. SASL_SSL encrypts it"
        )
        yield coded(note, "AUTH-002")


def _notes_on_unused(originals: Mapping[str, str], security: SecurityConfig) -> Iterator[str]:
    """Yield sentences about ssl.* and sasl.* options that security.protocol does not use."""
    sasl = [KAFKA_PREFIX + name for name in originals if name in SASL_CONFIG.keys]
    ssl = [KAFKA_PREFIX + name for name in originals if name in SSL_CONFIG.keys]
    needed = "SASL_SSL" if sasl else "SSL"
    set_to = "set kafka.security.protocol to"
    no_login = f"which does not authenticate by SASL: {set_to} SASL_SSL or SASL_PLAINTEXT"
    for names, used, reason, code in (
        (sasl, security.sasl, no_login, "AUTH-003"),
        (ssl, security.ssl, f"which does not encrypt: {set_to} {needed}", "TLS-001"),
    ):
        if names and used is None:
            listed = ", ".join(sorted(names))
            subject = f"option {listed} has" if len(names) == 1 else f"options {listed} have"
            protocol = f"kafka.security.protocol={security.protocol}"
            yield coded(f"{subject} no effect with {protocol}, {reason}", code)
