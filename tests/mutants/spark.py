"""The rooms spark, record and metrics: second checks, keys of caches, forgetting, and limits."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PLANTED = ()

_IN_TASKS = ("unit/test_tasks.py",)
_VERDICTS = ("unit/test_preflight_notes.py",)
_IN_WRITES = ("unit/test_writes.py",)
_LETTERS = ("simulation/test_dead_letters.py",)
_NAMES = ("unit/test_record_columns.py",)
_OPTIONS = ("unit/test_options.py",)
_BACKGROUND = ("unit/test_background.py",)
_KEY = "producer.bootstrap_servers, producer.security, options.topic, options.dead_letters"

_DECISION_LOG = (
    Mutant(
        "producer/appender.py",
        "if self._decision_log in topics:",
        "if checks_names and self._decision_log in topics:",
        _LETTERS,
    ),
    Mutant(
        "producer/producer.py",
        "content_faults(arrow_batch, positions, self._config.decision_log)",
        "content_faults(arrow_batch, positions)",
        _LETTERS,
    ),
    Mutant("config/sink_options.py", "    _check_decision_log(sink)\n", "", _OPTIONS),
    Mutant(
        "config/sink_options.py",
        '("topic", "errors.deadletterqueue.topic.name")',
        '("topic",)',
        _OPTIONS,
    ),
    Mutant("record/dead_letters.py", ' and topic not in (".", "..")', "", _NAMES),
)

_CALLS = (
    Mutant(
        "spark/frames.py",
        "for running in self._running if running is not identity",
        "for running in self._running if running.scope != identity.scope",
        _IN_WRITES,
    ),
    Mutant(
        "spark/frames.py",
        "return self.place, self.write_id",
        "return self.place, None",
        _IN_WRITES,
    ),
    Mutant(
        "spark/frames.py",
        "identity.number == earlier.number and not identity.may_be_repetition(earlier)",
        "not identity.may_be_repetition(earlier)",
        _IN_WRITES,
    ),
)

_CACHES = (
    Mutant(
        "spark/row_planning.py",
        "if one is not None and one not in _checked)",
        "if one is not None)",
        _IN_TASKS,
    ),
    Mutant("spark/row_planning.py", "        del _checked[:-_MOST_CHECKED]\n", "", _IN_TASKS),
    Mutant("spark/preflight.py", _KEY, _KEY.replace(", options.dead_letters", ""), _VERDICTS),
    Mutant(
        "spark/preflight.py",
        " and now_ms - passed_at_ms < producer.metadata_max_age_ms",
        "",
        _VERDICTS,
    ),
    Mutant("spark/preflight.py", "if not _is_transient(error) or (", "if (", _IN_TASKS),
)

_FORKS = (
    Mutant(
        "spark/frames.py",
        "os.register_at_fork(after_in_child=_locks.clear)\n",
        "",
        _IN_TASKS,
    ),
    Mutant(
        "metrics/background.py",
        "    _guard = Lock()\n    _senders.clear()\n",
        "    _senders.clear()\n",
        _BACKGROUND,
    ),
    Mutant(
        "metrics/background.py",
        "    _guard = Lock()\n    _senders.clear()\n",
        "    _guard = Lock()\n",
        _BACKGROUND,
    ),
)

_METRICS = (
    Mutant("metrics/background.py", ' if name != "partitions"}', "}", _BACKGROUND),
    Mutant(
        "metrics/background.py",
        "            self._logged_error = None\n        except",
        "        except",
        _BACKGROUND,
    ),
    Mutant("metrics/background.py", "self._awaited_by -= 1", "pass", _BACKGROUND),
    Mutant(
        "metrics/outputs.py",
        "if os.write(file, data) < len(data):",
        "if os.write(file, data) < 0:",
        ("unit/test_metrics_files.py",),
    ),
    Mutant(
        "tools/report_lines.py",
        "_beginning(text.decode())",
        '_beginning(text.decode(errors="replace"))',
        ("unit/test_report_advice.py::test_bytes_that_are_no_text_reach_no_column",),
    ),
    Mutant(
        "tools/report_advice.py",
        "of_node.pop(_COMPLETING, 0)",
        "0",
        ("unit/test_report_advice.py",),
    ),
    Mutant(
        "spark/commit.py",
        "summary.planned = summary.planned or message.planned",
        "summary.planned = message.planned",
        ("unit/test_commit.py",),
    ),
)

_SOURCE = ("unit/test_writes.py",)

_DRIVER = (
    Mutant("spark/source.py", '"_plans": False', '"_plans": True', _SOURCE),
    Mutant(
        "spark/source.py",
        "        if self._plans:  # otherwise",
        "        if True:  # otherwise",
        _SOURCE,
    ),
    Mutant(
        "spark/writer.py",
        "    if message.partition_id == 0:\n        message.planned = planned",
        "    message.planned = planned",
        _IN_TASKS,
    ),
    Mutant("spark/commit.py", "plan if self.partition_id == 0 else None", "plan", _IN_TASKS),
    Mutant(
        "spark/preflight.py",
        "_Found(_letters_with_limits.get(key), {})",
        "_Found(None, {})",
        _IN_TASKS,
    ),
    Mutant(
        "spark/preflight.py",
        "_Found(_letters_with_limits[key], topics)",
        "_Found(None, topics)",
        _IN_TASKS,
    ),
    Mutant(
        "spark/preflight.py",
        'if described.error_code and error.name != "LEADER_NOT_AVAILABLE":',
        "if described.error_code:",
        _IN_TASKS,
    ),
    Mutant(
        "spark/task.py",
        "remaining = [number for row, number in enumerate(remaining) if row not in reasons]",
        "remaining = [row for row, _ in enumerate(remaining) if row not in reasons]",
        _IN_TASKS,
    ),
)

_COLUMNS = (
    Mutant(
        "record/columns.py",
        "        and entry.num_fields == 2\n",
        "",
        ("unit/test_record_columns.py::test_a_type_that_cannot_be_read_is_an_error",),
    ),
)

_TASKS = (
    Mutant(
        "spark/task.py",
        "        TRANSACTIONAL_IDS.discard(self._transactional_id)\n",
        "",
        _IN_TASKS,
    ),
    Mutant(
        "spark/planning.py",
        "registry=replace(options.registry, config=None)",
        "registry=options.registry",
        _IN_TASKS,
    ),
)

_CHOICES = ("unit/registry/test_choices.py",)
_JSON = ("unit/registry/test_choices.py",)
_STREAMS = ("unit/registry/test_streams.py",)

_SCHEMAS = (
    Mutant("spark/schemas.py", " if number is not None)", ")", _CHOICES),
    Mutant(
        "spark/schemas.py",
        "None if positions.key is None else PartSpec(positions.key)",
        "PartSpec(positions.key)",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        "schema_options is not None and part_plan is not None",
        "part_plan is not None",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        " or schema_options.schema_id is not None or has_schema:",
        " or has_schema:",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        " or schema_options.schema_id is not None or has_schema:",
        " or schema_options.schema_id is not None:",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        "part.avro_schema is not None or part.json_schema is not None",
        "part.avro_schema is not None",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        "part.avro_schema is not None or part.json_schema is not None",
        "part.json_schema is not None",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        "if schema_options.uses_latest_version\n                else f",
        "if False\n                else f",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py", "text if schema_options.schema_id is None else None", "text", _STREAMS
    ),
    Mutant(
        "spark/schemas.py", "text if schema_options.schema_id is None else None", "None", _CHOICES
    ),
    Mutant("spark/schemas.py", "or not is_chosen\n", "\n", _JSON),
    Mutant(
        "spark/schemas.py",
        "or not schema_options.requires_all_columns\n        or schema.kind",
        "or schema.kind",
        _JSON,
    ),
    Mutant("spark/schemas.py", '        or schema.kind != "JSON"\n', "", _JSON),
    Mutant("spark/schemas.py", "    if not schema.text:\n        return []\n", "", _CHOICES),
    Mutant("spark/schemas.py", "replace(plan, json_schema=None)", "plan", _JSON),
    Mutant(
        "spark/schemas.py",
        "is_own and part.format == JSON",
        "part.format == JSON",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        "    if part.format == JSON:\n        return part_plan\n    if part.format == PROTOBUF:",
        "    if part.format == PROTOBUF:",
        _JSON,
    ),
    Mutant(
        "spark/schemas.py",
        "if not is_own and not schema_options.requires_all_columns:",
        "if not schema_options.requires_all_columns:",
        _CHOICES,
    ),
    Mutant("spark/schemas.py", '"" if schema.version is None else', "", _JSON),
    Mutant(
        "spark/schemas.py",
        "described is not None and is_own",
        "described is not None",
        ("unit/registry/test_one_source.py",),
    ),
    Mutant("spark/schemas.py", '    check_installed(f"{part.part}.format")\n', "", _CHOICES),
    Mutant(
        "formats/json_schema.py",
        "options.format != JSON or not options.has_id",
        "options.format != JSON",
        _JSON,
    ),
    Mutant(
        "formats/json_schema.py",
        'schema.get("title") if isinstance(schema, dict) else None',
        'schema.get("title")',
        _JSON,
    ),
    Mutant("formats/json_schema.py", "title if isinstance(title, str) else None", "title", _JSON),
    Mutant("formats/json_schema.py", "part == 'value' else 'key.'", "True else 'key.'", _JSON),
    Mutant(
        "spark/schemas.py",
        "    elif not is_own and part.format != PROTOBUF:",
        "    elif part.format != PROTOBUF:",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        "    elif not is_own and part.format != PROTOBUF:",
        "    elif not is_own:",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        "    if part_plan.plan is None:\n        return part_plan._replace(prefix=prefix)\n",
        "",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        "return part_plan._replace(plan=replace(part_plan.plan, prefix=prefix))",
        "return part_plan._replace(prefix=prefix)",
        _CHOICES,
    ),
    Mutant(
        "spark/schemas.py",
        "    if not missing:\n        return\n    version",
        "    version",
        _CHOICES,
    ),
)

MUTANTS = (
    _SCHEMAS + _DECISION_LOG + _CALLS + _CACHES + _FORKS + _METRICS + _DRIVER + _COLUMNS + _TASKS
)
