"""Descriptors made by hand in few words, messages as Protobuf's official package has them, and our rows."""

import pyarrow as pa
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import PROTOBUF, FieldSpec, FormatSpec
from spark_kafka_sink.formats.protobuf_layout import read_descriptor_set

T = descriptor_pb2.FieldDescriptorProto
OPTIONAL, REQUIRED, REPEATED = T.LABEL_OPTIONAL, T.LABEL_REQUIRED, T.LABEL_REPEATED


def file_of(name="made.proto", syntax="proto3", package="pkg"):
    made = descriptor_pb2.FileDescriptorProto(name=name, package=package)
    if syntax != "proto2":
        made.syntax = syntax
    names = ("timestamp", "duration", "wrappers")
    made.dependency.extend(f"google/protobuf/{n}.proto" for n in names)
    return made


def add_field(message, name, kind, number=None, **more):
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


def add_map(message, name, key, value, package="pkg"):
    entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    add_field(entry, "key", key, 1)
    add_field(entry, "value", value, 2)
    return add_field(message, name, f"repeated {package}.{message.name}.{entry.name}")


def add_enum(file, name, **values):
    made = file.enum_type.add(name=name)
    for value, number in values.items():
        made.value.add(name=value, number=number)


def one_message(syntax="proto3", **fields):
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


WELL_KNOWN = (timestamp_pb2, duration_pb2, wrappers_pb2)
WRAPPED = {name: kind for name, kind in vars(wrappers_pb2).items() if name.endswith("Value")}


def descriptor_set(files, with_imports=True):
    made = descriptor_pb2.FileDescriptorSet()
    if with_imports:
        for module in WELL_KNOWN:
            module.DESCRIPTOR.CopyToProto(made.file.add())
    made.file.extend(files)
    return made.SerializeToString()


def message_class(data, name):
    """Of a descriptor set."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    found = pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(found)
    return message_factory.MessageFactory(pool).GetPrototype(found)  # before protobuf 4.22


def fill(message, row):
    """Set the fields that have values; these are as Arrow has them, with integers for times."""
    for name, value in row.items():
        if value is not None:
            put(message, message.DESCRIPTOR.fields_by_name[name], value)
    return message


def put(message, field, value):
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


def is_repeated(field):
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)  # before protobuf 6.31


def put_message(message, value):
    message.SetInParent()
    name = message.DESCRIPTOR.full_name
    if isinstance(value, dict):
        fill(message, value)
    elif name == "google.protobuf.Timestamp" or name == "google.protobuf.Duration":
        message.FromMicroseconds(value)
    else:
        message.value = scalar(message.DESCRIPTOR.fields_by_name["value"], value)


def scalar(field, value):
    if field.enum_type is not None and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_BOOL):
        return value
    return float(value) if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT) else int(value)


PREFIX = b"\0\0\0\0\1\0"


def sized(data):
    return varint(len(data)) + data


def varint(value):
    value %= 2**64
    made = bytearray()
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def protobuf_encoder(schema, protobuf, prefix=b""):
    fields = tuple(FieldSpec((name,), name) for name in schema.names)
    return RowEncoder(FormatSpec(PROTOBUF, fields, prefix, protobuf_schema=protobuf), schema)


def schema_of(file):
    return read_descriptor_set(descriptor_set([file]), "pkg.Root").schema


def written(array, kind, syntax="proto3"):
    """What the values of a single column ``c`` are written as."""
    batch = pa.record_batch([array], ["c"])
    schema = schema_of(one_message(syntax, c=kind))
    found = protobuf_encoder(batch.schema, schema).encode(batch)
    assert found.faults is None
    return found.values.to_pylist()
