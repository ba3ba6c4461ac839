"""What an independent client finds in the topic afterwards."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError, TopicPartition

from tests.chaos.jobs import ID_DIGITS
from tests.reading import consumer


class Verdict(NamedTuple):
    """Counts of ids that are missing, of extra copies, and of steps back within a key."""

    read: int
    lost: int
    doubled: int
    out_of_order: int

    @property
    def is_good(self):
        return not (self.lost or self.doubled or self.out_of_order)


def judge(bootstrap_servers, topic, partitions, records):
    """Read everything; ids 0 … ``records`` - 1 are expected."""
    copies = np.zeros(records, np.int32)
    latest = {}
    out_of_order = 0
    reader = consumer(bootstrap_servers)
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    ended = set()
    idle_polls = 0
    try:
        while len(ended) < partitions:
            messages = reader.consume(10_000, timeout=0.2)
            idle_polls = 0 if messages else idle_polls + 1
            if idle_polls > 300:
                raise AssertionError(f"nothing more from {topic} within 60 s")
            for message in messages:
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
                    continue
                number = int(message.value()[:ID_DIGITS])
                sequence = (message.partition(), message.key())
                out_of_order += number < latest.get(sequence, -1)
                latest[sequence] = number
                copies[number] += 1
    finally:
        reader.close()
    lost, doubled = int((copies == 0).sum()), int(np.maximum(copies - 1, 0).sum())
    return Verdict(int(copies.sum()), lost, doubled, out_of_order)
