"""A Spark job with secrets in its options, whose every trace is kept: run by test_secrets.

    python -m tests.security.secret_job FOLDER

FOLDER/cases.json has options and topic by a name. All log at DEBUG. The pages of the UI are fetched
while the application still runs, and everything is left in FOLDER. What a case fails with is
printed, as a notebook would.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession

_PAGES = ("SQL/", "environment/", "executors/", "jobs/", "stages/")
_REST = ("environment", "jobs", "stages", "executors", "sql?details=true&planDescription=true")


def session(folder: Path) -> SparkSession:
    """Logs, event log and UI."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    events = folder / "events"
    events.mkdir()
    return (
        SparkSession.builder.master("local[2]")
        .appName("secrets")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.eventLog.compress", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.ui.port", "0")
        .config("spark.log.level", "DEBUG")
        .config("spark.task.maxFailures", "1")
        .getOrCreate()
    )


def fetch(url: str, path: Path) -> None:
    with urllib.request.urlopen(url) as answer:
        path.write_bytes(answer.read())


def keep_pages(spark: SparkSession, folder: Path, queries: int) -> None:
    base = spark.sparkContext.uiWebUrl
    assert base is not None
    base = base.replace(base.split("//")[1].split(":")[0], "127.0.0.1")
    application = spark.sparkContext.applicationId
    pages = [f"{base}/{page}" for page in _PAGES]
    pages += [f"{base}/SQL/execution/?id={number}" for number in range(queries)]
    pages += [f"{base}/api/v1/applications/{application}/{name}" for name in _REST]
    for number, page in enumerate(pages):
        fetch(page, folder / f"page-{number}.html")


def main() -> None:
    """Each case once, whether it works or not."""
    logging.basicConfig(level=logging.DEBUG)
    folder = Path(sys.argv[1])
    cases = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    spark = session(folder)
    for name, case in cases.items():
        frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
        writer = frame.write.format("pykafka-sink").mode("append").options(**case["options"])
        try:
            writer.option("topic", case["topic"]).save()
            print(f"{name}: written")
        except Exception:
            print(f"{name}: failed")
            traceback.print_exc()
    keep_pages(spark, folder, len(cases))
    spark.stop()


if __name__ == "__main__":
    main()
