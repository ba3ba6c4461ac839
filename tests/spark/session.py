"""The Spark session of the tests, one per process that runs them."""

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.harness import JVM_SINK
from spark_kafka_sink.localkafka import fetch_jars
from tests import class_archives

QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Of every driver that a test starts. They run for minutes at most: Java's slower compiler would take
half of the CPU."""
LINEAGE = Path(tempfile.gettempdir(), f"pykafka-sink-tests-{os.getpid()}", "openlineage.yml")
"""What the driver's processes read, if it exists when they send lineage events."""
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join([*QUICK_START, *class_archives.of_spark()]))


@contextmanager
def spark_session(client_version=None, settings=None):
    """With the sink under test, and Spark's own JVM Kafka sink beside it.

    client_version: of the JVM sink's Kafka client, instead of the one that Spark has.
    settings: of Spark, beside those that all tests have
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["OPENLINEAGE_CONFIG"] = str(LINEAGE)
    modules = [with_version(module, client_version) for module in JVM_SINK]
    if client_version is not None:
        # Since 4.1 the client looks into its own tokens with it.
        modules.append("org.bitbucket.b_c:jose4j:0.9.6")
    name = "jvm-sink" if client_version is None else f"jvm-sink-{client_version}"
    jars = fetch_jars(modules, name, transitive=False)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("pykafka-sink tests")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.task.maxFailures", "1")
    )
    for setting, value in (settings or {}).items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def with_version(module, client_version):
    name, version = module.rsplit(":", 1)
    is_client = name.endswith(":kafka-clients") and client_version is not None
    return f"{name}:{client_version if is_client else version}"
