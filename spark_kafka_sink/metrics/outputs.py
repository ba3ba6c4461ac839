"""Puts the line of a batch where the options ``metrics.*`` say."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.metrics_outputs import MetricsOutputs
from spark_kafka_sink.metrics.background import Send, Sender, send_behind, wait_if_last
from spark_kafka_sink.metrics.files import append, check_path, first_line
from spark_kafka_sink.metrics.line import Line

_LIBRARY = "prometheus_client"
_PUSH_TIMEOUT_S = 3

logger = logging.getLogger(__name__)


class _Place(NamedTuple):
    """Where lines are written, and how that is told."""

    option: str
    verb: str
    path: str


_failing: dict[_Place, tuple[str, int]] = {}
"""The reason that was told, and of how many batches nothing was written."""


def put_out(outputs: MetricsOutputs, line: Line) -> Iterator[str]:
    """Write, and tell what could not be: nothing is raised, for the records are in Kafka.

    What is sent is sent from a thread, which tells the log itself, and begins last: it would have
    Python's lock while the rest is written.
    """
    if outputs.path is not None:
        place = _Place("metrics.path", "append to", outputs.path)
        yield from _problem(place, lambda: append(outputs, json.dumps(line), _name_of(line)))
    path, url, otlp = outputs.prometheus_path, outputs.push_url, outputs.otlp
    if path is not None:
        place = _Place("metrics.prometheus.path", "write", path)
        yield from _problem(place, lambda: _write_file(path, line))
    senders: list[Sender] = []
    if url is not None:
        senders.append(_push(url, outputs.push_job, line))
    if otlp is not None:
        from spark_kafka_sink.metrics.otlp.sending import is_disabled, send

        if not is_disabled():
            senders.append(send(otlp, line))
    wait_if_last(senders, line)


def check_outputs(outputs: MetricsOutputs) -> None:
    """Raises ConfigError for what can be known before there is a line."""
    if outputs.path is not None:
        check_path(outputs.path)
    if outputs.needs_prometheus:
        check_library()
    if outputs.prometheus_path is not None:
        from spark_kafka_sink.metrics.textfile import check_textfile

        check_textfile(outputs.prometheus_path)
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


def _problem(place: _Place, write: Callable[[], None]) -> Iterator[str]:
    """Once for each change, and for each other reason."""
    try:
        write()
    except Exception as error:  # whatever it is: Spark would write all rows again
        problem = first_line(error)
    else:
        if place in _failing:
            _, batches = _failing.pop(place)
            logger.info(
                f"{place.option}: {place.path} is written again; those of {batches} batch(es) are "
                "missing"
            )
        return
    told, batches = _failing.get(place, (None, 0))
    _failing[place] = problem, batches + 1
    if problem != told:
        yield (
            f"{place.option}: cannot {place.verb} {place.path}: {problem}. Batches go on, and what "
            "is not written is lost; the log tells when it is written again"
        )


def _name_of(line: Line) -> str:
    """Of a file of its own: sorted by name is sorted by time."""
    of = line.get("query_id") or "job"
    return f"{line['time_ms']:015d}-{of}-{line.get('batch_id', 0)}"


def _write_file(path: str, line: Line) -> None:
    from spark_kafka_sink.metrics.textfile import add_to_textfile

    add_to_textfile(path, line)


def _push(url: str, job: str, line: Line) -> Sender:
    def make() -> Send:
        from spark_kafka_sink.metrics.push import Pushing

        return Pushing(url, job, _PUSH_TIMEOUT_S).send

    return send_behind((url, job), make, line, _PUSH_TIMEOUT_S)
