"""Formats: refusals of schemas, keys of memos, limits of numbers and names."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_AVRO_EFFORT = ("formats/test_avro_effort.py",)
_AVRO_KERNEL = ("formats/test_avro_kernel.py",)
_CASES = ("formats/test_avro_schemas.py::test_a_column_of_another_case_has_one_field",)
_DIGITS = ("formats/test_avro_schemas.py::test_a_decimal_fits_the_bytes_of_its_digits",)
_NO_DECIMAL = ("formats/test_avro_schemas.py::test_a_decimal_that_is_none_is_its_bytes",)
_DEFAULTS_OF_RECORDS = (
    "formats/test_avro_schemas.py::test_a_record_has_another_default_in_each_field_and_each_branch",
)
_JAVA = ("formats/test_avro_schemas.py::test_a_schema_is_refused_where_java_refuses_it",)
_DEPTH = ("formats/test_avro_schemas.py::test_a_schema_may_be_too_deep_for_its_checks_alone",)
_INTEGER = ("formats/test_avro_schemas.py::test_an_integer_is_no_decimal",)
_DEFAULTS = ("formats/test_avro_schemas.py::test_defaults_that_are_none_of_their_type_are_told",)
_ROOTS = ("formats/test_avro_schemas.py::test_roots_that_are_no_records_are_told",)
_BRANCHES = ("formats/test_avro_schemas.py::test_the_branch_that_loses_least_is_taken",)
_ROOM = ("formats/test_room.py",)
_PROTOBUF_DESCRIPTORS = ("unit/test_protobuf_descriptors.py",)
_ANSWERS = ("unit/test_registry_answers.py",)

PLANTED: tuple[str, ...] = ()

MUTANTS = (
    Mutant(
        "formats/avro_checks.py",
        "    except RecursionError:\n        raise FormatError",
        "    except MemoryError:\n        raise FormatError",
        _DEPTH,
    ),
    Mutant(
        "formats/avro_checks.py",
        '            if name in seen:\n                raise FormatError(f"{_at(path)} has a union',
        '            if False:\n                raise FormatError(f"{_at(path)} has a union',
        _JAVA,
    ),
    Mutant(
        "formats/avro_checks.py",
        '        for part in [*full.split("."), *(',
        '        for part in [full.rpartition(".")[2], *(',
        _JAVA,
    ),
    Mutant(
        "formats/avro_checks.py",
        '*(alias.rpartition(".")[2] for alias in aliases)]',
        "]",
        _JAVA,
    ),
    Mutant(
        "formats/avro_checks.py",
        "        if full in PRIMITIVE:",
        "        if False:",
        _JAVA,
    ),
    Mutant(
        "formats/avro_checks.py",
        "        if not self._names.define(schema, space):",
        "        if not self._names.define(schema, space) and False:",
        _JAVA,
    ),
    Mutant(
        "formats/avro_checks.py",
        "_LARGEST_FIXED = 2**31 - 9",
        "_LARGEST_FIXED = 2**31",
        _JAVA,
    ),
    Mutant(
        "formats/avro_checks.py",
        "type(value) is int and 0 <= value",
        "isinstance(value, int) and 0 <= value",
        _JAVA,
    ),
    Mutant(
        "formats/avro_checks.py",
        '            if name in seen:\n                raise FormatError(f"{here} with two',
        '            if False:\n                raise FormatError(f"{here} with two',
        _ROOTS,
    ),
    Mutant(
        "formats/avro_checks.py",
        "        _check_name(symbol, here)\n",
        "        pass\n",
        _JAVA,
    ),
    Mutant(
        "formats/avro_checks.py",
        "isinstance(default, str) and default not in symbols",
        "False",
        _JAVA,
    ),
    Mutant(
        "formats/avro_checks.py",
        "isinstance(default, str) and default not in symbols",
        "default is not None and default not in symbols",
        _JAVA,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "            except _NeverError:\n                raise\n            except FormatError:\n                continue",
        "            except FormatError:\n                continue",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "            except _NeverError:\n                raise\n            except _WRONG as error:",
        "            except _WRONG as error:",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "key = (id(schema), id(value))",
        "key = (id(schema), 0)",
        _DEFAULTS_OF_RECORDS,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "key = (id(schema), id(value))",
        "key = (0, id(value))",
        _DEFAULTS_OF_RECORDS,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "                self._made[key] = None\n                raise",
        "                raise",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "            if key in self._begun:",
        "            if False:",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "bits = 31 if kind",
        "bits = 63 if kind",
        _DEFAULTS,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "isinstance(value, int) and not isinstance(value, bool):",
        "isinstance(value, int):",
        _DEFAULTS,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "and type(value) is not bool:",
        ":",
        _DEFAULTS,
    ),
    Mutant(
        "formats/avro_defaults.py",
        'kind == "fixed" and len(value) == schema["size"]',
        'kind == "fixed"',
        _DEFAULTS,
    ),
    Mutant(
        "formats/avro_defaults.py",
        "kind in _JSON and not isinstance(value, _JSON[kind])",
        "False",
        _DEFAULTS,
    ),
    Mutant("formats/avro_names.py", 'c <= "\\uffff"', "True", _JAVA),
    Mutant(
        "formats/avro_names.py",
        " or c.isdecimal()) and",
        " or c.isdigit()) and",
        _JAVA,
    ),
    Mutant(
        "formats/avro_names.py",
        "precision > 0 and 0 <= scale <= precision",
        "precision > 0 and scale <= precision",
        _AVRO_KERNEL,
    ),
    Mutant(
        "formats/avro_names.py",
        "precision > 0 and 0 <= scale <= precision",
        "0 <= scale <= precision",
        _NO_DECIMAL,
    ),
    Mutant(
        "formats/avro_names.py",
        "type(precision) is not int or type(scale) is not int",
        "not isinstance(precision, int) or type(scale) is not int",
        _NO_DECIMAL,
    ),
    Mutant(
        "formats/avro_names.py",
        "type(precision) is not int or type(scale) is not int",
        "type(precision) is not int",
        _NO_DECIMAL,
    ),
    Mutant("formats/avro_layout.py", 'schema["precision"] < kind.precision', "False", _AVRO_KERNEL),
    Mutant("formats/avro_layout.py", 'schema.get("scale", 0) != kind.scale or', "", _AVRO_KERNEL),
    Mutant(
        "formats/avro_layout.py",
        '2 ** (8 * schema["size"] - 1)',
        '2 ** (8 * schema["size"])',
        _DIGITS,
    ),
    Mutant("formats/avro_layout.py", "key[0] != nodes.STRING", "False", _AVRO_KERNEL),
    Mutant(
        "formats/avro_layout.py",
        "id(schema), column)",
        'schema["type"], column)',
        _BRANCHES,
    ),
    Mutant(
        "formats/avro_layout.py",
        "                self._tried[key] = error",
        "                raise",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_layout.py",
        "made.loss < best.loss",
        "made.loss <= best.loss",
        _BRANCHES,
    ),
    Mutant("formats/avro_layout.py", "        if left:\n", "        if False:\n", _AVRO_KERNEL),
    Mutant(
        "formats/avro_layout.py",
        "found[name] = left.pop(name.lower())",
        "found[name] = left[name.lower()]",
        _CASES,
    ),
    Mutant(
        "formats/avro_layout.py",
        'logical.endswith("-micros")',
        "True",
        _BRANCHES,
    ),
    Mutant("formats/encoder.py", "_LEAST_GROWTH * len(self._room))", "0)", _ROOM),
    Mutant("formats/encoder.py", "min(guess, most)", "guess", _ROOM),
    Mutant(
        "formats/protobuf_descriptors.py",
        "base64.b64decode(text, validate=True)",
        "base64.b64decode(text)",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_descriptors.py",
        "        if field.json_name == _json_name(field.name):",
        "        if True:",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_descriptors.py",
        "if not i.startswith(_KNOWN_TO_REGISTRIES)",
        "if True",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_descriptors.py",
        "around[-1] is not None and words",
        "words",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_descriptors.py",
        "            around.append(inner)",
        "            around.append(inner if inner is not None else around[-1])",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_descriptors.py",
        ' and words[place + 2 : place + 3] == [";"]',
        "",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_descriptors.py",
        'word == "}" and len(around) > 1',
        'word == "}"',
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_descriptors.py",
        "if name.startswith(space) else []",
        "",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_descriptors.py",
        "return DescribedMessage(schema, self._needed(file), bare != indexes)",
        "return DescribedMessage(schema, self._needed(file))",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "spark/json_schemas.py",
        "(RecursionError, TypeError, ValueError) as",
        "(RecursionError, ValueError) as",
        _ANSWERS,
    ),
    Mutant(
        "formats/protobuf_descriptors.py",
        "            if known != file:\n",
        "            if False:\n",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/avro_names.py",
        'schema["type"] in ("bytes", "fixed") and',
        "",
        _INTEGER,
    ),
)
