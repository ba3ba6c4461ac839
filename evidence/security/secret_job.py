"""A Spark job with secrets in its options, whose every trace is kept: run by test_secrets.

    python -m evidence.security.secret_job FOLDER

FOLDER/asked.json has the configuration of the session, its master, and cases by a name: options, and
whether it is a stream. All log at DEBUG. The pages of the UI are fetched while the application still
runs, and everything is left in FOLDER. What a case fails with is printed, as a notebook would.
"""

import json
import logging
import os
import sys
import traceback
import urllib.request
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

ROWS = 100
_PAGES = ("SQL/", "environment/", "executors/", "jobs/", "stages/", "StreamingQuery/")
_REST = ("environment", "jobs", "stages", "executors", "sql?details=true&planDescription=true")
PYTHON_LOGS = "Python logs at DEBUG, too"
_SITE = f"""
import logging
logging.basicConfig(level=logging.DEBUG)
logging.debug("{PYTHON_LOGS}")
"""
LOGS_OF_JVMS = "logs-of-jvms"
# Not only to the console, which Spark keeps free of what is below warnings where Python runs it.
_LOG4J = """
rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n%ex
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""


def spark_home(folder):
    """Spark as it is installed, but for what it logs, and the folder into which executors log."""
    home = folder / "spark-home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "log4j2.properties").write_text(
        _LOG4J.format(file=folder / LOGS_OF_JVMS), encoding="utf-8"
    )
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name not in ("conf", "work"):
            (home / path.name).symlink_to(path)
    return home


def session(folder, master, conf):
    """Logs, event log and UI."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(spark_home(folder))
    # Each Python process of Spark reads it when it begins.
    (folder / "python").mkdir()
    (folder / "python" / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    os.environ["PYTHONPATH"] = f"{folder / 'python'}:{Path.cwd()}"
    events = folder / "events"
    events.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.port": "0",
        # Logical plans, too.
        "spark.sql.ui.explainMode": "extended",
        # The driver of a Python program logs no less than warnings, whatever log4j is told.
        "spark.log.level": "DEBUG",
        "spark.task.maxFailures": "1",
        **conf,
    }
    return SparkSession.builder.master(master).config(map=settings).getOrCreate()


def fetch(url, path):
    with urllib.request.urlopen(url) as answer:
        path.write_bytes(answer.read())


def keep_pages(spark, folder):
    base = spark.sparkContext.uiWebUrl
    base = base.replace(base.split("//")[1].split(":")[0], "127.0.0.1")
    rest = f"{base}/api/v1/applications/{spark.sparkContext.applicationId}"
    with urllib.request.urlopen(f"{rest}/sql?length=1000") as answer:
        queries = [query["id"] for query in json.load(answer)]
    pages = [f"{base}/{page}" for page in _PAGES]
    pages += [f"{base}/SQL/execution/?id={number}" for number in queries]
    pages += [f"{rest}/{name}" for name in _REST]
    for number, page in enumerate(pages):
        fetch(page, folder / f"page-{number}.html")


def write(rows, options):
    rows.write.format("pykafka-sink").mode("append").options(**options).save()


def stream(rows, options):
    """What Spark tells of a query is printed."""
    writer = rows.writeStream.format("pykafka-sink").options(**options)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.explain(True)
        print(query.lastProgress, query.status, query.exception())


def log_calls_of_the_jvm(is_logged):
    """At DEBUG, py4j logs all that Python tells the JVM: each option, with what it is set to."""
    logging.getLogger("py4j").setLevel("DEBUG" if is_logged else "INFO")


def run(spark, folder, name, case):
    log_calls_of_the_jvm(case["by_reference"])
    value = "cast(id as string) as value"
    try:
        if case["is_stream"]:
            files = spark.readStream.schema("id BIGINT").json(str(folder / "in"))
            stream(files.selectExpr(value).repartition(2), case["options"])
        else:
            write(spark.range(0, ROWS, 1, 2).selectExpr(value), case["options"])
        print(f"{name}: written", flush=True)
    except Exception:
        print(f"{name}: failed", flush=True)
        traceback.print_exc()


def main():
    """Each case once, whether it works or not."""
    folder = Path(sys.argv[1])
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    logging.basicConfig(level=logging.DEBUG)
    log_calls_of_the_jvm(False)
    spark = session(folder, asked["master"], asked["conf"])
    for name, case in asked["cases"].items():
        run(spark, folder, name, case)
    keep_pages(spark, folder)
    spark.stop()


if __name__ == "__main__":
    main()
