"""What the driver does of sending by OTLP: all that needs no package of OpenTelemetry's."""

from __future__ import annotations

import os
from importlib.util import find_spec
from urllib.parse import unquote

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.metrics_outputs import OtlpOutput
from spark_kafka_sink.metrics.background import Send, Sender, send_behind
from spark_kafka_sink.metrics.line import Line
from spark_kafka_sink.security.references import resolve

DEFAULT_TIMEOUT_S = 3.0
HEADERS = "metrics.otlp.headers"
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_TIMEOUT_VARIABLE = "OTEL_EXPORTER_OTLP_TIMEOUT"


def send(output: OtlpOutput, line: Line) -> Sender:
    """Have it sent."""

    def make() -> Send:
        from spark_kafka_sink.metrics.otlp.exporting import Exporting

        return Exporting(output, headers_of(output), timeout_s_of(output)).send

    return send_behind(output, make, line, timeout_s_of(output))


def check_otlp(output: OtlpOutput) -> None:
    """Raises ConfigError, which says what to do, without the packages or a header's reference."""
    if not all(_is_there(name) for name in _PACKAGES):
        raise ConfigError(
            "metrics.otlp.* needs the Python package opentelemetry-exporter-otlp-proto-http on the "
            "driver: pip install 'pykafka-sink[otel]'"
        )
    headers_of(output)


def headers_of(output: OtlpOutput) -> dict[str, str] | None:
    """By name; None where the environment is to tell. Raises ConfigError."""
    if output.headers is None:
        return None
    parts = resolve(output.headers.reveal(), HEADERS).split(",")
    pairs = [part.partition("=") for part in parts]
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


def timeout_s_of(output: OtlpOutput) -> float:
    """Of one request with all that is tried again of it."""
    if output.timeout_ms is not None:
        return output.timeout_ms / 1000
    try:
        told = float(os.environ.get(_TIMEOUT_VARIABLE, ""))
    except ValueError:
        return DEFAULT_TIMEOUT_S
    return told if told > 0 else DEFAULT_TIMEOUT_S


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
