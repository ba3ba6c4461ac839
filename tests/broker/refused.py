"""Rows that a real broker refuses after they were sent: written by a task that knows nothing of the
topics' settings, as with a topic column.
"""

import random
import time
from collections import Counter

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.task import write_rows
from spark_kafka_sink.transactions import session
from spark_kafka_sink.transactions.model import Unit
from tests.broker.producing import batch_of, plan_of
from tests.patience import AN_HOUR_MS
from tests.reading import read_topic

ROWS = 3000
BATCHES = 10
LARGE = 6000
LIMIT = 5000
DAY_MS = 86_400_000
CAUSE = "__connect.errors.cause"


class Refusing:
    """A topic whose rows with number n % 50 == 7 are refused for ``cause``, and one of dead letters."""

    def __init__(self, kafka, topic, cause, **more):
        self.topic, self.dead, self.cause = topic, f"{topic}-dead", cause
        self._kafka = kafka
        kafka.create_topic(topic, 2, configs=self._configs())
        kafka.create_topic(self.dead, 1)
        self._now_ms = int(time.time() * 1000)
        given = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": topic,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": self.dead,
            "errors.deadletterqueue.max.ratio": "0.02",
            "kafka.batch.size": "2000",
            "kafka.max.block.ms": str(AN_HOUR_MS),
        }
        self.options = SinkOptions.parse(
            {**given, **{n.replace("_", "."): v for n, v in more.items()}}
        )

    def _configs(self):
        if self.cause == "refused":
            return {"cleanup.policy": "compact"}
        if self.cause == "too-large":
            return {"max.message.bytes": str(LIMIT)}
        is_new = tuple(map(int, self._kafka.version.split(".")[:2])) >= (3, 6)
        name = "after" if is_new else "difference"
        return {f"message.timestamp.{name}.max.ms": str(2 * DAY_MS)}

    def _batch(self, first):
        numbers = range(first, first + ROWS // BATCHES)
        noise = random.Random(1).randbytes(LARGE)

        def is_bad(n, cause):
            return n % 50 == 7 and self.cause == cause

        days = {n: 9 if is_bad(n, "bad-timestamp") else 0 for n in numbers}
        return batch_of(
            key=[None if is_bad(n, "refused") else b"k%d" % (n % 40) for n in numbers],
            value=[b"%06d" % n + (noise if is_bad(n, "too-large") else b"") for n in numbers],
            timestamp=[self._now_ms + days[n] * DAY_MS for n in numbers],
        )

    def write(self):
        """All rows, in a task and, with exactly-once, a job of its own."""
        batches = [self._batch(first) for first in range(0, ROWS, ROWS // BATCHES)]
        message = KafkaCommitMessage(0, 0)
        positions = plan_of(batches[0], self.topic)
        if self.options.exactly_once is None:
            write_rows(batches, self.options, positions, message)
            return message
        with session.as_driver():
            plan = session.plan_unit(self.options, is_job=True)
            write_rows(batches, self.options, positions, message, plan)
            assert message.transaction is not None
            unit = Unit(None, None, plan.job_id)
            session.commit_unit(self.options, plan, unit, [message.transaction], {})
        return message

    def check(self, message):
        """Each row is where it belongs, once, and in its partition's order."""
        good, dead = self._read(self.topic), self._read(self.dead)
        expected = {n for n in range(ROWS) if n % 50 == 7}
        assert Counter(map(number_of, dead)) == Counter(expected)
        assert Counter(map(number_of, good)) == Counter(set(range(ROWS)) - expected)
        for partition in (0, 1):
            numbers = [number_of(r) for r in good if r.partition == partition]
            assert numbers == sorted(numbers)
        told = {dict(r.headers)[CAUSE].decode() for r in dead}
        assert told == {self.cause}, told
        assert message.dead_letters == {self.cause: len(expected)}
        assert message.records == ROWS

    def _read(self, topic):
        servers = self._kafka.bootstrap_servers
        return read_topic(servers, topic, **{"isolation.level": "read_committed"})


def number_of(record):
    return int(record.value[:6])
