"""List and check ``schema.registry.*`` and the options that choose a registry's schema.

Source of the names: Confluent's ``SchemaRegistryClientConfig``, ``AbstractKafkaSchemaSerDeConfig``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.base.model import dataclass
from spark_kafka_sink.base.text import Secret, SecretUrl, problem_of_at_sign, redacted_url
from spark_kafka_sink.config.config_def import (
    ConfigKey,
    at_least,
    canonical_case,
    choice,
    flag,
    one_of_or_own,
    optional_text,
    secret,
)
from spark_kafka_sink.config.formats import (
    AVRO,
    HEADER,
    JSON,
    KEY,
    PROTOBUF,
    RECORD_NAMES,
    STRING,
    VALUE,
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
    return text if ":" in text else canonical_case(*_STRATEGIES)(text.rpartition(".")[2])


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
    is_valid = all(pair.find("=") > 0 for pair in pairs)
    return None if is_valid else "each must be of the form name=value"


def _references_key(part: str) -> ConfigKey:
    return optional_text(f"{part}.schema.references").about("""
        Schemas that the part's avro.schema or json.schema builds on, as in the registry's API:
        `[{"name": …, "subject": …, "version": …}]`. Without version: the latest when the query
        starts. For Protobuf: subjects of imported files that are registered under another name.
        > Set it if the schema uses types of other subjects.""")


def _strategy(part: str) -> ConfigKey:
    validator = one_of_or_own("function", *_STRATEGIES)
    name = f"{part}.subject.name.strategy"
    return ConfigKey(name, "class", TOPIC_NAME, validator, _simple_name).about("""
        Subject of the schema. TopicNameStrategy: topic-value or topic-key. RecordNameStrategy: the
        record's full name. TopicRecordNameStrategy: both, with a hyphen. Java's class names are
        accepted. `package.module:function` is called on the driver with topic (None if a column has
        it), is_key and record_name.
        > Change it if a topic holds records of several types.""")


REGISTRY_KEYS = (
    ConfigKey(
        "schema.registry.url", "list", [], _urls, takes_references=True, hides_value=True
    ).about("""
        Addresses of a schema registry with Confluent's REST API. If one does not answer, the driver
        asks the next. Tasks never ask.
        > Set it to use a registry."""),
    flag("auto.register.schemas", True).about("""
        Registers the schema if its subject does not have it.
        > Set false if the schema must exist already."""),
    flag("use.latest.version", False).about("""
        Writes with the latest schema of the subject instead of a derived one. Registers nothing.
        > Set it if others register the schemas."""),
    flag("key.use.latest.version", None).about("""
        As use.latest.version, for keys alone. Default: use.latest.version.
        > Set it if others register the schemas of keys alone, or those of values alone."""),
    ConfigKey("use.latest.with.metadata", "list", [], _pairs).about("""
        Writes with the latest schema of the subject that has this metadata, as name=value.
        Registers nothing.
        > Set it if a subject has schemas for several applications."""),
    flag("latest.compatibility.strict", True).about("""
        With use.latest.version, rejects columns that the schema does not have. With false, avro and
        protobuf omit them, and json is not compared with the schema.
        > Set false if the schema lacks columns on purpose."""),
    ConfigKey("use.schema.id", "int", None, at_least(0)).about("""
        Writes values with the registry's schema of this id. Registers nothing.
        > Set it if values must keep one version of a schema."""),
    ConfigKey("key.use.schema.id", "int", None, at_least(0)).about("""
        Writes keys with the registry's schema of this id. Registers nothing.
        > Set it if keys must keep one version of a schema."""),
    flag("id.compatibility.strict", True).about("""
        With use.schema.id or key.use.schema.id, rejects columns that the schema does not have. With
        false, avro and protobuf omit them, and json is not compared with the schema.
        > Set false if the schema lacks columns on purpose."""),
    flag("normalize.schemas", False).about("""
        Lets the registry normalise a schema before it looks for it, so that equivalent schemas
        match.
        > Set it if schemas differ only in their layout."""),
    _references_key("value"),
    _references_key("key"),
    _strategy("value"),
    _strategy("key"),
    choice(f"{_BASIC}credentials.source", None, (URL, USER_INFO, SASL_INHERIT)).about("""
        Source of user and password. URL: schema.registry.url. USER_INFO:
        schema.registry.basic.auth.user.info. SASL_INHERIT: kafka.sasl.*. Default: USER_INFO if that
        option is set, else URL.
        > Set SASL_INHERIT if the registry has the same users as the brokers."""),
    secret(f"{_BASIC}user.info").about("""
        User and password, as user:password.
        > Set it if the registry asks for a password."""),
    choice(f"{_BEARER}credentials.source", None, (STATIC_TOKEN, OAUTHBEARER)).about("""
        Source of a bearer token. STATIC_TOKEN: schema.registry.bearer.auth.token. OAUTHBEARER: an
        issuer, by client credentials. Default: the one that is set.
        > Set it only if both a token and an issuer are set."""),
    secret(f"{_BEARER}token").about("""
        A bearer token for the registry.
        > Set it for a token that does not change."""),
    optional_text(f"{_BEARER}issuer.endpoint.url", takes_references=True).about("""
        Token endpoint of the issuer.
        > Set it if an issuer grants the registry's tokens."""),
    optional_text(f"{_BEARER}client.id", takes_references=True).about("""
        Client id at the issuer.
        > Set it with the issuer."""),
    secret(f"{_BEARER}client.secret").about("""
        Client secret at the issuer.
        > Set it with the issuer."""),
    optional_text(f"{_BEARER}scope").about("""
        Scope to request from the issuer.
        > Set it if the issuer requires one."""),
    optional_text(f"{_BEARER}logical.cluster").about("""
        Confluent Cloud: the registry's id (lsrc-…), sent as header target-sr-cluster.
        > Set it with a token."""),
    optional_text(f"{_BEARER}identity.pool.id").about("""
        Confluent Cloud: the id of an identity pool, sent as header Confluent-Identity-Pool-Id.
        > Set it if your tokens belong to a pool."""),
    ConfigKey(f"{REGISTRY_PREFIX}timeout.ms", "int", 12000, at_least(1)).about("""
        Time limit of all attempts at all addresses. One request may take a third of it, or 5000 if
        that is more.
        > Increase it for a slow registry."""),
    *(
        key._replace(
            name=REGISTRY_PREFIX + key.name,
            text=f"As kafka.{key.name}, for the driver's connections to the registry.\n"
            "> Set it if the registry needs it.",
        )
        for key in SSL_KEYS
        if key.name != "ssl.engine.factory.class"
    ),
)


_NAMES = frozenset(key.name for key in REGISTRY_KEYS)
# One request may take a part of schema.registry.timeout.ms, so that time is left to try another
# address.
_TRIES, _LEAST_REQUEST_MS = 3, 5000
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_SCHEMA_OPTION = {JSON: "json.schema", PROTOBUF: "protobuf.descriptor.file"}
_LATEST = ("use.latest.version", "use.latest.with.metadata")
_KEY_LATEST = "key.use.latest.version"
_ISSUER = ("issuer.endpoint.url", "client.id", "client.secret")


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
    parts = () if formats is None else (formats.value, formats.key)
    if not urls:
        _check_no_registry(sink, parts, option_names)
    schemas = {part.part: _schema_of(sink, part) for part in parts}
    value, key = schemas.get(VALUE), schemas.get(KEY)
    if value is not None or key is not None:
        return RegistryOptions(_config(sink, urls, security) if urls else None, value, key)
    # An explicit *.schema.id.prefix=false is the user's decision, which a log note confirms.
    if urls and all(part.has_id is None for part in parts):
        raise ConfigError(
            f"option '{REGISTRY_PREFIX}url' is used by neither value.format nor key.format: no id "
            "of a schema would be written. Set value.format to avro or protobuf, or set "
            "value.schema.id.prefix to true, or remove the option",
            code="REGISTRY-001",
        )
    return None


def _check_no_registry(
    sink: Mapping[str, Any], parts: Iterable[PartOptions], option_names: Iterable[str]
) -> None:
    """Raise ConfigError for registry options without the registry's address.

    Values would be written without an id, and consumers that use a registry could not read them.
    """
    formats = {
        part.part: part.format
        for part in parts
        # If the prefix and an id are set, no registry has to be asked.
        if part.format in (AVRO, PROTOBUF)
        and part.has_id is not False
        and not (part.has_id and _schema_id(sink, part.part) is not None)
    }
    for name in option_names:
        first = VALUE if name == "use.schema.id" else name.partition(".")[0]
        # An option that begins with neither part is for both.
        part = first if first in (VALUE, KEY) else next(iter(formats), "")
        if name in _NAMES and part in formats:
            raise ConfigError(
                f"option '{name}' needs schema.registry.url: without it {part}.format="
                f"{formats[part]} would write no id of a schema. Set it, or leave '{name}' out",
                code="REGISTRY-002",
            )


def _id_option(part: str) -> str:
    return "use.schema.id" if part == VALUE else "key.use.schema.id"


def _schema_id(sink: Mapping[str, Any], part: str) -> int | None:
    schema_id: int | None = sink[_id_option(part).replace(".", "_")]
    return schema_id


def _schema_of(sink: Mapping[str, Any], part: PartOptions) -> SchemaOptions | None:
    """Return the schema options of the part; None if it gets no schema id. Raises ConfigError."""
    name, urls, schema_id = part.part, sink["schema_registry_url"], _schema_id(sink, part.part)
    has_schema = part.format in (AVRO, PROTOBUF)
    writes_id = part.has_id if part.has_id is not None else has_schema and bool(urls)
    pairs = (pair.partition("=") for pair in sink["use_latest_with_metadata"])
    metadata = tuple((key.strip(), value.strip()) for key, _, value in pairs)
    uses_latest = schema_id is None and (sink["use_latest_version"] or bool(metadata))
    if name == KEY and schema_id is None and sink[_KEY_LATEST.replace(".", "_")] is not None:
        uses_latest = sink[_KEY_LATEST.replace(".", "_")]
    is_chosen = schema_id is not None or uses_latest
    if (
        part.format == PROTOBUF
        and part.descriptor_file is None
        and not (writes_id and urls and is_chosen)
    ):
        raise ConfigError(
            f"{name}.format=protobuf needs {name}.protobuf.descriptor.file and "
            f"{name}.protobuf.message; or schema.registry.url with use.latest.version=true or "
            f"{_id_option(name)}. No message is derived from columns",
            code="FORMAT-003",
        )
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
    if not part.has_fields and not is_chosen:
        raise ConfigError(
            f"{prefix} with {name}.format={part.format} needs use.latest.version=true, or the id "
            f"of a schema in {_id_option(name)}: a schema is derived "
            "from columns for avro and json only",
            code="REGISTRY-004",
        )
    chosen_by = "use.latest.version" if uses_latest else "use.schema.id" if is_chosen else None
    return SchemaOptions(
        sink[f"{name}_subject_name_strategy"],
        schema_id,
        uses_latest,
        sink["auto_register_schemas"] and not is_chosen,
        sink["normalize_schemas"],
        sink["latest_compatibility_strict" if schema_id is None else "id_compatibility_strict"],
        metadata if uses_latest else (),
        _references_of(sink, part, chosen_by),
    )


def _references_of(
    sink: Mapping[str, Any], part: PartOptions, chosen_by: str | None
) -> tuple[Reference, ...]:
    """Return the references of the part's schema. Raises ConfigError.

    chosen_by: the option that chooses a registry's schema, or None for a schema of the part's own
    """
    name = part.part
    own_schema: object = {AVRO: part.avro_schema, JSON: part.json_schema}.get(part.format)
    if chosen_by is not None and own_schema is not None:
        raise ConfigError(
            f"{name}.{part.format}.schema and {chosen_by} both say which schema to write "
            "with: leave one of them out",
            code="OPTION-009",
        )
    if part.format == PROTOBUF and chosen_by is None:
        own_schema = part.descriptor_file
    option = f"{name}.schema.references"
    references = _references(sink[f"{name}_schema_references"], option)
    if not references or own_schema is not None:
        return references
    if chosen_by is not None:
        raise ConfigError(
            f"{option} and {chosen_by} exclude each other: the registry tells what its schema "
            "builds on. Leave one of them out",
            code="OPTION-009",
        )
    raise ConfigError(
        f"{option} needs {name}.{_SCHEMA_OPTION.get(part.format, 'avro.schema')}, which builds "
        "on them",
        code="OPTION-008",
    )


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
    source = sink["schema_registry_basic_auth_credentials_source"]
    user_info = sink["schema_registry_basic_auth_user_info"]
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
    names = ("token", *_ISSUER, "scope", "logical.cluster", "identity.pool.id")
    given = {name: sink[f"{_BEARER}{name}".replace(".", "_")] for name in names}
    source = sink[f"{_BEARER}credentials.source".replace(".", "_")]
    if source is None and given["token"] is not None:
        source = STATIC_TOKEN
    elif source is None and given["issuer.endpoint.url"] is not None:
        source = OAUTHBEARER
    elif source is None:
        for name in names:
            if given[name] is not None:
                raise ConfigError(
                    f"{_BEARER}{name} needs a token: set {_BEARER}issuer.endpoint.url, or "
                    f"{_BEARER}token",
                    code="OPTION-008",
                )
        return None
    for name in ("token",) if source == STATIC_TOKEN else _ISSUER:
        if given[name] is None:
            raise ConfigError(
                f"{_BEARER}credentials.source={source} needs {_BEARER}{name}", code="OPTION-008"
            )
    given["issuer.endpoint.url" if source == STATIC_TOKEN else "token"] = None
    return BearerConfig(*given.values())


def _ssl(sink: Mapping[str, Any]) -> SslConfig:
    prefix = "schema_registry_"
    fields = {n.removeprefix(prefix): v for n, v in sink.items() if n.startswith(f"{prefix}ssl_")}
    try:
        return parse_ssl(fields)
    except ConfigError as error:
        message = str(error).replace("kafka.ssl.", f"{REGISTRY_PREFIX}ssl.")
        raise ConfigError(message, code=error.code) from None


def unused_registry_options(
    options: RegistryOptions | None, formats: FormatOptions | None, sink: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the options that have no effect beside the others, with the reason."""
    if options is None:
        reason = (
            "without a schema: set value.format to avro or protobuf, or value.schema.id.prefix to "
            "true"
        )
        yield from ((name, reason) for name in _NAMES)
    else:
        yield from _unused_by_choice([one for one in (options.value, options.key) if one], sink)
        if options.config is not None:
            yield from _unused_credentials(options.config, sink)
    if formats is None:
        return
    derives_schema = False
    for part in (formats.value, formats.key):
        schema = None if options is None else options.value if part.part == VALUE else options.key
        yield from _unused_by_part(part.part, schema, bool(sink["schema_registry_url"]))
        if part.format == AVRO and part.avro_schema is None:
            derives_schema |= schema is None or _uses_record_name(schema)
    if AVRO in (formats.value.format, formats.key.format) and not derives_schema:
        for name in RECORD_NAMES:
            yield name, "where the schema is given, or is one of the registry"


def _unused_by_choice(
    schemas: list[SchemaOptions], sink: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield options for all parts. schemas: schema options of the value and the key"""
    with_id = [schema for schema in schemas if schema.schema_id is not None]
    with_latest = [schema for schema in schemas if schema.uses_latest_version]
    if len(with_id) == len(schemas):
        for name in (*_LATEST, "latest.compatibility.strict"):
            yield name, "beside use.schema.id, which says the schema"
    elif not with_latest:
        yield "latest.compatibility.strict", f"without {' or '.join(_LATEST)}"
    if not with_id:
        yield "id.compatibility.strict", "without use.schema.id or key.use.schema.id"
    if len(with_id) + len(with_latest) == len(schemas):
        chosen_by = "use.latest.*" if with_latest else "use.schema.id"
        reason = f"beside {chosen_by}: nothing is registered"
        if sink["auto_register_schemas"]:
            yield "auto.register.schemas", reason
        yield "normalize.schemas", reason


def _unused_by_part(
    part: str, schema: SchemaOptions | None, has_url: bool
) -> Iterator[tuple[str, str]]:
    strategy, schema_id = f"{part}.subject.name.strategy", _id_option(part)
    if schema is None:
        needed_option = f"{part}.schema.id.prefix=true" if has_url else "schema.registry.url"
        reason = f"for no id of a schema goes with {part}s: this needs {needed_option}"
        location, references = f"{part}.schema.id.location", f"{part}.schema.references"
        yield from ((name, reason) for name in (location, strategy, schema_id, references))
        if part == KEY:
            yield _KEY_LATEST, reason
    elif schema.schema_id is not None:
        yield strategy, f"beside {schema_id}, which says the schema"
        if part == KEY:
            yield _KEY_LATEST, f"beside {schema_id}, which says the schema"


def _uses_record_name(schema: SchemaOptions) -> bool:
    """Return True if a derived schema's name is registered or part of a subject's name."""
    return schema.schema_id is None and (
        not schema.uses_latest_version or schema.strategy != TOPIC_NAME
    )


def _unused_credentials(
    config: RegistryConfig, sink: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    source = sink["schema_registry_basic_auth_credentials_source"]
    if source in (URL, SASL_INHERIT):
        yield f"{_BASIC}user.info", f"beside {_BASIC}credentials.source={source}"
    if config.bearer is not None and config.bearer.token is not None:
        for name in (*_ISSUER, "scope"):
            yield f"{_BEARER}{name}", f"beside {_BEARER}token, which is taken"
    elif config.bearer is not None:
        yield f"{_BEARER}token", f"beside {_BEARER}credentials.source=OAUTHBEARER"


def notes_on_registry(options: RegistryOptions, formats: FormatOptions) -> Iterator[str]:
    """Yield log sentences about ids without a registry, and about a registry's credentials."""
    config = options.config
    if config is None:
        for part, schema in ((formats.value, options.value), (formats.key, options.key)):
            if schema is not None and not part.has_fields:
                note = (
                    f"{part.part}.schema.id.prefix=true without schema.registry.url: five bytes "
                    f"are put before each {part.part}, which is all for Avro and JSON. Consumers "
                    "of Protobuf need the index of the message behind them: of Protobuf set "
                    "schema.registry.url"
                )
                yield coded(note, "REGISTRY-005")
        return
    if not config.ssl.checks_host_name:
        note = (
            "schema.registry.ssl.endpoint.identification.algorithm is empty: the registry's host "
            "name is not checked, so any certificate of a trusted authority passes for its own"
        )
        yield coded(note, "TLS-002")
    # A URL with a reference is checked after it is resolved.
    urls = [url for url in (split_url(url.reveal()) for url in config.urls) if url is not None]
    has_others = config.bearer is not None or config.user_info is not None
    if has_others and any(url.username is not None for url in urls):
        beside = _BASIC if config.bearer is None else _BEARER
        yield f"user and password in schema.registry.url have no effect beside {beside}*"
    if any(
        url.scheme == "http"
        and url.hostname not in LOCAL_HOSTS
        and (has_others or url.username is not None)
        for url in urls
    ):
        note = (
            "schema.registry.url begins with http:, so the credentials can be read by whoever is "
            "on the way: use https:"
        )
        yield coded(note, "REGISTRY-006")
