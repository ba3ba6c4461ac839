"""Why was batch 17 slow? Answered from the metrics of real queries in which it was made slow."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from evidence.harness.scene import proxied_kafka
from spark_kafka_sink.__main__ import main
from spark_kafka_sink.tools.report_advice import line_findings
from tests.proxy import TcpProxy
from tests.spark.session import spark_session

HURT = 17
BATCHES = 22
PARTITIONS = 6
_SLOW = 2
_ROWS = 20_000
_VALUE_BYTES = 256
_TASKS = 4


class Link(TcpProxy):
    """The way to one broker. delay_s: that each piece of bytes takes more, in both directions"""

    delay_s = 0.0

    def _passage_of(self, client):
        return lambda: time.sleep(self.delay_s)


class World:
    """Three brokers behind links, and a session of Spark."""

    def __init__(self, kafka, links, spark):
        self.kafka = kafka
        self.links = links
        self.spark = spark

    @property
    def servers(self):
        return ",".join(link.address for link in self.links)

    @contextlib.contextmanager
    def slow_link(self):
        """One broker's answers come late."""
        self.links[_SLOW - 1].delay_s = 0.2
        try:
            yield
        finally:
            self.links[_SLOW - 1].delay_s = 0.0

    @contextlib.contextmanager
    def hung_broker(self):
        """One broker does nothing for seconds, as in a long collection of garbage."""
        self.kafka.pause(_SLOW)
        timer = threading.Timer(6.0, lambda: self.kafka.resume(_SLOW))
        timer.start()
        try:
            yield
        finally:
            timer.join()

    @contextlib.contextmanager
    def quota(self, client_id, bytes_per_s):
        """Brokers let a client write so much, and no more."""
        self._alter(client_id, "--add-config", f"producer_byte_rate={bytes_per_s}")
        try:
            yield
        finally:
            self._alter(client_id, "--delete-config", "producer_byte_rate")

    def _alter(self, client_id, *what):
        self.kafka.run_tool(
            "ConfigCommand",
            *("--bootstrap-server", self.kafka.bootstrap_servers, "--alter"),
            *("--entity-type", "clients", "--entity-name", client_id, *what),
        )


class Case(NamedTuple):
    """options: of the sink, all the time; hurt_options: of batch 17 alone, beside them

    hurt: what happens while batch 17 is written; repeats: of a value's 256 bytes
    hurts_next: whether the batch after it suffers from the same
    """

    name: str
    kind: str
    options: Mapping[str, str] = MappingProxyType({})
    hurt_options: Mapping[str, str] = MappingProxyType({})
    hurt: Callable[[World], contextlib.AbstractContextManager[None]] | None = None
    rows: int = _ROWS
    repeats: int = 1
    hurts_next: bool = False


CASES = (
    Case("slow-link", "slow-broker", hurt=World.slow_link),
    Case("hung-broker", "slow-broker", hurt=World.hung_broker),
    Case(
        "throttled",
        "throttled",
        options={"kafka.client.id": "report-cases"},
        hurt=lambda world: world.quota("report-cases", 100_000),
        hurts_next=True,
    ),
    Case(
        "limited",
        "limited",
        hurt_options={"max.bytes.per.second.per.task": "150000", "kafka.linger.ms": "0"},
    ),
    Case(
        "tiny-batches",
        "tiny-batches",
        hurt_options={"kafka.batch.size": "200", "kafka.linger.ms": "0"},
    ),
    Case(
        "codec",
        "codec",
        hurt_options={"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "19"},
        rows=2_000,
        repeats=16,
    ),
)


class Run:
    """One query over files that come one by one, each a micro-batch, until the last is written."""

    def __init__(self, world, case, folder):
        self._world = world
        self._case = case
        self._folder = folder
        self.metrics = folder / "metrics.jsonl"
        self._source = folder / "in"
        self._source.mkdir()
        world.kafka.create_topic(case.name, PARTITIONS, replication_factor=1)

    def run(self):
        """The file of metrics."""
        self._write(range(HURT), {})
        hurt = self._case.hurt
        with contextlib.nullcontext() if hurt is None else hurt(self._world):
            self._write(range(HURT, HURT + 1), self._case.hurt_options)
        self._write(range(HURT + 1, BATCHES), {})
        return self.metrics

    def _write(self, numbers, more):
        """Options are those of a start: for a batch with others the query is stopped before it."""
        query = self._start(more)
        try:
            for number in numbers:
                self._give(number)
                query.processAllAvailable()
        finally:
            query.stop()

    def _give(self, number):
        hidden = self._source / f".{number:05}"
        hidden.write_text(json.dumps({"number": number}), encoding="utf-8")
        hidden.rename(self._source / f"{number:05}.json")

    def _start(self, more):
        case, value = self._case, "sha2(cast(number * 1000000 + id * 100 + {} as string), 512)"
        parts = ", ".join(value.format(n) for n in range(case.repeats * _VALUE_BYTES // 128))
        rows = (
            self._world.spark.readStream.schema("number INT")
            .option("maxFilesPerTrigger", "1")
            .json(str(self._source))
            .selectExpr("number", f"explode(sequence(0, {case.rows - 1})) as id")
            .repartition(_TASKS)
            .selectExpr(
                "cast(id as string) as key",
                f"concat({parts}) as value",
            )
        )
        options = {
            "kafka.bootstrap.servers": self._world.servers,
            "topic": case.name,
            "metrics.path": str(self.metrics),
            "metrics.log": "false",
            "checkpointLocation": str(self._folder / "checkpoint"),
            **case.options,
            **more,
        }
        return (
            rows.writeStream.format("pykafka-sink").queryName(case.name).options(**options).start()
        )


@pytest.fixture(scope="module")
def a_world():
    with spark_session() as spark, proxied_kafka(3, Link) as (kafka, links):
        yield World(kafka, links, spark)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_why_was_batch_17_slow(case, a_world, tmp_path):
    metrics = Run(a_world, case, tmp_path).run()
    report = tmp_path / "report.html"
    assert main(["report", str(metrics), "--output", str(report)]) == 0
    [outliers] = re.findall(r"(?s)id='outliers'>(.*?)</section>", report.read_text("utf-8"))
    assert f"<b>batch {HURT}</b>" in outliers
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    kinds = {line["batch_id"]: [one.kind for one in line_findings(line)] for line in lines}
    assert len(kinds) >= BATCHES
    assert kinds[HURT][0] == case.kind, kinds[HURT]
    # Of no other batch this is said; what is left of a pause hurts the next one too.
    also = [number for number, found in kinds.items() if case.kind in found[:1]]
    assert len(also) <= 1 + case.hurts_next, kinds
    if case.kind == "limited":
        assert not any("throttled" in found for found in kinds.values())
