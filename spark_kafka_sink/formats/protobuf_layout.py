"""Match columns with the fields of a Protobuf message and choose how each column is encoded.

Fields match by name, exactly or else without regard to case, as in Spark's ``ProtobufSerializer``.
A field without a column is not written.

On the driver only, the official package reads messages from descriptors.

Source: Protobuf's ``descriptor.proto``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import unsigned_varint
from spark_kafka_sink.formats.layout import (
    Column,
    Node,
    is_variant,
    kind_of,
    matched,
    not_writable,
)
from spark_kafka_sink.formats.plan import (
    ENUM,
    GROUP,
    MESSAGE,
    OF_VARIANTS,
    TYPES,
    FormatError,
    ProtobufEnum,
    ProtobufField,
    ProtobufFile,
    ProtobufMessage,
    ProtobufSchema,
)
from spark_kafka_sink.formats.protobuf_text import file_of_text
from spark_kafka_sink.record.compiled import nodes

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_INTEGERS = (nodes.INT8, nodes.INT16, nodes.INT32, nodes.INT64)
_SMALL = _INTEGERS[:3]
_TIMES = {
    (nodes.TIMESTAMP, "google.protobuf.Timestamp"): (nodes.SECONDS, nodes.OF_TIMESTAMPS),
    (nodes.INTERVAL, "google.protobuf.Duration"): (nodes.SIGNED_SECONDS, nodes.OF_DURATIONS),
}
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"google.protobuf.{name}Value": name.lower() for name in _WRAPPED}
# Values copied from Arrow's buffers -> bytes per value. Fields with a range check are not copied.
_COPIED = {
    (nodes.FLOAT, nodes.FIXED_4): 4,
    (nodes.INT32, nodes.FIXED_4): 4,
    (nodes.DOUBLE, nodes.FIXED_8): 8,
    (nodes.INT64, nodes.FIXED_8): 8,
}
_MAX_DIGITS = 20
"""Digits of a decimal that holds an unsigned 64-bit integer, as Spark reads these."""


class _Type(NamedTuple):
    """A scalar type. wire: its wire type; is_wide: whether an integer has 64 bits"""

    written_as: int
    wire: int
    is_wide: bool = False
    is_signed: bool = True


_TYPES = {
    "int32": _Type(nodes.VARINT, _VARINT),
    "int64": _Type(nodes.VARINT, _VARINT, True),
    "uint32": _Type(nodes.VARINT, _VARINT, is_signed=False),
    "uint64": _Type(nodes.VARINT, _VARINT, True, False),
    "sint32": _Type(nodes.ZIGZAG, _VARINT),
    "sint64": _Type(nodes.ZIGZAG, _VARINT, True),
    "fixed32": _Type(nodes.FIXED_4, _FOUR, is_signed=False),
    "fixed64": _Type(nodes.FIXED_8, _EIGHT, True, False),
    "sfixed32": _Type(nodes.FIXED_4, _FOUR),
    "sfixed64": _Type(nodes.FIXED_8, _EIGHT, True),
}
# (kind of the column, type of the field) -> encoding, for types that need no other check.
_OTHERS = {
    (nodes.BOOLEAN, "bool"): (nodes.VARINT, _VARINT, 0),
    (nodes.FLOAT, "float"): (nodes.FIXED_4, _FOUR, 0),
    (nodes.FLOAT, "double"): (nodes.FIXED_8, _EIGHT, nodes.PROTOBUF_AS_DOUBLE),
    (nodes.DOUBLE, "double"): (nodes.FIXED_8, _EIGHT, 0),
    (nodes.STRING, "string"): (nodes.VARINT, _LENGTH, nodes.IS_TEXT),
    (nodes.BINARY, "bytes"): (nodes.VARINT, _LENGTH, 0),
}


def protobuf_root(schema: ProtobufSchema, columns: list[Column]) -> Node:
    """Return the node of a row.

    Raises FormatError for a column without a matching field, or a required field without a column.
    """
    return Node(nodes.STRUCT, children=_Layout(schema).fields(schema.root, columns, ""))


class _Layout:
    def __init__(self, schema: ProtobufSchema) -> None:
        self._messages = {message.name: message for message in schema.messages}
        self._enums = {enum.name: enum for enum in schema.enums}

    def fields(self, name: str, columns: list[Column], path: str) -> tuple[Node, ...]:
        """Return the nodes of a message's fields in descending order of numbers, the kernel's."""
        message = self._messages[name]
        found = _matched(message, columns)
        missing = [f.name for f in message.fields if f.is_required and f.number not in found]
        if missing:
            raise FormatError(
                f"the Protobuf message {message.name} requires the field '{missing[0]}', and there "
                f"is no column '{path + '.' if path else ''}{missing[0]}'. Add one",
                code="FORMAT-010",
            )
        taken = sorted((f for f in message.fields if f.number in found), key=lambda f: -f.number)
        matched = []
        for place, field in enumerate(taken):
            number = found[field.number]
            node = self._field(field, columns[number])._replace(source=number)
            if field.oneof:
                later = (n for n in range(place + 1, len(taken)) if taken[n].oneof == field.oneof)
                node = node._replace(rules=node.rules | nodes.IN_ONEOF, rival=next(later, -1))
            matched.append(node)
        return tuple(matched)

    def _field(self, field: ProtobufField, column: Column) -> Node:
        if field.type == GROUP:
            raise FormatError(
                f"the Protobuf field '{field.name}' is a group (or of the message encoding "
                f"DELIMITED), as which column '{column.path}' is not written: make it a message of "
                "the usual encoding, or leave the column out",
                code="FORMAT-007",
            )
        if column.type == pa.null():
            return Node(nodes.NULL, rules=_needed(field), path=column.path)
        kind, offset_bytes = _kind_of(field, column)
        if field.is_repeated:
            return self._repeated(field, column, kind, offset_bytes)
        return self._value(field, column)

    def _repeated(self, field: ProtobufField, column: Column, kind: int, offset_bytes: int) -> Node:
        is_entry = field.type == MESSAGE and self._messages[field.type_name].is_entry
        if kind != (nodes.MAP if is_entry else nodes.LIST):
            raise _does_not_fit(field, column)
        if is_entry:
            child = self._entry(field, column)
        else:
            inner = Column("", f"{column.path}[]", column.type.value_type)
            is_null = inner.type == pa.null()
            child = Node(nodes.NULL, path=inner.path) if is_null else self._value(field, inner)
        child = child._replace(rules=child.rules & ~nodes.LEAVES_ZERO_OUT | nodes.NEEDS_VALUE)
        node = Node(nodes.LIST, offset_bytes=offset_bytes, path=column.path, children=(child,))
        if not field.is_packed:
            return node
        tag = _tag(field.number, _LENGTH)
        bare = child._replace(name=b"", rules=child.rules & ~(15 << nodes.TAG_BYTES))
        rules = nodes.IS_PACKED | len(tag) << nodes.TAG_BYTES
        size = _COPIED.get((child.kind, child.written_as), 0)
        if size:
            rules |= nodes.IS_COPIED
        return node._replace(name=tag, rules=rules, parameter=size, children=(bare,))

    def _entry(self, field: ProtobufField, column: Column) -> Node:
        """Return the node of a map's entry, a message whose two fields are always written."""
        fields = {f.number: f for f in self._messages[field.type_name].fields}
        parts = (
            (1, fields[2], Column("", f"{column.path}[]", column.type.item_type)),
            (0, fields[1], Column("", f"{column.path}'s key", column.type.key_type)),
        )
        children = []
        for source, part, inner in parts:
            node = self._field(part._replace(has_presence=True), inner)
            children.append(node._replace(source=source, rules=node.rules | nodes.NEEDS_VALUE))
        entry = Node(nodes.STRUCT, path=column.path, children=tuple(children))
        return _tagged(field, _LENGTH, entry)

    def _value(self, field: ProtobufField, column: Column) -> Node:
        """Return the node of a field that is not repeated, or of a repeated field's element."""
        kind, offset_bytes = _kind_of(field, column)
        node = Node(kind, offset_bytes=offset_bytes, path=column.path)
        if field.type == ENUM:
            return self._enum(field, column, node)
        if field.type == MESSAGE:
            return self._message_value(field, column, node)
        scalar = _scalar(field.type, column.type, node)
        if scalar is None:
            raise _does_not_fit(field, column)
        return _tagged(field, scalar[1], scalar[0])

    def _enum(self, field: ProtobufField, column: Column, node: Node) -> Node:
        values = self._enums[field.type_name].values
        if node.kind == nodes.STRING:
            node = node._replace(symbols=tuple(name for name, _ in values), rules=nodes.IS_SYMBOL)
        elif node.kind in _SMALL:
            node = node._replace(rules=nodes.IS_NUMBER)
        else:
            raise _does_not_fit(field, column)
        numbers = tuple(number for _, number in values)
        return _tagged(field, _VARINT, node._replace(numbers=numbers))

    def _message_value(self, field: ProtobufField, column: Column, node: Node) -> Node:
        kind, name = node.kind, field.type_name
        if kind == nodes.STRUCT:
            fields = [column.type.field(number) for number in range(column.type.num_fields)]
            inner = [Column(f.name, f"{column.path}.{f.name}", f.type) for f in fields]
            children = self.fields(name, inner, column.path)
            return _tagged(field, _LENGTH, node._replace(children=children))
        if (kind, name) in _TIMES:
            written_as, limit = _TIMES[kind, name]
            value = node._replace(kind=nodes.INT64, written_as=written_as, parameter=limit)
            return _tagged(field, _LENGTH, value._replace(rules=nodes.CHECKS_RANGE))
        wrapped = _scalar(_WRAPPERS[name], column.type, node) if name in _WRAPPERS else None
        if wrapped is None:
            raise _does_not_fit(field, column)
        value, wire = wrapped
        inner_tag = (1 << 3 | wire) << nodes.INNER_TAG
        value = value._replace(rules=value.rules | nodes.IS_WRAPPED | inner_tag)
        return _tagged(field, _LENGTH, value)


def _matched(message: ProtobufMessage, columns: list[Column]) -> dict[int, int]:
    """Return field number -> index of its column."""
    names = {field.name: field.number for field in message.fields}
    found = matched([*names], columns, f"the Protobuf message {message.name}")
    places = set(found.values())
    for place, column in enumerate(columns):
        if place not in places:
            raise FormatError(
                f"the Protobuf message {message.name} has no field for '{column.path}': it has "
                f"{[*names]}. Leave this column out, or name it as the message does",
                code="FORMAT-009",
            )
    return {names[name]: place for name, place in found.items()}


def _kind_of(field: ProtobufField, column: Column) -> tuple[int, int]:
    found = kind_of(column.type)
    if is_variant(column.type):
        raise FormatError(
            f"column '{column.path}' is a VARIANT, which cannot be written as the Protobuf field "
            f"'{field.name}' ({field.words}). {OF_VARIANTS}",
            code="FORMAT-007",
        )
    if found is None:
        as_what = f"the Protobuf field '{field.name}' ({field.words})"
        raise not_writable(column.path, column.type, as_what)
    return found


def _scalar(name: str, arrow_type: Any, node: Node) -> tuple[Node, int] | None:
    """Return the node and wire type of a scalar; None if the field cannot hold the column."""
    kind = nodes.INT32 if node.kind == nodes.DATE else node.kind
    other = _OTHERS.get((kind, name))
    if other is not None:
        written_as, wire, rules = other
        return node._replace(written_as=written_as, rules=rules), wire
    found = _TYPES.get(name)
    if found is None or (node.kind == nodes.DATE and found.is_wide):
        return None
    value = node._replace(kind=kind, written_as=found.written_as)
    if kind == nodes.DECIMAL:
        fits = arrow_type.scale == 0 and arrow_type.precision <= _MAX_DIGITS
        return (value, found.wire) if fits and found.is_wide and not found.is_signed else None
    if kind not in _INTEGERS:
        return None
    limit = 0
    if kind == nodes.INT64 and not found.is_wide:
        limit = nodes.SIGNED_32 if found.is_signed else nodes.UNSIGNED_32
    elif kind in _SMALL and found.is_wide and not found.is_signed:
        limit = nodes.NOT_NEGATIVE
    if limit:
        return value._replace(parameter=limit, rules=nodes.CHECKS_RANGE), found.wire
    if not found.is_wide and not found.is_signed:
        value = value._replace(rules=nodes.OF_32_BITS)
    return value, found.wire


def _tagged(field: ProtobufField, wire: int, node: Node) -> Node:
    """Return the node with the field's tag and rules."""
    tag = _tag(field.number, wire)
    rules = node.rules | len(tag) << nodes.TAG_BYTES | _needed(field)
    if not field.has_presence and not field.is_repeated:
        rules |= nodes.LEAVES_ZERO_OUT
    return node._replace(name=tag, rules=rules)


def _needed(field: ProtobufField) -> int:
    return nodes.NEEDS_VALUE if field.is_required else 0


def _tag(number: int, wire: int) -> bytes:
    return unsigned_varint(number << 3 | wire)


def _does_not_fit(field: ProtobufField, column: Column) -> FormatError:
    return FormatError(
        f"column '{column.path}' has the Arrow type {column.type}, which the Protobuf field "
        f"'{field.name}' ({field.words}) cannot hold. Cast the column",
        code="FORMAT-011",
    )


_REPEATED, _REQUIRED = 3, 2
_WELL_KNOWN = "google/protobuf/"
_KNOWN_TO_REGISTRIES = (_WELL_KNOWN, "google/type/", "confluent/")
_META = "confluent/meta.proto"
"""A file with only extensions of options, on which no row depends."""
_PACKAGES = {
    _WELL_KNOWN: ("", "protobuf"),
    "google/type/": ("", "googleapis-common-protos"),
    "confluent/": ("confluent_kafka.schema_registry.", "'confluent-kafka[protobuf]'"),
}
"""Prefix of a file's name -> prefix of its Python module, and pip's name of the package."""
_NOT_A_REFERENCE = "the registry does not tell it among the references of the schema"
_MAX_SHOWN = 20


class DescribedMessage(NamedTuple):
    """A message and the files that define it.

    files: each file follows its imports; the message's own file is last
    follows_map: whether its indexes count map entries, which are no messages in the text of a
        .proto file with ``map<…>``
    """

    schema: ProtobufSchema
    files: tuple[ProtobufFile, ...]
    follows_map: bool = False


def check_installed(option: str) -> None:
    """Raise ConfigError, with the command to install it, if the package protobuf is missing."""
    try:
        import_module("google.protobuf.descriptor_pb2")
    except ImportError as error:
        raise ConfigError(
            f"{option}=protobuf needs the Python package protobuf on the driver, to read "
            "descriptors: pip install 'pykafka-sink[protobuf]'",
            code="FORMAT-006",
        ) from error


def read_descriptor_set(data: bytes, message: str) -> DescribedMessage:
    """Return a message of a FileDescriptorSet, which ``protoc --descriptor_set_out`` writes.

    message: its full name; for a top-level message the simple name suffices if it is unique in the
        set. Raises FormatError.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = list(FileDescriptorSet.FromString(data).file)
    except DecodeError as error:
        raise FormatError(
            "it is no descriptor set, which protoc --include_imports --descriptor_set_out=FILE "
            f"writes ({error})",
            code="FORMAT-014",
        ) from None
    return _Files(files, "protoc needs --include_imports").described(message)


def read_registered(
    text: str, imports: Iterable[tuple[str, str]], message: str | None
) -> DescribedMessage:
    """Return a message of a registry's schema; by default its first message.

    text: a FileDescriptorProto in Base64, or the text of a .proto file
    imports: names and texts of all files that it imports, directly or not

    Raises FormatError, also for a message of an imported file, because its indexes would not belong
    to the schema whose id precedes the value.
    """
    root = _parsed(text, "")
    others = [_parsed(other, name) for name, other in imports]
    for file in (root, *others):
        if file.syntax == "editions" and not file.HasField("edition"):
            raise FormatError(
                f"{file.name} is the text of an edition, of which only a descriptor is read",
                code="FORMAT-015",
            )
    files = _Files([*others, root], _NOT_A_REFERENCE, root)
    if message is None:
        if not root.message_type:
            raise FormatError("the registry's Protobuf schema has no message", code="FORMAT-016")
        message = _names_in(root)[0]
    return files.described(message)


def indexes_in(text: str, name: str) -> tuple[int, ...]:
    """Return the indexes of a message in a registry's schema. name: the message's full name

    text: a FileDescriptorProto in Base64, or the text of a .proto file

    Raises FormatError if the schema does not define the message.
    """
    file = _parsed(text, "")
    space = f"{file.package}." if file.package else ""
    names = name[len(space) :].split(".") if name.startswith(space) else []
    found = _indexes(file, names)
    if not found:
        known = ", ".join(_names_in(file)[:_MAX_SHOWN]) or "none"
        raise FormatError(f"it has no message '{name}': there are {known}", code="FORMAT-016")
    return found


# 32 MB of empty fields take 1.8 GB. Registries store a schema in a record, of 1 MB by default.
_MOST_CHARACTERS = 4 << 20


def _neither(descriptor: object, text: object) -> FormatError:
    """Return the error with the reasons why a schema is no descriptor and no text."""
    return FormatError(
        f"it is neither a FileDescriptorProto in Base64 ({descriptor}) nor the text of a .proto "
        f"file ({text})",
        code="FORMAT-015",
    )


def _parsed(text: str, name: str) -> FileDescriptorProto:
    """Return a file that a registry has as a FileDescriptorProto in Base64, or as its text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if len(text) > _MOST_CHARACTERS:
        why = "it is longer than 4 MiB"
        raise _neither(why, why)
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (DecodeError, ValueError) as error:
        try:
            found = file_of_text(text)
        except (TypeError, ValueError) as problem:
            raise _neither(error, problem) from None
    if name:
        found.name = name
    found.name = found.name or "registered.proto"
    return found


class _Files:
    """Files of one set with all their imports.

    advice: for the error about a missing import; main: the file whose messages come first, or None
    """

    def __init__(
        self,
        files: list[FileDescriptorProto],
        advice: str,
        main: FileDescriptorProto | None = None,
    ) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        self._given, self._advice, self._main = files, advice, main
        self._files = {file.name: file for file in files}
        self._added: dict[str, FileDescriptorProto] = {}  # each after its imports
        self._pool: Any = DescriptorPool()
        begun: set[str] = set()
        pending = files[::-1]
        while pending:
            file = pending[-1]
            imports = [self._imported(name, file.name) for name in file.dependency]
            left = [one for one in imports if one.name not in self._added and one.name not in begun]
            begun.add(file.name)
            pending += left
            if not left:
                self._add(pending.pop())

    def _add(self, file: FileDescriptorProto) -> None:
        known = self._added.setdefault(file.name, file)
        if known is not file:
            # Concatenated sets may hold two versions: one's fields would get the other's index.
            if known != file:
                raise FormatError(
                    f"there are two files '{file.name}', and they differ", code="FORMAT-014"
                )
            return
        try:
            self._pool.Add(file)
        except (TypeError, ValueError) as error:
            raise FormatError(
                f"the descriptor of {file.name} is wrong: {error}", code="FORMAT-014"
            ) from None

    def _imported(self, name: str, importer: str) -> FileDescriptorProto:
        if name not in self._files:
            self._files[name] = _known(name, importer, self._advice)
        return self._files[name]

    def described(self, name: str) -> DescribedMessage:
        """Return the message of a name. Raises FormatError if it is missing."""
        root = self._found(name)
        file = root.file.name
        if self._main is not None and file != self._main.name:
            raise FormatError(
                f"the message '{root.full_name}' is one of {file}, which the schema imports. "
                "Consumers look for a message in the schema whose id goes before it: write with "
                f"the subject or the id of {file} itself",
                code="FORMAT-016",
            )
        names = root.full_name[len(root.file.package) :].lstrip(".").split(".")
        indexes = _indexes(self._files[file], names)
        bare = _indexes(self._files[file], names, has_entries=False)
        schema = self._schema(root, indexes)
        return DescribedMessage(schema, self._needed(file), bare != indexes)

    def _found(self, name: str) -> Descriptor:
        try:
            found: Descriptor = self._pool.FindMessageTypeByName(name)
        except KeyError:
            pass
        else:
            return found
        own = [file for file in self._given if not file.name.startswith(_WELL_KNOWN)]
        known: list[str] = []
        for files in ([self._main] if self._main is not None else [], own, self._given):
            known = known or [full for file in files for full in _names_in(file, name)]
        if len(known) > 1:
            raise FormatError(
                f"there is more than one message '{name}': {', '.join(known[:_MAX_SHOWN])}. Give "
                "the full name",
                code="FORMAT-016",
            )
        if known:
            found = self._pool.FindMessageTypeByName(known[0])
            return found
        known = [full for file in own for full in _names_in(file)]
        raise FormatError(
            f"it has no message '{name}': there are {', '.join(known[:_MAX_SHOWN]) or 'none'}",
            code="FORMAT-016",
        )

    def _needed(self, name: str) -> tuple[ProtobufFile, ...]:
        """Return the files that a file imports, directly or not, and the file itself at the end."""
        needed, found = {name}, []
        for other in reversed(self._added):
            if other in needed:
                found.append(self._file(other))
                needed.update(found[-1].imports)
        return tuple(reversed(found))

    def _file(self, name: str) -> ProtobufFile:
        kept = type(self._files[name])()
        kept.CopyFrom(self._files[name])
        kept.ClearField("source_code_info")
        _clear_json_names(kept)
        imports = (i for i in kept.dependency if not i.startswith(_KNOWN_TO_REGISTRIES))
        text = base64.b64encode(kept.SerializeToString(deterministic=True)).decode()
        return ProtobufFile(name, text, tuple(imports))

    def _schema(self, root: Descriptor, indexes: tuple[int, ...]) -> ProtobufSchema:
        """Read a message with all messages and enums that it uses."""
        messages: dict[str, ProtobufMessage] = {}
        enums: dict[str, ProtobufEnum] = {}
        pending = [root]
        while pending:
            message = pending.pop()
            if message.full_name in messages:
                continue
            fields = [*message.fields]
            converted = tuple(map(self._field, fields))
            is_entry = bool(message.GetOptions().map_entry)
            messages[message.full_name] = ProtobufMessage(message.full_name, converted, is_entry)
            pending += [field.message_type for field in fields if field.message_type is not None]
            for field in fields:
                if field.enum_type is not None:
                    name = field.enum_type.full_name
                    values = tuple((value.name, value.number) for value in field.enum_type.values)
                    enums[name] = ProtobufEnum(name, values)
        used = tuple(messages.values()), tuple(enums.values())
        return ProtobufSchema(root.full_name, *used, indexes)

    def _field(self, field: FieldDescriptor) -> ProtobufField:
        other = field.message_type or field.enum_type
        oneof = field.containing_oneof
        return ProtobufField(
            field.name,
            field.number,
            TYPES[field.type],
            other.full_name if other is not None else "",
            is_repeated=_is(field, "is_repeated", _REPEATED),
            is_required=_is(field, "is_required", _REQUIRED),
            is_packed=self._is_packed(field),
            has_presence=bool(field.has_presence),
            # A proto3 optional field is a oneof with a single field.
            oneof=oneof.name if oneof is not None and len(oneof.fields) > 1 else "",
        )

    def _is_packed(self, field: FieldDescriptor) -> bool:
        if hasattr(field, "is_packed"):
            return bool(field.is_packed)
        # Before protobuf 5.29.
        if not _is(field, "is_repeated", _REPEATED) or TYPES[field.type] in _NEVER_PACKED:
            return False
        file, options = self._files[field.file.name], field.GetOptions()
        if file.syntax == "editions":
            raise FormatError(
                f"{file.name} is of an edition, for which protobuf 5.29 is needed",
                code="FORMAT-006",
            )
        return bool(options.packed if options.HasField("packed") else file.syntax == "proto3")


def _clear_json_names(file: FileDescriptorProto) -> None:
    """Clear the JSON names that Protobuf derives.

    ``protoc --descriptor_set_out`` writes them in each field. The descriptors in generated classes,
    which Confluent's serializers register, do not have them.
    """
    pending = [*file.message_type]
    fields = [*file.extension]
    while pending:
        message = pending.pop()
        pending += message.nested_type
        fields += [*message.field, *message.extension]
    for field in fields:
        if field.json_name == _json_name(field.name):
            field.ClearField("json_name")


def _json_name(name: str) -> str:
    """Return the name that Protobuf derives: no underscores, upper case after each."""
    return re.sub("_+(.?)", lambda found: found[1].upper(), name)


def _names_in(file: FileDescriptorProto, own: str | None = None) -> list[str]:
    """Return the full names of a file's top-level messages: of all, or of those named ``own``."""
    before = f"{file.package}." if file.package else ""
    return [before + m.name for m in file.message_type if own is None or m.name == own]


def _known(name: str, importer: str, advice: str) -> FileDescriptorProto:
    """Return a file that a Python package includes. Raises FormatError for other files.

    Registries know these files and do not list them as references.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name == _META:
        return FileDescriptorProto(name=name)
    begin = next((known for known in _PACKAGES if name.startswith(known)), None)
    if begin is not None and name.endswith(".proto"):
        before, package = _PACKAGES[begin]
        try:
            module = import_module(before + name[: -len(".proto")].replace("/", ".") + "_pb2")
        except ImportError:
            advice += f", or the Python package {package} on the driver must have it"
        else:
            return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    raise FormatError(f"{importer} imports {name}, which is not there: {advice}", code="FORMAT-014")


def _indexes(
    file: FileDescriptorProto, names: Iterable[str], has_entries: bool = True
) -> tuple[int, ...]:
    """Return a message's indexes in its file: one per enclosing message, then its own.

    Return an empty tuple if the message is missing. names: of the enclosing messages, outermost
    first, then the message's own; has_entries: whether map entries count
    """
    indexes, messages = [], file.message_type
    for name in names:
        counted = [m for m in messages if has_entries or not m.options.map_entry]
        index = next((n for n, m in enumerate(counted) if m.name == name), None)
        if index is None:
            return ()
        indexes.append(index)
        messages = counted[index].nested_type
    return tuple(indexes)


_NEVER_PACKED = ("string", "bytes", "message", "group")


def _is(field: FieldDescriptor, name: str, label: int) -> bool:
    """Return a field's flag: the attribute of protobuf 6.31 and newer, or else the label."""
    found = getattr(field, name, None)
    return bool(getattr(field, "label", None) == label if found is None else found)
