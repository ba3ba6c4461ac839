"""What of rows of one JSON Schema, which is derived of columns, another one does not take.

Only what is sure is a misfit: what the other one says by conditions and patterns is left to whoever
reads the rows. Nearly all of Spark's columns and elements may be null, whether or not one of them
is, and each double may be NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from spark_kafka_sink.formats.json_references import References

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
