"""What Java's Avro says of schemas: which it takes, and which it refuses.

::

    python -m tests.formats.generate_avro_schemas

Java's Avro is fetched from Maven Central. Needs a JDK 17.
"""

import json
import os
import subprocess
from pathlib import Path

from spark_kafka_sink.localkafka import fetch_jars
from spark_kafka_sink.localkafka.jars import find_java

VERSION = "1.12.1"
VERDICTS = Path(__file__).parent / "avro_schemas.json"


def named(kind, name, **more):
    needed = {"record": {"fields": []}, "enum": {"symbols": ["A"]}, "fixed": {"size": 2}}
    return {"type": kind, "name": name, **needed[kind], **more}


def record(*fields, name="R", **more):
    """fields: types, or whole fields"""
    made = [
        f if isinstance(f, dict) and "name" in f and "fields" not in f and f.get("type") not in ("enum", "fixed", "record")
        else {"name": f"f{n}", "type": f}
        for n, f in enumerate(fields)
    ]  # fmt: skip
    return {"type": "record", "name": name, "fields": made, **more}


def field(**more):
    return {"name": "a", "type": "int", **more}


LONGS, TEXTS = {"type": "array", "items": "long"}, {"type": "array", "items": "string"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NAMES = [
    *("a", "_", "A1_", "ä", "日本", "é1", "1a", "a-b", "c-d!", "a b", "", " ", "a$", "m²", "²m", "𝒜"),
    *("a𝒜", "Ⅷ", "ª", "a٣", "٣a", "a⁀b", "a\u0301", "\ud800", "a.b", ".a", "a.", "a..b", "int", "record"),
    *("x.int", "a.b-c", "1.a", "a.1"),
]  # fmt: skip

SCHEMAS = [
    # Unions.
    ["long", "long"],
    ["long", MICROS],
    [LONGS, TEXTS],
    [LONGS, {"type": "map", "values": "long"}],
    [{"type": "map", "values": "int"}, {"type": "map", "values": "long"}],
    ["null", ["int"]],
    [],
    ["null"],
    ["null", "null"],
    [named("fixed", "F"), named("fixed", "G"), named("enum", "E"), named("enum", "D")],
    [named("fixed", "F"), "F"],
    [named("fixed", "F"), named("fixed", "F")],
    [named("fixed", "F"), named("fixed", "n.F")],
    [named("fixed", "F", size=2), named("fixed", "F", size=3)],
    record(named("enum", "E"), ["null", "E", "string"]),
    record(named("enum", "E"), ["E", "n.E"]),
    record(["null", "R"]),
    record(["null", "R", "R"]),
    record(record("int", name="S"), record("int", name="S")),
    record(record("int", name="S"), record("long", name="S")),
    record(record("int", name="S", doc="a"), record("int", name="S", doc="b")),
    # Names.
    *(named("record", name) for name in NAMES),
    *(named("fixed", name) for name in NAMES if name in ("c-d!", "", "m²", "a.b")),
    *(named("enum", name) for name in NAMES if name in ("c-d!", "", "m²", "a.b")),
    *(named("record", "R", namespace=name) for name in NAMES),
    *(record(field(name=name)) for name in NAMES),
    *(named("enum", "E", symbols=[name]) for name in NAMES),
    named("record", 5),
    named("record", None),
    named("record", "R", namespace=None),
    named("record", "R", namespace=5),
    {"type": "record", "fields": []},
    # Enums, fixed types.
    named("enum", "E", symbols=[]),
    named("enum", "E", symbols=["A", "A"]),
    named("enum", "E", symbols=["A", "a"]),
    named("enum", "E", symbols=[1]),
    named("enum", "E", symbols="A"),
    named("enum", "E", default="A"),
    named("enum", "E", default="B"),
    named("enum", "E", default=1),
    {"type": "enum", "name": "E"},
    *(named("fixed", "F", size=size) for size in (0, 1, -1, True, None, "2", 2.0, 2**31 - 9)),
    *(named("fixed", "F", size=size) for size in (2**31 - 8, 2**31 - 1, 2**31, 2**63)),
    # Records.
    record(field(), field()),
    record(field(), field(name="A")),
    record({"name": "a"}),
    record({"type": "int"}),
    record(5),
    {"type": "record", "name": "R"},
    {"type": "record", "name": "R", "fields": {}},
    {"type": "record", "name": "R", "fields": [5]},
    *(record(field(order=o)) for o in ("ascending", "DESCENDING", "ignore", "other", 5, None)),
    *(record(field(aliases=aliases)) for aliases in (["b"], ["c-d"], [], "b", [1], None)),
    *(record(aliases=aliases) for aliases in (["b"], ["n.b"], ["c-d"], [], "b", [1], None)),
    record(field(doc=5)),
    record(field(default="text")),
    # Types.
    *("int", "Foo", "", "record", "array", 5, None, True, {}),
    {"type": "int"},
    {"type": {"type": "int"}},
    {"type": named("fixed", "F")},
    {"type": ["null", "int"]},
    {"type": "Foo"},
    {"type": "error", "name": "R", "fields": []},
    {"type": "array"},
    {"type": "map"},
    {"type": "array", "items": {"type": "map"}},
    {"type": "array", "items": []},
    {"type": "map", "values": ["int", "int"]},
    record({"name": "a", "type": {"type": "R"}}),
    record("R", name="n.R"),
    record("n.R", name="n.R"),
    record("S", record(name="S")),
    record(record(name="S", namespace="m"), "S", name="n.R"),
    record(record(name="S", namespace="m"), "m.S", name="n.R"),
    record(record("R", name="S", namespace="m")),
    record(record("S", record(name="S", namespace="m"), "m.S", name="T")),
    # Logical types: what is wrong with one is ignored.
    {"type": "string", "logicalType": "decimal"},
    {"type": "bytes", "logicalType": "decimal", "precision": -1},
    {"type": "long", "logicalType": 5},
    named("fixed", "F", logicalType="decimal", precision=100),
    named("fixed", "F", logicalType="duration"),
]
TEXTS_OF_SCHEMAS = [
    *("", "{", "int", '"int" "long"', '"int" x', "NaN", '{"type": "int", "x": NaN}', "'int'"),
    '{"type": "int", "type": "Foo"}',
    '{"type": "record", "name": "R", "fields": [], "name": "c-d"}',
    '{"type": "enum", "name": "E", "symbols": ["\\ud835\\udc9c"]}',
]
"""That are no JSON, or say something twice."""

HOME = named("record", "n.Home", fields=[{"name": "at", "type": named("record", "Place")}])
WITH_REFERENCES = [
    [HOME, record("n.Home")],
    [HOME, record("n.Place")],
    [HOME, record("n.Place", "n.Home", "n.Place")],
    [HOME, record("n.Home", "n.Place")],
    [HOME, record("Place", name="n.R")],
    [HOME, record("Place")],
    [HOME, record("Place", name="m.R")],
    [HOME, HOME],
    [HOME, record(HOME, "n.Place")],
    [HOME, record(named("record", "n.Place", fields=[{"name": "x", "type": "int"}]))],
    [named("fixed", "F"), record("F", name="n.R")],
    [named("fixed", "F"), named("fixed", "n.F", size=3), record("F", name="n.R")],
    [LONGS, record("int")],
    [named("record", "n.A"), record("A", name="n.B"), record("n.B", "n.A", ["null", "n.A"])],
]
"""A schema comes after those that it builds on."""


def all_cases():
    texts = [[json.dumps(schema)] for schema in SCHEMAS] + [[text] for text in TEXTS_OF_SCHEMAS]
    return texts + [[json.dumps(schema) for schema in several] for several in WITH_REFERENCES]


def main():
    jars = map(str, fetch_jars([f"org.apache.avro:avro:{VERSION}"], f"avro-{VERSION}"))
    java = str(Path(find_java()))
    cases = all_cases()
    done = subprocess.run(
        [java, "-cp", os.pathsep.join(jars), str(Path(__file__).with_name("AvroJudge.java"))],
        input=json.dumps(cases).encode(),
        stdout=subprocess.PIPE,
        timeout=600,
        check=True,
    )
    said = json.loads(done.stdout)
    lines = [json.dumps([*case, verdict]) for case, verdict in zip(cases, said)]
    joined = ",\n".join(lines)
    VERDICTS.write_text(f'{{"avro": "{VERSION}", "cases": [\n{joined}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
