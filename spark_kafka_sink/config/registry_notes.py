"""What is told of options of a schema registry that have no effect, or that others can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spark_kafka_sink.config.format_keys import AVRO
from spark_kafka_sink.config.formats import FormatOptions, PartOptions
from spark_kafka_sink.config.registry import (
    RegistryConfig,
    RegistryOptions,
    SchemaOptions,
    sends_in_clear,
)
from spark_kafka_sink.config.registry_keys import (
    REGISTRY_KEYS,
    SASL_INHERIT,
    TOPIC_NAME,
    URL,
    split_url,
)

_NAMES = frozenset(key.name for key in REGISTRY_KEYS)
_LATEST = ("use.latest.version", "use.latest.with.metadata")
_BASIC, _BEARER = "schema.registry.basic.auth.", "schema.registry.bearer.auth."
_OF_ISSUER = tuple(
    _BEARER + name for name in ("issuer.endpoint.url", "client.id", "client.secret", "scope")
)


def notes_on_registry(
    options: RegistryOptions | None,
    formats: FormatOptions | None,
    sink: Mapping[str, Any],
    own: Iterable[str],
) -> Iterator[str]:
    """Sentences about options without effect. sink: parsed options; own: names that were given"""
    given = frozenset(own)
    if options is None:
        for name in own:
            if name in _NAMES:
                yield (
                    f"option '{name}' has no effect without a schema: set value.format to avro "
                    "or protobuf, or value.schema.id.prefix to true"
                )
    else:
        found = [part for part in (options.value, options.key) if part is not None]
        yield from (_without(n, why) for n, why in _on_choice(found, sink) if n in given)
    if formats is not None:
        asked = _by_part(options, formats)
        for part, schema in asked:
            noted = _on_part(part.part, schema, bool(sink["schema_registry_url"]))
            told = () if options is not None else _NAMES
            yield from (_without(n, why) for n, why in noted if n in given and n not in told)
        yield from (_without(n, why) for n, why in _on_names(asked) if n in given)
        if options is not None and options.config is None:
            yield from (_on_unknown_kind(part) for part, schema in asked if _is_raw(part, schema))
    if options is not None and options.config is not None:
        yield from _on_credentials(options.config, sink, given)


def _is_raw(part: PartOptions, schema: SchemaOptions | None) -> bool:
    """Whether bytes that are encoded already get an id."""
    return schema is not None and not part.has_fields


def _on_unknown_kind(part: PartOptions) -> str:
    return (
        f"{part.part}.schema.id.prefix=true without schema.registry.url: five bytes are put before "
        f"each {part.part}, which is all for Avro and JSON. Consumers of Protobuf need the index "
        "of the message behind them: of Protobuf set schema.registry.url"
    )


def _without(name: str, why: str) -> str:
    return f"option '{name}' has no effect {why}"


def _by_part(
    options: RegistryOptions | None, formats: FormatOptions
) -> list[tuple[PartOptions, SchemaOptions | None]]:
    if options is None:
        return [(formats.value, None), (formats.key, None)]
    return [(formats.value, options.value), (formats.key, options.key)]


def _on_choice(found: list[SchemaOptions], sink: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of options for all parts. found: what goes with values and keys"""
    if all(one.schema_id is not None for one in found):
        for name in (*_LATEST, "latest.compatibility.strict"):
            yield name, "beside use.schema.id, which says the schema"
    elif not any(one.is_latest for one in found):
        yield "latest.compatibility.strict", f"without {' or '.join(_LATEST)}"
    if not any(one.schema_id is not None for one in found):
        yield "id.compatibility.strict", "without use.schema.id or key.use.schema.id"
    if all(one.is_latest or one.schema_id is not None for one in found):
        chosen = "use.latest.*" if any(one.is_latest for one in found) else "use.schema.id"
        if sink["auto_register_schemas"]:
            yield "auto.register.schemas", f"beside {chosen}: nothing is registered"
        yield "normalize.schemas", f"beside {chosen}: nothing is registered"


def _on_part(part: str, schema: SchemaOptions | None, has_url: bool) -> Iterator[tuple[str, str]]:
    strategy = f"{part}.subject.name.strategy"
    schema_id = "use.schema.id" if part == "value" else "key.use.schema.id"
    if schema is None:
        why = f"for no id of a schema goes with {part}s"
        needed = f"{part}.schema.id.prefix=true" if has_url else "schema.registry.url"
        for name in (
            f"{part}.schema.id.location",
            strategy,
            schema_id,
            f"{part}.schema.references",
        ):
            yield name, f"{why}: this needs {needed}"
    elif schema.schema_id is not None:
        yield strategy, f"beside {schema_id}, which says the schema"


def _on_names(
    asked: list[tuple[PartOptions, SchemaOptions | None]],
) -> Iterator[tuple[str, str]]:
    """Of names that derived schemas have."""
    why = "where the schema is given, or is one of the registry"
    of_avro = [pair for pair in asked if pair[0].format == AVRO]
    if of_avro and not any(p.avro_schema is None and _names(s) for p, s in of_avro):
        yield "avro.record.name", why
        yield "avro.namespace", why


def _names(schema: SchemaOptions | None) -> bool:
    """Whether the name of a derived schema is registered, or in the name of a subject."""
    if schema is None:
        return True
    return schema.schema_id is None and (not schema.is_latest or schema.strategy != TOPIC_NAME)


def _on_credentials(
    config: RegistryConfig, sink: Mapping[str, Any], given: frozenset[str]
) -> Iterator[str]:
    source = sink["schema_registry_basic_auth_credentials_source"]
    name = f"{_BASIC}user.info"
    if name in given and source in (URL, SASL_INHERIT):
        yield _without(name, f"beside {_BASIC}credentials.source={source}")
    if config.bearer is not None and config.bearer.token is not None:
        for name in _OF_ISSUER:
            if name in given:
                yield _without(name, f"beside {_BEARER}token, which is taken")
    elif config.bearer is not None and f"{_BEARER}token" in given:
        name = f"{_BEARER}token"
        yield _without(name, f"beside {_BEARER}credentials.source=OAUTHBEARER")
    parts = [split_url(url.reveal()) for url in config.urls]
    is_in_url = any(one is not None and one.username is not None for one in parts)
    if is_in_url and (config.bearer is not None or config.user_info is not None):
        beside = f"{_BEARER}*" if config.bearer is not None else f"{_BASIC}*"
        yield f"user and password in schema.registry.url have no effect beside {beside}"
    if sends_in_clear(config):
        yield (
            "schema.registry.url begins with http:, so the credentials can be read by whoever is "
            "on the way: use https:"
        )
