"""The table of the options ``metrics.*``: where the metrics of batches go."""

from __future__ import annotations

import re

from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    non_empty,
)

OTLP_METRICS, OTLP_TRACES = "metrics", "traces"
OTLP_SIGNALS = (OTLP_METRICS, OTLP_TRACES)

# RFC 9110, "token".
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _problem_of_endpoint(url: str) -> str | None:
    if not url.lower().startswith(("http://", "https://")):
        return "must begin with http:// or https://"
    if "@" in url:
        return (
            "no user and password can be given: Spark would show them. Give them with "
            "metrics.otlp.headers, as Authorization=${env:OTLP_AUTHORIZATION}, where that variable "
            "is Basic%20 and USER:PASSWORD in base64"
        )
    if "?" in url or "#" in url:
        return (
            "must be as http://HOST:4318 or https://HOST, with a path at most. Give a key with "
            "metrics.otlp.headers, as api-key=${env:OTLP_KEY}"
        )
    if url.rstrip("/").endswith(tuple(f"/v1/{signal}" for signal in OTLP_SIGNALS)):
        return "leave /v1/metrics and /v1/traces away: they are added"
    return None


def _problem_of_path(path: str) -> str | None:
    """Shows nothing of the path."""
    from urllib.parse import urlsplit  # here: all that parse options would load it

    if "://" not in path:
        return None
    try:
        parts = urlsplit(path)
    except ValueError:
        return None  # of brackets: whoever opens it says so
    # Of an access key, which may have a / that nobody has escaped, urlsplit finds only a part.
    has_part = ":" in parts.netloc and "@" in path and parts.scheme not in ("hdfs", "viewfs")
    if parts.password is not None or has_part:
        return (
            "no password can be given in the URI: Spark would show it. Leave it to where pyarrow "
            "looks on the driver: for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, "
            "or the machine's role"
        )
    return None


def _problem_of_gateway(url: str) -> str | None:
    """Shows nothing of the address."""
    from urllib.parse import urlsplit  # here: all that parse options would load it

    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of brackets, or of the port
        is_one = False
    if "@" in url:
        return (
            "no user and password can be given: Spark would show them. Name an address that "
            "takes metrics without them, such as that of a proxy on the driver's machine that "
            "adds them; or use metrics.otlp.endpoint with metrics.otlp.headers"
        )
    if not is_one or parts.query or parts.fragment:
        return "must be as http://HOST:9091 or https://HOST, with a path at most"
    return None


def _problem_of_signals(signals: list[str]) -> str | None:
    is_known = signals and set(signals) <= set(OTLP_SIGNALS)
    return None if is_known else f"must be one or more of {', '.join(OTLP_SIGNALS)}"


def _problem_of_headers(text: Secret) -> str | None:
    """Shows nothing of the text."""
    for number, part in enumerate(text.reveal().split(","), 1):
        name, separator, _ = part.partition("=")
        if not separator or not _HEADER_NAME.fullmatch(name.strip()):
            return f"its part {number} is not as name=value; parts are separated by commas"
    return None


METRICS_KEYS = (
    ConfigKey(
        "metrics.log",
        ConfigType.BOOLEAN,
        True,
        None,
        Importance.LOW,
        "Log a JSON line for every committed batch on the driver. Aborts are always logged. "
        "A line in the log has at most 16 KiB: with many partitions, only the extremes.",
    ),
    ConfigKey(
        "metrics.path",
        ConfigType.STRING,
        None,
        _problem_of_path,
        Importance.MEDIUM,
        "File on the driver to which the JSON line of every committed or aborted batch is "
        "appended, besides the log, with all partitions: docs/metrics.md. Or the URI of a "
        "folder, as s3://bucket/folder, in which each line becomes a file of its own: of any "
        "file system that pyarrow.fs knows on the driver.",
        hides_value=True,
    ),
    ConfigKey(
        "metrics.path.max.bytes",
        ConfigType.LONG,
        0,
        at_least(0),
        Importance.LOW,
        "A file metrics.path that would become larger is renamed to metrics.path.1 first, and "
        "that to .2, and so on; five of these are kept. 0 is never.",
    ),
    ConfigKey(
        "metrics.prometheus.push.url",
        ConfigType.STRING,
        None,
        _problem_of_gateway,
        Importance.LOW,
        "Address of a Prometheus push gateway that is told the metrics after each batch, as "
        "http://host:9091: for batch jobs. Needs the extra metrics.",
        hides_value=True,
    ),
    ConfigKey(
        "metrics.prometheus.push.job",
        ConfigType.STRING,
        "pykafka-sink",
        non_empty,
        Importance.LOW,
        "The label job of what is pushed. Two jobs with the same one replace each other's "
        "metrics there.",
    ),
    ConfigKey(
        "metrics.otlp.enable",
        ConfigType.BOOLEAN,
        None,
        None,
        Importance.LOW,
        "Send the metrics and a trace of each batch by OpenTelemetry's protocol, OTLP over HTTP: "
        "docs/metrics.md. By default true with metrics.otlp.endpoint, else false. What is not set "
        "here comes from OpenTelemetry's variables, OTEL_EXPORTER_OTLP_*, in the driver's "
        "environment. Needs the extra otel.",
    ),
    ConfigKey(
        "metrics.otlp.endpoint",
        ConfigType.STRING,
        None,
        _problem_of_endpoint,
        Importance.LOW,
        "Address of the collector, as http://collector:4318, to which /v1/metrics and /v1/traces "
        "are added. Without it OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318.",
        hides_value=True,
    ),
    ConfigKey(
        "metrics.otlp.headers",
        ConfigType.PASSWORD,
        None,
        _problem_of_headers,
        Importance.LOW,
        "Headers of each request, as name=value,name=value, their values percent-encoded, e.g. "
        "Authorization=${env:OTLP_AUTHORIZATION}. Without them OTEL_EXPORTER_OTLP_HEADERS.",
        takes_references=True,
    ),
    ConfigKey(
        "metrics.otlp.signals",
        ConfigType.LIST,
        list(OTLP_SIGNALS),
        _problem_of_signals,
        Importance.LOW,
        "What is sent: metrics, traces, or both.",
    ),
    ConfigKey(
        "metrics.otlp.service.name",
        ConfigType.STRING,
        None,
        non_empty,
        Importance.LOW,
        "The resource's service.name. Without it OTEL_SERVICE_NAME, else pykafka-sink.",
    ),
    ConfigKey(
        "metrics.otlp.timeout.ms",
        ConfigType.INT,
        None,
        at_least(1),
        Importance.LOW,
        "For how long sending metrics, or a trace, is tried; and how long the end of a job, or of "
        "a batch that failed, waits for it, 10 seconds at most. Micro-batches do not wait. Without "
        "it OTEL_EXPORTER_OTLP_TIMEOUT, in milliseconds as OpenTelemetry's specification has it, "
        "else 3000.",
    ),
)
