"""Messages as Protobuf's official package has them."""

from __future__ import annotations

import datetime
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

WELL_KNOWN = (timestamp_pb2, duration_pb2, wrappers_pb2)
EPOCH = datetime.datetime(1970, 1, 1)
WRAPPED = {name: kind for name, kind in vars(wrappers_pb2).items() if name.endswith("Value")}


def descriptor_set(files: list[Any], with_imports: bool = True) -> bytes:
    made = descriptor_pb2.FileDescriptorSet()
    if with_imports:
        for module in WELL_KNOWN:
            module.DESCRIPTOR.CopyToProto(made.file.add())
    made.file.extend(files)
    return made.SerializeToString()


def message_class(data: bytes, name: str) -> Any:
    """Of a descriptor set."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    found = pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(found)
    return message_factory.MessageFactory(pool).GetPrototype(found)  # before protobuf 4.22


def fill(message: Any, row: dict[str, Any]) -> Any:
    """Set the fields that have values; these are as Arrow has them, with integers for times."""
    for name, value in row.items():
        if value is not None:
            put(message, message.DESCRIPTOR.fields_by_name[name], value)
    return message


def put(message: Any, field: Any, value: Any) -> None:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        target, kind = getattr(message, field.name), inner.fields_by_name["value"]
        for key, item in value:
            if kind.message_type is None:
                target[scalar(inner.fields_by_name["key"], key)] = scalar(kind, item)
            else:
                put_message(target[scalar(inner.fields_by_name["key"], key)], item)
    elif is_repeated(field):
        for item in value:
            if inner is None:
                getattr(message, field.name).append(scalar(field, item))
            else:
                put_message(getattr(message, field.name).add(), item)
    elif inner is None:
        setattr(message, field.name, scalar(field, value))
    else:
        put_message(getattr(message, field.name), value)


def is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)  # before protobuf 6.31


def put_message(message: Any, value: Any) -> None:
    message.SetInParent()
    name = message.DESCRIPTOR.full_name
    if isinstance(value, dict):
        fill(message, value)
    elif name == "google.protobuf.Timestamp" or name == "google.protobuf.Duration":
        message.FromMicroseconds(value)
    else:
        message.value = scalar(message.DESCRIPTOR.fields_by_name["value"], value)


def scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_BOOL):
        return value
    return float(value) if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT) else int(value)


def has_maps(message: Any) -> bool:
    """Anywhere in it: their order is not that of the official package."""
    return any(
        (f.message_type is not None and f.message_type.GetOptions().map_entry)
        or (f.message_type is not None and any(map(has_maps, parts(value))))
        for f, value in message.ListFields()
    )


def parts(value: Any) -> list[Any]:
    return list(value) if hasattr(value, "append") or hasattr(value, "add") else [value]
