"""``config.providers`` of Java: which names stand for the three kinds of references.

Java knows no kind of its own: ``config.providers=secrets`` with
``config.providers.secrets.class=…FileConfigProvider`` makes ``${secrets:/path:key}`` one. Here
``env``, ``file`` and ``dir`` are always known; other names are rewritten.

Source: ``AbstractConfig.instantiateConfigProviders`` of Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.java_classes import RECIPES, not_a_class_here, without_shade
from spark_kafka_sink.config.reference_syntax import DIR, ENV, FILE, REFERENCE

KEY = "config.providers"
_PREFIX = f"{KEY}."
_CLASS, _PARAM = ".class", ".param."
_PACKAGE = "org.apache.kafka.common.config.provider."
_INSTEAD = (
    "let your platform put the secret into a file or an environment variable, and write "
    f"${{env:NAME}}, ${{file:/path:key}} or ${{dir:/path:file}}; {RECIPES} tells how"
)
KINDS_OF_JAVA = {
    f"{_PACKAGE}EnvVarConfigProvider": ENV,
    f"{_PACKAGE}FileConfigProvider": FILE,
    f"{_PACKAGE}DirectoryConfigProvider": DIR,
}


def is_of_providers(key: str) -> bool:
    """Whether a key, without ``kafka.``, is ``config.providers`` or belongs to one of them."""
    return key == KEY or (key.startswith(_PREFIX) and (key.endswith(_CLASS) or _PARAM in key))


def notes_on_providers(keys: Iterable[str]) -> Iterator[str]:
    """Sentences about parameters of providers, for the log."""
    for key in keys:
        if is_of_providers(key) and _PARAM in key:
            yield (
                f"option 'kafka.{key}' has no effect: references are read from wherever the "
                "process may read"
            )


def without_providers(values: Mapping[str, str]) -> dict[str, str]:
    """``values`` without the keys of providers, and with references by the names known here.

    Raises ConfigError for a provider that is none of the three.
    """
    kinds = {
        name: _kind(name, values)
        for name in (text.strip().lower() for text in values.get(KEY, "").split(","))
        if name
    }
    others = {key: text for key, text in values.items() if not is_of_providers(key)}
    if not kinds:
        return others

    def renamed(match: re.Match[str]) -> str:
        kind = kinds.get(match[1].lower())
        return match[0] if kind is None else match[0].replace(match[1], kind, 1)

    return {key: REFERENCE.sub(renamed, text) for key, text in others.items()}


def _kind(name: str, values: Mapping[str, str]) -> str:
    key = f"{_PREFIX}{name}{_CLASS}"
    java_class = values.get(key)
    if java_class is None:
        raise ConfigError(f"kafka.{KEY} names '{name}', but kafka.{key} is missing")
    kind = KINDS_OF_JAVA.get(without_shade(java_class.strip()))
    if kind is None:
        problem = not_a_class_here(KINDS_OF_JAVA, _INSTEAD)
        raise ConfigError(f"Invalid value {java_class} for configuration kafka.{key}: {problem}")
    return kind
