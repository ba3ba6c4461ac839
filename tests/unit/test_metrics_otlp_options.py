"""The options ``metrics.otlp.*``: what switches it on, what is refused, and their secrets."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.security_config import clear_secrets, secrets_shown_by_spark
from spark_kafka_sink.config.sink_keys import MetricsOutputs, OtlpOutput
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.metrics import otlp_settings
from spark_kafka_sink.metrics.outputs import check_outputs

ROOT = Path(__file__).resolve().parents[2]
SERVERS = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def parsed(**options: str) -> SinkOptions:
    given = {f"metrics.otlp.{name.replace('_', '.')}": text for name, text in options.items()}
    return SinkOptions.parse({**SERVERS, **given})


def test_it_is_on_with_an_endpoint_or_when_it_is_asked_for() -> None:
    assert parsed().metrics.otlp is None
    assert parsed(endpoint="http://c:4318").metrics.otlp == OtlpOutput("http://c:4318")
    assert parsed(enable="true").metrics.otlp == OtlpOutput()
    off = parsed(enable="false", endpoint="http://c:4318")
    assert off.metrics.otlp is None
    assert off.notes == (
        "option 'metrics.otlp.endpoint' has no effect without metrics.otlp.enable=true",
    )


def test_the_environment_alone_does_not_switch_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    assert parsed().metrics == MetricsOutputs()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"endpoint": "collector:4318"}, "must begin with http:// or https://"),
        ({"endpoint": "http://c/v1/traces/"}, "leave /v1/metrics and /v1/traces away"),
        ({"endpoint": "https://c:4318?api_key=marked-hush"}, "metrics.otlp.headers, as api-key="),
        ({"endpoint": "https://c/v1/metrics?k=marked-hush"}, "metrics.otlp.headers, as api-key="),
        ({"endpoint": "https://c:4318#marked-hush"}, "metrics.otlp.headers, as api-key="),
        (
            {"endpoint": "https://me:marked-hush@c:4318"},
            r"\[hidden\] .*no user and password can be given.* metrics.otlp.headers, as Auth",
        ),
        ({"signals": "logs"}, "must be one or more of metrics, traces"),
        ({"signals": ","}, "must be one or more of metrics, traces"),
        ({"timeout_ms": "0"}, "must be at least 1"),
        ({"headers": "marked-hush"}, r"\[hidden\] .*its part 1 is not as name=value"),
        ({"headers": "a=b,c d=marked-hush"}, r"\[hidden\] .*its part 2 is not as name=value"),
        ({"headers": "${vault:a:b}"}, "a reference of a kind that is not known"),
    ],
)
def test_what_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        parsed(**options)
    assert "marked-hush" not in str(raised.value)


def test_without_the_package_a_job_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_settings, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'pykafka-sink\[otel\]'"):
        check_outputs(MetricsOutputs(otlp=OtlpOutput()))
    monkeypatch.setattr(otlp_settings, "find_spec", importlib.util.find_spec)
    check_outputs(MetricsOutputs(otlp=OtlpOutput()))


def test_nothing_of_it_is_loaded_before_there_is_a_line() -> None:
    program = (
        "import sys\n"
        "from spark_kafka_sink.config.sink_options import SinkOptions\n"
        "from spark_kafka_sink.metrics.outputs import check_outputs\n"
        f"options = {{**{SERVERS}, 'metrics.otlp.enable': 'true'}}\n"
        "check_outputs(SinkOptions.parse(options).metrics)\n"
        "import spark_kafka_sink.spark.writer\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(done.stdout.split())
    assert "spark_kafka_sink.metrics.otlp_settings" in loaded
    assert not loaded & {"requests", "google.protobuf", "opentelemetry.sdk.trace"}


@pytest.mark.parametrize(
    ("option", "variable", "timeout_s"),
    [
        (None, None, 3),
        (None, "10000", 10),
        (None, "7", 0.007),
        *((None, other, 3) for other in ("x", "-1", "inf", "nan")),
        (250, "10000", 0.25),
    ],
)
def test_the_timeout(
    option: int | None, variable: str | None, timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milliseconds: OpenTelemetry Protocol Exporter, "Configuration Options"."""
    if variable is not None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", variable)
    assert otlp_settings.timeout_s_of(OtlpOutput(timeout_ms=option), "traces") == timeout_s


def test_a_signals_own_timeout_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10000")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2000")
    both = [otlp_settings.timeout_s_of(OtlpOutput(), signal) for signal in ("metrics", "traces")]
    assert both == [10, 2]
    assert list(otlp_settings.short_timeouts(OtlpOutput())) == []


def test_seconds_in_place_of_milliseconds_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
    (told,) = otlp_settings.short_timeouts(OtlpOutput())
    assert told.startswith("OTEL_EXPORTER_OTLP_TIMEOUT=10 is 10 ms, as OpenTelemetry's")
    assert list(otlp_settings.short_timeouts(OtlpOutput(timeout_ms=10))) == []


def test_spark_would_show_them() -> None:
    name = "metrics.otlp.headers"
    assert secrets_shown_by_spark({"Metrics.Otlp.Headers": "a=b"}) == [name]
    assert clear_secrets({name: "a=${env:B}"}) == []
    (note,) = parsed(headers="a=b", enable="true").notes
    assert note.startswith(f"{name}: a secret in clear text, which Spark shows")


def test_a_reference_that_leads_nowhere_is_told_before_a_job_begins() -> None:
    options = parsed(enable="true", headers="a=${env:PYKAFKA_NOT_SET}")
    with pytest.raises(ConfigError, match=r"metrics\.otlp\.headers: .*PYKAFKA_NOT_SET"):
        check_outputs(options.metrics)
