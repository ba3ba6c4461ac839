"""Names of subjects: by a function of the user's own, and those that two schemas would have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spark_kafka_sink.base.entry_points import load
from spark_kafka_sink.base.errors import ConfigError

if TYPE_CHECKING:
    from spark_kafka_sink.registry.schemas import Wanted

_NAMED_BY = {
    "AVRO": "key.avro.schema, with another name",
    "JSON": "key.json.schema, with another title",
    "PROTOBUF": "key.protobuf.message, with another one",
}


def own_subject(function: str, part: str, topic: str | None, record_name: str | None) -> str:
    """What ``function`` (package.module:name) calls the subject of keys or values.

    It gets what Confluent's ``SubjectNameStrategy`` gets: the topic, None where a column has it;
    whether it is for keys; the record's name, None where that is not known. Raises ConfigError.
    """
    option = f"{part}.subject.name.strategy"
    call = load(function, option)
    try:
        subject = call(topic or None, part == "key", record_name)
    except Exception as error:
        raise ConfigError(f"{option}={function} failed: {error!r}") from error
    if not isinstance(subject, str) or not subject:
        raise ConfigError(f"{option}={function} must return the name of a subject, not {subject!r}")
    return subject


def check_subjects(wanted: Iterable[Wanted]) -> None:
    """Raise ConfigError where the schemas of keys and values, which differ, have one subject.

    They would be versions of each other: the second one is refused as incompatible, or worse,
    taken. Columns of both are derived as records of one name.
    """
    found: dict[str, Wanted] = {}
    for one in wanted:
        if one.options.is_latest or one.options.schema_id is not None:
            continue
        subject = one.subject(one.text)
        other = found.setdefault(subject, one)
        if (other.kind, other.text) != (one.kind, one.text):
            raise ConfigError(
                f"the schemas of values and keys both have the subject '{subject}', by "
                "value.subject.name.strategy and key.subject.name.strategy, and they differ: set "
                f"key.subject.name.strategy=TopicNameStrategy, or {_NAMED_BY[one.kind]}"
            )
