"""JSON Schemas of rows: derived from a Spark schema or read from a file, and compared with others.

The derived schema describes the JSON of the rows. Objects have no additional properties, as in the
schemas of Confluent's serializer: otherwise a registry's usual rule rejects a new column. Every
value may be null, as in derived Avro schemas.

The comparison reports only certain misfits; conditions and patterns of the other schema are not
evaluated. Nearly all of Spark's columns and elements may be null, and each double may be NaN, even
if no row has such a value.

The driver uses this module, and ``pykafka-sink check`` uses it without Spark. Descriptors of
Protobuf are read from files here, too.

Source: JSON Schema, "$ref", "$id" and "$anchor", draft-04 to 2020-12; names of references resolve
as in Confluent's ``JsonSchema``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.base.text import parse_json, redacted
from spark_kafka_sink.config.formats import JSON, PartOptions, UserSchema
from spark_kafka_sink.formats.plan import FormatError

if TYPE_CHECKING:
    from spark_kafka_sink.formats.protobuf_layout import DescribedMessage

DRAFT = "http://json-schema.org/draft-07/schema#"

_NUMBER_OR_TEXT = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_TEXT = {"type": "string"}
_SIMPLE: dict[str, Any] = {
    "boolean": {"type": "boolean"},
    **{name: {"type": "integer"} for name in ("byte", "short", "integer", "long")},
    **dict.fromkeys(("float", "double"), _NUMBER_OR_TEXT),
    "binary": {"type": "string", "contentEncoding": "base64"},
    "void": {"type": "null"},
    "variant": {},  # of any type, null as well
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_AS_TEXT = re.compile(
    r"date|timestamp(?:_ntz)?|(?:char|varchar|time)\(\d+\)|string\b.*|interval .*"
)


class Written(NamedTuple):
    """Settings of the rows' JSON. is_null_left_out: whether null fields of structs are omitted

    has_own_dates, has_own_timestamps: whether the user sets a pattern
    """

    is_null_left_out: bool = True
    has_own_dates: bool = False
    has_own_timestamps: bool = False


def derived_json_schema(
    struct_json: str, title: str = "Row", written: Written | None = None
) -> str:
    """Return the JSON Schema, as text, of the fields in ``StructType.json()``.

    Raises FormatError for a type that is not written as JSON.
    """
    found = _Derived(written or Written()).type(json.loads(struct_json), "")
    return json.dumps({"$schema": DRAFT, "title": title, **found}, ensure_ascii=False)


class _Derived:
    def __init__(self, written: Written) -> None:
        self._written = written

    def type(self, spark_type: Any, path: str) -> Any:
        if isinstance(spark_type, dict):
            return self._nested(spark_type, path)
        if spark_type == "date" and not self._written.has_own_dates:
            return {"type": "string", "format": "date"}
        if spark_type == "timestamp" and not self._written.has_own_timestamps:
            return {"type": "string", "format": "date-time"}
        if spark_type in _SIMPLE:
            return _SIMPLE[spark_type]
        decimal = _DECIMAL.fullmatch(spark_type)
        if decimal is not None:
            return {"type": "number" if int(decimal[2]) > 0 else "integer"}
        if _AS_TEXT.fullmatch(spark_type):
            return _TEXT
        raise FormatError(
            f"column '{path}' has the Spark type {spark_type}, which is not written as JSON. Cast "
            "it to another type, or leave it out",
            code="FORMAT-007",
        )

    def _nested(self, spark_type: dict[str, Any], path: str) -> Any:
        kind = spark_type["type"]
        if kind == "udt":
            return self.type(spark_type["sqlType"], path)
        if kind == "array":
            inner = self.type(spark_type["elementType"], f"{path}[]")
            return {"type": "array", "items": _or_null(inner)}
        if kind == "map":
            inner = self.type(spark_type["valueType"], f"{path}[]")
            return {"type": "object", "additionalProperties": _or_null(inner)}
        properties = {}
        for field in spark_type["fields"]:
            inner = self.type(field["type"], f"{path}.{field['name']}" if path else field["name"])
            is_written = not self._written.is_null_left_out
            properties[field["name"]] = _or_null(inner) if is_written else inner
        return {"type": "object", "properties": properties, "additionalProperties": False}


def _or_null(kind: Any) -> Any:
    return kind if kind in ({}, {"type": "null"}) else {"oneOf": [{"type": "null"}, kind]}


_DYNAMIC = ("$dynamicRef", "$recursiveRef")
_TYPES = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])
_NULL = {"type": "null"}

_MAX_SHOWN = 20
"""Most misfits of one kind in a result; a registry's schema may have millions."""


class Compared(NamedTuple):
    """The result of a comparison, in words. ``and more`` stands for the misfits beyond 20.

    misfits: differences of each row; of_some: differences of rows with a null, NaN or infinity
    unknown: unresolved references, whose schemas are not compared
    """

    misfits: tuple[str, ...]
    of_some: tuple[str, ...]
    unknown: tuple[str, ...]


class _Misfit(NamedTuple):
    text: str
    is_sure: bool = True


def compared(written: Any, registered: Any, others: Iterable[tuple[str, Any]] = ()) -> Compared:
    """Compare two schemas as ``json.loads`` returns them.

    others: names and schemas to which ``registered`` refers

    Raises RecursionError, TypeError if ``registered`` or one of ``others`` is not a JSON Schema.
    """
    comparing = _Comparing(References(registered, others))
    found = comparing.misfits(written, registered, "")
    return Compared(
        _texts(one for one in found if one.is_sure),
        _texts(one for one in found if not one.is_sure),
        tuple(sorted(comparing.unknown)),
    )


def _limited(found: Iterable[_Misfit]) -> list[_Misfit]:
    """Return different misfits of each kind, up to one more than are shown.

    Each level of a schema has such a list, so complete lists would take quadratic memory.
    """
    kept: dict[bool, dict[_Misfit, None]] = {True: {}, False: {}}
    for one in found:
        if len(kept[one.is_sure]) <= _MAX_SHOWN:
            kept[one.is_sure][one] = None
        if len(kept[True]) > _MAX_SHOWN:
            break
    return [*kept[True], *kept[False]]


def _texts(found: Iterable[_Misfit]) -> tuple[str, ...]:
    texts = tuple(one.text for one in found)
    return texts if len(texts) <= _MAX_SHOWN else (*texts[:_MAX_SHOWN], "and more")


class _Comparing:
    """Compares schemas. Paths are those of ``written``, whose objects have one place each."""

    def __init__(self, references: References) -> None:
        self._references = references
        self.unknown: set[str] = set()
        # By identity of both schemas: they may refer to each other, also in circles.
        self._found: dict[tuple[int, int], list[_Misfit]] = {}

    def misfits(self, written: Any, registered: Any, path: str) -> list[_Misfit]:
        if registered is False:
            return [_Misfit(f"{_shown(path)} must not be there")]
        if not isinstance(registered, dict) or not written:
            return []  # the empty schema of a VARIANT allows any value
        key = (id(written), id(registered))
        if key not in self._found:
            self._found[key] = []  # a circular reference adds no misfit
            self._found[key] = _limited(self._misfits(written, registered, path))
        return self._found[key]

    def _misfits(self, written: Any, registered: Any, path: str) -> Iterator[_Misfit]:
        options = written.get("oneOf", written.get("anyOf"))
        if options is not None:
            for option in options:
                yield from self.misfits(option, registered, path)
            return
        found = self._of_all(written, registered, path)
        seldom = _seldom(written)
        if seldom is None:
            yield from found
        elif any(True for _ in found):
            yield _Misfit(f"{_shown(path)} that is {seldom}", is_sure=False)

    def _of_all(self, written: Any, registered: Any, path: str) -> Iterator[_Misfit]:
        self.unknown.update(str(registered[name]) for name in _DYNAMIC if name in registered)
        if "$ref" in registered:
            target = self._references.target(registered)
            if target is None:
                self.unknown.add(registered["$ref"])
            yield from self.misfits(written, target, path)
            if not self._references.has_neighbours(registered):
                return
        for part in _part(registered, "allOf", list):
            yield from self.misfits(written, part, path)
        for name in ("oneOf", "anyOf"):
            yield from self._of_branches(written, _part(registered, name, list), path)
        yield from self._of_option(written, registered, path)

    def _of_branches(self, written: Any, branches: Any, path: str) -> Iterator[_Misfit]:
        found = [self.misfits(written, branch, path) for branch in branches]
        if found and all(found):
            # Prefer the misfits of branches other than null, which the user cannot have meant.
            non_null = [f for f, branch in zip(found, branches) if not _is_null(branch)]
            yield from min(non_null or found, key=lambda f: (any(one.is_sure for one in f), len(f)))

    def _of_option(self, written: Any, registered: Any, path: str) -> Iterator[_Misfit]:
        kind = written.get("type", "string")
        allowed = _types(registered)
        if allowed and kind not in allowed and not (kind == "integer" and "number" in allowed):
            has = " or ".join(sorted(allowed))
            yield _Misfit(f"{_shown(path)} is written as {kind}, and the schema has {has}")
            return
        if kind == "array" and "prefixItems" not in registered:
            yield from self.misfits(written["items"], registered.get("items"), f"{path}[]")
        if kind == "object":
            yield from self._of_object(written, registered, f"{path}." if path else "")

    def _of_object(self, written: Any, registered: Any, above: str) -> Iterator[_Misfit]:
        others = registered.get("additionalProperties", True)
        properties = _part(registered, "properties", dict)
        if "patternProperties" not in registered:
            for name, inner in written.get("properties", {}).items():
                yield from self.misfits(inner, properties.get(name, others), above + name)
        # In draft-03, "required" is a boolean in each property.
        is_of_parent = isinstance(registered.get("required"), bool)
        for name in () if is_of_parent else _part(registered, "required", list):
            if "properties" in written and str(name) not in written["properties"]:
                yield _Misfit(f"'{above}{name}' is required, and no column is it")
        inner = written.get("additionalProperties")
        if isinstance(inner, dict):
            yield from self.misfits(inner, others, f"{above}*")


def _seldom(written: Any) -> str | None:
    """Return the kind of rare values (null, NaN) that ``written`` describes, or None."""
    if written == _NULL:
        return "null"
    return "NaN or infinite" if "enum" in written else None


def _part(registered: Any, name: str, kind: type[Any]) -> Any:
    """Return a keyword's list or object, empty by default. Raises TypeError for another type."""
    found = registered.get(name, kind())
    if not isinstance(found, kind):
        what = "list" if kind is list else "object"
        raise TypeError(f"its '{name}' is no {what}: {str(found)[:100]}")
    return found


def _is_null(branch: Any) -> bool:
    """Return True for the type null, also with a title, as in Confluent's derived schemas."""
    return isinstance(branch, dict) and branch.get("type") == "null"


def _types(registered: Any) -> set[str]:
    """Return the types; empty if one is unknown: draft-03 allows schemas as types, and ``any``."""
    types = registered.get("type")
    found = types if isinstance(types, list) else [types]
    is_known = all(isinstance(one, str) and one in _TYPES for one in found)
    return set(found) if is_known else set()


def _shown(path: str) -> str:
    return f"'{path}'" if path else "each row"


_NEW_DRAFTS = ("/draft/2019-09/", "/draft/2020-12/")
_VALUES = frozenset(["const", "default", "enum", "examples"])
"""Keywords that hold values; names in the values are not keywords."""
_OF_NAMES = frozenset(
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]
)
"""Keywords whose objects map the user's names to schemas; a name may equal a keyword."""

_INDEX = re.compile("[0-9]{1,9}")


class References:
    """Resolved references of a schema.

    root: a schema as ``json.loads`` returns it, which must not change; others: names and schemas

    Names of others are relative to the ``$id`` of ``root``. If two different schemas have one name,
    the name is unknown.
    """

    def __init__(self, root: Any, others: Iterable[tuple[str, Any]]) -> None:
        # By identity of an object: the base URI of its references, and whether keywords beside
        # ``$ref`` hold, as in drafts since 2019-09.
        self._places: dict[int, tuple[str, bool]] = {}
        self._known: dict[str, Any] = {}  # by address, of an anchor with its fragment
        self._add(root, "")
        base = self._place_of(root)[0]
        found: dict[str, Any] = {}
        for name, other in others:
            found[name] = other if found.get(name, other) == other else None
        for name, other in found.items():
            if other is not None:
                self._add(other, urljoin(base, name))
                self._known.setdefault(name, other)

    def has_neighbours(self, schema: dict[str, Any]) -> bool:
        """Return True if keywords beside the ``$ref`` of an object hold too."""
        return self._place_of(schema)[1]

    def target(self, schema: dict[str, Any]) -> Any:
        """Return the target of an object's ``$ref``; None if unknown.

        Raises TypeError for a ``$ref`` that is not a text.
        """
        reference = schema["$ref"]
        if not isinstance(reference, str):
            raise TypeError(f"a $ref that is no text: {str(reference)[:100]}")
        relative, fragment = urldefrag(reference)
        address = urljoin(self._place_of(schema)[0], relative)
        found = self._known.get(address, self._known.get(relative) if relative else None)
        fragment = unquote(fragment)
        if found is None or not fragment:
            return found
        if fragment.startswith("/"):
            return _at(found, fragment)
        return self._known.get(f"{address}#{fragment}")

    def _place_of(self, schema: Any) -> tuple[str, bool]:
        return self._places.get(id(schema), ("", False))

    def _add(self, root: Any, address: str) -> None:
        draft = str(root.get("$schema", "")) if isinstance(root, dict) else ""
        key = "id" if "/draft-04/" in draft or "/draft-03/" in draft else "$id"
        is_new = any(one in draft for one in _NEW_DRAFTS)
        self._known.setdefault(address, root)
        pending: list[tuple[Any, str]] = [(root, address)]
        while pending:
            node, base = pending.pop()
            if isinstance(node, list):
                pending += [(inner, base) for inner in node]
            elif isinstance(node, dict):
                base = self._named(node, key, base, is_new)
                self._places[id(node)] = base, is_new
                for name, inner in node.items():
                    if name in _OF_NAMES and isinstance(inner, dict):
                        pending += [(schema, base) for schema in inner.values()]
                    elif name not in _VALUES:
                        pending.append((inner, base))

    def _named(self, node: dict[str, Any], key: str, base: str, is_new: bool) -> str:
        """Add the names of ``node`` and return the base URI of its contents."""
        identifier = node.get(key)
        if isinstance(identifier, str) and (is_new or "$ref" not in node):
            base_address, fragment = urldefrag(identifier)
            if fragment:  # an anchor in older drafts
                self._known.setdefault(f"{urljoin(base, base_address)}#{fragment}", node)
            else:
                base = urljoin(base, base_address)
                self._known.setdefault(base, node)
        for name in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(name), str):
                self._known.setdefault(f"{base}#{node[name]}", node)
        return base


def _at(found: Any, pointer: str) -> Any:
    """Return the target of a JSON pointer, or None."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and _INDEX.fullmatch(name) and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


# --- the user's schemas and descriptors ----------------------------------------------------------

_MAX_CHARACTERS_SHOWN = 100


def json_schema_of(options: PartOptions, struct: Any) -> str | None:
    """Return the JSON Schema for a key or value with the fields of a StructType, or None.

    Raises ConfigError, FormatError.
    """
    if options.format != JSON or not options.has_id:
        return None
    if options.json_schema is not None:
        schema_text, schema = read_user_schema(options.json_schema, f"{options.part}.json.schema")
        if not isinstance(schema, dict):
            raise ConfigError(
                f"{options.part}.json.schema: a JSON Schema of rows must be a JSON object",
                code="FORMAT-005",
            )
        return schema_text
    text = options.json
    has_own = text.date_format is not None, text.timestamp_format is not None
    written = Written(text.ignore_null_fields is not False, *has_own)
    return derived_json_schema(struct.json(), written=written)


def title_of(text: str) -> str | None:
    """Return the title of a JSON Schema, which is the record's name, or None."""
    schema: Any = parse_json(text)
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) else None


def check_json_fits(
    part: str,
    written: str,
    wanted: str,
    files: Iterable[tuple[str, str]],
    schema_id: int | None = None,
) -> list[str]:
    """Raise FormatError if rows of a JSON Schema do not fit a registry's schema.

    Return notes on parts that cannot be compared, and on rare values that do not fit.

    files: names and texts to which ``wanted`` refers
    schema_id: use.schema.id, None for the latest schema of a subject
    """
    option = "use.latest.version=true"
    which, strict = "latest schema of the registry", "latest.compatibility.strict"
    if schema_id is not None:
        option = f"{'' if part == 'value' else 'key.'}use.schema.id={schema_id}"
        which, strict = "registry's schema of this id", "id.compatibility.strict"
    try:
        found = compared(parse_json(written), parse_json(wanted), _parsed(files))
    except (RecursionError, TypeError, ValueError) as error:
        raise FormatError(
            f"{option}: the {which} for the {part} is no JSON Schema: {error}",
            code="REGISTRY-016",
        ) from None
    if found.misfits:
        raise FormatError(
            f"{option}: the columns of the {part} do not fit the {which}: change the columns, or "
            f"set {strict} to false to write them all the same. {'; '.join(found.misfits)}",
            code="REGISTRY-020",
        )
    return [*_notes(found, option, which, part)]


_NOT_COMPARED = "REGISTRY-022"


def _notes(found: Compared, option: str, which: str, part: str) -> Iterator[str]:
    if found.of_some:
        yield coded(
            f"{option}: the {which} for the {part} does not have {'; '.join(found.of_some)}. Rows "
            "with such a value are written all the same",
            _NOT_COMPARED,
        )
    if found.unknown:
        several = redacted(", ".join(map(repr, found.unknown)))
        yield coded(
            f"{option}: what the {which} has by the $ref {several} is not compared with the "
            f"columns of the {part}: neither the schema nor its references in the registry have "
            "what it names",
            _NOT_COMPARED,
        )


def _parsed(files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    for name, text in files:
        try:
            schema = parse_json(text)
        except ValueError:
            continue  # references to this schema are reported as unknown
        yield name, schema


def read_user_schema(user_schema: UserSchema, option: str) -> tuple[str, Any]:
    """Return the text of a schema and the parsed JSON. Raise ConfigError."""
    rest = "…" if user_schema.text[_MAX_CHARACTERS_SHOWN:] else ""
    shown = f"{option}={user_schema.text[:_MAX_CHARACTERS_SHOWN]}{rest}"
    text = user_schema.text
    if user_schema.is_file:
        try:
            text = Path(user_schema.text).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f'{shown}: it is no schema as JSON, which begins with {{, [ or ", and as a file '
                f"it cannot be read on the driver: {reason}",
                code="FORMAT-004",
            ) from None
    try:
        return text, parse_json(text)
    except ValueError as error:
        raise ConfigError(f"{shown}: the schema is no JSON: {error}", code="FORMAT-005") from None


def described(options: PartOptions) -> DescribedMessage:
    """Return the message of ``protobuf.message`` in ``protobuf.descriptor.file``.

    Raises ConfigError for a file that cannot be read, or without Protobuf's package; FormatError
    for a file that is no descriptor set or lacks the message.
    """
    from spark_kafka_sink.formats.protobuf_layout import check_installed

    assert options.descriptor_file is not None
    assert options.message is not None
    check_installed(f"{options.part}.format")
    name = f"{options.part}.protobuf.descriptor.file={options.descriptor_file}"
    try:
        data = Path(options.descriptor_file).read_bytes()
    except OSError as error:
        text = f"{name}: it cannot be read on the driver: {error}"
        raise ConfigError(text, code="FORMAT-004") from None
    try:
        return _read(data, options.message)
    except FormatError as error:
        raise FormatError(f"{name}: {error}", code=error.code) from None


@lru_cache(maxsize=20)  # each micro-batch of a stream is planned
def _read(data: bytes, name: str) -> DescribedMessage:
    from spark_kafka_sink.formats.protobuf_layout import read_descriptor_set

    return read_descriptor_set(data, name)
