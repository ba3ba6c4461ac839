"""Names of subjects by a function of the user's own."""

from __future__ import annotations

from spark_kafka_sink.base.entry_points import load
from spark_kafka_sink.base.errors import ConfigError


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
