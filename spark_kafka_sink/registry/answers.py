"""What a schema registry's answers hold, taken only as its API has it.

Source: ``Schema``, ``RegisterSchemaResponse``, ``SchemaString``, ``ErrorMessage`` of Confluent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from spark_kafka_sink.base.printable import shown
from spark_kafka_sink.registry.errors import INCOMPATIBLE, INVALID

_LARGEST_ID = 2**31 - 1


class Schema(NamedTuple):
    """A schema as a registry has it.

    id: in that registry; None where that was not asked for. guid: None where it has none
    kind: AVRO, JSON or PROTOBUF; references: names, subjects and versions that ``text`` builds on
    files: of Protobuf and JSON: names and texts of these, and of those that they build on
    """

    id: int | None
    text: str
    kind: str = "AVRO"
    guid: str | None = None
    version: int | None = None
    references: tuple[tuple[str, str, int], ...] = ()
    files: tuple[tuple[str, str], ...] = ()


def schema_in(found: Any, has_id: bool, has_text: bool) -> Schema:
    """What an answer tells of a schema. Raises ValueError, which says what is wrong with it.

    has_id, has_text: whether that is what was asked for
    """
    if not isinstance(found, dict):
        raise ValueError(f"a JSON {type(found).__name__} instead of an object")
    number, text = found.get("id"), found.get("schema")
    if (has_id and number is None) or (has_text and text is None):
        raise ValueError("an answer without an id or a schema")
    if not isinstance(text, (str, type(None))):
        raise ValueError("a schema that is no text")
    if number is not None and not _is_number(number, 0):
        raise ValueError(f"an id that is none: {_shown(number)}")
    version, guid = found.get("version"), found.get("guid")
    if version is not None and not _is_number(version, 1):
        raise ValueError(f"a version that is none: {_shown(version)}")
    kind = found.get("schemaType") or "AVRO"
    if not isinstance(kind, str):
        raise ValueError(f"a schemaType that is none: {_shown(kind)}")
    references = tuple(map(_reference, _list(found.get("references"))))
    return Schema(number, text or "", kind, _guid(guid), version, references)


def _is_number(found: Any, lowest: int) -> bool:
    """Of Java's int, as ids are in front of keys and values. JSON's true and false are none."""
    return type(found) is int and lowest <= found <= _LARGEST_ID


def _list(found: Any) -> list[Any]:
    if not isinstance(found, (list, type(None))):
        raise ValueError(f"references that are none: {_shown(found)}")
    return found or []


def _reference(found: Any) -> tuple[str, str, int]:
    if isinstance(found, dict):
        name, subject, version = (found.get(key) for key in ("name", "subject", "version"))
        if isinstance(name, str) and isinstance(subject, str) and _is_number(version, 1):
            return name, subject, int(str(version))
    raise ValueError(f"a reference without name, subject or version: {_shown(found)}")


def _guid(found: Any) -> str | None:
    if found is None:
        return None
    try:
        return str(UUID(found))
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"a guid that is none: {_shown(found)}") from None


def _shown(found: Any) -> str:
    return shown(json.dumps(found))


def json_of(body: bytes) -> Any:
    """None for what is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def reason_in(content: Any, status: int, secrets: Iterable[str]) -> tuple[int | None, str]:
    """The code and the words of an answer that is an error; None and "" for what has none.

    status: of HTTP, which is the code of some; secrets: that were sent
    """
    if not isinstance(content, dict):
        return None, ""
    code, words = content.get("error_code"), content.get("message")
    reason = shown(words, secrets) if words else ""
    if not isinstance(code, int) or isinstance(code, bool):
        code = status if reason and status in (INCOMPATIBLE, INVALID) else None
    return code, reason
