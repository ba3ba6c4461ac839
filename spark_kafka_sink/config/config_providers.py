"""Java's ``config.providers``: names of references, and what they may read.

``config.providers=secrets`` with ``config.providers.secrets.class=…FileConfigProvider`` defines
``${secrets:/path:key}``. The names ``env``, ``file`` and ``dir`` are always known here, and other
names are rewritten to these. That ends if a provider has a parameter that restricts it: then
references have the names of ``config.providers`` only, because any other name would be a way around
the restriction.

A restriction is checked against the text of the reference, on the driver: a reference that is
accepted never leads to another place. Links inside an allowed folder are followed, as in Java.

Source: ``AbstractConfig.instantiateConfigProviders``, ``AllowedPaths``, ``FileConfigProvider``,
``DirectoryConfigProvider``, ``EnvVarConfigProvider`` of Kafka 4.3.
"""

from __future__ import annotations

import posixpath
import re
import warnings
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import (
    DIR,
    ENV,
    FILE,
    KAFKA_PREFIX,
    RECIPES,
    REFERENCE,
    Reference,
    reference_of,
    unknown_class_problem,
    without_shaded_prefix,
)

_PROVIDERS = "config.providers"
_PREFIX = f"{_PROVIDERS}."
_CLASS, _PARAM = ".class", ".param."
_PACKAGE = "org.apache.kafka.common.config.provider."
_ADVICE = (
    "let your platform put the secret into a file or an environment variable, and write "
    f"${{env:NAME}}, ${{file:/path:key}} or ${{dir:/path:file}}; {RECIPES} tells how"
)
JAVA_CONFIG_PROVIDERS = {
    f"{_PACKAGE}EnvVarConfigProvider": ENV,
    f"{_PACKAGE}FileConfigProvider": FILE,
    f"{_PACKAGE}DirectoryConfigProvider": DIR,
}
RESTRICTIONS = {ENV: "allowlist.pattern", FILE: "allowed.paths", DIR: "allowed.paths"}
"""Kind of a provider -> its only parameter."""


class _Provider(NamedTuple):
    """A provider. kind: ENV, FILE or DIR; paths, pattern: what it may read, None for everything."""

    kind: str
    paths: tuple[str, ...] | None = None
    pattern: re.Pattern[str] | None = None

    @property
    def is_restricted(self) -> bool:
        return self.paths is not None or self.pattern is not None

    def rewritten(self, reference: Reference) -> str | None:
        """Return the reference by its kind and without ``..``, or None if it is not allowed."""
        path, key = reference.path, reference.key
        if self.pattern is not None and not self.pattern.fullmatch(key):
            return None
        if self.paths is not None:
            path = _normalised(path or "")
            if not any(path == allowed or _is_below(path, allowed) for allowed in self.paths):
                return None
        return f"${{{self.kind}:{key}}}" if path is None else f"${{{self.kind}:{path}:{key}}}"


def _normalised(path: str) -> str:
    # Python keeps two leading slashes.
    return posixpath.normpath(re.sub("^/+", "/", path))


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def is_config_provider_key(key: str) -> bool:
    """Return True if a key, without ``kafka.``, names or configures Java's config providers."""
    return key == _PROVIDERS or (
        key.startswith(_PREFIX) and (key.endswith(_CLASS) or _PARAM in key)
    )


def without_config_providers(values: Mapping[str, str]) -> dict[str, str]:
    """Return Kafka's ``values`` without keys of providers, and ``by_config_providers``.

    Raises ConfigError as ``by_config_providers`` does.
    """
    others = {key: text for key, text in values.items() if not is_config_provider_key(key)}
    return by_config_providers(values, others, KAFKA_PREFIX)


def by_config_providers(
    values: Mapping[str, str], options: Mapping[str, str], prefix: str = ""
) -> dict[str, str]:
    """Return ``options`` with references by ``env``, ``file`` and ``dir``.

    values: Kafka's keys, which may define providers; prefix: of the names of ``options``, for
    errors

    Raises ConfigError for a provider or a parameter that has no counterpart here, and for a
    reference to what no provider may read. Its text shows no value of an option.
    """
    providers = _providers(values)
    is_restricted = any(provider.is_restricted for provider in providers.values())
    builtin = () if is_restricted else (ENV, FILE, DIR)
    found = {}
    for option, text in options.items():
        rewrite = partial(_rewritten, f"{prefix}{option}", providers, builtin)
        found[option] = REFERENCE.sub(rewrite, text) if providers else text
    return found


def _rewritten(
    option: str, providers: Mapping[str, _Provider], builtin: tuple[str, ...], match: re.Match[str]
) -> str:
    reference = reference_of(match)
    if reference is None:
        return match[0]
    name = reference.provider.lower()
    provider = providers.get(name)
    if provider is None:
        if name in (ENV, FILE, DIR) and name not in builtin:
            raise ConfigError(
                f"{option}: it holds a reference by the name {name}, but "
                f"kafka.{_PROVIDERS}.…{_PARAM}… restricts references to what kafka.{_PROVIDERS} "
                f"names: {', '.join(providers)}",
                code="AUTH-030",
            )
        return match[0]
    rewritten = provider.rewritten(reference)
    if rewritten is None:
        raise ConfigError(
            f"{option}: it holds a reference by the name {name} to what "
            f"kafka.{_PREFIX}{name}{_PARAM}{RESTRICTIONS[provider.kind]} does not allow",
            code="AUTH-030",
        )
    return rewritten


def _providers(values: Mapping[str, str]) -> dict[str, _Provider]:
    """Return the providers by their names, in lower case."""
    names = [text.strip().lower() for text in values.get(_PROVIDERS, "").split(",")]
    providers = {name: _Provider(_kind(name, values)) for name in names if name}
    for key, text in values.items():
        if not is_config_provider_key(key) or _PARAM not in key:
            continue
        name, _, param = key.removeprefix(_PREFIX).partition(_PARAM)
        if name not in providers:
            raise ConfigError(
                f"kafka.{key} has no effect, because kafka.{_PROVIDERS} does not name '{name}'",
                code="OPTION-008",
            )
        providers[name] = _restricted(providers[name], param, key, text)
    return providers


def _restricted(provider: _Provider, param: str, key: str, text: str) -> _Provider:
    known = RESTRICTIONS[provider.kind]
    if param != known:
        raise ConfigError(
            f"kafka.{key}: a provider of this class has no parameter '{param}' here, only {known}",
            code="OPTION-001",
        )
    if provider.kind == ENV:
        return provider._replace(pattern=_pattern(key, text))
    paths = [path.strip() for path in text.split(",") if path.strip()]
    for path in paths:
        if not path.startswith("/"):
            raise _invalid(key, text, f"'{path}' is not absolute")
    if not paths:
        raise _invalid(key, text, "it names no path")
    return provider._replace(paths=tuple(_normalised(path) for path in paths))


def _pattern(key: str, text: str) -> re.Pattern[str]:
    """Return the pattern. Raises ConfigError if Java reads it otherwise than Python."""
    try:
        with warnings.catch_warnings():
            # Python warns about sets within sets, which Java has.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(text, re.ASCII)
    except (re.error, ValueError, FutureWarning):
        problem = "it is not a regular expression that Python reads as Java does"
        raise _invalid(key, text, problem) from None


def _invalid(key: str, text: str, problem: str) -> ConfigError:
    return ConfigError(
        f"Invalid value {text} for configuration kafka.{key}: {problem}", code="OPTION-003"
    )


def _kind(name: str, values: Mapping[str, str]) -> str:
    key = f"{_PREFIX}{name}{_CLASS}"
    java_class = values.get(key)
    if java_class is None:
        raise ConfigError(
            f"kafka.{_PROVIDERS} names '{name}', but kafka.{key} is missing", code="OPTION-008"
        )
    kind = JAVA_CONFIG_PROVIDERS.get(without_shaded_prefix(java_class.strip()))
    if kind is None:
        problem = unknown_class_problem(JAVA_CONFIG_PROVIDERS, _ADVICE)
        raise ConfigError(
            f"Invalid value {java_class} for configuration kafka.{key}: {problem}",
            code="OPTION-006",
        )
    return kind
