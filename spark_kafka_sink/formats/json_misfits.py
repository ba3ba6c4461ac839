"""What of rows of one JSON Schema, which is derived of columns, another one does not take.

Only what is sure is told: what the other one says by conditions and patterns is left to whoever
reads the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from spark_kafka_sink.formats.json_references import References

_DYNAMIC = ("$dynamicRef", "$recursiveRef")


class Compared(NamedTuple):
    """misfits: in words; unknown: references that lead nowhere, where nothing is compared"""

    misfits: tuple[str, ...]
    unknown: tuple[str, ...]


def compared(written: Any, wanted: Any, others: Iterable[tuple[str, Any]] = ()) -> Compared:
    """All as ``json.loads`` has them. others: names and schemas that ``wanted`` builds on

    Raises AttributeError, RecursionError, TypeError where one of them is no JSON Schema.
    """
    comparing = _Comparing(References(wanted, others))
    misfits = comparing.misfits(written, wanted, "")
    return Compared(tuple(misfits), tuple(sorted(comparing.unknown)))


class _Comparing:
    """Paths are those of ``written``, each object of which stands in one place."""

    def __init__(self, references: References) -> None:
        self._references = references
        self.unknown: set[str] = set()
        # By identity of both: schemas may be in each other many times, and without an end.
        self._found: dict[tuple[int, int], list[str]] = {}

    def misfits(self, written: Any, wanted: Any, path: str) -> list[str]:
        if wanted is False:
            return [f"'{path}' must not be there"]
        if not isinstance(wanted, dict) or not written:
            return []  # a written one that is empty, a variant's, may be anything
        key = (id(written), id(wanted))
        if key not in self._found:
            self._found[key] = []  # what leads back to itself adds nothing
            self._found[key] = [*dict.fromkeys(self._misfits(written, wanted, path))]
        return self._found[key]

    def _misfits(self, written: Any, wanted: Any, path: str) -> Iterator[str]:
        options = written.get("oneOf", written.get("anyOf"))
        if options is not None:
            for option in options:
                yield from self.misfits(option, wanted, path)
            return
        self.unknown.update(str(wanted[name]) for name in _DYNAMIC if name in wanted)
        if "$ref" in wanted:
            target = self._references.target(wanted)
            if target is None:
                self.unknown.add(wanted["$ref"])
            yield from self.misfits(written, target, path)
            if not self._references.has_neighbours(wanted):
                return
        for part in wanted.get("allOf", ()):
            yield from self.misfits(written, part, path)
        for name in ("oneOf", "anyOf"):
            yield from self._of_branches(written, wanted.get(name, ()), path)
        yield from self._of_option(written, wanted, path)

    def _of_branches(self, written: Any, branches: Any, path: str) -> Iterator[str]:
        found = [self.misfits(written, branch, path) for branch in branches]
        if found and all(found):
            # Nobody means the null of a union by it.
            told = [f for f, branch in zip(found, branches) if branch != {"type": "null"}]
            yield from min(told or found, key=len)

    def _of_option(self, written: Any, wanted: Any, path: str) -> Iterator[str]:
        kind = written.get("type", "string")
        types = wanted.get("type")
        allowed = {types} if isinstance(types, str) else set(types or ())
        if allowed and kind not in allowed and not (kind == "integer" and "number" in allowed):
            has = " or ".join(sorted(allowed))
            yield f"'{path}' is written as {kind}, and the schema has {has}"
            return
        if kind == "array" and "prefixItems" not in wanted:
            yield from self.misfits(written["items"], wanted.get("items"), f"{path}[]")
        if kind == "object":
            yield from self._of_object(written, wanted, _below(path))

    def _of_object(self, written: Any, wanted: Any, below: Callable[[str], str]) -> Iterator[str]:
        others = wanted.get("additionalProperties", True)
        properties = wanted.get("properties", {})
        if "patternProperties" not in wanted:
            for name, inner in written.get("properties", {}).items():
                yield from self.misfits(inner, properties.get(name, others), below(name))
        for name in wanted.get("required", ()):
            if "properties" in written and name not in written["properties"]:
                yield f"'{below(name)}' is required, and no column is it"
        inner = written.get("additionalProperties")
        if isinstance(inner, dict):
            yield from self.misfits(inner, others, below("*"))


def _below(path: str) -> Callable[[str], str]:
    return lambda name: f"{path}.{name}" if path else name
