"""What of columns a JSON Schema does not take, with all that it has by ``$ref``."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from spark_kafka_sink.formats.json_schema import compared

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
def test_what_does_not_fit(wanted: object, found: list[str]) -> None:
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
def test_values_that_a_column_may_have_or_not_are_no_misfits(
    wanted: object, found: list[str]
) -> None:
    """Nearly all of Spark's elements may be null, and doubles NaN, of which schemas say nothing."""
    assert compared(WRITTEN, {"properties": wanted}) == ((), tuple(found), ())


def test_a_branch_that_takes_most_rows_is_the_one_that_is_told() -> None:
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
def test_what_is_no_schema_is_told(wanted: object, told: str) -> None:
    with pytest.raises(TypeError) as refused:
        compared(WRITTEN, wanted)
    assert told in str(refused.value)


def test_names_of_any_type_are_no_error() -> None:
    found = compared(WRITTEN, {"required": [{"n": 1}, 5], "type": 5}).misfits
    assert found == (
        "'{'n': 1}' is required, and no column is it",
        "'5' is required, and no column is it",
    )


@pytest.mark.parametrize("name", ["default", "const", "enum", "examples"])
def test_a_column_may_be_called_like_a_keyword(name: str) -> None:
    """What it refers to is that of the schema in which it stands."""
    written = {"type": "object", "properties": {name: ORDER["properties"]["home"]}}
    inner = {"properties": {name: {"$ref": "#/definitions/A"}}, "definitions": {"A": ADDRESS}}
    wanted = {"allOf": [{"$ref": "a.json"}], "definitions": {"A": {}}}
    found = compared(written, wanted, [("a.json", inner)])
    assert found.misfits == (CITY.replace("home", name),)


def test_an_index_of_a_reference_is_one_in_ascii() -> None:
    for index in ("\u0660", "9" * 5000):
        reference = f"#/$defs/A/anyOf/{index}"
        wanted = home({"$ref": reference}, **{"$defs": {"A": {"anyOf": [ADDRESS]}}})
        assert compared(ORDER, wanted) == ((), (), (reference,))


# --- references ---------------------------------------------------------------------------------

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "home": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ADDRESS = {"type": "object", "properties": {"city": {"type": "integer"}}}
CITY = "'home.city' is written as string, and the schema has integer"
NEW = "https://json-schema.org/draft/2020-12/schema"
OLD = "http://json-schema.org/draft-07/schema#"


def home(reference: object, **more: object) -> dict[str, Any]:
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
def test_what_a_reference_leads_to_is_compared(
    reference: object, more: dict[str, Any], others: list[tuple[str, Any]]
) -> None:
    """With a copy: where a reference leads does not depend on which objects are the same one."""
    wanted, others = json.loads(json.dumps([home(reference, **more), others]))
    found = compared(ORDER, wanted, [(name, other) for name, other in others])
    assert found == ((CITY,), (), ())


@pytest.mark.parametrize(("reference", "more"), [(one[0], one[1]) for one in LEADS if not one[2]])
def test_a_validator_finds_it_there_as_well(reference: object, more: dict[str, Any]) -> None:
    wanted = home(reference, **more)
    kind = jsonschema.validators.validator_for(wanted, jsonschema.Draft202012Validator)
    if "#A" in str(more):  # such an $id is one of older drafts
        kind = jsonschema.Draft7Validator
    rows = [{"home": {"city": "x"}}, {"home": {"city": 1}}]
    assert [kind(wanted).is_valid(row) for row in rows] == [False, True]


def test_a_whole_schema_by_reference() -> None:
    wanted = {"$ref": "#/definitions/Order", "definitions": {"Order": {"required": ["gate"]}}}
    assert compared(ORDER, wanted).misfits == ("'gate' is required, and no column is it",)


def test_what_fits_by_reference() -> None:
    wanted = home({"$ref": "a"}, additionalProperties={"$ref": "#/$defs/N"}, required=["id"])
    wanted["$defs"] = {"N": {"type": "number"}}
    assert compared(ORDER, wanted, [("a", {"properties": {"city": {}}})]) == ((), (), ())


@pytest.mark.parametrize(("draft", "found"), [(OLD, ()), (NEW, (CITY,))])
def test_what_stands_beside_a_reference(draft: str, found: tuple[str, ...]) -> None:
    """Older drafts ignore it."""
    wanted = home({"$ref": "#/$defs/A", **ADDRESS}, **{"$schema": draft, "$defs": {"A": {}}})
    assert compared(ORDER, wanted).misfits == found


@pytest.mark.parametrize(
    ("reference", "others", "unknown"),
    [
        ({"$ref": "#/definitions/A"}, [], "#/definitions/A"),
        ({"$ref": "#/required/1"}, [], "#/required/1"),
        ({"$ref": "#A"}, [], "#A"),
        ({"$ref": "http://x/a.json"}, [("a.json", ADDRESS)], "http://x/a.json"),
        ({"$ref": "a.json#/definitions/A"}, [("a.json", ADDRESS)], "a.json#/definitions/A"),
        ({"$ref": "a.json"}, [("a.json", ADDRESS), ("a.json", {})], "a.json"),
        ({"$dynamicRef": "#node"}, [], "#node"),
        ({"anyOf": [{"$ref": "x"}, {"type": "string"}]}, [], "x"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(
    reference: object, others: list[tuple[str, Any]], unknown: str
) -> None:
    """All else is compared."""
    wanted = home(reference, required=["gate"])
    expected = (("'gate' is required, and no column is it",), (), (unknown,))
    assert compared(ORDER, wanted, others) == expected


def test_references_without_an_end() -> None:
    assert compared(ORDER, {"$ref": "#"}) == ((), (), ())
    tree = {"$ref": "#/$defs/T", "$defs": {"T": {"properties": {"home": {"$ref": "#/$defs/T"}}}}}
    assert compared(ORDER, tree) == ((), (), ())


def test_schemas_that_are_in_each_other_many_times_are_compared_once() -> None:
    names = [f"S{n}" for n in range(40)]
    inner = [{"$ref": f"#/$defs/{name}"} for name in names[1:]] + [home(ADDRESS)]
    wanted = {"$ref": "#/$defs/S0"}
    for name, schema in zip(names, inner):
        both = {"allOf": [schema, dict(schema)], "anyOf": [schema, dict(schema)]}
        wanted.setdefault("$defs", {})[name] = both
    assert compared(ORDER, wanted).misfits == (CITY,)


def test_names_in_values_are_none() -> None:
    wanted = home({"$ref": "a.json"}, default={"$id": "a.json", "type": "string"})
    assert compared(ORDER, wanted) == ((), (), ("a.json",))
