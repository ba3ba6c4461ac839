"""Choose the Python that Spark runs, before its first session.

Spark looks for data sources, plans and writes with the Python that the environment of its JVM
names: ``PYSPARK_DRIVER_PYTHON``, ``PYSPARK_PYTHON``, else the ``python3`` of the PATH. The JVM
takes its environment from the program that starts it, so a later change has no effect.

Source: ``PythonUtils.defaultPythonExec`` of Spark, ``pyspark.java_gateway.launch_gateway``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON = "PYSPARK_PYTHON"
_PROBE = "import spark_kafka_sink; print(spark_kafka_sink.__version__)"
_PROBE_TIMEOUT_S = 60


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Let the session of ``builder`` run the sink in this Python; return ``builder``.

    Call it before the first session of a program. It sets ``PYSPARK_PYTHON``, unless it is set,
    and ``spark.python.unix.domain.socket.enabled``. A setting that is added afterwards wins. With
    executors on other machines, the path must exist there, too. A builder of Spark Connect is
    returned unchanged, because the server has a Python of its own.

    Raises ConfigError if Spark runs already, with a Python that does not have this version of the
    sink.

    Example::

        spark = spark_kafka_sink.configure(SparkSession.builder).getOrCreate()
    """
    if type(builder).__module__.startswith("pyspark.sql.connect"):
        return builder
    running = _python_of_jvm()
    if running is None:
        os.environ.setdefault(_PYTHON, sys.executable)
        return builder.config(UNIX_SOCKETS, "true")
    if not _has_sink(running):
        raise ConfigError(
            f"Spark runs already, with the Python {running}, which does not have pykafka-sink "
            f"{__version__}, and cannot change to {sys.executable}. Restart the program, and call "
            "configure before the first session; or call pyspark_kafka_sink.register(spark) in "
            "this session instead",
            code="SPARK-013",
        )
    return builder


def _python_of_jvm() -> str | None:
    """Return the Python that a running JVM of Spark starts; None if none runs."""
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    if jvm is not None:
        variable = jvm.System.getenv
    elif "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit's JVM has started this process
        variable = os.environ.get
    else:
        return None
    return variable("PYSPARK_DRIVER_PYTHON") or variable(_PYTHON) or "python3"


def _has_sink(python: str) -> bool:
    """Return True if ``python`` has this version of the sink."""
    if python == sys.executable:
        return True
    try:
        found = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.stdout.strip() == __version__
