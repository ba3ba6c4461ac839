"""Runs the cases with both sinks in one session. For the interpreter of each Spark version.

``python -m tests.parity.program SERVERS FOLDER PREFIX JARS [CASE ...]`` prints a line of JSON for
each case and sink: what was refused, what the case has seen, and the error that ended it.
"""

from __future__ import annotations

import json
import platform
import sys
from functools import partial
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tests.parity import batch_cases, stream_cases
from tests.parity.world import CASES, HAS_DATA_SOURCES, OURS, SPARKS, World, topic_name

__all__ = ["batch_cases", "stream_cases"]


def session(jars: str, folder: Path) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.task.maxFailures", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )


def run(spark: SparkSession, servers: str, folder: Path, prefix: str, name: str, sink: str) -> None:
    here = folder / name / sink
    here.mkdir(parents=True)

    def named(topic: str) -> str:
        return topic_name(prefix, name, topic, sink)

    world = World(spark, servers, sink, here, named)
    seen, error = None, None
    try:
        seen = CASES[name].run(world)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    line = {"case": name, "sink": sink, "error": error, "refused": world.errors, "seen": seen}
    print(json.dumps(line), flush=True)


def main(servers: str, folder: str, prefix: str, jars: str, *names: str) -> None:
    print(json.dumps({"spark": pyspark.__version__, "python": platform.python_version()}))
    spark = session(jars, Path(folder))
    one = partial(run, spark, servers, Path(folder), prefix)
    for name in names or CASES:
        if HAS_DATA_SOURCES or not CASES[name].is_of_format:
            for sink in (SPARKS, OURS):
                one(name, sink)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
