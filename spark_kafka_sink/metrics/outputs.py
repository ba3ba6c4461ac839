"""Write the line of a batch to the outputs that the options ``metrics.*`` name.

A local file is appended to. A folder of any file system gets one file per line, because object
stores cannot append. A Python data source cannot use Hadoop's file systems: the process that
commits cannot reach the driver's JVM. So other file systems are those that ``pyarrow.fs`` knows by
their URIs: S3, GCS, Azure, and HDFS through libhdfs.

Imports that only some outputs need stand where they are used, because each process that plans or
commits a micro-batch loads this module.

The settings of OTLP are read here, from options and variables, without OpenTelemetry's packages.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

from spark_kafka_sink.base.errors import ConfigError, warn
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.sink_keys import (
    BACKUPS,
    MetricsOutputs,
    OtlpOutput,
    problem_of_headers,
)
from spark_kafka_sink.metrics.background import (
    FailureLog,
    Send,
    Sender,
    enqueue_line,
    flush_at_end,
    short_reason,
)
from spark_kafka_sink.metrics.line import Line
from spark_kafka_sink.security.references import resolve, with_absolute_paths

logger = logging.getLogger(__name__)

# --- settings of OTLP ----------------------------------------------------------------------------

_DEFAULT_TIMEOUT_S = 3.0
_HEADERS = "metrics.otlp.headers"
_VALUE = "OPTION-003"
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_TIMEOUTS = ("OTEL_EXPORTER_OTLP_{}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
_DISABLED = "OTEL_SDK_DISABLED"
_LEAST_TIMEOUT_MS = 100
"""A smaller timeout was probably meant as seconds."""


def check_otlp(output: OtlpOutput) -> None:
    """Raise ConfigError, with the remedy, if a package or a header's reference is missing."""
    if is_otlp_disabled():
        warn(logger, "METRICS-005", f"{_DISABLED}=true: metrics.otlp.* sends nothing")
        return
    if not all(_is_installed(name) for name in _PACKAGES):
        raise ConfigError(
            "metrics.otlp.* needs the Python package opentelemetry-exporter-otlp-proto-http on the "
            "driver: pip install 'pykafka-sink[otel]'",
            code="METRICS-004",
        )
    otlp_headers(output)


def is_otlp_disabled() -> bool:
    """Return True if the environment disables all of OpenTelemetry.

    Source: OpenTelemetry's specification, "Environment Variable Specification".
    """
    return os.environ.get(_DISABLED, "").strip().lower() == "true"


def otlp_headers(output: OtlpOutput) -> dict[str, str] | None:
    """Return headers by name; None leaves them to the environment.

    Raises ConfigError, also for what a reference gives and no header can be.
    """
    if output.headers is None:
        return None
    from spark_kafka_sink.base.http import check_header

    resolved = Secret(resolve(output.headers.reveal(), _HEADERS))
    problem = problem_of_headers(resolved)
    if problem is not None:
        raise ConfigError(f"{_HEADERS}, with the values of its references: {problem}", code=_VALUE)
    pairs = [part.partition("=") for part in resolved.reveal().split(",")]
    headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    for name, value in headers.items():
        check_header(name, value, _HEADERS)
    return headers


def otlp_timeout_s(output: OtlpOutput, signal: str) -> float:
    """Return the timeout of one request and its retries, in seconds.

    OpenTelemetry's variables are milliseconds, as specified (OpenTelemetry Protocol Exporter,
    "Timeout"). Its exporters for Python take seconds from them, at least in version 1.45.
    """
    if output.timeout_ms is not None:
        return output.timeout_ms / 1000
    for _, value_ms in _timeouts(signal):
        return value_ms / 1000
    return _DEFAULT_TIMEOUT_S


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


# --- files ---------------------------------------------------------------------------------------


def local_path(path: str) -> str | None:
    """Return the local file that ``path`` names; None if it is the URI of a folder elsewhere."""
    if "://" not in path and not path.startswith("file:"):
        return path
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None


def append(outputs: MetricsOutputs, line: str, name: str) -> None:
    """Write one line. ``name``: its file's name in a folder elsewhere; a suffix makes it unique.

    Raises OSError, and pyarrow's errors.
    """
    assert outputs.path is not None
    path = local_path(outputs.path)
    if path is None:
        _write_object(outputs.path, line, name)
        return
    data = line.encode() + b"\n"
    if outputs.max_bytes:
        _rotate(path, len(data), outputs)
    # Write in one call, because other drivers may append to the same file.
    file = _open_to_append(path)
    try:
        if os.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, "the line was written in part")
    finally:
        os.close(file)


def _open_to_append(path: str) -> int:
    """Return a descriptor of a regular file, which is created if there is none. Raises OSError.

    A pipe, which any user may put into a shared folder, would make a write wait for its reader.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
            raise _no_regular_file() from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _no_regular_file()
    return file


def _no_regular_file() -> OSError:
    return OSError(errno.EINVAL, "it is no regular file")


def _rotate(path: str, more_bytes: int, outputs: MetricsOutputs) -> None:
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return
    if size and size + more_bytes > outputs.max_bytes:
        from logging.handlers import RotatingFileHandler

        handler = RotatingFileHandler(path, backupCount=BACKUPS, delay=True)
        handler.doRollover()
        handler.close()


def check_path(path: str) -> None:
    """Raise ConfigError if ``path`` cannot be written to.

    Create no file: it would belong to the user who checks, and the job may run as another user.
    """
    file = local_path(path)
    try:
        if file is None:
            _file_system(path)
            return
        if os.path.lexists(file):
            os.close(_open_to_append(file))
        else:
            from tempfile import TemporaryFile

            TemporaryFile(dir=os.path.dirname(file) or ".").close()
    except OSError as error:
        raise ConfigError(
            f"metrics.path: cannot append to {path} on the driver: {short_reason(error)}. "
            "Name a file in a folder that is there and may be written to",
            code="METRICS-002",
        ) from error
    except (ValueError, NotImplementedError) as error:  # pyarrow's, for URIs
        raise ConfigError(
            f"metrics.path: {path}: {short_reason(error)}. Name a file on the driver, or the "
            "URI of a folder that pyarrow.fs knows there",
            code="METRICS-002",
        ) from error


def _write_object(uri: str, line: str, name: str) -> None:
    from uuid import uuid4

    system, folder = _file_system(uri)
    path = f"{folder.rstrip('/')}/{name}-{uuid4().hex[:8]}.json"
    with system.open_output_stream(path) as stream:
        stream.write(line.encode() + b"\n")


def _file_system(uri: str) -> Any:
    """Return the file system of a URI, and the path in it."""
    from pyarrow.fs import FileSystem

    return FileSystem.from_uri(uri)


# --- all outputs ---------------------------------------------------------------------------------

_LIBRARY = "prometheus_client"
_PUSH_TIMEOUT_S = 3

_failure_logs: dict[str, FailureLog] = {}


def write_outputs(outputs: MetricsOutputs, line: Line) -> None:
    """Write the line; log when an output starts failing.

    Raises nothing, because the records are in Kafka already. Slower outputs run in threads. They
    start last, because a thread would hold Python's lock during the append.
    """
    if outputs.path is not None:
        _append(outputs, outputs.path, line)
    senders: list[Sender] = []
    if outputs.push_url is not None:
        senders.append(_push(outputs.push_url, outputs.push_job, line))
    if outputs.otlp is not None and not is_otlp_disabled():
        senders.append(_send_by_otlp(outputs.otlp, line))
    flush_at_end(senders, line)


def check_outputs(outputs: MetricsOutputs) -> None:
    """Raise ConfigError for settings that are known to fail before the first line."""
    if outputs.path is not None:
        check_path(outputs.path)
    if outputs.push_url is not None:
        check_prometheus_client()
    if outputs.otlp is not None:
        check_otlp(outputs.otlp)
    if outputs.openlineage and not _is_installed("openlineage.client"):
        raise ConfigError(
            "metrics.openlineage.enable needs the Python package openlineage-python on the driver: "
            "pip install 'pykafka-sink[lineage]'",
            code="METRICS-004",
        )


def check_prometheus_client() -> None:
    """Raise ConfigError, with the command that installs it, if prometheus_client is missing."""
    try:
        import_module(_LIBRARY)
    except ImportError as error:
        raise ConfigError(
            f"metrics for Prometheus need the Python package {_LIBRARY} on the driver: "
            "pip install 'pykafka-sink[metrics]'",
            code="METRICS-004",
        ) from error


def _append(outputs: MetricsOutputs, path: str, line: Line) -> None:
    failing = f"metrics.path: cannot append to {path}"
    working = f"metrics.path: {path} is written again; those of {{batches}} batch(es) are missing"
    failure_log = _failure_logs.setdefault(
        path, FailureLog(failing, working, "METRICS-002", "written")
    )
    problem = None
    try:
        append(outputs, json.dumps(line), _name_of(line))
    except Exception as error:  # any error: if it were raised, Spark would write all rows again
        problem = short_reason(error)
    failure_log.record_outcome(problem, 0)


def _name_of(line: Line) -> str:
    """Return the name of the line's own file: sorted by name is sorted by time."""
    of = line.get("query_id") or "job"
    return f"{line['time_ms']:015d}-{of}-{line.get('batch_id', 0)}"


def _push(url: str, job: str, line: Line) -> Sender:
    def make() -> Send:
        from spark_kafka_sink.metrics.prometheus import PushGatewayExporter

        return PushGatewayExporter(url, job, _PUSH_TIMEOUT_S).send

    return enqueue_line((url, job), make, line, _PUSH_TIMEOUT_S)


def _send_by_otlp(output: OtlpOutput, line: Line) -> Sender:
    def make() -> Send:
        from spark_kafka_sink.metrics.otlp import OtlpExporter

        return OtlpExporter(output, lambda: otlp_headers(output)).send

    if output.headers is not None:
        # Now, because the thread may send when the process works for another session.
        headers = Secret(with_absolute_paths(output.headers.reveal()))
        output = replace(output, headers=headers)
    timeout_s = max(otlp_timeout_s(output, signal) for signal in output.signals)
    return enqueue_line(output, make, line, timeout_s)
