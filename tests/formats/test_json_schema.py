"""JSON Schemas of columns: what is derived, and what of columns a given one does not take."""

import json
from random import Random

import jsonschema
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_sink.formats import json_schema
from spark_kafka_sink.formats.json_schema import Written, compared, derived_json_schema
from spark_kafka_sink.formats.plan import FormatError
from tests.formats.rows import RandomRows, json_encoder
from tests.tables import each_row


@pytest.mark.parametrize("seed", range(30))
def test_rows_are_valid_by_the_derived_schema(seed):
    random = RandomRows(seed)
    table = random.table(60)
    is_null_left_out = random.chance()
    schema = from_arrow_schema(table.schema, True)
    derived = json.loads(derived_json_schema(schema.json(), "T", Written(is_null_left_out)))
    jsonschema.Draft7Validator.check_schema(derived)
    validator = jsonschema.Draft7Validator(derived)
    batch = table.combine_chunks().to_batches()[0]
    encode = json_encoder(batch.schema, ignore_null_fields=is_null_left_out).encode
    for value in encode(batch).values.to_pylist():
        validator.validate(json.loads(value))
    assert compared(derived, derived) == ((), (), ())


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
CITY_TYPE = t.StructType([t.StructField("city", t.StringType(), False)])
DERIVED = [
    (t.LongType(), NUMBER),
    (t.DecimalType(10, 2), {"type": "number"}),
    (t.DecimalType(10, 0), NUMBER),
    (t.TimestampType(), {"type": "string", "format": "date-time"}),
    (t.DateType(), {"type": "string", "format": "date"}),
    (t.TimestampNTZType(), TEXT),
    (t.BinaryType(), {"type": "string", "contentEncoding": "base64"}),
    (t.VarcharType(3), TEXT),
    (t.ArrayType(t.StringType()), {"type": "array", "items": {"oneOf": [{"type": "null"}, TEXT]}}),
    (t.MapType(t.StringType(), t.IntegerType(), False), {"type": "object", "additionalProperties": {"oneOf": [{"type": "null"}, NUMBER]}}),
    (CITY_TYPE, {"type": "object", "properties": {"city": TEXT}, "additionalProperties": False}),
    (t.DayTimeIntervalType(), TEXT),
    (t.NullType(), {"type": "null"}),
]  # fmt: skip


def test_what_is_derived():
    struct = t.StructType([t.StructField(f"f{n}", one[0], n % 2) for n, one in enumerate(DERIVED)])
    found = json.loads(derived_json_schema(struct.json(), "Order"))
    assert found == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {f"f{n}": expected for n, (_, expected) in enumerate(DERIVED)},
        "additionalProperties": False,
    }
    written = Written(False, has_own_dates=True, has_own_timestamps=True)
    properties = json.loads(derived_json_schema(struct.json(), "O", written))["properties"]
    assert properties["f3"] == properties["f4"] == {"oneOf": [{"type": "null"}, TEXT]}


def test_a_type_without_json():
    field = {"name": "g", "type": "geometry(4326)", "nullable": True, "metadata": {}}
    struct = {
        "type": "struct",
        "fields": [{**field, "type": {"type": "struct", "fields": [field]}}],
    }
    with pytest.raises(FormatError, match=r"column 'g\.g' has the Spark type geometry\(4326\)"):
        derived_json_schema(json.dumps(struct))


@pytest.mark.parametrize("is_null_left_out", [True, False])
def test_a_variant_may_be_anything(is_null_left_out):
    variant = t.VariantType()
    struct = t.StructType(
        [
            t.StructField("v", variant),
            t.StructField("w", variant, False),
            t.StructField("a", t.ArrayType(variant)),
            t.StructField("m", t.MapType(t.StringType(), variant)),
        ]
    )
    derived = json.loads(derived_json_schema(struct.json(), "R", Written(is_null_left_out)))
    kinds = [{"type": "array", "items": {}}, {"type": "object", "additionalProperties": {}}]
    if not is_null_left_out:
        kinds = [{"oneOf": [{"type": "null"}, kind]} for kind in kinds]
    assert derived["properties"] == {"v": {}, "w": {}, "a": kinds[0], "m": kinds[1]}
    wanted = {"type": "object", "properties": {"v": {"type": "integer"}, "w": False}}
    assert compared(derived, wanted).misfits == ("'w' must not be there",)


WRITTEN = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "list": {"type": "array", "items": {"oneOf": [{"type": "null"}, {"type": "string"}]}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "number": {"anyOf": [{"type": "number"}, {"enum": ["NaN"]}]},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, []),
        (True, []),
        ({"type": "array"}, ["each row is written as object, and the schema has array"]),
        ({"properties": {"n": {"type": ["number", "null"]}}}, []),
        ({"properties": {"n": {"type": "string"}}}, ["'n' is written as integer, and the schema has string"]),
        ({"properties": {"number": {"type": "boolean"}}}, ["'number' is written as number, and the schema has boolean"]),
        ({"properties": {"list": {"oneOf": [{"type": "null", "title": "None"}, {"type": "string"}]}}}, ["'list' is written as array, and the schema has string"]),
        ({"properties": {"n": {"type": "any"}, "map": {"type": [{"type": "object"}, "null"]}}}, []),
        ({"properties": {"n": {"type": "string", "required": True}}, "required": True}, ["'n' is written as integer, and the schema has string"]),
        (False, ["each row must not be there"]),
        ({"properties": {"n": {"oneOf": [{"type": "null"}, {"type": "integer"}]}}}, []),
        ({"properties": {"n": {"oneOf": [{"type": "null"}, {"type": "string"}]}}}, ["'n' is written as integer, and the schema has string"]),
        ({"required": ["n", "x"]}, ["'x' is required, and no column is it"]),
        ({"required": [{"n": 1}, 5], "type": 5}, ["'{'n': 1}' is required, and no column is it", "'5' is required, and no column is it"]),
        ({"properties": {"n": {}, "list": {}, "map": {}}, "additionalProperties": False}, ["'number' must not be there"]),
        ({"properties": {"list": {"prefixItems": [{"type": "string"}], "items": {"type": "string"}}}}, []),
        ({"allOf": [{"required": ["x"]}, {"required": ["x", "y"]}]}, ["'x' is required, and no column is it", "'y' is required, and no column is it"]),
        ({"properties": {"n": False}, "oneOf": [{"type": "object"}]}, ["'n' must not be there"]),
        ({"patternProperties": {".*": {}}, "additionalProperties": False}, []),
        ({"properties": {"list": {"prefixItems": [{}], "items": {"type": "integer"}}}}, []),
        ({"properties": {"map": {"required": ["x"]}}}, []),
        ({"properties": {"map": {"additionalProperties": {"type": "string"}}}}, ["'map.*' is written as integer, and the schema has string"]),
    ],
)  # fmt: skip
def test_what_does_not_fit(wanted, found):
    assert compared(WRITTEN, wanted)[::2] == (tuple(found), ())


NULL, NAN = "'list[]' that is null", "'number' that is NaN or infinite"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"list": {"items": {"type": "string"}}}, [NULL]),
        ({"number": {"type": "number"}}, [NAN]),
        ({"number": {"type": ["number", "null"]}, "list": {"items": {"type": "string"}}}, [NULL, NAN]),
        ({"number": {"anyOf": [{"type": "number"}, {"type": "null"}]}}, [NAN]),
        ({"number": {"anyOf": [{"type": "number"}, {"type": "string"}]}}, []),
        ({"list": {"items": {"type": ["string", "null"]}}}, []),
        ({"list": {"items": {"oneOf": [{"type": "null"}, {"type": "string"}]}}}, []),
        ({"list": {"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]}}, [NULL]),
    ],
)  # fmt: skip
def test_values_that_a_column_may_have_or_not_are_no_misfits(wanted, found):
    """Nearly all of Spark's elements may be null, and doubles NaN, of which schemas say nothing."""
    assert compared(WRITTEN, {"properties": wanted}) == ((), tuple(found), ())


def test_a_branch_that_takes_most_rows_is_the_one_that_is_told():
    branches = [{"properties": {"number": {"type": t}}} for t in ("boolean", "number")]
    assert compared(WRITTEN, {"anyOf": branches}) == ((), (NAN,), ())


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"properties": None}, "its 'properties' is no object: None"),
        ({"required": "id"}, "its 'required' is no list: id"),
        ({"anyOf": {"type": "object"}}, "its 'anyOf' is no list: {'type': 'object'}"),
        ({"$ref": ["#"]}, "a $ref that is no text"),
    ],
)
def test_what_is_no_schema_is_told(wanted, told):
    with pytest.raises(TypeError) as refused:
        compared(WRITTEN, wanted)
    assert told in str(refused.value)


@pytest.mark.parametrize("name", ["default", "const", "enum", "examples"])
def test_a_column_may_be_called_like_a_keyword(name):
    """What it refers to is that of the schema in which it stands."""
    written = {"type": "object", "properties": {name: ORDER["properties"]["home"]}}
    inner = {"properties": {name: {"$ref": "#/definitions/A"}}, "definitions": {"A": ADDRESS}}
    wanted = {"allOf": [{"$ref": "a.json"}], "definitions": {"A": {}}}
    found = compared(written, wanted, [("a.json", inner)])
    assert found.misfits == (CITY.replace("home", name),)


ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "home": {"type": "object", "properties": {"city": {"type": "string"}}}},
}  # fmt: skip
ADDRESS = {"type": "object", "properties": {"city": {"type": "integer"}}}
CITY = "'home.city' is written as string, and the schema has integer"
NEW = "https://json-schema.org/draft/2020-12/schema"
OLD = "http://json-schema.org/draft-07/schema#"


def home(reference, **more):
    """A schema whose home is what is referred to."""
    return {"properties": {"home": reference}, **more}


LEADS = [
    ({"$ref": "#/definitions/A"}, {"definitions": {"A": ADDRESS}}, []),
    ({"$ref": "#/$defs/A"}, {"$defs": {"A": ADDRESS}}, []),
    ({"$ref": "#/$defs/a~1b%20~0c/anyOf/0"}, {"$defs": {"a/b ~c": {"anyOf": [ADDRESS]}}}, []),
    ({"$ref": "#/$defs/a~01"}, {"$defs": {"a~1": ADDRESS, "a/": {}}}, []),
    ({"$ref": "#/definitions/A", "$id": "http://z/o"}, {"$schema": OLD, "definitions": {"A": ADDRESS}}, []),
    ({"$ref": "a.json"}, {"$defs": {"x": {"$id": "a.json", **ADDRESS}}}, [("a.json", {})]),
    ({"$ref": "o"}, {"$schema": "http://json-schema.org/draft-03/schema#", "x": {"id": "o", **ADDRESS}}, [("o.json", {})]),
    ({"$ref": "#/$defs/B"}, {"$defs": {"A": ADDRESS, "B": {"$ref": "#/$defs/A"}}}, []),
    ({"$ref": "#A"}, {"$defs": {"x": {"$anchor": "A", **ADDRESS}}}, []),
    ({"$ref": "#A"}, {"definitions": {"x": {"$id": "#A", **ADDRESS}}}, []),
    ({"$ref": "a.json"}, {"$defs": {"x": {"$id": "a.json", **ADDRESS}}}, []),
    ({"$ref": "http://x/a.json"}, {"$id": "http://x/o", "$defs": {"x": {"$id": "a.json", **ADDRESS}}}, []),
    ({"$ref": "#/definitions/A"}, {"$id": "urn:o:1", "definitions": {"A": ADDRESS}}, []),
    ({"$ref": "a.json"}, {}, [("a.json", ADDRESS)]),
    ({"$ref": "a.json"}, {"$id": "http://x/y/o.json"}, [("a.json", ADDRESS)]),
    ({"$ref": "http://x/y/a.json"}, {"$id": "http://x/y/o.json"}, [("a.json", ADDRESS)]),
    ({"$ref": "acme.Address"}, {"$id": "urn:o:1"}, [("acme.Address", ADDRESS)]),
    ({"$ref": "http://x/a.json"}, {}, [("http://x/a.json", ADDRESS)]),
    ({"$ref": "http://x/a.json"}, {}, [("other", {"$id": "http://x/a.json", **ADDRESS})]),
    ({"$ref": "a.json#/definitions/A"}, {}, [("a.json", {"definitions": {"A": ADDRESS}})]),
    ({"$ref": "a.json"}, {}, [("a.json", {"$ref": "b.json"}), ("b.json", ADDRESS)]),
    ({"$ref": "a.json"}, {}, [("a.json", {"$ref": "#/definitions/A", "definitions": {"A": ADDRESS}})]),
    ({"$ref": "o.json"}, {"$schema": "http://json-schema.org/draft-04/schema#", "definitions": {"A": {"id": "o.json", **ADDRESS}}}, []),
    ({"allOf": [{"$ref": "#/$defs/A"}]}, {"$defs": {"A": ADDRESS}}, []),
    ({"oneOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]}, {"$defs": {"A": ADDRESS}}, []),
    ({"$ref": "#/$defs/A", "type": "object"}, {"$schema": NEW, "$defs": {"A": ADDRESS}}, []),
]  # fmt: skip


@pytest.mark.parametrize(("reference", "more", "others"), LEADS)
def test_what_a_reference_leads_to_is_compared(reference, more, others):
    """With a copy: where a reference leads does not depend on which objects are the same one."""
    wanted, others = json.loads(json.dumps([home(reference, **more), others]))
    found = compared(ORDER, wanted, [(name, other) for name, other in others])
    assert found == ((CITY,), (), ())


@pytest.mark.parametrize(("reference", "more"), [(one[0], one[1]) for one in LEADS if not one[2]])
def test_a_validator_finds_it_there_as_well(reference, more):
    wanted = home(reference, **more)
    kind = jsonschema.validators.validator_for(wanted, jsonschema.Draft202012Validator)
    if "#A" in str(more):  # such an $id is one of older drafts
        kind = jsonschema.Draft7Validator
    rows = [{"home": {"city": "x"}}, {"home": {"city": 1}}]
    assert [kind(wanted).is_valid(row) for row in rows] == [False, True]


GATE = "'gate' is required, and no column is it"
A_OF_ANY = {"$defs": {"A": {"anyOf": [ADDRESS]}}}
BESIDE = home({"$ref": "#/$defs/A", **ADDRESS}, **{"$defs": {"A": {}}})
FITS = home({"$ref": "a"}, additionalProperties={"$ref": "#/$defs/N"}, required=["id"])
TREE = {"T": {"properties": {"home": {"$ref": "#/$defs/T"}}}}


@each_row(
    ("wanted", "others", "misfits", "unknown"),
    [
        # Leads nowhere: all else is compared.
        (home({"$ref": "#/definitions/A"}, required=["gate"]), [], [GATE], ["#/definitions/A"]),
        (home({"$ref": "#/required/1"}, required=["gate"]), [], [GATE], ["#/required/1"]),
        (home({"$ref": "#A"}), [], [], ["#A"]),
        (home({"$ref": "http://x/a.json"}), [("a.json", ADDRESS)], [], ["http://x/a.json"]),
        (home({"$ref": "a.json#/definitions/A"}), [("a.json", ADDRESS)], [], ["a.json#/definitions/A"]),
        (home({"$ref": "a.json"}), [("a.json", ADDRESS), ("a.json", {})], [], ["a.json"]),
        (home({"$dynamicRef": "#node"}), [], [], ["#node"]),
        (home({"anyOf": [{"$ref": "x"}, {"type": "string"}]}), [], [], ["x"]),
        # An index is one in ASCII.
        *((home({"$ref": f"#/$defs/A/anyOf/{index}"}, **A_OF_ANY), [], [], [f"#/$defs/A/anyOf/{index}"]) for index in ("\u0660", "9" * 5000)),
        # Names in values are none.
        (home({"$ref": "a.json"}, default={"$id": "a.json", "type": "string"}), [], [], ["a.json"]),
        # Older drafts ignore what stands beside a reference.
        ({**BESIDE, "$schema": OLD}, [], [], []),
        ({**BESIDE, "$schema": NEW}, [], [CITY], []),
        ({"$ref": "#/definitions/Order", "definitions": {"Order": {"required": ["gate"]}}}, [], [GATE], []),
        ({**FITS, "$defs": {"N": {"type": "number"}}}, [("a", {"properties": {"city": {}}})], [], []),
        # Without an end.
        ({"$ref": "#"}, [], [], []),
        ({"$ref": "#/$defs/T", "$defs": TREE}, [], [], []),
    ],
)  # fmt: skip
def test_what_comes_of_references(wanted, others, misfits, unknown):
    assert compared(ORDER, wanted, others) == (tuple(misfits), (), tuple(unknown))


def test_schemas_that_are_in_each_other_many_times_are_compared_once():
    names = [f"S{n}" for n in range(40)]
    inner = [{"$ref": f"#/$defs/{name}"} for name in names[1:]] + [home(ADDRESS)]
    wanted = {"$ref": "#/$defs/S0"}
    for name, schema in zip(names, inner):
        both = {"allOf": [schema, dict(schema)], "anyOf": [schema, dict(schema)]}
        wanted.setdefault("$defs", {})[name] = both
    assert compared(ORDER, wanted).misfits == (CITY,)


def test_each_level_of_a_schema_keeps_a_limited_number_of_misfits():
    levels = {f"S{n}": {"allOf": [{"$ref": f"#/$defs/S{n + 1}"}]} for n in range(30)}
    wanted = {"$ref": "#/$defs/S0", "$defs": levels}
    levels["S30"] = {"required": [f"r{n}" for n in range(1_000)]}
    comparing = json_schema._Comparing(json_schema.References(wanted, ()))
    comparing.misfits(ORDER, wanted, "")
    assert {len(found) for found in comparing._found.values()} == {21}
    misfits = compared(ORDER, wanted).misfits
    assert misfits[:2] == tuple(f"'r{n}' is required, and no column is it" for n in range(2))
    assert (len(misfits), misfits[-1]) == (21, "and more")


def test_misfits_of_some_rows_do_not_hide_one_of_all_rows():
    null_or_text = {"oneOf": [{"type": "null"}, {"type": "string"}]}
    written = {"type": "object", "properties": {f"c{n}": null_or_text for n in range(30)}}
    text = {"type": "string"}
    wanted = {"properties": dict.fromkeys(written["properties"], text), "required": ["late"]}
    found = compared(json.loads(json.dumps(written)), wanted)
    assert found.misfits == ("'late' is required, and no column is it",)
    assert (found.of_some[0], found.of_some[-1]) == ("'c0' that is null", "and more")


COLUMN_NAMES = ["a", "b", "default", "$ref", "items", "enum"]
SIMPLE = ["long", "double", "string", "boolean", "variant", "decimal(5,2)"]
TYPES = ["object"] * 5 + ["array", "string", "number", "integer", "boolean", "null"]
VARIANTS = [None, 1, "x", {"a": 1}, [1]]


class Chance(Random):
    """Types of Spark with values of them, and JSON Schemas."""

    def is_so(self, chance):
        return self.random() < chance

    def type(self, depth):
        kind = self.choice(SIMPLE + (["array", "map", "struct"] if depth else []))
        if kind == "array":
            inner = self.type(depth - 1)
            return {"type": kind, "elementType": inner, "containsNull": self.is_so(0.6)}
        if kind == "map":
            found = {"type": kind, "keyType": "string", "valueType": self.type(depth - 1)}
            return {**found, "valueContainsNull": self.is_so(0.6)}
        return self.struct(depth - 1) if kind == "struct" else kind

    def struct(self, depth):
        names = self.sample(COLUMN_NAMES, self.randint(1, 3))
        fields = [(name, self.type(depth), self.is_so(0.7)) for name in names]
        made = [{"name": name, "type": kind, "nullable": null} for name, kind, null in fields]
        return {"type": "struct", "fields": made}

    def value(self, kind):
        """No null and no NaN: that these do not fit is no reason to refuse a column."""
        simple = {
            "long": self.randint(-5, 5),
            "double": self.choice([1.5, 2.0]),
            "decimal(5,2)": 1.25,
            "string": self.choice(["x", ""]),
            "boolean": self.is_so(0.5),
            "variant": self.choice(VARIANTS),
        }
        if isinstance(kind, str):
            return simple[kind]
        if kind["type"] == "array":
            return [self.value(kind["elementType"]) for _ in range(2)]
        if kind["type"] == "map":
            return {f"k{n}": self.value(kind["valueType"]) for n in range(2)}
        return {field["name"]: self.value(field["type"]) for field in kind["fields"]}

    def schema(self, depth):
        chance = self.random()
        if chance < 0.1:
            return self.choice([{}, {}, True, False])
        if chance < 0.2 and depth:
            branches = [self.schema(depth - 1) for _ in range(self.randint(1, 3))]
            return {self.choice(["allOf", "anyOf", "oneOf"]): branches}
        if chance < 0.3:
            return {"$ref": self.choice(["#/definitions/A", "#/definitions/B"])}
        found = {"type": self.choice(TYPES)} if self.is_so(0.9) else {}
        if self.is_so(0.25) and found:
            found["type"] = [*{found["type"], self.choice(["null", "string"])}]
        return {**found, **self.contents(depth)} if depth else found

    def contents(self, depth):
        names = self.sample(COLUMN_NAMES, self.randint(0, 4))
        inner = {
            "properties": {name: self.schema(depth - 1) for name in names},
            "additionalProperties": self.choice([True, False, self.schema(depth - 1)]),
            "required": self.sample(["a", "b", "default"], 1),
            "items": self.schema(depth - 1),
        }
        chances = {"properties": 0.8, "additionalProperties": 0.3, "required": 0.2, "items": 0.4}
        return {name: inner[name] for name, chance in chances.items() if self.is_so(chance)}

    def root(self):
        # The definitions refer to nothing behind them: a validator would not end.
        definitions = {"A": self.schema(0), "B": {"properties": {"a": self.schema(0)}}}
        for name, definition in definitions.items():
            if "$ref" in str(definition):
                definitions[name] = {}
        found = self.schema(3)
        return {"allOf": [found], "definitions": definitions}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_refused_is_refused_by_a_validator(seed):
    random, refused = Chance(seed), 0
    for _ in range(300):
        struct, wanted = random.struct(2), random.root()
        written = json.loads(derived_json_schema(json.dumps(struct)))
        found = compared(written, json.loads(json.dumps(wanted))).misfits
        if not found:
            continue
        refused += 1
        validator = jsonschema.Draft7Validator(wanted)
        rows = [random.value(struct) for _ in range(6)]
        assert not all(map(validator.is_valid, rows)), (found, wanted, struct)
    assert 30 < refused < 270
