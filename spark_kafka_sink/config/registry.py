"""List and check ``schema.registry.*`` and the options that choose a registry's schema.

Source of the names: Confluent's ``SchemaRegistryClientConfig``, ``AbstractKafkaSchemaSerDeConfig``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.base.secret import Secret, SecretUrl
from spark_kafka_sink.base.text import problem_of_at_sign, redacted_url
from spark_kafka_sink.config.config_def import (
    ConfigKey,
    at_least,
    canonical_case,
    choice,
    flag,
    optional_text,
    secret,
)
from spark_kafka_sink.config.formats import (
    AVRO,
    HEADER,
    JSON,
    PROTOBUF,
    STRING,
    FormatOptions,
    PartOptions,
)
from spark_kafka_sink.config.security_config import SecurityConfig, SslConfig, parse_ssl
from spark_kafka_sink.config.security_keys import SSL_KEYS

if TYPE_CHECKING:
    from urllib.parse import SplitResult

REGISTRY_PREFIX = "schema.registry."
URL, USER_INFO, SASL_INHERIT = "URL", "USER_INFO", "SASL_INHERIT"
STATIC_TOKEN, OAUTHBEARER = "STATIC_TOKEN", "OAUTHBEARER"
TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = (
    "TopicNameStrategy",
    "RecordNameStrategy",
    "TopicRecordNameStrategy",
)
_STRATEGIES = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)
_BASIC = f"{REGISTRY_PREFIX}basic.auth."
_BEARER = f"{REGISTRY_PREFIX}bearer.auth."


def _simple_name(text: str) -> str:
    """Return a Java class without its package, in its usual case; a user's function unchanged."""
    if ":" in text:
        return text
    name: str = canonical_case(*_STRATEGIES)(text.rpartition(".")[2])
    return name


def split_url(url: str) -> SplitResult | None:
    """Return the parts of a URL, or None: Python's error would show a password in the URL."""
    # Imported here so that a write without a registry does not load the module.
    from urllib.parse import urlsplit

    try:
        return urlsplit(url)
    except ValueError:
        return None


def _urls(urls: list[str]) -> str | None:
    for url in urls:
        if not url.lower().startswith(("http://", "https://", "${")):
            return "each must begin with http:// or https://"
        parts = split_url(url)
        if parts is None:
            return "each must be of the form https://host:port or https://host:port/path"
        problem = problem_of_at_sign(parts)
        if problem is not None:
            return f"one {problem}"
    return None if urls else "must not be empty"


def _pairs(pairs: list[str]) -> str | None:
    is_valid = all(name and "=" in pair for pair in pairs for name in [pair.partition("=")[0]])
    return None if is_valid else "each must be of the form name=value"


def _strategy_problem(strategy: str) -> str | None:
    if strategy in _STRATEGIES or ":" in strategy:
        return None
    return f"must be one of {', '.join(_STRATEGIES)}, or package.module:function"


def _references_key(part: str) -> ConfigKey:
    return optional_text(f"{part}.schema.references").documented(
        "Schemas that the part's avro.schema or json.schema builds on, as in the registry's API: "
        '`[{"name": …, "subject": …, "version": …}]`. Without version: the latest when the query '
        "starts. For Protobuf: subjects of imported files that are registered under another name.",
        "Set it if the schema uses types of other subjects.",
    )


def _strategy(part: str) -> ConfigKey:
    return ConfigKey(
        f"{part}.subject.name.strategy",
        "class",
        TOPIC_NAME,
        _strategy_problem,
        convert=_simple_name,
    ).documented(
        "Subject of the schema. TopicNameStrategy: topic-value or topic-key. RecordNameStrategy: "
        "the record's full name. TopicRecordNameStrategy: both, with a hyphen. Java's class "
        "names are accepted. `package.module:function` is called on the driver with topic (None "
        "if a column has it), is_key and record_name.",
        "Change it if a topic holds records of several types.",
    )


REGISTRY_KEYS = (
    ConfigKey(
        "schema.registry.url", "list", [], _urls, takes_references=True, hides_value=True
    ).documented(
        "Addresses of a schema registry with Confluent's REST API. If one does not answer, the "
        "driver asks the next. Tasks never ask.",
        "Set it to use a registry.",
    ),
    flag("auto.register.schemas", True).documented(
        "Registers the schema if its subject does not have it.",
        "Set false if the schema must exist already.",
    ),
    flag("use.latest.version", False).documented(
        "Writes with the latest schema of the subject instead of a derived one. Registers nothing.",
        "Set it if others register the schemas.",
    ),
    ConfigKey("use.latest.with.metadata", "list", [], _pairs).documented(
        "Writes with the latest schema of the subject that has this metadata, as name=value. "
        "Registers nothing.",
        "Set it if a subject has schemas for several applications.",
    ),
    flag("latest.compatibility.strict", True).documented(
        "With use.latest.version, rejects columns that the schema does not have. With false, "
        "avro and protobuf omit them, and json is not compared with the schema.",
        "Set false if the schema lacks columns on purpose.",
    ),
    ConfigKey("use.schema.id", "int", None, at_least(0)).documented(
        "Writes values with the registry's schema of this id. Registers nothing.",
        "Set it if values must keep one version of a schema.",
    ),
    ConfigKey("key.use.schema.id", "int", None, at_least(0)).documented(
        "Writes keys with the registry's schema of this id. Registers nothing.",
        "Set it if keys must keep one version of a schema.",
    ),
    flag("id.compatibility.strict", True).documented(
        "With use.schema.id or key.use.schema.id, rejects columns that the schema does not have. "
        "With false, avro and protobuf omit them, and json is not compared with the schema.",
        "Set false if the schema lacks columns on purpose.",
    ),
    flag("normalize.schemas", False).documented(
        "Lets the registry normalise a schema before it looks for it, so that equivalent schemas "
        "match.",
        "Set it if schemas differ only in their layout.",
    ),
    _references_key("value"),
    _references_key("key"),
    _strategy("value"),
    _strategy("key"),
    choice(f"{_BASIC}credentials.source", None, (URL, USER_INFO, SASL_INHERIT)).documented(
        "Source of user and password. URL: schema.registry.url. USER_INFO: "
        "schema.registry.basic.auth.user.info. SASL_INHERIT: kafka.sasl.*. Default: USER_INFO if "
        "that option is set, else URL.",
        "Set SASL_INHERIT if the registry has the same users as the brokers.",
    ),
    secret(f"{_BASIC}user.info").documented(
        "User and password, as user:password.",
        "Set it if the registry asks for a password.",
    ),
    choice(f"{_BEARER}credentials.source", None, (STATIC_TOKEN, OAUTHBEARER)).documented(
        "Source of a bearer token. STATIC_TOKEN: schema.registry.bearer.auth.token. OAUTHBEARER: "
        "an issuer, by client credentials. Default: the one that is set.",
        "Set it only if both a token and an issuer are set.",
    ),
    secret(f"{_BEARER}token").documented(
        "A bearer token for the registry.",
        "Set it for a token that does not change.",
    ),
    optional_text(f"{_BEARER}issuer.endpoint.url", takes_references=True).documented(
        "Token endpoint of the issuer.",
        "Set it if an issuer grants the registry's tokens.",
    ),
    optional_text(f"{_BEARER}client.id", takes_references=True).documented(
        "Client id at the issuer.",
        "Set it with the issuer.",
    ),
    secret(f"{_BEARER}client.secret").documented(
        "Client secret at the issuer.",
        "Set it with the issuer.",
    ),
    optional_text(f"{_BEARER}scope").documented(
        "Scope to request from the issuer.",
        "Set it if the issuer requires one.",
    ),
    optional_text(f"{_BEARER}logical.cluster").documented(
        "Confluent Cloud: the registry's id (lsrc-…), sent as header target-sr-cluster.",
        "Set it with a token.",
    ),
    optional_text(f"{_BEARER}identity.pool.id").documented(
        "Confluent Cloud: the id of an identity pool, sent as header Confluent-Identity-Pool-Id.",
        "Set it if your tokens belong to a pool.",
    ),
    ConfigKey(f"{REGISTRY_PREFIX}timeout.ms", "int", 12000, at_least(1)).documented(
        "Time limit of all attempts at all addresses. One request may take a third of it, or "
        "5000 if that is more.",
        "Increase it for a slow registry.",
    ),
    *(
        key._replace(
            name=REGISTRY_PREFIX + key.name,
            doc=f"As kafka.{key.name}, for the driver's connections to the registry.",
            when="Set it if the registry needs it.",
        )
        for key in SSL_KEYS
        if key.name != "ssl.engine.factory.class"
    ),
)


_BASIC_FIELD, _BEARER_FIELD = "schema_registry_basic_auth_", "schema_registry_bearer_auth_"
_SSL = "schema_registry_"
_NAMES = frozenset(key.name for key in REGISTRY_KEYS)
# One request may take a part of schema.registry.timeout.ms, so that time is left to try another
# address.
_TRIES, _LEAST_REQUEST_MS = 3, 5000
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_SCHEMA_OPTION = {
    AVRO: "avro.schema",
    JSON: "json.schema",
    PROTOBUF: "protobuf.descriptor.file",
}


@dataclass(frozen=True, slots=True)
class BearerConfig:
    """``schema.registry.bearer.auth.*``: a token, or the issuer of tokens."""

    token: Secret | None
    issuer: str | None
    client_id: str | None
    client_secret: Secret | None
    scope: str | None
    logical_cluster: str | None
    identity_pool: str | None


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """``schema.registry.*``. urls: secrets, because they may hold credentials

    user_info: user:password; None if the URL holds the credentials or none are set
    has_url_credentials: whether basic.auth.credentials.source is URL
    bearer: None without a token
    """

    urls: tuple[Secret, ...]
    user_info: Secret | None
    bearer: BearerConfig | None
    ssl: SslConfig
    request_timeout_ms: int
    timeout_ms: int
    has_url_credentials: bool = False


class Reference(NamedTuple):
    """A schema that another schema refers to. version: None for the latest"""

    name: str
    subject: str
    version: int | None


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """Options that choose a registry's schema for the key or the value.

    strategy: TOPIC_NAME, RECORD_NAME or TOPIC_RECORD_NAME, or package.module:function
    schema_id: use.schema.id; None if the subject decides
    requires_all_columns: whether the registry's schema must have all columns
    metadata: use.latest.with.metadata, pairs that the latest schema must have
    """

    strategy: str
    schema_id: int | None
    uses_latest_version: bool
    registers_schema: bool
    is_normalized: bool
    requires_all_columns: bool = True
    metadata: tuple[tuple[str, str], ...] = ()
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Options of a registry. value, key: None if no schema id is written with the part

    config: None without ``schema.registry.url``: given ids are written without a look-up
    """

    config: RegistryConfig | None
    value: SchemaOptions | None
    key: SchemaOptions | None


def parse_registry(
    sink: Mapping[str, Any],
    formats: FormatOptions | None,
    security: SecurityConfig,
    option_names: Iterable[str],
) -> RegistryOptions | None:
    """Build the options from the parsed table; None if keys and values get no schema id.

    security: of the connections to brokers, for SASL_INHERIT
    option_names: names of the options that are set. Raises ConfigError.
    """
    urls = sink["schema_registry_url"]
    if formats is None:
        _check_url_is_used(urls, ())
        return None
    if not urls:
        _check_no_registry(sink, formats, option_names)
    value = _schema_of(sink, formats.value, sink["use_schema_id"])
    key = _schema_of(sink, formats.key, sink["key_use_schema_id"])
    if value is None and key is None:
        _check_url_is_used(urls, (formats.value, formats.key))
        return None
    config = _config(sink, urls, security) if urls else None
    return RegistryOptions(config, value, key)


def _check_url_is_used(urls: Sequence[Secret], parts: Sequence[PartOptions]) -> None:
    """Raise ConfigError for a registry's address if nothing gets a schema id.

    An explicit ``*.schema.id.prefix=false`` is the user's decision, which a log note confirms.
    """
    if urls and all(part.has_id is None for part in parts):
        raise ConfigError(
            f"option '{REGISTRY_PREFIX}url' is used by neither value.format nor key.format: no id "
            "of a schema would be written. Set value.format to avro or protobuf, or set "
            "value.schema.id.prefix to true, or remove the option",
            code="REGISTRY-001",
        )


def _check_no_registry(
    sink: Mapping[str, Any], formats: FormatOptions, option_names: Iterable[str]
) -> None:
    """Raise ConfigError for registry options without the registry's address.

    Values would be written without an id, and consumers that use a registry could not read them.
    """
    ids = {"value": sink["use_schema_id"], "key": sink["key_use_schema_id"]}
    parts = {
        part.part: part.format
        for part in (formats.value, formats.key)
        # If the prefix and an id are set, no registry has to be asked.
        if part.format in (AVRO, PROTOBUF)
        and part.has_id is not False
        and not (part.has_id and ids[part.part] is not None)
    }
    for name in option_names:
        part = _part_of(name)
        if name in _NAMES and (part in parts if part else parts):
            part = part or next(iter(parts))
            raise ConfigError(
                f"option '{name}' needs schema.registry.url: without it {part}.format="
                f"{parts[part]} would write no id of a schema. Set it, or leave '{name}' out",
                code="REGISTRY-002",
            )


def _part_of(name: str) -> str | None:
    """Return the part, value or key, that an option is for; None for an option of both."""
    if name == "use.schema.id":
        return "value"
    first = name.partition(".")[0]
    return first if first in ("value", "key") else None


def _schema_of(
    sink: Mapping[str, Any], part: PartOptions, schema_id: int | None
) -> SchemaOptions | None:
    """Return the schema options of the part; None if it gets no schema id. Raises ConfigError."""
    name, urls = part.part, sink["schema_registry_url"]
    has_schema = part.format in (AVRO, PROTOBUF)
    writes_id = part.has_id if part.has_id is not None else has_schema and bool(urls)
    metadata = _metadata(sink)
    uses_latest = sink["use_latest_version"] or bool(metadata)
    if not (writes_id and urls and (uses_latest or schema_id is not None)):
        _check_message(part)
    if not writes_id:
        return None
    prefix = f"{name}.schema.id.prefix=true"
    if part.format == STRING:
        raise ConfigError(
            f"{prefix}: {name}.format=string has no schema. Leave it out", code="REGISTRY-003"
        )
    if not urls and (schema_id is None or part.format == AVRO or part.id_location == HEADER):
        raise ConfigError(
            f"{prefix} needs schema.registry.url, where its schema is", code="REGISTRY-002"
        )
    if not part.has_fields and schema_id is None and not uses_latest:
        raise ConfigError(
            f"{prefix} with {name}.format={part.format} needs use.latest.version=true, or the id "
            f"of a schema in {_id_option(name)}: a schema is derived "
            "from columns for avro and json only",
            code="REGISTRY-004",
        )
    schema_option = (
        "use.schema.id" if schema_id is not None else "use.latest.version" if uses_latest else None
    )
    references = _references_of(sink, part, schema_option)
    return SchemaOptions(
        sink[f"{name}_subject_name_strategy"],
        schema_id,
        uses_latest and schema_id is None,
        sink["auto_register_schemas"] and not uses_latest and schema_id is None,
        sink["normalize_schemas"],
        sink["latest_compatibility_strict" if schema_id is None else "id_compatibility_strict"],
        metadata,
        references,
    )


def _check_message(part: PartOptions) -> None:
    """Raise ConfigError for Protobuf if neither a file nor a registry gives the message."""
    name = part.part
    if part.format == PROTOBUF and part.descriptor_file is None:
        raise ConfigError(
            f"{name}.format=protobuf needs {name}.protobuf.descriptor.file and "
            f"{name}.protobuf.message; or schema.registry.url with use.latest.version=true or "
            f"{_id_option(name)}. No message is derived from columns",
            code="FORMAT-003",
        )


def _id_option(part: str) -> str:
    return "use.schema.id" if part == "value" else "key.use.schema.id"


def _references_of(
    sink: Mapping[str, Any], part: PartOptions, schema_option: str | None
) -> tuple[Reference, ...]:
    """Return the references of the part's schema. Raises ConfigError.

    schema_option: the option that chooses a registry's schema, or None for a schema of the part's
    own
    """
    name = part.part
    own_schema: object = {AVRO: part.avro_schema, JSON: part.json_schema}.get(part.format)
    if schema_option is not None and own_schema is not None:
        raise ConfigError(
            f"{name}.{part.format}.schema and {schema_option} both say which schema to write "
            "with: leave one of them out",
            code="OPTION-009",
        )
    option = f"{name}.schema.references"
    references = _references(sink[option.replace(".", "_")], option)
    if references and part.format == PROTOBUF:
        own_schema = part.descriptor_file if schema_option is None else None
    if references and own_schema is None and schema_option is not None:
        raise ConfigError(
            f"{option} and {schema_option} exclude each other: the registry tells what its schema "
            "builds on. Leave one of them out",
            code="OPTION-009",
        )
    if references and own_schema is None:
        raise ConfigError(
            f"{option} needs {name}.{_SCHEMA_OPTION.get(part.format, 'avro.schema')}, which builds "
            "on them",
            code="OPTION-008",
        )
    return references


def _metadata(sink: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    pairs = (pair.partition("=") for pair in sink["use_latest_with_metadata"])
    return tuple((name.strip(), value.strip()) for name, _, value in pairs)


def _references(text: str | None, option: str) -> tuple[Reference, ...]:
    """Parse references, JSON as in the registry's API. Raises ConfigError."""
    if text is None:
        return ()
    try:
        return tuple(_reference(item) for item in json.loads(text))
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f"{option} must be a JSON list of objects with name, subject and, unless it is the "
            'latest one, version: [{"name": "acme.Address", "subject": "address", "version": 1}]',
            code="OPTION-003",
        ) from None


def _reference(item: Mapping[str, Any]) -> Reference:
    version = item.get("version")
    if version is not None and (not isinstance(version, int) or version < 1):
        raise ValueError
    if not isinstance(item["name"], str) or not isinstance(item["subject"], str):
        raise TypeError
    return Reference(item["name"], item["subject"], version)


def _config(sink: Mapping[str, Any], urls: list[str], security: SecurityConfig) -> RegistryConfig:
    timeout_ms = sink["schema_registry_timeout_ms"]
    source = sink[f"{_BASIC_FIELD}credentials_source"]
    user_info = sink[f"{_BASIC_FIELD}user_info"]
    bearer = _bearer(sink)
    if source == USER_INFO and user_info is None:
        raise ConfigError(
            "schema.registry.basic.auth.credentials.source=USER_INFO needs "
            "schema.registry.basic.auth.user.info, as user:password",
            code="OPTION-008",
        )
    if source == SASL_INHERIT:
        user_info = _sasl_credentials(security)
    if source == URL:
        user_info = None
        for url in urls:
            if "${" not in url:  # a URL with a reference is checked after it is resolved
                check_credentials_in(split_url(url))
    if bearer is not None and (user_info is not None or source is not None):
        raise ConfigError(
            "schema.registry.basic.auth.* and schema.registry.bearer.auth.* are both given: leave "
            "one of them out",
            code="OPTION-009",
        )
    return RegistryConfig(
        tuple(SecretUrl(url) for url in urls),
        user_info,
        bearer,
        _ssl(sink),
        min(max(_LEAST_REQUEST_MS, timeout_ms // _TRIES), timeout_ms),
        timeout_ms,
        source == URL,
    )


def check_credentials_in(url: SplitResult | None) -> None:
    """Raise ConfigError if an address has no user; the error shows no credentials."""
    if url is not None and url.username is None:
        raise ConfigError(
            "schema.registry.basic.auth.credentials.source=URL needs user and password in "
            "schema.registry.url, as https://user:password@host:port: "
            f"{redacted_url(url.geturl())} has none",
            code="OPTION-008",
        )


def _sasl_credentials(security: SecurityConfig) -> Secret:
    sasl = security.sasl
    if sasl is None or sasl.username is None or sasl.password is None:
        raise ConfigError(
            "schema.registry.basic.auth.credentials.source=SASL_INHERIT needs kafka.sasl.username "
            "and kafka.sasl.password",
            code="OPTION-008",
        )
    return Secret(f"{sasl.username}:{sasl.password.reveal()}")


def _bearer(sink: Mapping[str, Any]) -> BearerConfig | None:
    source = sink[f"{_BEARER_FIELD}credentials_source"]
    token, issuer = sink[f"{_BEARER_FIELD}token"], sink[f"{_BEARER_FIELD}issuer_endpoint_url"]
    if source is None:
        source = STATIC_TOKEN if token is not None else OAUTHBEARER if issuer is not None else None
    if source is None:
        _check_no_bearer(sink)
        return None
    if source == STATIC_TOKEN:
        issuer = None
        required = {"token": token}
    else:
        token = None
        names = ("issuer.endpoint.url", "client.id", "client.secret")
        required = {name: sink[_BEARER_FIELD + name.replace(".", "_")] for name in names}
    missing = [name for name, value in required.items() if value is None]
    if missing:
        raise ConfigError(
            f"schema.registry.bearer.auth.credentials.source={source} needs "
            f"schema.registry.bearer.auth.{missing[0]}",
            code="OPTION-008",
        )
    return BearerConfig(
        token,
        issuer,
        sink[f"{_BEARER_FIELD}client_id"],
        sink[f"{_BEARER_FIELD}client_secret"],
        sink[f"{_BEARER_FIELD}scope"],
        sink[f"{_BEARER_FIELD}logical_cluster"],
        sink[f"{_BEARER_FIELD}identity_pool_id"],
    )


def _check_no_bearer(sink: Mapping[str, Any]) -> None:
    """Raise ConfigError for options of a token if neither a token nor an issuer is set."""
    for name in ("client.id", "client.secret", "scope", "logical.cluster", "identity.pool.id"):
        if sink[_BEARER_FIELD + name.replace(".", "_")] is not None:
            raise ConfigError(
                f"schema.registry.bearer.auth.{name} needs a token: set "
                "schema.registry.bearer.auth.issuer.endpoint.url, or "
                "schema.registry.bearer.auth.token",
                code="OPTION-008",
            )


def _ssl(sink: Mapping[str, Any]) -> SslConfig:
    fields = {n.removeprefix(_SSL): v for n, v in sink.items() if n.startswith(f"{_SSL}ssl_")}
    try:
        return parse_ssl(fields)
    except ConfigError as error:
        message = str(error).replace("kafka.ssl.", f"{REGISTRY_PREFIX}ssl.")
        raise ConfigError(message, code=error.code) from None


def sends_credentials_in_clear(config: RegistryConfig) -> bool:
    """Return True if credentials leave this machine without TLS."""
    for url in config.urls:
        parts = split_url(url.reveal())
        if parts is None:  # a URL with a reference is checked after it is resolved
            continue
        has_credentials = config.user_info or config.bearer or parts.username is not None
        if parts.scheme == "http" and has_credentials and parts.hostname not in _LOCAL_HOSTS:
            return True
    return False
