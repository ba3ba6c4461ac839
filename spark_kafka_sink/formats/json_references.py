"""What ``$ref`` of a JSON Schema leads to: in the schema, or in others that it builds on.

Source: JSON Schema, "$ref", "$id" and "$anchor", draft-04 to 2020-12; how names of references are
found, as ``JsonSchema`` of Confluent does it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

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
