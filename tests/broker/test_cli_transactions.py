"""``pykafka-sink transactions`` against a real broker; what is visible is asked of confluent-kafka."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.cli import main
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import prepare_log_topic
from spark_kafka_sink.transactions.model import (
    Driver,
    TaskTransaction,
    Unit,
    WorkerTransactionalIds,
)
from tests.broker.creating import producer_for
from tests.broker.processes import eventually
from tests.broker.test_transactions import PARTITIONS, committed, rows, write
from tests.patience import PATIENCE_MS

LOG_TOPIC = "cli-transactions"
TIMEOUT_MS = 600_000


class CrashError(BaseException):
    """The driver is no more."""


def crash_when_decided(point):
    if point == "commit.decided":
        raise CrashError(point)


@pytest.fixture(autouse=True)
def no_hook_is_left():
    yield
    crash_points.set_hook(None)


class Query(NamedTuple):
    """A driver, and tasks that write with the real producer."""

    kafka: LocalKafka
    prefix: str
    protocol: CommitProtocol

    @property
    def topic(self):
        return f"{self.prefix}-rows"

    def begin(self):
        """Two tasks, flushed and open: rows 0 to 299, and 300 to 599."""
        plan = self.protocol.plan(Driver("driver-1", "host-1", 1_700_000_000_000, "/ck", "q"), None)
        slots = WorkerTransactionalIds()
        written = []
        with producer_for(self.kafka.bootstrap_servers) as producer:
            for number in (0, 1):
                name = slots.next_id(self.prefix, plan.token)
                prepared = write(producer, self.topic, name, [rows(300 * number)])
                assert prepared is not None
                written.append(TaskTransaction(*prepared, number, 300, f"rows-{number}"))
        return plan, written

    def decide(self):
        """Micro-batch 7 is decided, and then the driver dies."""
        plan, written = self.begin()
        crash_points.set_hook(crash_when_decided)
        with pytest.raises(CrashError):
            self.protocol.commit(plan, Unit("query-1", 7, None), written)
        crash_points.set_hook(None)
        return written

    def command(self, name, *more):
        servers = self.kafka.bootstrap_servers
        return main(
            [
                "transactions",
                name,
                "--bootstrap-server",
                servers,
                "--log-topic",
                LOG_TOPIC,
                "--prefix",
                self.prefix,
                *more,
            ]
        )


@pytest.fixture
def query(kafka, request):
    prefix = request.node.name.replace("_", "-")
    kafka.create_topic(f"{prefix}-rows", PARTITIONS)
    config = ExactlyOnceConfig(prefix, TIMEOUT_MS, LOG_TOPIC, 1, accepts_missing_record=True)
    with AdminClient.connect(kafka.bootstrap_servers) as admin:
        prepare_log_topic(admin, config, admin.deadline_in(PATIENCE_MS))
        yield Query(
            kafka,
            prefix,
            CommitProtocol(TransactionClient(admin), config, SystemClock(), PATIENCE_MS),
        )


def json_of(capsys):
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_a_decided_unit_is_shown_and_finished(query, capsys):
    written = query.decide()
    names = sorted(t.transactional_id for t in written)
    assert committed(query.kafka, query.topic) == []

    assert query.command("list", "--json") == 0
    [shown] = json_of(capsys)["prefixes"]
    assert shown["prefix"] == query.prefix
    assert shown["record"]["phase"] == "DECIDED"
    assert shown["record"]["unit"] == {"query_id": "query-1", "batch_id": 7, "job_id": None}
    assert shown["record"]["owner"]["driver_id"] == "driver-1"
    assert [t["transactional_id"] for t in shown["open_transactions"]] == names
    for transaction, task in zip(shown["open_transactions"], sorted(written)):
        assert transaction["state"] == "Ongoing"
        assert (transaction["producer_id"], transaction["producer_epoch"]) == task.producer
        assert 0 <= transaction["age_ms"] < TIMEOUT_MS
        assert transaction["partitions"] == [
            {"topic": query.topic, "partition": n} for n in range(PARTITIONS)
        ]

    assert query.command("describe", "--json") == 0
    described = json_of(capsys)
    assert [(p["transactional_id"], p["recorded"], p["now"]) for p in described["parts"]] == [
        (t.transactional_id, "to be committed", "Ongoing") for t in written
    ]
    for position in described["partitions"]:
        assert position["last_stable_offset"] == 0
        assert position["high_watermark"] == 200
        assert {p["transactional_id"] for p in position["producers"]} == set(names)
        assert position["producers"][0]["first_offset"] == 0

    for refused in (["abort"], ["release"], ["resolve"]):
        assert query.command(*refused, *([] if refused == ["resolve"] else ["--yes"])) == 2
        assert capsys.readouterr().out == ""
    assert committed(query.kafka, query.topic) == []

    assert query.command("resolve", "--yes") == 0
    assert "micro-batch 7 of query query-1 is done, 600 records" in capsys.readouterr().out
    assert eventually(lambda: committed(query.kafka, query.topic) == list(range(600)))
    assert query.command("describe", "--json", "--topic", query.topic) == 0
    described = json_of(capsys)
    assert described["record"]["phase"] == "DONE"
    assert described["open_transactions"] == []
    assert [p["producers"] for p in described["partitions"]] == [[]] * PARTITIONS
    assert query.command("resolve", "--yes") == 0
    assert "nothing to resolve" in capsys.readouterr().out
    assert query.command("release", "--yes") == 0
    capsys.readouterr()
    assert query.command("list", "--json") == 0
    assert json_of(capsys)["prefixes"][0]["record"] is None


def test_undecided_transactions_are_aborted(query, capsys):
    _, written = query.begin()
    first, second = (t.transactional_id for t in written)
    assert query.command("abort", "--transactional-id", first, "--yes", "--json") == 0
    assert json_of(capsys)["aborted"] == [first]
    assert query.command("describe") == 0
    shown = capsys.readouterr().out
    assert second in shown
    assert first not in shown
    assert query.command("abort", "--yes") == 0
    assert f"aborted {second}" in capsys.readouterr().out
    assert committed(query.kafka, query.topic) == []
    assert query.command("describe", "--topic", query.topic, "--json") == 0
    described = json_of(capsys)
    assert described["open_transactions"] == []
    for position in described["partitions"]:
        assert position["last_stable_offset"] == position["high_watermark"] > 0
    assert query.command("abort", "--yes") == 0
    assert "nothing is open" in capsys.readouterr().out


def test_a_prefix_is_released(query, capsys):
    _, written = query.begin()
    assert query.command("release", "--yes", "--json") == 0
    result = json_of(capsys)
    assert result["aborted"] == sorted(t.transactional_id for t in written)
    assert result["record"] is None
    servers = ["--bootstrap-server", query.kafka.bootstrap_servers]
    assert main(["transactions", "list", *servers, "--log-topic", LOG_TOPIC, "--json"]) == 0
    assert query.prefix not in {p["prefix"] for p in json_of(capsys)["prefixes"]}
    assert query.command("release", "--yes") == 0
    assert "nothing to release" in capsys.readouterr().out


def test_what_another_application_holds_back(query, capsys):
    with producer_for(query.kafka.bootstrap_servers) as producer:
        write(producer, query.topic, "payments-app", [rows(0)])
        assert query.command("describe", "--topic", query.topic) == 0
        shown = capsys.readouterr().out
        assert "No open transactions." in shown
        [line] = [line for line in shown.splitlines() if line.startswith(f"{query.topic}-0 ")]
        assert line.split()[1:5] == ["0", "100", "100", "payments-app"]


def test_errors_are_messages(kafka, capsys):
    servers = ["--bootstrap-server", kafka.bootstrap_servers]
    for command in (["list"], ["describe", "--prefix", "x"], ["abort", "--prefix", "x", "--yes"]):
        assert main(["transactions", *command, *servers, "--log-topic", "no-such-log"]) == 1
        assert "no decision log 'no-such-log'" in capsys.readouterr().err
    nobody = ["--bootstrap-server", "127.0.0.1:1", "--timeout", "200"]
    assert main(["transactions", "list", *nobody]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
