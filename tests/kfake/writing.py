"""Numbered records through the real producer, and what confluent-kafka reads of them."""

from __future__ import annotations

from typing import NamedTuple

from tests.broker.producing import batch_of, plan_of, producer_for
from tests.kfake.cluster import KfakeCluster
from tests.reading import read_topic

ROWS_PER_CHUNK = 300
# Many small batches, several in flight; whatever is tried again is tried soon.
OPTIONS = {
    "batch_size": "512",
    "linger_ms": "0",
    "retry_backoff_ms": "5",
    "retry_backoff_max_ms": "20",
    "reconnect_backoff_ms": "5",
    "reconnect_backoff_max_ms": "20",
}


class Numbers(NamedTuple):
    """A topic that gets numbered records in chunks; row n goes to partition n % partitions."""

    cluster: KfakeCluster
    topic: str = "numbers"
    partitions: int = 3
    chunks: int = 10

    def create(self, **configs):
        self.cluster.create_topic(self.topic, self.partitions, **configs)
        return self

    def deliver(self, before=None, **options):
        """Write all, and check that each is there once and in order.

        ``before`` is called with the number of each chunk before it is written.
        """
        with producer_for(self.cluster.bootstrap_servers, **{**OPTIONS, **options}) as producer:
            self.write(producer, before)
            metrics = producer.metrics
        self.check()
        return metrics

    def write(self, producer, before=None):
        """All chunks, flushed in the middle and at the end."""
        for number in range(self.chunks):
            if before is not None:
                before(number)
            chunk = self.chunk(number)
            producer.append(chunk, plan_of(chunk, self.topic))
            if number == self.chunks // 2:
                producer.flush()
        producer.flush()

    def chunk(self, number):
        rows = range(number * ROWS_PER_CHUNK, (number + 1) * ROWS_PER_CHUNK)
        partitions = [row % self.partitions for row in rows]
        return batch_of(value=[b"%d" % row for row in rows], partition=partitions)

    def check(self):
        """By what confluent-kafka reads, and by what the broker has of each partition."""
        records = read_topic(self.cluster.bootstrap_servers, self.topic)
        for partition in range(self.partitions):
            rows = [int(r.value or b"") for r in records if r.partition == partition]
            assert rows == list(range(partition, self.chunks * ROWS_PER_CHUNK, self.partitions))
            log = self.cluster.do("partition", topic=self.topic, partition=partition)
            assert log["HighWatermark"] == len(rows)
