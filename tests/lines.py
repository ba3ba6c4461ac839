"""Every line of metrics that tests make is held against the schema, without room for other fields."""

import json

from jsonschema import Draft202012Validator

from spark_kafka_sink.metrics.reading import line_schema

# One with more partitions has more of the same.
_LONGEST_CHECKED = 200_000
_BEGINNING = '{"sink": "pykafka-sink"'


def strict(schema):
    """The schema, for those who write lines: each field is described."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    known = {name: strict(part) for name, part in schema.items()}
    return {**known, "additionalProperties": False} if "properties" in known else known


VALIDATOR = Draft202012Validator(strict(line_schema()))


def check_text(text):
    """Raises ValidationError for a line that is not as the schema says."""
    if len(text) <= _LONGEST_CHECKED:
        VALIDATOR.validate(json.loads(text))


def lines_in(folder):
    """Lines of metrics in files of a folder, and of those in it."""
    for pattern in ("*", "*/*"):
        for path in folder.glob(pattern):
            is_named_so = path.suffix == ".jsonl" or "metrics" in path.name
            if is_named_so and path.is_file():
                for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
                    if text.startswith(_BEGINNING):
                        yield text
