"""Names that are no option of the sink: which of them are typing errors.

Spark gives a sink every option of the writer, also those that are meant for Spark itself or for
another sink. So an unknown name is only told in the log; but one that is close to an option of this
sink is refused, for what was asked for would not happen. With value.format or key.format so is one
by which Spark's functions or Confluent's serializers know an option of this sink.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from spark_kafka_sink.config.format_keys import FORMAT_KEYS
from spark_kafka_sink.config.java_classes import RECIPES
from spark_kafka_sink.config.java_keys import (
    JAVA_CLASS_KEYS,
    KEYS_WITHOUT_EFFECT,
    REFUSED_KEYS,
)
from spark_kafka_sink.config.librdkafka_keys import LIBRDKAFKA_KEYS, OTHER_NAMES
from spark_kafka_sink.config.producer_keys import KAFKA_PREFIX, PRODUCER_CONFIG
from spark_kafka_sink.config.reference_providers import is_of_providers
from spark_kafka_sink.config.registry_keys import REGISTRY_KEYS
from spark_kafka_sink.config.security_keys import SECURITY_CONFIG
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS

PASSED_BY_SPARK = frozenset(
    {
        "checkpointlocation",
        "path",
        "queryname",
        "outputmode",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
        "_asyncprogresstrackingoverridesinksupportcheck",
    }
)
"""What Spark adds to the options of a writer, or reads from them: not this sink's to judge."""

# An option of Spark's JDBC source, in lower case, which is close to one of this sink.
_OF_JDBC = "partitioncolumn"
# In lower case. To leave it without effect would be to talk in clear.
_OF_DATABRICKS = "databricks.servicecredential"

_PER_TASK = "max.bytes.per.second.per.task limits each task; brokers' quotas limit a client"
_REMOVED = {
    "max.bytes.per.second": _PER_TASK,
    "max.records.per.second": _PER_TASK,
    "limit.server.host": "max.bytes.per.second.per.task needs no server",
    "limit.server.port": "max.bytes.per.second.per.task needs no server",
    "pause.path": "stop the query and start it again with its checkpoint, or set a quota",
    "batch.growth.enable": "set kafka.batch.size",
    "preflight.topic.timeout.ms": "preflight.timeout.ms",
    "schema.registry.request.timeout.ms": "schema.registry.timeout.ms",
    "worker.tuning": "leave it out: Spark's Python processes are always tuned",
    "json.schema.title": "value.json.schema with a title",
    "metrics.path.backups": "metrics.path.max.bytes; five files are kept",
    "transaction.log.min.isr": "leave it out: it is 2, or 1 with one replica",
    **{
        f"{part}.{kind}.schema.file": f"{part}.{kind}.schema with the path of the file"
        for part in ("value", "key")
        for kind in ("avro", "json")
    },
    "hooks.on.error": "catch in your own code what may pass",
    "metrics.prometheus.path": "serve metrics.path with spark_kafka_sink.metrics.listen, or push",
}
"""Removed options, in lower case, and what replaces them."""

# In lower case, names of to_json, to_avro, to_protobuf and Confluent's serializers that no rule of
# ``_of_rows`` finds.
_OF_ROWS = {
    "use.latest.schema": "use.latest.version",
    "format": "value.format",
    "columns": "value.columns",
    "avroschema": "value.avro.schema",
    "jsonformatschema": "value.avro.schema",
    "recordname": "avro.record.name",
    "recordnamespace": "avro.namespace",
    "timestampformat": "value.json.timestampFormat",
    "timestampntzformat": "value.json.timestampNTZFormat",
    "dateformat": "value.json.dateFormat",
    "timezone": "value.json.timeZone",
    "ignorenullfields": "value.json.ignoreNullFields",
    "messagename": "value.protobuf.message",
    "descfilepath": "value.protobuf.descriptor.file",
}
_SHOWN = {
    name: shown.rpartition(".")[2] for name, shown in _OF_ROWS.items() if name in shown.lower()
}
_NAMES_OF_ROWS = [key.name for key in (*FORMAT_KEYS, *REGISTRY_KEYS)]
# What is left out before the names of options of rows.
_HEADS = ("schema.registry", "schema", "value.json", "value", "use", "auto", "key")

# Kafka's keys that are used, refused in words of their own, or without effect.
_USED = {**PRODUCER_CONFIG.keys, **SECURITY_CONFIG.keys}
_TOLD = [*JAVA_CLASS_KEYS, *LIBRDKAFKA_KEYS]

# More than any option of Spark's other sinks and sources has with one of this sink's.
_SIMILARITY = 0.8
# A longer or shorter name is another option's, or one of Confluent's: ``_of_rows`` knows these.
_MOST_ERRORS = 3


def refusal(name: str, parts: Sequence[str] = ()) -> str | None:
    """Why an option of this name, in lower case, is refused; None if it is not.

    parts: value and key, as far as they have a format
    """
    if name.startswith(KAFKA_PREFIX):
        return _refusal_of_kafka(name.removeprefix(KAFKA_PREFIX))
    if name in SINK_OPTIONS.keys or name in PASSED_BY_SPARK:
        return None
    if name in _REMOVED:
        return f"option '{name}' was removed. Instead: {_REMOVED[name]}."
    if name.startswith(_OF_DATABRICKS):
        return (
            f"option '{name}' is one of Databricks' own Kafka connector, and gives no credentials "
            "here. Set kafka.security.protocol, kafka.sasl.mechanism and what belongs to them: "
            f"{RECIPES} has recipes"
        )
    near = (_of_rows(name, parts) if parts else None) or near_option(name)
    return near and f"option '{name}' is not one of this sink's. {answer(near)}"


def is_unknown(name: str) -> bool:
    """Whether an option that is not refused is neither this sink's nor known to be Spark's."""
    return not (
        name.startswith(KAFKA_PREFIX) or name in SINK_OPTIONS.keys or name in PASSED_BY_SPARK
    )


def answer(near: str) -> str:
    """What to write: ``near``, or what it would be answered with, if it would be refused."""
    instead = LIBRDKAFKA_KEYS.get(near.removeprefix(KAFKA_PREFIX))
    return f"Did you mean '{near}'?" if instead is None else f"Instead: {instead}."


def _refusal_of_kafka(key: str) -> str | None:
    if key in _USED or key in KEYS_WITHOUT_EFFECT or is_of_providers(key):
        return None
    if key in REFUSED_KEYS:
        return REFUSED_KEYS[key]
    if key in JAVA_CLASS_KEYS:
        return (
            f"Kafka option '{KAFKA_PREFIX}{key}' names a Java class, and there is no JVM here. "
            f"Instead: {JAVA_CLASS_KEYS[key]}."
        )
    if key in LIBRDKAFKA_KEYS:
        return (
            f"Kafka option '{KAFKA_PREFIX}{key}' is librdkafka's, and this sink has the options of "
            f"Kafka's Java client. Instead: {LIBRDKAFKA_KEYS[key]}."
        )
    what = f"Kafka option '{KAFKA_PREFIX}{key}' is not a producer option of this sink."
    if key in OTHER_NAMES:
        return f"{what} Instead: {OTHER_NAMES[key]}."
    own = key if key in SINK_OPTIONS.keys else _of_rows(key)
    if own is not None:
        return f"{what} Did you mean '{own}'?"
    near = PRODUCER_CONFIG.near(key, [*SECURITY_CONFIG.keys, *_TOLD, *KEYS_WITHOUT_EFFECT])
    if near is None:
        return f"{what} See docs/options.md (pykafka-sink docs options)."
    return f"{what} {answer(KAFKA_PREFIX + near)}"


def _of_rows(name: str, parts: Sequence[str] = ("value",)) -> str | None:
    """The option of rows or of a registry that others know by ``name``, in lower case."""
    found = _OF_ROWS.get(name)
    if found is None and "." in name and not name.endswith("timeout.ms"):
        heads = (f"{head}.{name}" for head in _HEADS)
        found = next((option for option in heads if option in _NAMES_OF_ROWS), None)
        if found is None:
            ends = (option for option in _NAMES_OF_ROWS if name.endswith(f".{option}"))
            found = max(ends, key=len, default=None)
        last = name.rpartition(".")[2]
        if (
            found is None
            and last in _OF_ROWS
            and name.partition(".")[0] in ("value", "key", "json", "avro")
        ):
            found = _OF_ROWS[last]
    if found is None:
        return None
    head, _, last = found.rpartition(".")
    found = f"{head}.{_SHOWN.get(last, last)}"
    if "value" not in parts or name.startswith("key."):
        found = "key.use.schema.id" if found == "use.schema.id" else found
        found = "key." + found.removeprefix("value.") if found.startswith("value.") else found
    return found


def near_option(name: str) -> str | None:
    """The option that ``name``, in lower case, is a misspelling of; None if it is like no other.

    A producer option without its prefix ``kafka.`` is a misspelling of it, and so is the beginning
    of one of the sink's own options, as far as one of its dots: ``metrics``, ``transactional.id``.
    """
    if name == _OF_JDBC:
        return None
    for option in SINK_OPTIONS.keys:
        if option.startswith(f"{name}."):
            return option
    candidates = {name: name for name in SINK_OPTIONS.keys}
    for key in _USED.values():
        candidates.setdefault(key.name, key.full_name)
        candidates.setdefault(key.full_name, key.full_name)
    for told in _TOLD:
        candidates.setdefault(told, KAFKA_PREFIX + told)
    as_long = [c for c in candidates if abs(len(c) - len(name)) <= _MOST_ERRORS]
    near = difflib.get_close_matches(name, as_long, n=1, cutoff=_SIMILARITY)
    return candidates[near[0]] if near else None
