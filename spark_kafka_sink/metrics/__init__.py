"""What a batch has measured, and where that goes.

``listen`` serves it to Prometheus from the user's own process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_kafka_sink.metrics.listener import Listening

__all__ = ["listen"]

_HIGHEST_PORT = 65_535
_PATH_PROPERTY = "spark.pykafka.metrics.path"


def listen(
    spark: SparkSession, port: int = 9404, path: str | None = None, host: str = "0.0.0.0"
) -> Listening:
    """Answer Prometheus on a port of this process: metrics of all queries that write to ``path``.

    Call it before the queries are started, in the process that starts them. Totals count from now
    on. Needs the extra ``metrics``: pip install 'pykafka-sink[metrics]'.

    port: 0 is any that is free; the result's ``port`` tells which
    path: the local file that the queries' option ``metrics.path`` names; without it, the one of
    Spark's property spark.pykafka.metrics.path
    host: address to listen on; every one of this machine by default

    Raises ConfigError without a path, for one that is no local file, for a port that cannot be one,
    and without the package; OSError for a port that is in use.

    Example::

        with spark_kafka_sink.metrics.listen(spark, port=9404, path="/var/log/sink.jsonl"):
            events.writeStream.format("pykafka-sink").options(**options).start().awaitTermination()
    """
    from spark_kafka_sink.base.errors import ConfigError
    from spark_kafka_sink.metrics.outputs import check_library, local_path

    path = path or spark.conf.get(_PATH_PROPERTY, None)
    file = None if path is None else local_path(path)
    if file is None:
        raise ConfigError(
            f"listen needs the file that queries write their metrics to, not {path}: give path, "
            "the same local file as their option metrics.path"
        )
    if os.path.isdir(file):
        raise ConfigError(f"listen reads one file, and {file} is a folder: name the file in path")
    if not 0 <= port <= _HIGHEST_PORT:
        raise ConfigError(f"listen: port {port} must be between 0 and {_HIGHEST_PORT}")
    check_library()
    from spark_kafka_sink.metrics.listener import Listening

    return Listening(spark, file, port, host)
