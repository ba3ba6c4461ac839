"""The error of a local Kafka, and the part of a log that its message quotes."""

from __future__ import annotations

from pathlib import Path

from spark_kafka_sink.base.errors import KafkaSinkError

_TAIL_BYTES = 65536
_LINE_LENGTH = 500


class LocalKafkaError(KafkaSinkError):
    """A local Kafka cannot be fetched, started or used. The message says what to do."""


def tail_of(path: Path, lines: int = 30) -> str:
    """Return the last lines of a log file, indented, for an error message."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        text = ""
    tail = text.splitlines()[-lines:]
    return (
        "\n".join(f"    {line[:_LINE_LENGTH]}" for line in tail)
        if tail
        else "    (nothing was logged)"
    )
