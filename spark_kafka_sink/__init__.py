"""pykafka-sink: Spark DataFrames and streams into Apache Kafka, without a jar.

``format("pykafka-sink")`` needs an import of nothing. ``configure`` lets a new session run this
Python. ``write`` and ``batch_writer`` do the same as the format where Spark has no data sources in
Python, or does not find this one. ``metrics.listen`` serves Prometheus. They are loaded, with
pyspark, when they are first used. ``RefusedRowsError`` is for interceptors and partitioners of your
own. ``await_termination`` ends a query on Ctrl-C and SIGTERM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "1.0.0rc1"
__all__ = [
    "RefusedRowsError",
    "await_termination",
    "batch_writer",
    "configure",
    "metrics",
    "write",
]

if TYPE_CHECKING:
    from spark_kafka_sink import metrics
    from spark_kafka_sink.base.entry_points import RefusedRowsError
    from spark_kafka_sink.jobs.streams import await_termination
    from spark_kafka_sink.spark.frames import batch_writer, write
    from spark_kafka_sink.spark.pythons import configure
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        if name == "metrics":
            return import_module(f"{__name__}.metrics")
        if name == "RefusedRowsError":
            from spark_kafka_sink.base.entry_points import RefusedRowsError

            return RefusedRowsError
        if name == "await_termination":
            from spark_kafka_sink.jobs.streams import await_termination

            return await_termination
        if name == "configure":
            from spark_kafka_sink.spark.pythons import configure

            return configure
        try:
            from spark_kafka_sink.spark.frames import batch_writer, write
        except ImportError as error:
            return _raises(error)
        return write if name == "write" else batch_writer

    def _raises(error: ImportError) -> object:
        """Return a function that raises ``error`` when called: ``hasattr`` does not fail."""

        def cannot_be_used(*_: object, **__: object) -> object:
            raise error

        return cannot_be_used

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
