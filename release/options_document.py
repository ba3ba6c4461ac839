"""Write docs/options.md from the tables of options.

python -m release.options_document > docs/options.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from spark_kafka_sink.config.config_def import (
    KAFKA_PREFIX,
    REQUIRED,
    ConfigKey,
)
from spark_kafka_sink.config.config_providers import JAVA_CONFIG_PROVIDERS
from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG
from spark_kafka_sink.config.registry import REGISTRY_PREFIX
from spark_kafka_sink.config.security_keys import PROTOCOL_CONFIG, SASL_CONFIG, SSL_CONFIG
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS
from spark_kafka_sink.config.sink_options import (
    JAVA_CLASS_KEYS,
    KEYS_WITHOUT_EFFECT,
    LIBRDKAFKA_KEYS,
)

_TABLES = (SINK_OPTIONS, PRODUCER_CONFIG, PROTOCOL_CONFIG, SSL_CONFIG, SASL_CONFIG)
KEYS = {key.full_name: key for table in _TABLES for key in table.keys.values()}
_REGISTRY_TLS = f"{REGISTRY_PREFIX}ssl."

_HEAD = """\
# Options

For data engineers: every option, by subject, with its default, its meaning, and when to change it.
Generated from the tables in `spark_kafka_sink/config/`; do not edit.

Give options to `.option(name, value)` or `.options(...)` of a Spark writer. Names are not
case-sensitive. In a properties file for the jobs, put `spark.pykafka.` before the name. A list is
separated by commas. The anchor of an option is its name: `options.md#topic`.

Most queries set `kafka.bootstrap.servers`, `topic`, `value.format`, `key.columns` and the
[login](#secured-connections), and leave the rest.

"""


class Subject(NamedTuple):
    """One section. names: patterns of full names; an option belongs to the first that matches."""

    title: str
    text: str
    names: tuple[str, ...]


SUBJECTS = (
    Subject(
        "Topic, columns and formats",
        "Set these for what a record holds: [columns](columns.md), [formats](formats.md).",
        (
            *("topic", "value.format", "value.columns", "key.format", "key.columns"),
            *("value.column", "*.column", "value.null.when", "includeheaders", "*.json.*"),
            *("*.avro.*", "*.protobuf.*", "avro.*"),
        ),
    ),
    Subject(
        "Schema registry",
        "Set these if consumers read schemas from a registry: "
        "[how](formats.md#with-a-schema-registry).",
        (
            *("schema.registry.url", "auto.register.schemas", "use.*", "key.use.*", "latest.*"),
            *("id.*", "normalize.schemas", "*.schema.id.*", "*.subject.name.strategy"),
            *("*.schema.references", "schema.registry.*"),
        ),
    ),
    Subject(
        "Delivery and exactly-once",
        "Set these if readers must not see duplicates: [how](exactly-once.md).",
        (
            *("delivery.guarantee", "transactional.id.prefix", "write.*", "transaction.*"),
            "kafka.transaction.timeout.ms",
        ),
    ),
    Subject(
        "Dead letters",
        "Set these if one bad row must not stop a query: [how](dead-letters.md).",
        ("errors.*",),
    ),
    Subject(
        "Topics and the check before the first task",
        "Set these if topics may be missing.",
        ("topic.creation.*", "kafka.allow.auto.create.topics", "preflight.timeout.ms"),
    ),
    Subject(
        "Metrics and logs",
        "Set these to see each batch: [metrics](metrics.md), [report](report.md).",
        ("metrics.*", "log.*", "kafka.enable.metrics.push", "kafka.client.id"),
    ),
    Subject(
        "Speed and memory",
        "Change these after a measurement: [tuning](tuning.md) says which figure asks for which.",
        (
            *("kafka.compression.*", "kafka.batch.size", "kafka.linger.ms", "kafka.buffer.memory"),
            *("kafka.max.request.size", "kafka.max.in.flight*", "max.bytes.per.second.per.task"),
            *("kafka.send.buffer.bytes", "kafka.receive.buffer.bytes"),
        ),
    ),
    Subject(
        "Partitions and own code",
        "Change these if the partition of a row matters: [own code](your-own-code.md).",
        ("kafka.partitioner*", "interceptors", "kafka.client.rack"),
    ),
    Subject(
        "Retries and outages",
        "Leave these. `kafka.delivery.timeout.ms` alone decides how long an outage may take.",
        (
            *("kafka.delivery.timeout.ms", "kafka.acks", "kafka.enable.idempotence"),
            *("kafka.retries", "kafka.retry.*", "kafka.request.timeout.ms", "kafka.max.block.ms"),
        ),
    ),
    Subject(
        "Brokers and connections",
        "Set the first one. Leave the others, unless your network has its own time limits.",
        (
            *("kafka.bootstrap.servers", "kafka.client.dns.lookup", "kafka.connections.*"),
            *("kafka.reconnect.*", "kafka.socket.*", "kafka.metadata.*"),
        ),
    ),
    Subject(
        "Secured connections",
        "Set these for TLS and logins: [recipes](security.md). In an option with *reference*, "
        "all or part of the text may be `${env:NAME}`, an environment variable; "
        "`${file:/path:key}`, a key of a properties file; or `${dir:/path:file}`, a file of a "
        "folder. The driver and each Python worker resolve it.",
        ("kafka.security.protocol",),
    ),
    Subject(
        "TLS: `kafka.ssl.*`", "With `kafka.security.protocol` SSL or SASL_SSL.", ("kafka.ssl.*",)
    ),
    Subject(
        "Logins: `kafka.sasl.*`",
        "With `kafka.security.protocol` SASL_SSL or SASL_PLAINTEXT.",
        ("kafka.sasl.[!ol]*",),
    ),
    Subject(
        "OAuth: `kafka.sasl.oauthbearer.*`, `kafka.sasl.login.*`",
        "With `kafka.sasl.mechanism` OAUTHBEARER.",
        (
            "kafka.sasl.oauthbearer.[!a]*",
            "kafka.sasl.oauthbearer.assertion.*",
            "kafka.sasl.login.*",
        ),
    ),
)


def of_subjects() -> dict[str, list[ConfigKey]]:
    """Return title -> options; each option is in one subject."""
    left = dict(KEYS)
    found: dict[str, list[ConfigKey]] = {}
    exact = {name for subject in SUBJECTS for name in subject.names}
    for subject in SUBJECTS:
        keys = found.setdefault(subject.title, [])
        for pattern in subject.names:
            for name in [name for name in left if fnmatchcase(name, pattern)]:
                if name == pattern or name not in exact:
                    keys.append(left.pop(name))
    if left:
        raise ValueError(f"no subject has {', '.join(left)}: add them to SUBJECTS")
    return found


def render() -> str:
    """Return the whole document."""
    keys = of_subjects()
    parts = [_HEAD]
    for subject in SUBJECTS:
        level = "###" if subject.title.startswith(("TLS", "Logins", "OAuth")) else "##"
        parts += [f"{level} {subject.title}\n\n{subject.text}\n\n", _table(keys[subject.title])]
        parts.append("\n")
        if subject.title == "Secured connections":
            parts.append(_providers())
    parts += [
        "## Differences from Java's producer\n\n"
        "Names of `kafka.*` are those of Kafka's Java producer. Defaults and meanings are Java's, "
        "too, except for these. [Differences of the sinks](parity.md#different)\n\n",
        "| option | here | Java | difference |\n| --- | --- | --- | --- |\n",
        *(
            f"| {_linked(key.full_name)} | {_default(key)} | {_java_default(key)} "
            f"| {_text(key.difference)} |\n"
            for key in KEYS.values()
            if key.difference is not None and not key.name.startswith(_REGISTRY_TLS)
        ),
        "\n## Rejected, with an alternative\n\n",
        "Keys that name Java classes cannot work without a JVM:\n\n",
        "| option | instead |\n| --- | --- |\n",
        *(
            f"| `{KAFKA_PREFIX}{name}` | {_text(text)} |\n"
            for name, text in JAVA_CLASS_KEYS.items()
        ),
        "\nKeys of librdkafka that Java spells otherwise:\n\n",
        "| option | instead |\n| --- | --- |\n",
        *(
            f"| `{KAFKA_PREFIX}{name}` | {_text(text)} |\n"
            for name, text in LIBRDKAFKA_KEYS.items()
        ),
        "\nThe sink rejects `kafka.key.serializer` and `kafka.value.serializer`, as Spark's own "
        "sink does. It rejects any other key under `kafka.` that is not on this page, and "
        "suggests the nearest name. It also rejects a name without `kafka.` that is close to one "
        "of these. The driver's log names all others.\n",
        "\n## Accepted without effect\n\n",
        "The sink says so in the driver's log:\n\n",
        "| option | why |\n| --- | --- |\n",
        *_without_effect(),
    ]
    return "".join(parts)


def _providers() -> str:
    classes = ", ".join(f"`{name.rpartition('.')[2]}`" for name in JAVA_CONFIG_PROVIDERS)
    rows = (
        (
            "kafka.config.providers",
            "list",
            "Names of Java's configuration providers. The references `${env:…}`, `${file:…}` and "
            "`${dir:…}` need no provider here.<br>Set it only to keep other names.",
        ),
        (
            "kafka.config.providers.NAME.class",
            "class",
            f"Class of a provider: {classes}. The sink rejects others."
            "<br>Set it for each of those names.",
        ),
        (
            "kafka.config.providers.NAME.param.*",
            "text",
            "`allowed.paths` of a provider of files: folders and files, separated by commas, that "
            "its references may read. `allowlist.pattern` of EnvVarConfigProvider: a regular "
            "expression for the names of variables. With either, only the names of "
            "`kafka.config.providers` are known, in all options. The sink rejects other parameters."
            "<br>Set it to restrict what options may read.",
        ),
    )
    return (
        _TABLE_HEAD
        + "".join(
            f'| <a id="{name}"></a>`{name}` | none<br>{kind} | {text} |\n'
            for name, kind, text in rows
        )
        + "\n"
    )


def _without_effect() -> Iterator[str]:
    """Yield a row for each reason."""
    names: dict[str, list[str]] = {}
    for name, why in KEYS_WITHOUT_EFFECT.items():
        names.setdefault(why, []).append(f"`{KAFKA_PREFIX}{name}`")
    for why, named in names.items():
        yield f"| {', '.join(named)} | {why} |\n"


_TABLE_HEAD = "| option | default, type | meaning, and when to change it |\n| --- | --- | --- |\n"


def _table(keys: list[ConfigKey]) -> str:
    """Return the rows; options with the same meaning and default share one."""
    rows: dict[tuple[str, str], list[str]] = {}
    for key in keys:
        default, meaning = _default_and_type(key), _meaning(key)
        if key.name.startswith(_REGISTRY_TLS):
            default = "as `kafka.ssl.*`"
            meaning = (
                "As the option of `kafka.ssl.*`, for the driver's connections to the registry."
                "<br>Set those that the registry needs: it does not take `kafka.ssl.*`."
            )
        rows.setdefault((default, meaning), []).append(_anchored(key.full_name))
    return _TABLE_HEAD + "".join(
        f"| {'<br>'.join(names)} | {default} | {meaning} |\n"
        for (default, meaning), names in rows.items()
    )


def _anchored(name: str) -> str:
    return f'<a id="{name}"></a>`{name}`'


def _default_and_type(key: ConfigKey) -> str:
    return f"{_default(key)}<br>{key.type}"


def _default(key: ConfigKey) -> str:
    if key.default is REQUIRED:
        return "required"
    return _code(key.default)


def _java_default(key: ConfigKey) -> str:
    return "the same" if key.java_default is None else _code(key.java_default)


def _code(value: Any) -> str:
    if value is None:
        return "none"
    if value in ("", []):
        return "empty"
    if isinstance(value, list):
        return f"`{','.join(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _meaning(key: ConfigKey) -> str:
    doc = _text(key.doc)
    if key.takes_references:
        doc += " *reference*"
    if key.difference is not None:
        doc += " [Differs from Java](#differences-from-javas-producer)"
    return f"{doc}<br>{_text(key.when)}"


# A name of one word, such as "topic", is a word of the sentence more often than an option.
_NAMES = "|".join(re.escape(name) for name in sorted(KEYS, key=len, reverse=True) if "." in name)
_NAMED = re.compile(rf"(`[^`]*`)|(?<![\w.-])({_NAMES})(?![\w-]|\.\w)")


def _text(doc: str | None) -> str:
    """Return a text of the tables with links to pages and to other options."""

    def link(found: re.Match[str]) -> str:
        return found[1] or _linked(found[2])

    linked = _NAMED.sub(link, (doc or "").replace("<", "&lt;"))
    return re.sub(r"\bdocs/([\w-]+)\.md\b", r"[\1](\1.md)", linked)


def _linked(name: str) -> str:
    return f"[`{name}`](#{name})"


if __name__ == "__main__":
    sys.stdout.write(render())
