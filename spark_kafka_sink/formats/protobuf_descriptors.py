"""Read Protobuf messages from descriptors with the official package, on the driver only.

Source: Protobuf's ``descriptor.proto``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.formats.plan import (
    TYPES,
    FormatError,
    ProtobufEnum,
    ProtobufField,
    ProtobufFile,
    ProtobufMessage,
    ProtobufSchema,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

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
    """Return a message of a FileDescriptorProto in Base64; by default its first message.

    imports: names and texts of all files that it imports, directly or not

    Raises FormatError, also for a message of an imported file, because its indexes would not belong
    to the schema whose id precedes the value.
    """
    root = _parsed(text, "")
    others = [_parsed(other, name) for name, other in imports]
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
    try:
        file = _parsed(text, "")
    except FormatError:
        file = _outline(text)
    space = f"{file.package}." if file.package else ""
    names = name[len(space) :].split(".") if name.startswith(space) else []
    found = _indexes(file, names)
    if not found:
        known = ", ".join(_names_in(file)[:_MAX_SHOWN]) or "none"
        raise FormatError(f"it has no message '{name}': there are {known}", code="FORMAT-016")
    return found


# An unclosed string or comment is one word: trying its end again at each quote is quadratic.
_WORD = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[\w.]+|\S""",
    re.DOTALL,
)


def _outline(text: str) -> FileDescriptorProto:
    """Return a descriptor with the package and message names of a .proto file's text.

    Groups and maps are not messages, as Confluent's indexes count.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    words = [word for word in _WORD.findall(text) if word[:2] not in ("//", "/*")]
    file = FileDescriptorProto()
    around: list[Any] = [file.message_type]  # None inside a block that is not a message
    for place, word in enumerate(words):
        if word == "{":
            inner = None
            if around[-1] is not None and words[max(place - 2, 0)] == "message":
                inner = around[-1].add(name=words[place - 1]).nested_type
            around.append(inner)
        elif word == "}" and len(around) > 1:
            around.pop()
        elif word == "package" and words[place + 2 : place + 3] == [";"]:
            file.package = words[place + 1]
    return file


def _parsed(text: str, name: str) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (DecodeError, ValueError) as error:
        raise FormatError(
            f"it is no FileDescriptorProto in Base64 ({error})", code="FORMAT-015"
        ) from None
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
