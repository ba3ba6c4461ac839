"""No columns are refused all of whose rows a validator takes: random columns, random schemas."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
import pytest

from spark_kafka_sink.formats.json_schema import compared, derived_json_schema

NAMES = ["a", "b", "default", "$ref", "items", "enum"]
SIMPLE = ["long", "double", "string", "boolean", "variant", "decimal(5,2)"]
TYPES = ["object"] * 5 + ["array", "string", "number", "integer", "boolean", "null"]
VARIANTS = [None, 1, "x", {"a": 1}, [1]]


class Chance(Random):
    """Types of Spark with values of them, and JSON Schemas."""

    def is_so(self, chance: float) -> bool:
        return self.random() < chance

    def type(self, depth: int) -> Any:
        kind = self.choice(SIMPLE + (["array", "map", "struct"] if depth else []))
        if kind == "array":
            inner = self.type(depth - 1)
            return {"type": kind, "elementType": inner, "containsNull": self.is_so(0.6)}
        if kind == "map":
            found = {"type": kind, "keyType": "string", "valueType": self.type(depth - 1)}
            return {**found, "valueContainsNull": self.is_so(0.6)}
        return self.struct(depth - 1) if kind == "struct" else kind

    def struct(self, depth: int) -> Any:
        names = self.sample(NAMES, self.randint(1, 3))
        fields = [(name, self.type(depth), self.is_so(0.7)) for name in names]
        made = [{"name": name, "type": kind, "nullable": null} for name, kind, null in fields]
        return {"type": "struct", "fields": made}

    def value(self, kind: Any) -> Any:
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

    def schema(self, depth: int) -> Any:
        chance = self.random()
        if chance < 0.1:
            return self.choice([{}, {}, True, False])
        if chance < 0.2 and depth:
            branches = [self.schema(depth - 1) for _ in range(self.randint(1, 3))]
            return {self.choice(["allOf", "anyOf", "oneOf"]): branches}
        if chance < 0.3:
            return {"$ref": self.choice(["#/definitions/A", "#/definitions/B"])}
        found: dict[str, Any] = {"type": self.choice(TYPES)} if self.is_so(0.9) else {}
        if self.is_so(0.25) and found:
            found["type"] = [*{found["type"], self.choice(["null", "string"])}]
        return {**found, **self.contents(depth)} if depth else found

    def contents(self, depth: int) -> dict[str, Any]:
        names = self.sample(NAMES, self.randint(0, 4))
        inner = {
            "properties": {name: self.schema(depth - 1) for name in names},
            "additionalProperties": self.choice([True, False, self.schema(depth - 1)]),
            "required": self.sample(["a", "b", "default"], 1),
            "items": self.schema(depth - 1),
        }
        chances = {"properties": 0.8, "additionalProperties": 0.3, "required": 0.2, "items": 0.4}
        return {name: inner[name] for name, chance in chances.items() if self.is_so(chance)}

    def root(self) -> dict[str, Any]:
        # The definitions refer to nothing behind them: a validator would not end.
        definitions = {"A": self.schema(0), "B": {"properties": {"a": self.schema(0)}}}
        for name, definition in definitions.items():
            if "$ref" in str(definition):
                definitions[name] = {}
        found = self.schema(3)
        return {"allOf": [found], "definitions": definitions}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_refused_is_refused_by_a_validator(seed: int) -> None:
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
