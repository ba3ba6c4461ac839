"""Metrics of each batch, and the outputs that receive them.

``listen`` serves them to Prometheus from the user's own process. ``follow_lineage`` reports the end
of queries to a data catalogue.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_kafka_sink.metrics.prometheus import MetricsServer

__all__ = ["follow_lineage", "listen"]

_HIGHEST_PORT = 65_535
_PATH_PROPERTY = "spark.pykafka.metrics.path"


def listen(
    spark: SparkSession, port: int = 9404, path: str | None = None, host: str = "0.0.0.0"
) -> MetricsServer:
    """Serve Prometheus on a port of this process: metrics of all queries that write to ``path``.

    Call it before the queries start, in the process that starts them. Totals count from the call
    on. Needs the extra ``metrics``: pip install 'pykafka-sink[metrics]'.

    port: TCP port; 0 picks a free port, which the result's ``port`` reports
    path: the local file that the queries' option ``metrics.path`` names; by default the value of
    Spark's property spark.pykafka.metrics.path
    host: address to listen on; all addresses of this machine by default

    Raises ConfigError if no path is known, if the path is not a local file, if the port is out of
    range, or if the package is missing. Raises OSError if the port is in use.

    Example::

        with spark_kafka_sink.metrics.listen(spark, port=9404, path="/var/log/sink.jsonl"):
            events.writeStream.format("pykafka-sink").options(**options).start().awaitTermination()
    """
    from spark_kafka_sink.base.errors import ConfigError
    from spark_kafka_sink.metrics.outputs import check_prometheus_client, local_path

    path = path or spark.conf.get(_PATH_PROPERTY, None)
    file = None if path is None else local_path(path)
    if file is None:
        raise ConfigError(
            f"listen needs the file that queries write their metrics to, not {path}: give path, "
            "the same local file as their option metrics.path",
            code="METRICS-001",
        )
    if os.path.isdir(file):
        problem = f"listen reads one file, and {file} is a folder: name the file in path"
        raise ConfigError(problem, code="METRICS-001")
    if not 0 <= port <= _HIGHEST_PORT:
        problem = f"listen: port {port} must be between 0 and {_HIGHEST_PORT}"
        raise ConfigError(problem, code="OPTION-003")
    check_prometheus_client()
    from spark_kafka_sink.metrics.prometheus import MetricsServer

    return MetricsServer(spark, file, port, host)


def follow_lineage(spark: SparkSession) -> None:
    """Send lineage's COMPLETE or FAIL when a query of this session ends.

    Call it before the queries start, in the process that starts them and has the driver. Spark does
    not tell a sink that a query has ended: without this call no event says it.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from spark_kafka_sink.metrics.lineage import end_runs

    class Ends(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Ignore it: commits send START and RUNNING."""

        onQueryProgress = onQueryStarted  # noqa: N815

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            """End the runs of the query."""
            end_runs(str(event.runId), "COMPLETE" if event.exception is None else "FAIL")

    spark.streams.addListener(Ends())
