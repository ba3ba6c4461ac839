"""The work that both producers do, and the links that it goes through."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from tests.proxy import TcpProxy

PARTITIONS = 3
LISTENER = "SLOW"
QUOTA_BYTES_PER_S = 100_000


class Producer(Protocol):
    """Either of the two."""

    def send(self, partition, values): ...

    def flush(self): ...


class SlowLink(TcpProxy):
    """Each chunk of bytes takes ``delay_ms`` more, in both directions."""

    delay_ms = 0

    def _passage_of(self, client):
        return lambda: time.sleep(self.delay_ms / 1000)


class Work(NamedTuple):
    """settings: of both producers, beside those of ALL; delay_ms: of the link, each way

    do: with the producer and the link
    """

    name: str
    what: str
    settings: dict[str, str]
    delay_ms: int
    do: Callable[[Producer, SlowLink], None]


ALL = {
    "acks": "all",
    "linger.ms": "5",
    "batch.size": "16384",
    "buffer.memory": "33554432",
    "send.buffer.bytes": "131072",
    "receive.buffer.bytes": "32768",
}
"""Where defaults differ."""

JAVA_ONLY = {"metrics.sample.window.ms": "600000"}
"""Averages and maxima of all the work, not of its last 30 seconds."""


def texts(count, size, seed):
    """Values that compress as text does."""
    rng = random.Random(seed)
    words = [
        bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randrange(3, 9))) for _ in range(300)
    ]
    values = []
    for _ in range(count):
        value = b""
        while len(value) < size:
            value += rng.choice(words) + b" "
        values.append(value[:size])
    return values


def _bulk(producer, link):
    values = texts(30_000, 200, seed=1)
    for number, start in enumerate(range(0, len(values), 100)):
        producer.send(number % PARTITIONS, values[start : start + 100])
    producer.flush()


def _paced(producer, link):
    """One batch of each partition in a request, which nothing waits for but linger.ms."""
    values = texts(20, 100, seed=2)
    producer.send(0, values[:1])
    producer.flush()
    for _ in range(5):
        for partition in range(PARTITIONS):
            producer.send(partition, values)
        time.sleep(8)
    producer.flush()


def _cut(producer, link):
    """Connections are lost while a request waits for its answer, three times."""
    values = texts(20, 100, seed=3)
    producer.send(0, values[:1])
    producer.flush()
    for _ in range(3):
        producer.send(0, values)
        time.sleep(link.delay_ms / 1000)
        link.cut()
        producer.flush()


def _full(producer, link):
    values = texts(10_000, 200, seed=4)
    for start in range(0, len(values), 100):
        producer.send(0, values[start : start + 100])
    producer.flush()


def _throttled(producer, link):
    """A megabyte at once, which is what the quota's first seconds let through, and two more."""
    for seed in (5, 6, 7):
        values = texts(50, 20_000, seed)
        for start in range(0, len(values), 10):
            producer.send(0, values[start : start + 10])
            producer.flush()


WORKS = (
    Work("bulk", "6 MB of text, 16-KB batches, no codec", {"linger.ms": "60000"}, 0, _bulk),
    Work(
        "compressed",
        "the same with lz4",
        {"linger.ms": "60000", "compression.type": "lz4"},
        0,
        _bulk,
    ),
    Work(
        "paced",
        "60 records every 8 s, `linger.ms` 3,000, a link that takes 1.5 s each way",
        {"linger.ms": "3000"},
        1500,
        _paced,
    ),
    Work("cut", "connections are lost while a request is under way, three times", {}, 400, _cut),
    Work(
        "full",
        "2 MB through `buffer.memory` of 256 KiB, over a link that takes 50 ms for each chunk",
        {"buffer.memory": "262144", "max.in.flight.requests.per.connection": "1"},
        50,
        _full,
    ),
    Work(
        "throttled",
        f"3 MB under a quota of {QUOTA_BYTES_PER_S:,} bytes per second",
        {},
        0,
        _throttled,
    ),
)


@contextmanager
def slow_kafka(make):
    """One broker that is reached through a link."""
    brokers = []
    with (
        SlowLink(lambda: _target(brokers[0])) as link,
        make(
            listeners={LISTENER: "PLAINTEXT"},
            advertised={LISTENER: [link.address]},
        ) as kafka,
    ):
        brokers.append(kafka)
        yield kafka, link


def _target(kafka):
    return kafka.address(1, LISTENER)
