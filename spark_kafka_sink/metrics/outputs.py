"""Puts the line of a batch where the options ``metrics.*`` say.

A file is a local one that is appended to, or one for each line in a folder of any system. A Python
data source cannot ask the driver's JVM for a file of Hadoop's: the process that commits has no way
to it. So other file systems are those that ``pyarrow.fs`` knows by their URIs: S3, GCS, Azure, and
HDFS through libhdfs. Object stores cannot append: there each line is a file.

What only some outputs need is imported where it is used: each process that plans or commits a
micro-batch loads this module.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.metrics_outputs import BACKUPS, MetricsOutputs, OtlpOutput
from spark_kafka_sink.metrics.background import Send, Sender, reason_of, send_behind, wait_if_last
from spark_kafka_sink.metrics.line import Line

# --- files ---------------------------------------------------------------------------------------


def local_path(path: str) -> str | None:
    """The file that ``path`` names; None if it is the URI of a folder elsewhere."""
    if "://" not in path and not path.startswith("file:"):
        return path
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None


def append(outputs: MetricsOutputs, line: str, name: str) -> None:
    """Write one line. ``name``: of its file in a folder elsewhere, which is made unique.

    Raises OSError, and what pyarrow does.
    """
    assert outputs.path is not None
    path = local_path(outputs.path)
    if path is None:
        _put(outputs.path, line, name)
        return
    data = line.encode() + b"\n"
    if outputs.max_bytes:
        _rotate(path, len(data), outputs)
    # In one call: other drivers may append to the same file.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        if os.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, "the line was written in part")
    finally:
        os.close(file)


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
    """Raises ConfigError when nothing can be written there. No file is made: it would be the one of
    whoever looks, and the job may be another user's.
    """
    file = local_path(path)
    try:
        if file is None:
            _file_system(path)
            return
        if os.path.lexists(file):
            open(file, "ab").close()
        else:
            from tempfile import TemporaryFile

            TemporaryFile(dir=os.path.dirname(file) or ".").close()
    except OSError as error:
        raise ConfigError(
            f"metrics.path: cannot append to {path} on the driver: {reason_of(error)}. "
            "Name a file in a folder that is there and may be written to"
        ) from error
    except (ValueError, NotImplementedError) as error:  # pyarrow's, for URIs
        raise ConfigError(
            f"metrics.path: {path}: {reason_of(error)}. Name a file on the driver, or the "
            "URI of a folder that pyarrow.fs knows there"
        ) from error


def _put(uri: str, line: str, name: str) -> None:
    from uuid import uuid4

    system, folder = _file_system(uri)
    path = f"{folder.rstrip('/')}/{name}-{uuid4().hex[:8]}.json"
    with system.open_output_stream(path) as stream:
        stream.write(line.encode() + b"\n")


def _file_system(uri: str) -> Any:
    """The file system of a URI, and the path in it."""
    from pyarrow.fs import FileSystem

    return FileSystem.from_uri(uri)


# --- all outputs ---------------------------------------------------------------------------------

_LIBRARY = "prometheus_client"
_PUSH_TIMEOUT_S = 3

logger = logging.getLogger(__name__)


_failing: dict[str, tuple[str, int]] = {}
"""By path, the reason that was told, and of how many batches nothing was written."""


def put_out(outputs: MetricsOutputs, line: Line) -> Iterator[str]:
    """Write, and tell what could not be: nothing is raised, for the records are in Kafka.

    What takes longer than to append a line is done in threads, which tell the log themselves, and
    begin last: they would have Python's lock while the line is appended.
    """
    if outputs.path is not None:
        yield from _append(outputs, outputs.path, line)
    senders: list[Sender] = []
    if outputs.push_url is not None:
        senders.append(_push(outputs.push_url, outputs.push_job, line))
    if outputs.otlp is not None:
        from spark_kafka_sink.metrics.otlp_settings import is_disabled

        if not is_disabled():
            senders.append(_send_by_otlp(outputs.otlp, line))
    wait_if_last(senders, line)


def check_outputs(outputs: MetricsOutputs) -> None:
    """Raises ConfigError for what can be known before there is a line."""
    if outputs.path is not None:
        check_path(outputs.path)
    if outputs.push_url is not None:
        check_library()
    if outputs.otlp is not None:
        from spark_kafka_sink.metrics.otlp_settings import check_otlp

        check_otlp(outputs.otlp)


def check_library() -> None:
    """Raises ConfigError, which tells the command that installs it, without prometheus_client."""
    try:
        import_module(_LIBRARY)
    except ImportError as error:
        raise ConfigError(
            f"metrics for Prometheus need the Python package {_LIBRARY} on the driver: "
            "pip install 'pykafka-sink[metrics]'"
        ) from error


def _append(outputs: MetricsOutputs, path: str, line: Line) -> Iterator[str]:
    """What fails is told once for each change, and for each other reason."""
    try:
        append(outputs, json.dumps(line), _name_of(line))
    except Exception as error:  # whatever it is: Spark would write all rows again
        problem = reason_of(error)
    else:
        if path in _failing:
            _, batches = _failing.pop(path)
            logger.info(
                f"metrics.path: {path} is written again; those of {batches} batch(es) are missing"
            )
        return
    told, batches = _failing.get(path, (None, 0))
    _failing[path] = problem, batches + 1
    if problem != told:
        yield (
            f"metrics.path: cannot append to {path}: {problem}. Batches go on, and what "
            "is not written is lost; the log tells when it is written again"
        )


def _name_of(line: Line) -> str:
    """Of a file of its own: sorted by name is sorted by time."""
    of = line.get("query_id") or "job"
    return f"{line['time_ms']:015d}-{of}-{line.get('batch_id', 0)}"


def _push(url: str, job: str, line: Line) -> Sender:
    def make() -> Send:
        from spark_kafka_sink.metrics.prometheus import Pushing

        return Pushing(url, job, _PUSH_TIMEOUT_S).send

    return send_behind((url, job), make, line, _PUSH_TIMEOUT_S)


def _send_by_otlp(output: OtlpOutput, line: Line) -> Sender:
    from spark_kafka_sink.metrics.otlp_settings import headers_of, timeout_s_of

    def make() -> Send:
        from spark_kafka_sink.metrics.otlp import Exporting

        return Exporting(output, headers_of(output)).send

    timeout_s = max(timeout_s_of(output, signal) for signal in output.signals)
    return send_behind(output, make, line, timeout_s)
