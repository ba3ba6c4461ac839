"""What Spark shows of options that hold secrets.

Spark shows options and its own configuration in plans, in its UI and in event logs, and hides a
value whose name or whose text matches ``spark.redaction.regex``. Not every secret does.

Source: ``Utils.redact`` of Spark.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping

from spark_kafka_sink.config.producer_keys import KAFKA_PREFIX
from spark_kafka_sink.config.reference_syntax import REFERENCE, has_reference
from spark_kafka_sink.config.security_keys import SECRET_KEYS

REGEX_OPTION = "spark.redaction.regex"
DEFAULT_REGEX = "(?i)secret|password|token|access[.]?key"
SUGGESTED_REGEX = (
    f"{DEFAULT_REGEX}|passphrase|keystore[.]key|jaas[.]config|otlp[.]headers|user[.]info"
    "|://.*@|[?&].*key="
)
REFERENCE_HINT = "a reference, ${file:/path:key}, ${env:NAME} or ${dir:/path:file}"

_REGISTRY = "schema.registry."
_OWN_SECRETS = frozenset(
    {
        "metrics.otlp.headers",
        f"{_REGISTRY}basic.auth.user.info",
        f"{_REGISTRY}bearer.auth.token",
        f"{_REGISTRY}bearer.auth.client.secret",
        *(_REGISTRY + key for key in SECRET_KEYS if key.startswith("ssl.")),
    }
)
# Whose values hold a secret sometimes: as user:password@, or as ?api_key=.
_URLS = frozenset(
    {
        "metrics.otlp.endpoint",
        "metrics.prometheus.push.url",
        f"{_REGISTRY}url",
        f"{_REGISTRY}bearer.auth.issuer.endpoint.url",
        f"{KAFKA_PREFIX}sasl.oauthbearer.token.endpoint.url",
    }
)
_SECRET_IN_URL = re.compile(
    r"(?i)://\S*@|[?&][^=&\s]*(key|token|secret|pass|auth|sig|credential)[^=&\s]*="
)
_JAAS = "sasl.jaas.config"
# Options of login modules whose values are secrets; those of Kerberos name files.
_SECRET_IN_JAAS = re.compile(r"""(?i)(password|secret|passphrase)\s*=\s*["']?([^"'\s;]*)""")


def clear_secrets(options: Mapping[str, str]) -> list[str]:
    """Names, in lower case, of the options that hold a secret and no reference."""
    found = []
    for name, value in options.items():
        lowered = name.lower()
        key = lowered.removeprefix(KAFKA_PREFIX)
        is_secret = (
            lowered in _OWN_SECRETS
            or (lowered in _URLS and _SECRET_IN_URL.search(value) is not None)
            or (key in SECRET_KEYS and key != lowered)
        )
        if is_secret and _is_clear(key, value):
            found.append(lowered)
    return sorted(found)


def shown_by_spark(
    options: Mapping[str, str], regex: str = DEFAULT_REGEX, prefix: str = ""
) -> list[str]:
    """Those of ``clear_secrets`` that Spark does not hide.

    regex: of ``spark.redaction.regex``; prefix: what stands before the names where Spark has them
    """
    hides = _compiled(regex)
    values = {name.lower(): value for name, value in options.items()}
    return [
        name
        for name in clear_secrets(options)
        if not (hides.search(prefix + name) or hides.search(values[name]))
    ]


def _compiled(regex: str) -> re.Pattern[str]:
    """Java's expression as Python's; the default for one that Python does not know."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what a later Python may read anew
            return re.compile(regex)
    except re.error:
        return re.compile(DEFAULT_REGEX)


def warning_of_shown(names: list[str], regex: str = DEFAULT_REGEX) -> str:
    """What is said of them, with what to do."""
    default = " the default of" if regex == DEFAULT_REGEX else ""
    return (
        f"{', '.join(names)}: a secret in clear text, which Spark shows in its UI, plans and event "
        f"logs, for{default} {REGEX_OPTION} does not match. Write {REFERENCE_HINT}, instead; or "
        f"start Spark with {REGEX_OPTION}={SUGGESTED_REGEX}"
    )


def _is_clear(key: str, value: str) -> bool:
    if key == _JAAS:
        return any(match[2] for match in _SECRET_IN_JAAS.finditer(REFERENCE.sub("", value)))
    return bool(value.strip()) and not has_reference(value)
