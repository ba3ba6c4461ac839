"""What happens to a cluster of real brokers while a job writes to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from spark_kafka_sink.localkafka import LocalKafka
from tests.proxy import TcpProxy
from tests.reading import consumer

FREEZE_S = 1.0
PAUSE_S = 20.0
BELOW_MINIMUM_S = 15.0
CUT_EVERY_S = 2.0
UNANSWERED_S = 0.2


class Situation(NamedTuple):
    """What a fault works on. ``is_over`` is set when the job has ended."""

    kafka: LocalKafka
    proxies: Sequence[TcpProxy]
    topic: str
    partitions: int
    is_over: threading.Event

    def leaders(self):
        """Broker id of each partition's leader."""
        with closing(consumer(self.kafka.bootstrap_servers)) as reader:
            partitions = reader.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            return [partitions[p].leader for p in sorted(partitions)]

    def records_count(self):
        """Records in the topic now; waits for leaders where there are none."""
        while True:
            try:
                return self._records_count()
            except KafkaException:
                if self.is_over.wait(0.2):
                    raise

    def _records_count(self):
        with closing(consumer(self.kafka.bootstrap_servers)) as reader:
            return sum(
                reader.get_watermark_offsets(TopicPartition(self.topic, p), timeout=10)[1]
                for p in range(self.partitions)
            )

    def last_for(self, seconds):
        """Let a fault last, at most until the job is over; how long it did."""
        started = time.monotonic()
        self.is_over.wait(seconds)
        return time.monotonic() - started

    def await_records(self, count):
        """Wait until so many records have arrived, or the job has ended."""
        with suppress(KafkaException):  # the job has ended, and a leader is away
            while self.records_count() < count and not self.is_over.wait(0.1):
                pass


def kill_a_leader(situation):
    """SIGKILL, and back after the others have taken over.

    It is frozen for a moment first, so that it dies with requests that it has not answered.
    """
    victim = situation.leaders()[0]
    before = situation.records_count()
    situation.kafka.pause(victim)
    situation.is_over.wait(FREEZE_S)
    situation.kafka.kill(victim)
    situation.await_records(before + 100_000)
    situation.kafka.restart(victim)
    return f"broker {victim} killed at {before:,} records, back later"


def pause_a_leader(situation):
    """SIGSTOP for 20 s: connections stay open, nobody answers."""
    victim, before = situation.leaders()[0], situation.records_count()
    situation.kafka.pause(victim)
    paused_s = situation.last_for(PAUSE_S)
    situation.kafka.resume(victim)
    return f"broker {victim} paused for {paused_s:.0f} s at {before:,} records"


def rolling_restart(situation):
    """All brokers, one after the other, as an upgrade does it."""
    before = situation.records_count()
    for broker_id in situation.kafka.broker_ids:
        situation.kafka.restart(broker_id)
        situation.kafka.await_in_sync()
    return f"{len(situation.kafka.broker_ids)} brokers restarted from {before:,} records on"


def cut_connections(situation):
    """Every connection to every broker is reset every 2 s, as long as the job runs.

    Answers are held back for a moment first, so that brokers have appended what is sent again.
    """
    while not situation.is_over.wait(CUT_EVERY_S):
        with ExitStack() as answers:
            for proxy in situation.proxies:
                answers.enter_context(proxy.answers_held_back())
            situation.is_over.wait(UNANSWERED_S)
            for proxy in situation.proxies:
                proxy.cut()
    cuts = sum(proxy.cuts_count for proxy in situation.proxies)
    return f"{cuts} connections cut, every {CUT_EVERY_S:.0f} s"


def too_few_in_sync(situation):
    """Two of the topic's three replicas die; min.insync.replicas is 2. The quorum survives."""
    before = situation.records_count()
    for broker_id in (2, 3):
        situation.kafka.kill(broker_id)
    below_s = situation.last_for(BELOW_MINIMUM_S)
    for broker_id in (2, 3):
        situation.kafka.restart(broker_id)
    return f"one replica of three for {below_s:.0f} s at {before:,} records"


class Fault(NamedTuple):
    """``brokers``: nodes of the cluster; the topic's replicas are on the first three."""

    what: str
    happen: Callable[[Situation], str]
    brokers: int = 3
    is_proxied: bool = False


FAULTS = {
    "none": Fault("no fault", lambda situation: "nothing"),
    "kill": Fault("a leader is killed with SIGKILL", kill_a_leader),
    "pause": Fault("a leader is paused for 20 s with SIGSTOP", pause_a_leader),
    "rolling": Fault("all brokers restart, one after the other", rolling_restart),
    "cut": Fault(
        "a TCP proxy loses answers, and cuts every connection, every 2 s",
        cut_connections,
        is_proxied=True,
    ),
    "isr": Fault("the ISR is below min.insync.replicas for 15 s", too_few_in_sync, brokers=5),
}
