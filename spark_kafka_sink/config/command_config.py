"""``--command-config FILE``: how a client of the command line connects, as with Kafka's own tools.

The file is one of Java's properties files, with Kafka's names, without ``kafka.`` before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.java_keys import KEYS_WITHOUT_EFFECT
from spark_kafka_sink.config.librdkafka_keys import LIBRDKAFKA_KEYS
from spark_kafka_sink.config.option_names import answer, near_option, refusal
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.producer_keys import KAFKA_PREFIX, PRODUCER_CONFIG
from spark_kafka_sink.config.properties import Property, read_properties
from spark_kafka_sink.config.reference_providers import is_of_providers, notes_on_providers
from spark_kafka_sink.config.security_keys import SECURITY_CONFIG
from spark_kafka_sink.config.security_notes import notes_on_security

_NAMES = "|".join(
    re.escape(name) for name in [*PRODUCER_CONFIG.keys, *SECURITY_CONFIG.keys, *LIBRDKAFKA_KEYS]
)
_FULL_NAME = re.compile(rf"(?<![\w.])kafka\.((?:{_NAMES})(?![\w-]|\.\w)|config\.providers[\w.]*)")


class CommandConfig(NamedTuple):
    """notes: sentences about what has no effect, for stderr."""

    producer: ProducerConfig
    notes: tuple[str, ...]


def read_command_config(
    path: str, bootstrap_servers: str, defaults: Mapping[str, str]
) -> CommandConfig:
    """What the file at ``path`` asks for; the servers win over those in the file.

    defaults: Kafka's keys and texts where the file has none. Raises ConfigError, which names file
    and line, and shows no secret.
    """
    servers = {"bootstrap.servers": bootstrap_servers}
    try:
        found = read_properties(path)
    except OSError as error:
        raise ConfigError(f"--command-config: cannot read {path}: {error.strerror}") from None
    lines = {name: line for name, _, line in found}
    for name, line in lines.items():
        _check_name(name, f"{path}, line {line}")
    values = {name: value for name, value, _ in found if _is_used(name)}
    try:
        producer = ProducerConfig.parse({**defaults, **values, **servers})
    except ConfigError as error:
        raise ConfigError(_in_file(str(error), path, lines)) from None
    return CommandConfig(producer, tuple(_notes(path, found, values, producer)))


def _is_used(name: str) -> bool:
    return name in PRODUCER_CONFIG.keys or name in SECURITY_CONFIG.keys or is_of_providers(name)


def _check_name(name: str, where: str) -> None:
    """Raise ConfigError for a typing error, and for what would have to have an effect.

    Names that are like no other are those of other tools that use the same file.
    """
    if name.startswith(KAFKA_PREFIX) and _is_used(name.removeprefix(KAFKA_PREFIX)):
        raise ConfigError(f"{where}: write {name.removeprefix(KAFKA_PREFIX)}, without kafka.")
    if _is_used(name) or name in KEYS_WITHOUT_EFFECT:
        return
    full_name = KAFKA_PREFIX + name
    near = near_option(full_name)
    if name in LIBRDKAFKA_KEYS or (near == full_name and name.startswith(("ssl.", "sasl."))):
        raise ConfigError(f"{where}: {_without_prefix(refusal(full_name) or '')}")
    if near is not None and near.startswith(KAFKA_PREFIX) and near != full_name:
        told = _without_prefix(answer(near)).replace(f"'{KAFKA_PREFIX}", "'")
        raise ConfigError(f"{where}: there is no '{name}'. {told}")


def _notes(
    path: str, found: list[Property], values: Mapping[str, str], producer: ProducerConfig
) -> Iterator[str]:
    for name, _, line in found:
        if not _is_used(name):
            yield f"{path}, line {line}: {name} has no effect here"
    for note in (*notes_on_providers(values), *notes_on_security(values, producer.security)):
        yield f"{path}: {_without_prefix(note)}"


def _in_file(message: str, path: str, lines: Mapping[str, int]) -> str:
    """``message`` with the place of the first option that it names."""
    named = [match[1] for match in _FULL_NAME.finditer(message) if match[1] in lines]
    where = f"{path}, line {lines[named[0]]}" if named else path
    return f"{where}: {_without_prefix(message)}"


def _without_prefix(message: str) -> str:
    return _FULL_NAME.sub(lambda match: match[1], message)
