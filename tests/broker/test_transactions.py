"""Transactions on real brokers: begun by tasks, ended by others and by commands.

What is visible is asked of confluent-kafka; transactions are ended by a client of their own, as the
driver does.
"""

from __future__ import annotations

import json
import pickle
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import (
    DeliveryError,
    KafkaSinkError,
    SupersededError,
    error_for_code,
)
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.protocol.messages.transactions import (
    TRANSACTION_KEY_TYPE,
    EndTxnRequest,
    FindCoordinatorRequest,
)
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.task import write_rows
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.client import Outcome, TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import (
    check_brokers,
    prepare_log_topic,
)
from spark_kafka_sink.transactions.model import (
    Driver,
    TaskTransaction,
    Unit,
    WorkerTransactionalIds,
)
from tests.broker.producing import batch_of, plan_of, producer_for
from tests.broker.test_records import batches_of
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS, eventually
from tests.reading import read_topic, values

TIMEOUT_MS = 60_000
PARTITIONS = 3


class EndTxnRequestV4(EndTxnRequest):
    """What ends a transaction below transaction.version 2, though brokers offer version 5."""

    max_version = 4


def downgrade(kafka, version):
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    feature = ("--feature", f"transaction.version={version}")
    kafka.run_tool("FeatureCommand", *servers, "downgrade", *feature)


@pytest.fixture(scope="module")
def kafka_tv1():
    """A broker of today whose transaction.version is not: it offers more than it can do."""
    with PatientKafka() as local_kafka:
        downgrade(local_kafka, 1)
        yield local_kafka


TRANSACTION_VERSIONS = {"kafka": 2, "kafka_tv1": 1, "kafka_3_9": 0}


@pytest.fixture(params=TRANSACTION_VERSIONS)
def version(request):
    """The finalized level of transaction.version of ``broker``."""
    return TRANSACTION_VERSIONS[request.param]


@pytest.fixture
def broker(request, version):
    [name] = [name for name, level in TRANSACTION_VERSIONS.items() if level == version]
    return request.getfixturevalue(name)


def rows(start, count=300):
    numbers = range(start, start + count)
    return batch_of(
        key=[b"%d" % n for n in numbers],
        value=[b"%d" % n for n in numbers],
        partition=[n % PARTITIONS for n in numbers],
    )


def write(producer, topic, transactional_id, batches):
    """One task."""
    producer.begin_task([topic])
    producer.begin_transaction(transactional_id, TIMEOUT_MS)
    for batch in batches:
        producer.append(batch, plan_of(batch, topic))
    producer.flush()
    return producer.transaction


def append_rows(producer, topic):
    producer.append(rows(0), plan_of(rows(0), topic))
    producer.flush()


@contextmanager
def coordinator_of(kafka, transactional_id):
    with AdminClient.connect(kafka.bootstrap_servers) as admin:
        request = FindCoordinatorRequest(
            key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id]
        )
        response = admin.request(None, request, admin.deadline_in(PATIENCE_MS))
        [found] = response.coordinators
        assert found.error_code == 0
        yield admin, Node(found.node_id, found.host, found.port)


def end(kafka, prepared, is_commit=True):
    """End the transaction as the driver does; the name of the broker's error."""
    request_type = EndTxnRequest if prepared.transaction_version >= 2 else EndTxnRequestV4
    request = request_type(*prepared[:3], committed=is_commit)
    with coordinator_of(kafka, prepared.transactional_id) as (admin, node):
        while True:
            response = admin.request(node, request, admin.deadline_in(PATIENCE_MS))
            name = error_for_code(response.error_code).name
            if name != "CONCURRENT_TRANSACTIONS":
                return name


def committed(kafka, topic, level="read_committed"):
    records = read_topic(kafka.bootstrap_servers, topic, **{"isolation.level": level})
    return sorted(int(value or b"") for value in values(records))


def assert_committed(kafka, topic, expected):
    """The coordinator answers before the markers are written."""
    assert eventually(lambda: committed(kafka, topic) == list(expected))


def plan_of_driver(protocol):
    return protocol.plan(Driver("driver-1", "host-1", 1_700_000_000_000, "/ck", "q"), None)


def written_by_two_tasks(kafka, plan):
    """Flushed and open: rows 0 to 299, and 300 to 599."""
    slots = WorkerTransactionalIds()
    written = []
    with producer_for(kafka.bootstrap_servers) as producer:
        for number in (0, 1):
            name = slots.next_id(plan.prefix, plan.token)
            prepared = write(producer, f"{plan.prefix}-rows", name, [rows(300 * number)])
            assert prepared is not None
            written.append(TaskTransaction(*prepared, number, 300, f"300-0-{number}"))
    return written


def test_a_transaction_is_visible_once_somebody_else_has_committed_it(broker, version):
    """Also that the version follows the finalized feature, not what the broker offers."""
    topic, name = f"txn-ended-{version}", "txn.ended"
    broker.create_topic(topic, PARTITIONS)
    with producer_for(broker.bootstrap_servers, batch_size="1024") as producer:
        prepared = write(producer, topic, name, [rows(0), rows(300)])
    assert prepared.transactional_id == name
    assert prepared.transaction_version == version
    assert pickle.loads(pickle.dumps(prepared)) == prepared
    assert committed(broker, topic, "read_uncommitted") == list(range(600))
    assert committed(broker, topic) == []
    assert end(broker, prepared) == "NONE"
    assert_committed(broker, topic, range(600))
    for partition in range(PARTITIONS):
        batches = [b for b in batches_of(broker, topic, partition) if b.base_sequence >= 0]
        assert len(batches) > 1
        assert {(b.producer_id, b.producer_epoch) for b in batches} == {prepared[1:3]}
        assert [b.base_sequence for b in batches] == [b.base_offset for b in batches]


def test_a_writer_whose_id_was_taken_over_is_told_so(broker, version):
    """And what it wrote before is not visible, whatever it does afterwards."""
    topic, name = f"txn-fenced-{version}", "txn.fenced"
    broker.create_topic(topic, PARTITIONS)
    with (
        producer_for(broker.bootstrap_servers) as older,
        producer_for(broker.bootstrap_servers) as newer,
    ):
        lost = write(older, topic, name, [rows(0)])
        kept = write(newer, topic, name, [rows(1000)])
        older.append(rows(2000), plan_of(rows(2000), topic))
        with pytest.raises(DeliveryError) as caught:
            older.flush()
        with pytest.raises(DeliveryError):
            _ = older.transaction
    for part in (f"transaction {name}", "another driver", "kafka.transaction.timeout.ms"):
        assert part in str(caught.value)
    assert end(broker, lost) in {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    assert end(broker, kept) == "NONE"
    assert_committed(broker, topic, range(1000, 1300))


def test_a_timeout_beyond_the_brokers_maximum_fails_the_task_and_names_the_options(kafka):
    with producer_for(kafka.bootstrap_servers) as producer:
        producer.begin_task([])
        producer.begin_transaction("txn.timeout", 900_001)
        with pytest.raises(KafkaSinkError) as caught:
            append_rows(producer, "txn-timeout")
    for part in ("txn.timeout", "INVALID_TRANSACTION_TIMEOUT", "transaction.max.timeout.ms"):
        assert part in str(caught.value)


@pytest.mark.parametrize("version", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_transaction_is_committed_after_the_feature_was_downgraded(version):
    """By a client whose connection is older: as the broker told it then, EndTxn v5 was right. At 0
    that leaves the transaction open until the broker is restarted.
    """
    topic, name = "downgraded", "p.0123456789ab.0"
    with PatientKafka() as kafka, AdminClient.connect(kafka.bootstrap_servers) as admin:
        kafka.create_topic(topic, 3)
        client = TransactionClient(admin)
        assert client.init_producer_id(
            "p.driver", 60_000, admin.deadline_in(PATIENCE_MS)
        ).transaction_version
        with producer_for(kafka.bootstrap_servers) as producer:
            prepared = write(producer, topic, name, [rows(0)])
        assert prepared.transaction_version == 2
        transaction = TaskTransaction(*prepared, 0, 300, "300-0-0")
        client.describe([name], admin.deadline_in(PATIENCE_MS))
        downgrade(kafka, version)
        outcomes = client.commit_all([transaction], admin.deadline_in(PATIENCE_MS))
        assert outcomes == {name: Outcome.COMMITTED}
        assert_committed(kafka, topic, range(300))
        again = client.commit_all([transaction], admin.deadline_in(PATIENCE_MS))
        assert again == {name: Outcome.COMMITTED}


def test_an_attempt_that_is_late_leaves_nothing_open_that_readers_wait_for(broker, version):
    """As the query is idle then, nobody plans and sweeps."""
    topic = f"late-{version}"
    broker.create_topic(topic, PARTITIONS)
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": topic,
            "delivery.guarantee": "exactly-once",
            "transactional.id.prefix": "late",
            "transaction.log.topic": "late-log",
            "transaction.log.replication.factor": "1",
        }
    )

    def attempt(batches):
        message = KafkaCommitMessage(partition_id=0, attempt_number=0, query_id="q")
        write_rows(batches, options, plan_of(rows(0), topic), message, plan)
        return message.transaction

    def late_rows():
        winner = attempt(iter([rows(0)]))
        assert protocol.commit(plan, Unit("q", 0, None), [winner]) is not None
        yield rows(0)

    with AdminClient.connect(broker.bootstrap_servers) as admin:
        prepare_log_topic(admin, options.exactly_once, admin.deadline_in(PATIENCE_MS))
        client = TransactionClient(admin)
        protocol = CommitProtocol(client, options.exactly_once, SystemClock(), PATIENCE_MS)
        plan = plan_of_driver(protocol)
        with pytest.raises(SupersededError, match="too late"):
            attempt(late_rows())
    # Readers of committed records see the query's, and what others write behind them.
    with producer_for(broker.bootstrap_servers) as other:
        other.append(rows(1000), plan_of(rows(1000), topic))
        other.flush()
    assert_committed(broker, topic, [*range(300), *range(1000, 1300)])


LONG_TIMEOUT_MS = 900_000
LOG_TOPIC = "cli-transactions"


class CrashError(BaseException):
    """The driver is no more."""


def crash_at(point):
    def crash(reached):
        if reached == point:
            raise CrashError(point)

    return crash


class Query(NamedTuple):
    """A driver, and tasks that write with the real producer."""

    kafka: LocalKafka
    prefix: str
    protocol: CommitProtocol

    @property
    def topic(self):
        return f"{self.prefix}-rows"

    def begin(self):
        plan = plan_of_driver(self.protocol)
        return plan, written_by_two_tasks(self.kafka, plan)

    def decide(self):
        """Micro-batch 7 is decided, and then the driver dies."""
        plan, written = self.begin()
        crash_points.set_hook(crash_at("commit.decided"))
        with pytest.raises(CrashError):
            self.protocol.commit(plan, Unit("query-1", 7, None), written)
        crash_points.set_hook(None)
        return written

    def command(self, name, *more):
        servers = self.kafka.bootstrap_servers
        given = ("--bootstrap-server", servers, "--log-topic", LOG_TOPIC)
        return main(["transactions", name, *given, "--prefix", self.prefix, *more])


@contextmanager
def open_query(kafka, prefix):
    """A driver of its own; no crash point is left set."""
    kafka.create_topic(f"{prefix}-rows", PARTITIONS)
    config = ExactlyOnceConfig(prefix, LONG_TIMEOUT_MS, LOG_TOPIC, 1, accepts_missing_record=True)
    with AdminClient.connect(kafka.bootstrap_servers) as admin:
        deadline_ms = admin.deadline_in(PATIENCE_MS)
        check_brokers(admin, config, deadline_ms)
        prepare_log_topic(admin, config, deadline_ms)
        client = TransactionClient(admin)
        try:
            yield Query(kafka, prefix, CommitProtocol(client, config, SystemClock(), PATIENCE_MS))
        finally:
            crash_points.set_hook(None)


@pytest.fixture
def query(kafka, request):
    with open_query(kafka, request.node.name.replace("_", "-")) as opened:
        yield opened


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
        assert 0 <= transaction["age_ms"] < LONG_TIMEOUT_MS
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
    assert_committed(query.kafka, query.topic, range(600))
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


def test_what_an_abort_has_left_open_that_was_killed(broker, version):
    """Brokers show the transaction timeout of who has the driver's id, whatever their version."""
    with open_query(broker, f"killed-abort-{version}") as query:
        plan, written = query.begin()
        crash_points.set_hook(crash_at("abort.settled"))
        with pytest.raises(CrashError):
            query.protocol.abort(plan.driver)
        crash_points.set_hook(None)
        found = query.protocol.clean_up_after(plan.driver, plan.token)
        assert found.ended == tuple(sorted(t.transactional_id for t in written))
        assert query.protocol.clean_up_late(found.token) == ()


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
