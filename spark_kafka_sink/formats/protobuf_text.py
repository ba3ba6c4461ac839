"""Read the text of a .proto file, as far as it decides how rows are encoded.

Some registries serve a Protobuf schema as its text only, whatever is requested. Options other than
``packed``, services and extensions do not change the bytes of a row, and are skipped. So are
groups, as which no column is written.

Source: Protobuf's language specifications of proto2 and proto3; ``descriptor.proto``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.formats.plan import TYPES

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

# An unclosed string or comment is one word: trying its end again at each quote is quadratic.
_WORD = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[\w.]+|\S""",
    re.DOTALL,
)
_NUMBERS = {name: number for number, name in TYPES.items()}
_MESSAGE = _NUMBERS["message"]
_SCALARS = {n: t for n, t in _NUMBERS.items() if n not in ("group", "message", "enum")}
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_MAX_DEPTH = 50
_CLOSING = {"{": "}", "[": "]", "<": ">", "(": ")"}


def file_of_text(text: str) -> FileDescriptorProto:
    """Return the descriptor of a .proto file's text, without a name. Type names may be relative.

    Map entries come after the other messages of their message: indexes of messages do not count
    them. Raises ValueError with the reason for a text that is no .proto file.
    """
    return _Reader(text).file()


class _Reader:
    """Reads declarations, one word after another."""

    def __init__(self, text: str) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        self._words = [word for word in _WORD.findall(text) if word[:2] not in ("//", "/*")]
        self._at = 0
        self._file = FileDescriptorProto(syntax="proto2")

    def file(self) -> FileDescriptorProto:
        while self._at < len(self._words):
            self._declaration(self._next())
        if self._file.syntax == "proto2":
            self._file.ClearField("syntax")
        return self._file

    def _declaration(self, word: str) -> None:
        if word in ("syntax", "edition"):
            self._expect("=")
            value = self._next()[1:-1]
            self._file.syntax = value if word == "syntax" else "editions"
            self._expect(";")
        elif word == "package":
            self._file.package = self._next()
            self._expect(";")
        elif word == "import":
            name = self._next()
            if name in ("public", "weak", "option"):
                if name == "public":
                    self._file.public_dependency.append(len(self._file.dependency))
                name = self._next()
            self._file.dependency.append(name[1:-1])
            self._expect(";")
        elif word == "message":
            self._message(self._file.message_type.add(), 1)
        elif word == "enum":
            self._enum(self._file.enum_type.add())
        elif word in ("option", "service", "extend"):
            self._skip()
        elif word != ";":
            raise ValueError(f"'{word[:30]}' begins no declaration")

    def _message(self, message: Any, depth: int) -> None:
        """Read the name and the fields of a message."""
        message.name = self._next()
        self._expect("{")
        self._members(message, depth)

    def _members(self, message: Any, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError(f"messages are nested in more than {_MAX_DEPTH} others")
        behind: list[Any] = []  # map entries
        while (word := self._next()) != "}":
            if word == "message":
                self._message(message.nested_type.add(), depth + 1)
            elif word == "enum":
                self._enum(message.enum_type.add())
            elif word in ("option", "reserved", "extensions", "extend"):
                self._skip()
            elif word == "oneof":
                self._oneof(message, behind)
            elif word != ";":
                self._field(message, word, behind)
        message.nested_type.extend(behind)
        # The oneofs of optional fields of proto3 come after all others.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: Any, behind: list[Any]) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._next())
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._skip()
            elif word != ";" and (field := self._field(message, word, behind)) is not None:
                field.oneof_index = index

    def _field(self, message: Any, word: str, behind: list[Any]) -> Any:
        """Read a field and return it; None for a group. word: its first one"""
        label = _LABELS.get(word)
        kind = word if label is None else self._next()
        if kind == "group":
            if word == "required":
                raise ValueError("a required field is a group")
            self._skip()
            return None
        field = message.field.add(label=label or _LABELS["optional"])
        if word == "optional" and self._file.syntax == "proto3":
            field.proto3_optional = True
        if kind == "map" and self._peek() == "<":
            entry = self._map_entry()
            field.name = self._next()
            entry.name = field.type_name = _entry_name(field.name)
            field.label, field.type = _LABELS["repeated"], _MESSAGE
            behind.append(entry)
        else:
            _set_type(field, kind)
            field.name = self._next()
        self._expect("=")
        field.number = self._number()
        self._options(field)
        self._expect(";")
        return field

    def _map_entry(self) -> Any:
        """Read the types of a map's keys and values."""
        from google.protobuf.descriptor_pb2 import DescriptorProto

        entry = DescriptorProto()
        entry.options.map_entry = True
        for number, name, before in ((1, "key", "<"), (2, "value", ",")):
            self._expect(before)
            _set_type(entry.field.add(name=name, number=number, label=1), self._next())
        self._expect(">")
        return entry

    def _options(self, field: Any) -> None:
        if self._peek() != "[":
            return
        start = self._at
        self._skip_brackets()
        words = self._words[start : self._at]
        for place, word in enumerate(words[:-2]):
            if word == "packed" and words[place + 1] == "=" and words[place - 1] in ("[", ","):
                field.options.packed = words[place + 2] == "true"

    def _enum(self, enum: Any) -> None:
        enum.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == ";":
                continue
            if self._peek() != "=":
                if word == "option" and self._words[self._at : self._at + 3] == _ALIASES:
                    enum.options.allow_alias = True
                self._skip()
                continue
            self._expect("=")
            enum.value.add(name=word, number=self._number())
            if self._peek() == "[":
                self._skip_brackets()
            self._expect(";")

    def _number(self) -> int:
        word, sign = self._next(), 1
        if word == "-":
            word, sign = self._next(), -1
        is_octal = len(word) > 1 and word.isdecimal() and word.startswith("0")
        return sign * int(word, 8 if is_octal else 0)

    def _skip(self) -> None:
        """Skip to the end of a declaration: a semicolon, or the brace that closes its block."""
        while (word := self._next()) != ";":
            if word in _CLOSING:
                self._at -= 1
                self._skip_brackets()
                if word == "{" and self._peek() != ";":
                    return

    def _skip_brackets(self) -> None:
        """Skip a bracket and all up to the one that closes it."""
        open_ones: list[str] = []
        while True:
            word = self._next()
            if word in _CLOSING:
                open_ones.append(_CLOSING[word])
            elif open_ones and word == open_ones[-1]:
                open_ones.pop()
            if not open_ones:
                return

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _next(self) -> str:
        word = self._peek()
        if not word:
            raise ValueError("it ends in the middle of a declaration")
        self._at += 1
        return word

    def _expect(self, expected: str) -> None:
        word = self._next()
        if word != expected:
            raise ValueError(f"'{word[:30]}' stands where '{expected}' must be")


_ALIASES = ["allow_alias", "=", "true"]


def _set_type(field: Any, word: str) -> None:
    if word in _SCALARS:
        field.type = _SCALARS[word]
    else:
        field.type_name = word


def _entry_name(field_name: str) -> str:
    """Return the name of a map's entry, as protoc makes it: ``seats_left`` → ``SeatsLeftEntry``."""
    parts = (part[:1].upper() + part[1:] for part in field_name.split("_"))
    return "".join(parts) + "Entry"
