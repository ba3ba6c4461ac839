"""Kafka's command-line classes, by their short names."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from spark_kafka_sink.localkafka.errors import LocalKafkaError

_PACKAGES = ("org/apache/kafka/", "kafka/")


def find_tool_class(jars: Sequence[Path], name: str) -> str:
    """Full name of the class called ``name``: tools move between packages from version to version.

    A name with a dot is full already. Raises LocalKafkaError if no jar, or more than one package,
    has it.
    """
    if "." in name:
        return name
    suffix = f"/{name}.class"
    found = {
        entry
        for jar in jars
        if jar.name.startswith(("kafka", "connect"))
        for entry in zipfile.ZipFile(jar).namelist()
        if entry.endswith(suffix) and entry.startswith(_PACKAGES)
    }
    in_tools = {entry for entry in found if "/tools/" in entry} or found
    if len(in_tools) != 1:
        what = f"is ambiguous: {sorted(in_tools)}" if in_tools else "is no class of this Kafka"
        raise LocalKafkaError(f"{name} {what}")
    return in_tools.pop().removesuffix(".class").replace("/", ".")
