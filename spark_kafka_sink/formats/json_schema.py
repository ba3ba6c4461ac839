"""Derive the JSON Schema of a Spark schema, for a schema registry, and compare it with another one.

It says what the JSON of the rows is. No object has more properties than it says, as in the schemas
that Confluent's serializer derives: only so is a new column compatible by a registry's usual rule.

Only what is sure is a misfit: what the other one says by conditions and patterns is left to whoever
reads the rows. Nearly all of Spark's columns and elements may be null, whether or not one of them
is, and each double may be NaN.

Source: JSON Schema, "$ref", "$id" and "$anchor", draft-04 to 2020-12; how names of references are
found, as ``JsonSchema`` of Confluent does it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from spark_kafka_sink.formats.plan import FormatError

DRAFT = "http://json-schema.org/draft-07/schema#"
TITLE = "Row"

_NUMBER_OR_TEXT = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_TEXT = {"type": "string"}
_SIMPLE: dict[str, Any] = {
    "boolean": {"type": "boolean"},
    "byte": {"type": "integer"},
    "short": {"type": "integer"},
    "integer": {"type": "integer"},
    "long": {"type": "integer"},
    "float": _NUMBER_OR_TEXT,
    "double": _NUMBER_OR_TEXT,
    "string": _TEXT,
    "binary": {"type": "string", "contentEncoding": "base64"},
    "timestamp_ntz": _TEXT,
    "void": {"type": "null"},
    "variant": {},  # of any type, null as well
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_AS_TEXT = re.compile(r"(?:char|varchar|time)\(\d+\)|string\b.*|interval .*")


class Written(NamedTuple):
    """How rows are written. is_null_left_out: fields of structs that are null

    has_own_dates, has_own_timestamps: whether these have patterns of the user's own
    """

    is_null_left_out: bool = True
    has_own_dates: bool = False
    has_own_timestamps: bool = False


USUAL = Written()


def derived_json_schema(struct_json: str, title: str = TITLE, written: Written = USUAL) -> str:
    """JSON Schema, as text, of the fields that ``StructType.json()`` tells of.

    Raises FormatError for a type that is not written as JSON.
    """
    found = _Derived(written).type(json.loads(struct_json), "")
    return json.dumps({"$schema": DRAFT, "title": title, **found}, ensure_ascii=False)


class _Derived:
    def __init__(self, written: Written) -> None:
        self._written = written

    def type(self, spark_type: Any, path: str) -> Any:
        if isinstance(spark_type, dict):
            return self._nested(spark_type, path)
        if spark_type == "date":
            return _TEXT if self._written.has_own_dates else {"type": "string", "format": "date"}
        if spark_type == "timestamp":
            own = self._written.has_own_timestamps
            return _TEXT if own else {"type": "string", "format": "date-time"}
        if spark_type in _SIMPLE:
            return _SIMPLE[spark_type]
        if _AS_TEXT.fullmatch(spark_type):
            return _TEXT
        decimal = _DECIMAL.fullmatch(spark_type)
        if decimal is not None:
            return {"type": "number" if int(decimal[2]) > 0 else "integer"}
        raise FormatError(
            f"column '{path}' has the Spark type {spark_type}, which is not written as JSON. Cast "
            "it to another type, or leave it out"
        )

    def _nested(self, spark_type: dict[str, Any], path: str) -> Any:
        kind = spark_type["type"]
        if kind == "udt":
            return self.type(spark_type["sqlType"], path)
        if kind == "array":
            inner = self.type(spark_type["elementType"], f"{path}[]")
            return {"type": "array", "items": _or_null(inner, spark_type["containsNull"])}
        if kind == "map":
            inner = self.type(spark_type["valueType"], f"{path}[]")
            nullable = spark_type["valueContainsNull"]
            return {"type": "object", "additionalProperties": _or_null(inner, nullable)}
        return self._struct(spark_type, path)

    def _struct(self, struct: dict[str, Any], path: str) -> Any:
        properties, required = {}, []
        for field in struct["fields"]:
            inner = self.type(field["type"], f"{path}.{field['name']}" if path else field["name"])
            can_be_null = field["nullable"] and not self._written.is_null_left_out
            properties[field["name"]] = _or_null(inner, can_be_null)
            if not field["nullable"] and field["type"] != "void":
                required.append(field["name"])
        found = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**found, "required": required} if required else found


def _or_null(kind: Any, nullable: bool) -> Any:
    if not nullable or kind in ({}, {"type": "null"}):
        return kind
    return {"oneOf": [{"type": "null"}, kind]}


_DYNAMIC = ("$dynamicRef", "$recursiveRef")
_TYPES = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])
_NULL = {"type": "null"}


class Compared(NamedTuple):
    """In words. misfits: of each row; of_some: of rows with a null, or a number that is none

    unknown: references that lead nowhere, where nothing is compared
    """

    misfits: tuple[str, ...]
    of_some: tuple[str, ...]
    unknown: tuple[str, ...]


class _Misfit(NamedTuple):
    text: str
    is_sure: bool = True


def compared(written: Any, wanted: Any, others: Iterable[tuple[str, Any]] = ()) -> Compared:
    """All as ``json.loads`` has them. others: names and schemas that ``wanted`` builds on

    Raises RecursionError, TypeError where one of them is no JSON Schema.
    """
    comparing = _Comparing(References(wanted, others))
    found = comparing.misfits(written, wanted, "")
    return Compared(
        tuple(one.text for one in found if one.is_sure),
        tuple(one.text for one in found if not one.is_sure),
        tuple(sorted(comparing.unknown)),
    )


class _Comparing:
    """Paths are those of ``written``, each object of which stands in one place."""

    def __init__(self, references: References) -> None:
        self._references = references
        self.unknown: set[str] = set()
        # By identity of both: schemas may be in each other many times, and without an end.
        self._found: dict[tuple[int, int], list[_Misfit]] = {}

    def misfits(self, written: Any, wanted: Any, path: str) -> list[_Misfit]:
        if wanted is False:
            return [_Misfit(f"{_shown(path)} must not be there")]
        if not isinstance(wanted, dict) or not written:
            return []  # a written one that is empty, a variant's, may be anything
        key = (id(written), id(wanted))
        if key not in self._found:
            self._found[key] = []  # what leads back to itself adds nothing
            self._found[key] = [*dict.fromkeys(self._misfits(written, wanted, path))]
        return self._found[key]

    def _misfits(self, written: Any, wanted: Any, path: str) -> Iterator[_Misfit]:
        options = written.get("oneOf", written.get("anyOf"))
        if options is not None:
            for option in options:
                yield from self.misfits(option, wanted, path)
            return
        found = self._of_all(written, wanted, path)
        seldom = _seldom(written)
        if seldom is None:
            yield from found
        elif any(True for _ in found):
            yield _Misfit(f"{_shown(path)} that is {seldom}", is_sure=False)

    def _of_all(self, written: Any, wanted: Any, path: str) -> Iterator[_Misfit]:
        self.unknown.update(str(wanted[name]) for name in _DYNAMIC if name in wanted)
        if "$ref" in wanted:
            target = self._references.target(wanted)
            if target is None:
                self.unknown.add(wanted["$ref"])
            yield from self.misfits(written, target, path)
            if not self._references.has_neighbours(wanted):
                return
        for part in _part(wanted, "allOf", list):
            yield from self.misfits(written, part, path)
        for name in ("oneOf", "anyOf"):
            yield from self._of_branches(written, _part(wanted, name, list), path)
        yield from self._of_option(written, wanted, path)

    def _of_branches(self, written: Any, branches: Any, path: str) -> Iterator[_Misfit]:
        found = [self.misfits(written, branch, path) for branch in branches]
        if found and all(found):
            # Nobody means the null of a union by it.
            told = [f for f, branch in zip(found, branches) if not _is_null(branch)]
            yield from min(told or found, key=lambda f: (any(one.is_sure for one in f), len(f)))

    def _of_option(self, written: Any, wanted: Any, path: str) -> Iterator[_Misfit]:
        kind = written.get("type", "string")
        allowed = _types(wanted)
        if allowed and kind not in allowed and not (kind == "integer" and "number" in allowed):
            has = " or ".join(sorted(allowed))
            yield _Misfit(f"{_shown(path)} is written as {kind}, and the schema has {has}")
            return
        if kind == "array" and "prefixItems" not in wanted:
            yield from self.misfits(written["items"], wanted.get("items"), f"{path}[]")
        if kind == "object":
            yield from self._of_object(written, wanted, _below(path))

    def _of_object(
        self, written: Any, wanted: Any, below: Callable[[str], str]
    ) -> Iterator[_Misfit]:
        others = wanted.get("additionalProperties", True)
        properties = _part(wanted, "properties", dict)
        if "patternProperties" not in wanted:
            for name, inner in written.get("properties", {}).items():
                yield from self.misfits(inner, properties.get(name, others), below(name))
        # Draft-03 has it in each property, as true or false.
        is_of_parent = isinstance(wanted.get("required"), bool)
        for name in () if is_of_parent else _part(wanted, "required", list):
            if "properties" in written and str(name) not in written["properties"]:
                yield _Misfit(f"'{below(name)}' is required, and no column is it")
        inner = written.get("additionalProperties")
        if isinstance(inner, dict):
            yield from self.misfits(inner, others, below("*"))


def _seldom(written: Any) -> str | None:
    """Which values a derived schema means by ``written`` that a column may have and may not."""
    if written == _NULL:
        return "null"
    return "NaN or infinite" if "enum" in written else None


def _part(wanted: Any, name: str, kind: type[Any]) -> Any:
    """A keyword's list or object, empty where there is none. Raises TypeError for another type."""
    found = wanted.get(name, kind())
    if not isinstance(found, kind):
        what = "list" if kind is list else "object"
        raise TypeError(f"its '{name}' is no {what}: {str(found)[:100]}")
    return found


def _is_null(branch: Any) -> bool:
    """Confluent's derived schemas give it a title."""
    return isinstance(branch, dict) and branch.get("type") == "null"


def _types(wanted: Any) -> set[str]:
    """Empty where they are not all known: draft-03 has schemas among them, and ``any``."""
    types = wanted.get("type")
    found = [types] if isinstance(types, str) else types if isinstance(types, list) else []
    is_known = all(isinstance(one, str) and one in _TYPES for one in found)
    return set(found) if is_known else set()


def _shown(path: str) -> str:
    return f"'{path}'" if path else "each row"


def _below(path: str) -> Callable[[str], str]:
    return lambda name: f"{path}.{name}" if path else name


_NEW_DRAFTS = ("/draft/2019-09/", "/draft/2020-12/")
_VALUES = frozenset(["const", "default", "enum", "examples"])
"""Keywords that hold values, whose names mean nothing."""
_OF_NAMES = frozenset(
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]
)
"""Keywords whose objects have schemas by names of the user's own, even those of keywords."""

_INDEX = re.compile("[0-9]{1,9}")


class _Place(NamedTuple):
    """base: what references in an object start from; is_new: whether ``$ref`` has neighbours"""

    base: str
    is_new: bool


class References:
    """root: a schema as ``json.loads`` has it, kept as it is meanwhile; others: names and schemas

    Names of others start from the ``$id`` of ``root``. Of two others of one name neither is known.
    """

    def __init__(self, root: Any, others: Iterable[tuple[str, Any]]) -> None:
        self._places: dict[int, _Place] = {}  # by identity of an object
        self._known: dict[str, Any] = {}  # by address, of an anchor with its fragment
        self._add(root, "")
        base = self._base_of(root)
        found: dict[str, Any] = {}
        for name, other in others:
            found[name] = other if found.get(name, other) == other else None
        for name, other in found.items():
            if other is not None:
                self._add(other, _joined(base, name))
                self._known.setdefault(name, other)

    def has_neighbours(self, schema: dict[str, Any]) -> bool:
        """Whether what stands beside the ``$ref`` of an object holds as well."""
        place = self._places.get(id(schema))
        return place is not None and place.is_new

    def target(self, schema: dict[str, Any]) -> Any:
        """What the ``$ref`` of an object leads to; None where that is not known.

        Raises TypeError for one that is no text.
        """
        reference = schema["$ref"]
        if not isinstance(reference, str):
            raise TypeError(f"a $ref that is no text: {str(reference)[:100]}")
        given, fragment = urldefrag(reference)
        address = _joined(self._base_of(schema), given)
        found = self._known.get(address, self._known.get(given) if given else None)
        fragment = unquote(fragment)
        if found is None or not fragment:
            return found
        if fragment.startswith("/"):
            return _at(found, fragment)
        return self._known.get(f"{address}#{fragment}")

    def _base_of(self, schema: Any) -> str:
        place = self._places.get(id(schema))
        return place.base if place is not None else ""

    def _add(self, root: Any, address: str) -> None:
        draft = str(root.get("$schema", "")) if isinstance(root, dict) else ""
        key = "id" if "/draft-04/" in draft or "/draft-03/" in draft else "$id"
        is_new = any(one in draft for one in _NEW_DRAFTS)
        self._known.setdefault(address, root)
        waiting: list[tuple[Any, str]] = [(root, address)]
        while waiting:
            node, base = waiting.pop()
            if isinstance(node, list):
                waiting += [(inner, base) for inner in node]
            elif isinstance(node, dict):
                base = self._named(node, key, base, is_new)
                self._places[id(node)] = _Place(base, is_new)
                for name, inner in node.items():
                    if name in _OF_NAMES and isinstance(inner, dict):
                        waiting += [(schema, base) for schema in inner.values()]
                    elif name not in _VALUES:
                        waiting.append((inner, base))

    def _named(self, node: dict[str, Any], key: str, base: str, is_new: bool) -> str:
        """The base of what is in ``node``, whose names are kept."""
        given = node.get(key)
        if isinstance(given, str) and (is_new or "$ref" not in node):
            own, fragment = urldefrag(given)
            if fragment:  # as older drafts have anchors
                self._known.setdefault(f"{_joined(base, own)}#{fragment}", node)
            else:
                base = _joined(base, own)
                self._known.setdefault(base, node)
        for name in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(name), str):
                self._known.setdefault(f"{base}#{node[name]}", node)
        return base


def _joined(base: str, reference: str) -> str:
    """An address. Python leaves one as it is that starts from a URN."""
    return urljoin(base, reference) if reference else base


def _at(found: Any, pointer: str) -> Any:
    """What a JSON pointer says; None for nothing."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and _INDEX.fullmatch(name) and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found
