"""Formats: refusals of schemas, keys of memos, limits of numbers and names."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_AVRO_EFFORT = ("formats/test_avro_schemas.py",)
_AVRO_KERNEL = ("formats/test_avro_kernel.py",)
_CASES = ("formats/test_avro_schemas.py::test_names_that_differ_only_by_case_are_refused",)
_DIGITS = ("formats/test_avro_schemas.py::test_a_decimal_fits_the_bytes_of_its_digits",)
_NO_DECIMAL = ("formats/test_avro_schemas.py::test_a_decimal_that_is_none_is_its_bytes",)
_DEFAULTS_OF_RECORDS = (
    "formats/test_avro_schemas.py::test_a_record_has_another_default_in_each_field_and_each_branch",
)
_JAVA = ("formats/test_avro_schemas.py::test_a_schema_is_refused_where_java_refuses_it",)
_DEPTH = ("formats/test_avro_schemas.py::test_a_schema_may_be_too_deep_for_its_checks_alone",)
_NAMES = ("formats/test_avro_schemas.py::test_what_is_wrong_with_a_name_is_told_in_few_words",)
_SPACES = (
    "formats/test_avro_schemas.py::test_names_in_arrays_maps_and_defaults_are_found_in_their_namespace",
    "formats/test_avro_schemas.py::test_names_without_a_namespace_are_found_behind_those_that_have_one",
)
_LONG = ("formats/test_avro_schemas.py::test_a_long_schema_or_default_is_told_in_few_words",)
_KINDS = ("formats/test_avro_schemas.py::test_a_type_may_be_called_as_a_kind_of_types",)
_INTEGER = ("formats/test_avro_schemas.py::test_an_integer_is_no_decimal",)
_DEFAULTS = ("formats/test_avro_schemas.py::test_defaults_that_are_none_of_their_type_are_told",)
_ROOTS = ("formats/test_avro_schemas.py::test_roots_that_are_no_records_are_told",)
_BRANCHES = ("formats/test_avro_schemas.py::test_the_branch_that_loses_least_is_taken",)
_ROOM = ("formats/test_format_guards.py",)
_PROTOBUF_DESCRIPTORS = ("unit/test_protobuf_descriptors.py",)
_CHOICES = ("unit/registry/test_choices.py",)
_GUARDS = ("formats/test_format_guards.py",)
_PROTOBUF_KERNEL = ("formats/test_protobuf_kernel.py",)
_AVRO_COLUMNS = ("formats/test_avro_schemas.py",)

PLANTED: tuple[str, ...] = ()

MUTANTS = (
    Mutant(
        "formats/avro_layout.py",
        "    except RecursionError:\n        raise AvroSchemaError",
        "    except MemoryError:\n        raise AvroSchemaError",
        _DEPTH,
    ),
    Mutant(
        "formats/avro_layout.py",
        '            if name in seen:\n                raise AvroSchemaError(f"{_at(path)} has a union',
        '            if False:\n                raise AvroSchemaError(f"{_at(path)} has a union',
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        '        for part in [*full.split("."), *aliases]',
        '        for part in [full.rpartition(".")[2], *aliases]',
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        ", *aliases]:",
        "]:",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "        if full in PRIMITIVE:",
        "        if False:",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "        if not self._names.define(schema, space):",
        "        if not self._names.define(schema, space) and False:",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "_LARGEST_FIXED = 2**31 - 9",
        "_LARGEST_FIXED = 2**31",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "type(size) is int and 0 <= size",
        "isinstance(size, int) and 0 <= size",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        '            if name in seen:\n                raise AvroSchemaError(f"{here} with two',
        '            if False:\n                raise AvroSchemaError(f"{here} with two',
        _ROOTS,
    ),
    Mutant(
        "formats/avro_layout.py",
        "        _check_name(symbol, here)\n",
        "        pass\n",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "isinstance(default, str) and default not in symbols",
        "False",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "isinstance(default, str) and default not in symbols",
        "default is not None and default not in symbols",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "            except _FinalError:\n                raise\n            except FormatError:\n                continue",
        "            except FormatError:\n                continue",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_layout.py",
        "            except _FinalError:\n                raise\n            except _DEFAULT_ERRORS as error:",
        "            except _DEFAULT_ERRORS as error:",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_layout.py",
        "key = (id(schema), id(value))",
        "key = (id(schema), 0)",
        _DEFAULTS_OF_RECORDS,
    ),
    Mutant(
        "formats/avro_layout.py",
        "key = (id(schema), id(value))",
        "key = (0, id(value))",
        _DEFAULTS_OF_RECORDS,
    ),
    Mutant(
        "formats/avro_layout.py",
        "                self._encoded[key] = None\n                raise",
        "                raise",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_layout.py",
        "            if key in self._running:",
        "            if False:",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_layout.py",
        "bits = 31 if kind",
        "bits = 63 if kind",
        _DEFAULTS,
    ),
    Mutant(
        "formats/avro_layout.py",
        "isinstance(value, int) and not isinstance(value, bool):",
        "isinstance(value, int):",
        _DEFAULTS,
    ),
    Mutant(
        "formats/avro_layout.py",
        "and type(value) is not bool:",
        ":",
        _DEFAULTS,
    ),
    Mutant(
        "formats/avro_layout.py",
        'kind == "fixed" and len(value) == schema["size"]',
        'kind == "fixed"',
        _DEFAULTS,
    ),
    Mutant(
        "formats/avro_layout.py",
        "kind in _JSON and not isinstance(value, _JSON[kind])",
        "False",
        _DEFAULTS,
    ),
    Mutant("formats/avro_schema.py", 'c <= "\\uffff"', "True", _JAVA),
    Mutant(
        "formats/avro_schema.py",
        " or c.isdecimal()) and",
        " or c.isdigit()) and",
        _JAVA,
    ),
    Mutant(
        "formats/avro_schema.py",
        "precision > 0 and 0 <= scale <= precision",
        "precision > 0 and scale <= precision",
        _AVRO_KERNEL,
    ),
    Mutant(
        "formats/avro_schema.py",
        "precision > 0 and 0 <= scale <= precision",
        "0 <= scale <= precision",
        _NO_DECIMAL,
    ),
    Mutant(
        "formats/avro_schema.py",
        "type(precision) is not int or type(scale) is not int",
        "not isinstance(precision, int) or type(scale) is not int",
        _NO_DECIMAL,
    ),
    Mutant(
        "formats/avro_schema.py",
        "type(precision) is not int or type(scale) is not int",
        "type(precision) is not int",
        _NO_DECIMAL,
    ),
    Mutant("formats/avro_layout.py", 'schema["precision"] < kind.precision', "False", _AVRO_KERNEL),
    Mutant("formats/avro_layout.py", 'schema.get("scale", 0) != kind.scale or', "", _AVRO_KERNEL),
    Mutant(
        "formats/avro_layout.py",
        '> 8 * schema["size"] - 1',
        '> 8 * schema["size"]',
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
        "                self._matches[key] = error",
        "                raise",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_layout.py",
        "match.rank < best.rank",
        "match.rank <= best.rank",
        _BRANCHES,
    ),
    Mutant(
        "formats/avro_layout.py", "        if unmatched:\n", "        if False:\n", _AVRO_KERNEL
    ),
    Mutant(
        "formats/layout.py",
        "if numbers and len(fields) + len(numbers) > 2:",
        "if len(numbers) > 1:",
        _CASES,
    ),
    Mutant(
        "formats/avro_layout.py",
        'logical.endswith("-micros")',
        "True",
        _BRANCHES,
    ),
    Mutant("formats/encoder.py", "_MIN_GROWTH * len(self._room))", "0)", _ROOM),
    Mutant("formats/encoder.py", "min(guess, most)", "guess", _ROOM),
    Mutant(
        "formats/protobuf_layout.py",
        "base64.b64decode(text, validate=True)",
        "base64.b64decode(text)",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "        if field.json_name == _json_name(field.name):",
        "        if True:",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "if not i.startswith(_KNOWN_TO_REGISTRIES)",
        "if True",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "if name.startswith(space) else []",
        "",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "return DescribedMessage(schema, self._needed(file), bare != indexes)",
        "return DescribedMessage(schema, self._needed(file))",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/json_schema.py",
        "(RecursionError, TypeError, ValueError) as",
        "(RecursionError, ValueError) as",
        _CHOICES,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "            if known != file:\n",
        "            if False:\n",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/avro_schema.py",
        'schema["type"] in ("bytes", "fixed") and',
        "",
        _INTEGER,
    ),
    Mutant(
        "formats/encoder.py",
        "nodes.WIDEST_FIELD + len(self._plan.prefix)",
        "nodes.WIDEST_FIELD",
        _GUARDS,
    ),
    Mutant(
        "formats/encoder.py",
        "widest + self._table.root.depth + 2 * nodes.WIDEST_TEXT",
        "widest + self._table.root.depth",
        _GUARDS,
    ),
    Mutant(
        "formats/encoder.py",
        "widest + self._table.root.depth + 2 * nodes.WIDEST_TEXT",
        "widest + 2 * nodes.WIDEST_TEXT",
        _GUARDS,
    ),
    Mutant(
        "formats/encoder.py", "len(node.name) + _fixed_bytes(node)", "_fixed_bytes(node)", _GUARDS
    ),
    Mutant("formats/encoder.py", "len(node.name) + _fixed_bytes(node)", "len(node.name)", _GUARDS),
    Mutant(
        "formats/encoder.py", "size + nodes.WIDEST_STEP * len(node.pattern or ())", "size", _GUARDS
    ),
    Mutant("formats/encoder.py", "min(guess, most)", "0", _GUARDS),
    Mutant(
        "formats/encoder.py",
        "most = max(_MAX_GROWTH * len(self._room), _GUESSED_BYTES)",
        "most = _GUESSED_BYTES",
        _GUARDS,
    ),
    Mutant(
        "formats/encoder.py",
        "faults != 0 if skipped is None else (faults != 0) | (skipped != 0)",
        "faults != 0",
        _GUARDS,
    ),
    Mutant(
        "formats/encoder.py", "zone is None or nodes.VARIANT not in kinds", "zone is None", _GUARDS
    ),
    Mutant("formats/encoder.py", 'zone_table(zone or "UTC")', "zone_table(zone)", _GUARDS),
    Mutant(
        "formats/encoder.py",
        "state[nodes.FAULTS], state[nodes.FAULTS_COUNT] = faults.ctypes.data, 0",
        "state[nodes.FAULTS] = faults.ctypes.data",
        _GUARDS,
    ),
    Mutant("formats/layout.py", "+ bytes(8)", "", _GUARDS),
    Mutant("formats/layout.py", "array.null_count and buffers[0]", "buffers[0]", _GUARDS),
    Mutant("formats/layout.py", "inner.offset - array.offset", "inner.offset", _GUARDS),
    Mutant("formats/layout.py", "None if is_of_earth else", "None if False else", _GUARDS),
    Mutant("formats/layout.py", 'get(mark) == b"true"', "get(mark) is not None", _GUARDS),
    Mutant(
        "formats/layout.py",
        "        self._kept.append(text)\n",
        "",
        _GUARDS,
    ),
    Mutant(
        "formats/layout.py",
        "        self._kept.append(np.array(numbers, np.int64))\n        return int(self._kept[-1].ctypes.data)",
        "        return int(np.array(numbers, np.int64).ctypes.data)",
        _GUARDS,
    ),
    Mutant("formats/encoder.py", "codes = np.where(is_null(struct), 0, codes)", "pass", _GUARDS),
    Mutant(
        "formats/encoder.py", "if len(bad) and self._returns_faulty_rows:", "if len(bad):", _GUARDS
    ),
    Mutant(
        "formats/encoder.py",
        "            if plan.takes_session_zone:",
        "            if True:",
        _GUARDS,
    ),
    Mutant("formats/protobuf_layout.py", "_MAX_DIGITS = 20", "_MAX_DIGITS = 38", _PROTOBUF_KERNEL),
    Mutant(
        "formats/protobuf_layout.py",
        "if fits and found.is_wide and not found.is_signed else",
        "if fits and found.is_wide else",
        _PROTOBUF_KERNEL,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "        limit = nodes.SIGNED_32 if found.is_signed else nodes.UNSIGNED_32",
        "        limit = nodes.SIGNED_32",
        _PROTOBUF_KERNEL,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "        limit = nodes.SIGNED_32 if found.is_signed else nodes.UNSIGNED_32",
        "        limit = 0",
        _PROTOBUF_KERNEL,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "        limit = nodes.NOT_NEGATIVE",
        "        limit = 0",
        _PROTOBUF_KERNEL,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "        if place not in places:",
        "        if False:",
        _PROTOBUF_KERNEL,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "        if missing:\n",
        "        if False:\n",
        _PROTOBUF_KERNEL,
    ),
    Mutant("formats/protobuf_layout.py", "if field.type == GROUP:", "if False:", _PROTOBUF_KERNEL),
    Mutant(
        "formats/encoder.py",
        'self._zone or "UTC", self._is_ansi',
        'self._zone or "UTC", True',
        _GUARDS,
    ),
    Mutant(
        "formats/encoder.py",
        "_Part(name, part, schema, zone, is_ansi)",
        "_Part(name, part, schema, zone, True)",
        _GUARDS,
    ),
    Mutant("formats/encoder.py", '        return "UTC"\n', "        raise\n", _GUARDS),
    Mutant(
        "formats/protobuf_layout.py",
        "node.kind == nodes.DATE and found.is_wide",
        "False",
        _PROTOBUF_KERNEL,
    ),
    Mutant("formats/protobuf_layout.py", "arrow_type.scale == 0 and", "", _PROTOBUF_KERNEL),
    Mutant(
        "formats/layout.py",
        "if numbers and len(fields) + len(numbers) > 2:",
        "if False:",
        _PROTOBUF_KERNEL,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "rules=nodes.CHECKS_RANGE))\n        wrapped",
        "rules=0))\n        wrapped",
        _PROTOBUF_KERNEL,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "kind != (nodes.MAP if is_entry else nodes.LIST)",
        "kind not in (nodes.MAP, nodes.LIST)",
        _PROTOBUF_KERNEL,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "rules = nodes.IS_PACKED | len(tag)",
        "rules = nodes.IS_PACKED | 1",
        _PROTOBUF_KERNEL,
    ),
    Mutant(
        "formats/avro_schema.py",
        "space if declared is None else declared",
        "declared or space",
        _AVRO_COLUMNS,
    ),
    Mutant(
        "formats/avro_schema.py", "full if full in self._known else name", "full", _AVRO_COLUMNS
    ),
    Mutant(
        "formats/avro_schema.py",
        'name if "." in name or not space else f"{space}.{name}"\n        return',
        'f"{space}.{name}" if space else name\n        return',
        _AVRO_COLUMNS,
    ),
    Mutant(
        "formats/avro_layout.py",
        "(10**kind.precision - 1)",
        '(10**schema["precision"] - 1)',
        _AVRO_COLUMNS,
    ),
    Mutant(
        "formats/avro_layout.py",
        '    if logical == "decimal":\n        return None\n',
        "",
        _AVRO_COLUMNS,
    ),
    Mutant(
        "formats/avro_layout.py", "id(schema), column)", "id(schema), column.path)", _AVRO_COLUMNS
    ),
    Mutant(
        "formats/avro_layout.py", "id(schema), column)", "id(schema), column.type)", _AVRO_COLUMNS
    ),
    Mutant(
        "formats/layout.py",
        "if number not in taken and column.name.lower() in by_case:",
        "if column.name.lower() in by_case:",
        _AVRO_COLUMNS,
    ),
    Mutant(
        "formats/avro_layout.py",
        'encoded = zigzag_varint(types.index("null")) if is_union else b""',
        'encoded = zigzag_varint(types.index("null"))',
        _AVRO_COLUMNS,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "([self._main] if self._main is not None else [], own, self._given)",
        "(own, self._given)",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "own = [file for file in self._given if not file.name.startswith(_WELL_KNOWN)]",
        "own = self._given",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "if has_entries or not m.options.map_entry",
        "if True",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        "        _clear_json_names(kept)\n",
        "",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant(
        "formats/protobuf_layout.py",
        '        kept.ClearField("source_code_info")\n',
        "",
        _PROTOBUF_DESCRIPTORS,
    ),
    Mutant("formats/protobuf_layout.py", "len(oneof.fields) > 1", "True", _PROTOBUF_DESCRIPTORS),
    Mutant(
        "formats/avro_layout.py",
        "_MAX_DEFAULT_BYTES = 1 << 20",
        "_MAX_DEFAULT_BYTES = 1 << 21",
        _AVRO_EFFORT,
    ),
    Mutant(
        "formats/avro_layout.py",
        "if is_object and kind in UNNAMED:",
        "if kind in UNNAMED:",
        _KINDS,
    ),
    Mutant(
        "formats/avro_layout.py",
        "kind if kind in PRIMITIVE else self._names.found_name(kind, space)",
        "kind",
        _NAMES,
    ),
    Mutant(
        "formats/avro_layout.py",
        'if not isinstance(schema.get("namespace", ""), (str, type(None))):',
        "if False:",
        _NAMES,
    ),
    Mutant("formats/avro_layout.py", "str(field)[:200]", "str(field)", _NAMES),
    Mutant(
        "formats/avro_layout.py",
        'name.encode("utf-8", "backslashreplace").decode()',
        "name",
        _NAMES,
    ),
    Mutant(
        "formats/avro_layout.py",
        '            self.type(schema[inside], space, f"{path}[]")\n',
        "",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "if kind not in PRIMITIVE and self._names.found(kind, space) is None:",
        "if False:",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "            if isinstance(branch, list):\n",
        "            if False:\n",
        _JAVA,
    ),
    Mutant("formats/avro_layout.py", "(str, type(None))", "str", _JAVA),
    Mutant(
        "formats/avro_layout.py",
        'if kind == "fixed" and not (',
        "if False and not (",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "            _check_symbols(schema, here)\n",
        "            pass\n",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "            _check_name(name, here)\n            _aliases",
        "            _aliases",
        _JAVA,
    ),
    Mutant("formats/avro_layout.py", ".lower() not in _ORDERS", " not in _ORDERS", _JAVA),
    Mutant(
        "formats/avro_layout.py",
        'if str(field.get("order", "ignore")).lower() not in _ORDERS:',
        "if False:",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases)",
        "not isinstance(aliases, list)",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols)",
        "not isinstance(symbols, list)",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "    if len(set(symbols)) < len(symbols):\n",
        "    if False:\n",
        _JAVA,
    ),
    Mutant(
        "formats/avro_layout.py",
        "            self._names.put(schema, space)\n",
        "",
        _SPACES,
    ),
    Mutant(
        "formats/avro_layout.py",
        "        space = self._names.space_of(record)\n        found, loss",
        '        space = ""\n        found, loss',
        _SPACES,
    ),
    Mutant(
        "formats/avro_layout.py",
        "        space = self._names.space_of(record)\n        seen",
        '        space = ""\n        seen',
        _SPACES,
    ),
    Mutant(
        "formats/avro_layout.py",
        "        space = self._names.space_of(schema)\n        if isinstance(kind",
        '        space = ""\n        if isinstance(kind',
        _SPACES,
    ),
    Mutant(
        "formats/avro_layout.py",
        "        space = self._names.space_of(schema)\n        if kind ==",
        '        space = ""\n        if kind ==',
        _SPACES,
    ),
    Mutant(
        "formats/avro_layout.py",
        "        space = self._names.space_of(schema)\n        found = []",
        '        space = ""\n        found = []',
        _SPACES,
    ),
    Mutant(
        "formats/avro_layout.py",
        "precision and scale: {str(schema)[:200]}",
        "precision and scale: {str(schema)}",
        _LONG,
    ),
    Mutant(
        "formats/avro_layout.py",
        "{str(value)[:100]}",
        "{str(value)}",
        _LONG,
    ),
    Mutant(
        "formats/avro_layout.py",
        "type that Avro knows: {str(schema)[:200]}",
        "type that Avro knows: {str(schema)}",
        _NAMES,
    ),
    Mutant(
        "formats/avro_layout.py",
        "{str(field)[:200]}",
        "{str(field)}",
        _NAMES,
    ),
)
