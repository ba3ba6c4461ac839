"""What is made of rows: JSON, texts and zones, their dead letters, and schemas that they must fit."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GUARDS = ("formats/test_format_guards.py",)
_WRITTEN_ROWS = ("formats/test_format_guards.py",)
_LIBRARY = (
    "kernels/test_library.py::test_of_the_package_s_files_the_libraries_are_listed",
    "kernels/test_library.py::test_a_platform_has_one_name",
    "kernels/test_library.py::test_what_cannot_be_loaded_out_of_a_zip_file_leaves_nothing_open",
)
_TEXTS = ("formats/test_json_kernel.py",)
_NULLS = ("formats/test_json_kernel.py::test_a_time_beside_a_null_keeps_its_microseconds",)
_JSON_KERNEL = ("formats/test_json_kernel.py",)
_MISFITS = ("formats/test_json_schema.py",)
_VARIANT = ("formats/test_variant_kernel.py",)
_ROW_PLANNING = ("unit/test_row_planning.py",)

PLANTED: tuple[str, ...] = ()

MUTANTS = (
    Mutant(
        "formats/encoder.py",
        "plan.null_when is not None and plan.value.plan is None",
        "False",
        _WRITTEN_ROWS,
    ),
    Mutant(
        "formats/encoder.py",
        ".fill_null(False)\n            value",
        "\n            value",
        _WRITTEN_ROWS,
    ),
    Mutant(
        "formats/encoder.py",
        "self._schema is not None and self._schema.equals(schema)",
        "self._schema is not None",
        _WRITTEN_ROWS,
    ),
    Mutant(
        "formats/encoder.py",
        "values = pc.if_else(struct.is_valid(), values, None)",
        "pass",
        _WRITTEN_ROWS,
    ),
    Mutant(
        "formats/encoder.py",
        "next(found, self._plan.session_zone)",
        "self._plan.session_zone",
        _WRITTEN_ROWS,
    ),
    Mutant(
        "formats/encoder.py",
        "        if plan.prefix:\n            prefix",
        "        if False:\n            prefix",
        _WRITTEN_ROWS,
    ),
    Mutant("formats/encoder.py", "check_metadata=True", "check_metadata=False", _GUARDS),
    Mutant(
        "formats/encoder.py",
        "    except pa.ArrowException:\n        return",
        "    except ZeroDivisionError:\n        return",
        _GUARDS,
    ),
    Mutant(
        "formats/encoder.py", "are_all_read=False).values", "are_all_read=True).values", _GUARDS
    ),
    Mutant("formats/encoder.py", "(nodes.VARIANT, nodes.TIME)", "(nodes.VARIANT,)", _GUARDS),
    Mutant("formats/encoder.py", "(nodes.VARIANT, nodes.TIME)", "(nodes.TIME,)", _GUARDS),
    Mutant("formats/encoder.py", "(ignore_null_fields=False", "(ignore_null_fields=True", _GUARDS),
    Mutant(
        "formats/times.py",
        "(ZoneInfoNotFoundError, ValueError, OSError)",
        "ZoneInfoNotFoundError",
        _GUARDS,
    ),
    Mutant(
        "formats/times.py",
        "(ZoneInfoNotFoundError, ValueError, OSError)",
        "(ZoneInfoNotFoundError, ValueError)",
        _GUARDS,
    ),
    Mutant("formats/encoder.py", "number or column.type.scale > 0", "number", _TEXTS),
    Mutant("formats/encoder.py", "cast(pa.int64()).fill_null(0)", "cast(pa.int64())", _NULLS),
    Mutant("formats/encoder.py", "        days = days + more\n", "", _TEXTS),
    Mutant("formats/encoder.py", "None if kind.tz is None else time_zone", "time_zone", _TEXTS),
    Mutant("formats/times.py", "(seconds - ZONES_REPEAT) % ZONES_CYCLE", "0", _TEXTS),
    Mutant("formats/times.py", "or total > _MAX_OFFSET_S", "", _JSON_KERNEL),
    Mutant("formats/times.py", "minutes > 59 or seconds > 59 or", "", _JSON_KERNEL),
    Mutant("formats/times.py", "total > _MAX_OFFSET_S", "total >= _MAX_OFFSET_S", _JSON_KERNEL),
    Mutant(
        "formats/times.py",
        "    if not _OFFSET.fullmatch(text[1:]):\n        return None\n",
        "",
        _JSON_KERNEL,
    ),
    Mutant("formats/times.py", "_SHORT.get(padded, padded)", "padded", _JSON_KERNEL),
    Mutant(
        "formats/times.py",
        '"y": (nodes.YEAR, 6)',
        '"y": (nodes.YEAR, 7)',
        _JSON_KERNEL,
    ),
    Mutant(
        "formats/times.py",
        '"S": (nodes.FRACTION, 9)',
        '"S": (nodes.FRACTION, 10)',
        _JSON_KERNEL,
    ),
    Mutant(
        "formats/times.py",
        "        if count <= most:",
        "        if True:",
        _JSON_KERNEL,
    ),
    Mutant(
        "formats/times.py",
        "        if count == 2:\n            yield from _bytes(zone",
        "        if True:\n            yield from _bytes(zone",
        _JSON_KERNEL,
    ),
    Mutant(
        "formats/times.py",
        ' if whole in _RESERVED else ""',
        ' if False else ""',
        _JSON_KERNEL,
    ),
    Mutant(
        "formats/times.py",
        '        elif whole == "\'":',
        "        elif False:",
        _JSON_KERNEL,
    ),
    Mutant(
        "formats/times.py",
        "letters if len(sections) == 1 else _OF_ZONES",
        "_OF_ZONES",
        _JSON_KERNEL,
    ),
    Mutant("formats/times.py", "if count <= 5 else None", "", _JSON_KERNEL),
    Mutant("formats/layout.py", "or node.kind == nodes.BINARY:", ":", _JSON_KERNEL),
    Mutant("formats/layout.py", "if node.kind >= nodes.STRUCT or", "if", _JSON_KERNEL),
    Mutant(
        "formats/layout.py",
        "kind is None or kind[0] != nodes.BINARY",
        "kind is None",
        _JSON_KERNEL,
    ),
    Mutant("formats/layout.py", "None if number < 0 else", "", _JSON_KERNEL),
    Mutant(
        "formats/layout.py",
        "        return node._replace(parameter=arrow_type.scale)",
        "        return node._replace(parameter=max(arrow_type.scale, 0))",
        _JSON_KERNEL,
    ),
    Mutant(
        "formats/json_schema.py",
        "found[name] = other if found.get(name, other) == other else None",
        "found[name] = other",
        _MISFITS,
    ),
    Mutant(
        "formats/json_schema.py",
        "found[name] = other if found.get(name, other) == other else None",
        "found.setdefault(name, other)",
        _MISFITS,
    ),
    Mutant("formats/json_schema.py", ' and (is_new or "$ref" not in node)', "", _MISFITS),
    Mutant("formats/json_schema.py", "elif name not in _VALUES:", "else:", _MISFITS),
    Mutant("formats/json_schema.py", "_INDEX.fullmatch(name) and", "name.isdigit() and", _MISFITS),
    Mutant("formats/json_schema.py", "[0-9]{1,9}", "[0-9]+", _MISFITS),
    Mutant("formats/json_schema.py", " and int(name) < len(found)", "", _MISFITS),
    Mutant(
        "formats/json_schema.py",
        '.replace("~1", "/").replace("~0", "~")',
        '.replace("~0", "~").replace("~1", "/")',
        _MISFITS,
    ),
    Mutant(
        "formats/json_schema.py",
        "self._known.setdefault(address, root)",
        "self._known[address] = root",
        _MISFITS,
    ),
    Mutant("formats/json_schema.py", "fragment = unquote(fragment)", "pass", _MISFITS),
    Mutant(
        "formats/json_schema.py",
        "return self._place_of(schema)[1]",
        "return id(schema) in self._places",
        _MISFITS,
    ),
    Mutant("formats/json_schema.py", 'or "/draft-03/" in draft', "", _MISFITS),
    Mutant(
        "formats/json_schema.py",
        "            self._found[key] = []  # a circular reference adds no misfit\n",
        "",
        _MISFITS,
    ),
    Mutant(
        "formats/json_schema.py",
        "key = (id(written), id(registered))",
        "key = (0, id(registered))",
        _MISFITS,
    ),
    Mutant(
        "formats/json_schema.py",
        "key = (id(written), id(registered))",
        "key = (id(written), 0)",
        _MISFITS,
    ),
    Mutant(
        "formats/json_schema.py",
        "        if key not in self._found:",
        "        if True:",
        _MISFITS,
    ),
    Mutant(
        "formats/json_schema.py",
        'and not (kind == "integer" and "number" in allowed)',
        "",
        _MISFITS,
    ),
    Mutant("formats/json_schema.py", 'and "prefixItems" not in registered', "", _MISFITS),
    Mutant(
        "formats/json_schema.py", 'if "patternProperties" not in registered:', "if True:", _MISFITS
    ),
    Mutant(
        "formats/json_schema.py", "if found and all(found):", "if found and any(found):", _MISFITS
    ),
    Mutant(
        "formats/json_schema.py",
        "return set(found) if is_known else set()",
        "return set(found)",
        _MISFITS,
    ),
    Mutant("formats/json_schema.py", "() if is_of_parent else", "", _MISFITS),
    Mutant("formats/json_schema.py", 'if "properties" in written and', "if", _MISFITS),
    Mutant(
        "formats/json_schema.py",
        "f for f, branch in zip(found, branches) if not _is_null(branch)",
        "f for f in found",
        _MISFITS,
    ),
    Mutant(
        "formats/json_schema.py",
        "        if isinstance(inner, dict):\n            yield from self.misfits(inner, others",
        "        if False:\n            yield from self.misfits(inner, others",
        _MISFITS,
    ),
    Mutant(
        "formats/json_schema.py",
        "            if not self._references.has_neighbours(registered):\n                return\n",
        "",
        _MISFITS,
    ),
    Mutant(
        "formats/layout.py",
        'spark_type == "variant" or is_variant(arrow_type)',
        "is_variant(arrow_type)",
        _VARIANT,
    ),
    Mutant(
        "formats/layout.py",
        'spark_type == "variant" or is_variant(arrow_type)',
        'spark_type == "variant"',
        _VARIANT,
    ),
    Mutant(
        "config/formats.py",
        "    if format_name in (RAW, STRING) and len(columns) > 1:",
        "    if False:",
        _ROW_PLANNING,
    ),
    Mutant(
        "config/formats.py",
        "        if part == KEY:",
        "        if False:",
        _ROW_PLANNING,
    ),
    Mutant("config/formats.py", '_column"] and columns:', '_column"] and False:', _ROW_PLANNING),
    Mutant(
        "config/formats.py",
        "    if len(set(columns)) < len(columns):",
        "    if False:",
        _ROW_PLANNING,
    ),
    Mutant(
        "config/formats.py",
        "format_name == PROTOBUF and file is not None",
        "False",
        _ROW_PLANNING,
    ),
    Mutant("config/formats.py", "(STRING if columns else RAW)", "RAW", _ROW_PLANNING),
    Mutant(
        "record/compiled/library.py",
        "if symbol is not None and symbol.encode() not in",
        "if symbol is not None and False and symbol.encode() not in",
        _LIBRARY,
    ),
    Mutant(
        "record/compiled/library.py",
        '    if not known:\n        raise ConfigError(_missing(is_checkout=symbol is not None), code="SPARK-001")\n',
        "",
        _LIBRARY,
    ),
    Mutant(
        "record/compiled/library.py",
        "        if name.startswith(_PREFIX) and name.endswith(_SUFFIX)",
        "        if name.startswith(_PREFIX)",
        _LIBRARY,
    ),
    Mutant(
        "record/compiled/library.py",
        "        if name.startswith(_PREFIX) and name.endswith(_SUFFIX)",
        "        if name.endswith(_SUFFIX)",
        _LIBRARY,
    ),
    Mutant(
        "record/compiled/library.py",
        "{platform.machine().lower()}",
        "{platform.machine()}",
        _LIBRARY,
    ),
    Mutant("record/compiled/library.py", "        os.close(descriptor)", "        pass", _LIBRARY),
    Mutant("record/compiled/library.py", "    if memfd_create is None:", "    if False:", _LIBRARY),
)
