"""What a case of cases.py is given: a Spark session, a sink, a broker and a folder of its own.

Runs in the interpreter of each Spark version: Python 3.9, and nothing but the sink and pyspark.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pyspark

import spark_kafka_sink

OURS, SPARKS = "pykafka-sink", "kafka"
# Spark 3.5 has none in Python: there this sink is spark_kafka_sink.write and batch_writer.
HAS_DATA_SOURCES = int(pyspark.__version__.split(".")[0]) >= 4
# No verdict: it ends a case that waits for what does not come.
PATIENCE_S = 600
# A busy machine may be slow. As Spark's suites have it where a topic is not there.
WAITS_LONG = {"kafka.max.block.ms": "600000"}
WAITS_SHORT = {"kafka.max.block.ms": "5000"}


class Case(NamedTuple):
    """One case of the table, run with both sinks.

    run: returns what is compared between the sinks, besides rows and errors
    suite: the class of Spark's own tests that it comes from, or "" for others
    topics: partitions of the topics that are made for it, by what their names end with
    is_of_format: about ``format(...)`` itself, so not for a Spark without data sources in Python
    """

    run: Callable[[World], dict[str, Any] | None]
    suite: str
    topics: dict[str, int]
    is_of_format: bool

    @property
    def name(self):
        return self.run.__name__

    @property
    def shows(self):
        return (self.run.__doc__ or "").strip().rstrip(".")


CASES: dict = {}


def case(suite="", is_of_format=False, **topics):
    """Puts a function into the table. Topics: ``one=4`` is a topic with four partitions."""

    def add(run):
        CASES[run.__name__] = Case(run, suite, topics, is_of_format)
        return run

    return add


def topic_name(prefix, case_name, topic, sink):
    return f"{prefix}{case_name}.{topic}.{sink}"


class World:
    """The place of one case and one sink. ``errors``: what was refused, in order."""

    def __init__(self, spark, servers, sink, folder, named):
        self.spark = spark
        self.servers = servers
        self.sink = sink
        self.folder = folder
        self.topic = named
        self.errors = []
        self._streams = 0

    def rows(self, *columns, count=5):
        """``count`` rows in one task, of expressions over ``id``."""
        return self.spark.range(0, count, 1, 1).selectExpr(*columns)

    def save(self, frame, topic=None, mode="append", **options):
        given = self._options(topic, options)
        if self.sink == OURS and not HAS_DATA_SOURCES:
            spark_kafka_sink.write(frame, given)
            return
        writer = frame.write.format(self.sink).options(**given)
        if mode:
            writer = writer.mode(mode)
        writer.save()

    def refuses(self, attempt):
        """``attempt`` must fail; what it says is kept in ``errors``."""
        try:
            attempt()
        except Exception as error:
            self.errors.append(str(error))
        else:
            raise AssertionError("it was not refused")

    def save_refused(self, frame, topic=None, **options):
        self.refuses(lambda: self.save(frame, topic, **options))

    def _options(self, topic, options):
        given = {"kafka.bootstrap.servers": self.servers, **WAITS_LONG}
        if topic is not None:
            given["topic"] = topic
        given.update({name.replace("_", "."): str(value) for name, value in options.items()})
        return given

    @property
    def input(self):
        found = self.folder / "input"
        found.mkdir(exist_ok=True)
        return found

    def put(self, *values):
        """A file of these lines appears in the input, at once."""
        number = len(list(self.input.iterdir()))
        hidden = self.folder / f"file-{number}"
        hidden.write_text("".join(f"{value}\n" for value in values), encoding="utf-8")
        hidden.rename(self.input / f"{number:04}")

    def lines(self, *columns):
        """The stream of the input's lines, a file in each micro-batch."""
        stream = self.spark.readStream.option("maxFilesPerTrigger", "1").text(str(self.input))
        return stream.selectExpr(*columns) if columns else stream

    def start(self, frame, topic=None, mode="append", trigger=None, **options):
        """The query; with the checkpoint of the one before if ``checkpoint`` says so."""
        checkpoint = options.pop("checkpoint", None)
        if checkpoint is None:
            self._streams += 1
            checkpoint = f"checkpoint-{self._streams}"
        given = self._options(topic, options)
        writer = frame.writeStream.outputMode(mode)
        if self.sink == OURS and not HAS_DATA_SOURCES:
            writer = writer.foreachBatch(spark_kafka_sink.batch_writer(given))
        else:
            writer = writer.format(self.sink).options(**given)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", str(self.folder / checkpoint)).start()

    def stream_refused(self, frame, topic=None, **options):
        def run():
            query = self.start(frame, topic, **options)
            try:
                query.processAllAvailable()
            finally:
                query.stop()

        self.refuses(run)

    def feed(self, query, *batches):
        """Each of ``batches`` is a file, processed before the next one is there."""
        try:
            for batch in batches:
                self.put(*batch)
                query.processAllAvailable()
        finally:
            query.stop()


def until(condition):
    """Wait for ``condition``. Raises TimeoutError."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.1)
