"""Settings of OTLP, from options and variables; needs no package of OpenTelemetry."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import unquote

from spark_kafka_sink.base.codes import warn
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_keys import OtlpOutput
from spark_kafka_sink.security.references import resolve

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S = 3.0
HEADERS = "metrics.otlp.headers"
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_TIMEOUTS = ("OTEL_EXPORTER_OTLP_{}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
_DISABLED = "OTEL_SDK_DISABLED"
_LEAST_TIMEOUT_MS = 100
"""A smaller timeout was probably meant as seconds."""


def check_otlp(output: OtlpOutput) -> None:
    """Raise ConfigError, with the remedy, if a package or a header's reference is missing."""
    if is_disabled():
        warn(logger, "METRICS-005", f"{_DISABLED}=true: metrics.otlp.* sends nothing")
        return
    if not all(_is_installed(name) for name in _PACKAGES):
        raise ConfigError(
            "metrics.otlp.* needs the Python package opentelemetry-exporter-otlp-proto-http on the "
            "driver: pip install 'pykafka-sink[otel]'",
            code="METRICS-004",
        )
    headers_of(output)


def is_disabled() -> bool:
    """Return True if the environment disables all of OpenTelemetry.

    Source: OpenTelemetry's specification, "Environment Variable Specification".
    """
    return os.environ.get(_DISABLED, "").strip().lower() == "true"


def headers_of(output: OtlpOutput) -> dict[str, str] | None:
    """Return headers by name; None leaves them to the environment. Raises ConfigError."""
    if output.headers is None:
        return None
    parts = resolve(output.headers.reveal(), HEADERS).split(",")
    pairs = [part.partition("=") for part in parts]
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


def timeout_s_of(output: OtlpOutput, signal: str) -> float:
    """Return the timeout of one request and its retries, in seconds.

    OpenTelemetry's variables are milliseconds, as specified (OpenTelemetry Protocol Exporter,
    "Timeout"). Its exporters for Python take seconds from them, at least in version 1.45.
    """
    if output.timeout_ms is not None:
        return output.timeout_ms / 1000
    for _, value_ms in _timeouts(signal):
        return value_ms / 1000
    return DEFAULT_TIMEOUT_S


def short_timeouts(output: OtlpOutput) -> Iterator[str]:
    """Yield a warning for each variable whose value was probably meant as seconds."""
    if output.timeout_ms is None:
        set_ms = {name: ms for signal in output.signals for name, ms in list(_timeouts(signal))[:1]}
        for name, value_ms in set_ms.items():
            if value_ms < _LEAST_TIMEOUT_MS:
                yield (
                    f"{name}={value_ms:g} is {value_ms:g} ms, as OpenTelemetry's specification has "
                    "it, not seconds: most requests take longer. Set milliseconds, or option "
                    "metrics.otlp.timeout.ms"
                )


def _timeouts(signal: str) -> Iterator[tuple[str, float]]:
    """Yield the variables and their milliseconds; the first one wins."""
    for name in (name.format(signal.upper()) for name in _TIMEOUTS):
        try:
            value_ms = float(os.environ.get(name, ""))
        except ValueError:
            continue
        if 0 < value_ms < math.inf:
            yield name, value_ms


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
