"""Descriptors made by hand, in few words."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2

T = descriptor_pb2.FieldDescriptorProto
OPTIONAL, REQUIRED, REPEATED = T.LABEL_OPTIONAL, T.LABEL_REQUIRED, T.LABEL_REPEATED


def file_of(name: str = "made.proto", syntax: str = "proto3", package: str = "pkg") -> Any:
    made = descriptor_pb2.FileDescriptorProto(name=name, package=package)
    if syntax != "proto2":
        made.syntax = syntax
    names = ("timestamp", "duration", "wrappers")
    made.dependency.extend(f"google/protobuf/{n}.proto" for n in names)
    return made


def add_field(message: Any, name: str, kind: str, number: int | None = None, **more: Any) -> Any:
    """kind: of a scalar as in .proto files, or the full name of a message; "enum " before an enum's.

    "repeated" or "required" may come first. more: fields of the descriptor
    """
    label, _, rest = kind.partition(" ")
    labels = {"repeated": REPEATED, "required": REQUIRED}
    kind = rest if label in labels else kind
    field = message.field.add(name=name, number=number or len(message.field) + 1, **more)
    field.label = labels.get(label, OPTIONAL)
    if kind.startswith("enum "):
        field.type, field.type_name = T.TYPE_ENUM, f".{kind[5:]}"
    elif "." in kind:
        field.type, field.type_name = T.TYPE_MESSAGE, f".{kind}"
    else:
        field.type = T.Type.Value(f"TYPE_{kind.upper()}")
    return field


def add_map(message: Any, name: str, key: str, value: str, package: str = "pkg") -> Any:
    entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    add_field(entry, "key", key, 1)
    add_field(entry, "value", value, 2)
    return add_field(message, name, f"repeated {package}.{message.name}.{entry.name}")


def add_enum(file: Any, name: str, **values: int) -> None:
    made = file.enum_type.add(name=name)
    for value, number in values.items():
        made.value.add(name=value, number=number)


def one_message(syntax: str = "proto3", **fields: str) -> Any:
    """A file with the message pkg.Root; an enum pkg.Kind and a message pkg.Inner of an int32 x."""
    file = file_of(syntax=syntax)
    root = file.message_type.add(name="Root")
    add_field(file.message_type.add(name="Inner"), "x", "int32")
    add_enum(file, "Kind", ZERO=0, ONE=1, FAR=100_000)
    for name, kind in fields.items():
        if kind.startswith("map "):
            _, key, value = kind.split(" ", 2)
            add_map(root, name, key, value)
        else:
            add_field(root, name, kind)
    return file
