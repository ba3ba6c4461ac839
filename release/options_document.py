"""Write docs/options.md from the tables of options.

python -m release.options_document > docs/options.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from spark_kafka_sink.config.config_def import KAFKA_PREFIX, REQUIRED, ConfigDef, ConfigKey
from spark_kafka_sink.config.option_names import (
    JAVA_CLASS_KEYS,
    KEYS_WITHOUT_EFFECT,
    LIBRDKAFKA_KEYS,
)
from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG
from spark_kafka_sink.config.security_keys import PROTOCOL_CONFIG, SASL_CONFIG, SSL_CONFIG
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS

_HEAD = """\
# Options

Generated from the tables in `spark_kafka_sink/config/`; do not edit.

All options are given to `.option(name, value)` or `.options(...)` of a Spark writer. Names are not
case-sensitive. In a properties file for the jobs in `jobs/`, put `spark.pykafka.` before the name.

"""

_SECURITY = """
## Secured connections

In options marked with *reference*, all or part of the text may be a reference, as with Kafka's
configuration providers. `${env:NAME}` is an environment variable, `${file:/path:key}` a key in a
properties file, and `${dir:/path:file}` a file in a folder. The processes that connect resolve it:
the driver and each Python worker.

"""


def render() -> str:
    """Return the whole document."""
    parts = [_HEAD, "## The sink's own options\n\n", _table(SINK_OPTIONS)]
    parts += [
        "\n## Producer options: `kafka.*`\n\n",
        "Names are those of Kafka's Java producer. Meanings and defaults are Java's too, unless a "
        "row says otherwise. `kafka.batch.size`, `kafka.linger.ms` and `kafka.delivery.timeout.ms` "
        "count differently: [all differences](parity.md#different).\n\n",
        _table(PRODUCER_CONFIG),
        _SECURITY,
        _table(PROTOCOL_CONFIG),
        "\n### TLS: `kafka.ssl.*`\n\n",
        "With `kafka.security.protocol` SSL or SASL_SSL.\n\n",
        _table(SSL_CONFIG),
        "\n### SASL: `kafka.sasl.*`\n\n",
        "With `kafka.security.protocol` SASL_SSL or SASL_PLAINTEXT.\n\n",
        _table(SASL_CONFIG),
        "\n## Refused, with an alternative\n\n",
        "Keys that name Java classes cannot work without a JVM:\n\n",
        "| option | instead |\n| --- | --- |\n",
        *(f"| `{KAFKA_PREFIX}{name}` | {text} |\n" for name, text in JAVA_CLASS_KEYS.items()),
        "\nKeys of librdkafka that Java spells otherwise:\n\n",
        "| option | instead |\n| --- | --- |\n",
        *(f"| `{KAFKA_PREFIX}{name}` | {text} |\n" for name, text in LIBRDKAFKA_KEYS.items()),
        "\n`kafka.key.serializer` and `kafka.value.serializer` are refused as by Spark's own sink. "
        "Any other key under `kafka.` that is not in these tables is refused, with the nearest "
        "right name. A name without `kafka.` that is close to one in these tables is refused, "
        "too. The driver's log names any other.\n",
        "\n## Accepted without effect\n\n",
        "The sink says so in the driver's log:\n\n",
        "| option | why |\n| --- | --- |\n",
        *_without_effect(),
    ]
    return "".join(parts)


def _without_effect() -> Iterator[str]:
    """Yield a row for each reason."""
    names: dict[str, list[str]] = {}
    for name, why in KEYS_WITHOUT_EFFECT.items():
        names.setdefault(why, []).append(f"`{KAFKA_PREFIX}{name}`")
    for why, named in names.items():
        yield f"| {', '.join(named)} | {why} |\n"


def _table(config: ConfigDef) -> str:
    rows = ["| option | type | default | importance | meaning |\n| --- | --- | --- | --- | --- |\n"]
    for key in config.keys.values():
        rows.append(
            f"| `{key.full_name}` | {key.type.value} | {_default(key)} | {key.importance.value} "
            f"| {_meaning(key)} |\n"
        )
    return "".join(rows)


def _default(key: ConfigKey) -> str:
    if key.default is REQUIRED:
        return "required"
    return _code(key.default)


def _code(value: Any) -> str:
    if value is None:
        return "none"
    if value == "":
        return "empty"
    if isinstance(value, list) and value:
        return f"`{','.join(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _meaning(key: ConfigKey) -> str:
    doc = f"{key.doc} *reference*" if key.takes_references else key.doc
    if key.difference is None:
        return doc
    return f"{doc} **Java: {_code(key.java_default)}.** {key.difference}"


if __name__ == "__main__":
    sys.stdout.write(render())
