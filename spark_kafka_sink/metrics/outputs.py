"""Puts the line of a batch where the options ``metrics.*`` say."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from importlib import import_module

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.metrics_outputs import MetricsOutputs
from spark_kafka_sink.metrics.background import Send, Sender, send_behind, wait_if_last
from spark_kafka_sink.metrics.files import append, check_path
from spark_kafka_sink.metrics.line import Line
from spark_kafka_sink.metrics.told import reason_of

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
        from spark_kafka_sink.metrics.otlp.sending import is_disabled, send

        if not is_disabled():
            senders.append(send(outputs.otlp, line))
    wait_if_last(senders, line)


def check_outputs(outputs: MetricsOutputs) -> None:
    """Raises ConfigError for what can be known before there is a line."""
    if outputs.path is not None:
        check_path(outputs.path)
    if outputs.push_url is not None:
        check_library()
    if outputs.otlp is not None:
        from spark_kafka_sink.metrics.otlp.sending import check_otlp

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
        from spark_kafka_sink.metrics.push import Pushing

        return Pushing(url, job, _PUSH_TIMEOUT_S).send

    return send_behind((url, job), make, line, _PUSH_TIMEOUT_S)
