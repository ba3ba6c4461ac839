"""Producer epochs come to their end, on real brokers, in the middle of exactly-once commits.

InitProducerId ages the driver's and a task's transactional id of one prefix per point to just below
the last epoch, which takes minutes. Then micro-batches go on until both have another producer id,
and the driver dies at the point in every second one.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.transactions import crash_points
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import prepare_log_topic
from spark_kafka_sink.transactions.model import (
    Driver,
    TaskTransaction,
    Unit,
    WorkerTransactionalIds,
    driver_transactional_id,
)
from tests.broker.producing import batch_of, plan_of, producer_for
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS
from tests.reading import read_topic, values

pytestmark = pytest.mark.timeout(7200)

VERSIONS = ("3.9.1", "4.4.0")
"""The last one without transaction.version 2, and today's."""
AGED_TO, BATCHES = 32_740, 40
TIMEOUT_MS = 600_000
WORKER = "0123456789ab"
NOWHERE = "none"
POINTS = (NOWHERE, *(p for p in crash_points.POINTS if p.startswith(("plan.", "commit."))))


class DiedError(BaseException):
    """The driver is no more."""


class Prefix:
    """One query whose driver dies at ``point`` in every second micro-batch."""

    def __init__(self, kafka, point):
        self.point, self.name = point, point.replace(".", "-")
        self._servers = kafka.bootstrap_servers
        self._admin = AdminClient.connect(self._servers)
        self._client = TransactionClient(self._admin)
        self._config = ExactlyOnceConfig(
            self.name, TIMEOUT_MS, "decisions", 1, accepts_missing_record=True
        )
        self._producer_ids = set()
        prepare_log_topic(self._admin, self._config, self._admin.deadline_in(PATIENCE_MS))
        kafka.create_topic(self.name)

    def age(self):
        """InitProducerId of both ids, again and again."""
        for name in (driver_transactional_id(self.name), f"{self.name}.{WORKER}.0"):
            epoch = -1
            while epoch < AGED_TO:
                deadline_ms = self._admin.deadline_in(PATIENCE_MS)
                found = self._client._init_producer_ids([name], TIMEOUT_MS, deadline_ms)
                epoch = found[name].producer_epoch

    def run(self):
        """Micro-batches until both ids have crossed the end: each once, and nothing is open."""
        ids = WorkerTransactionalIds(WORKER)
        with producer_for(self._servers) as producer:
            for number in range(BATCHES):
                if number % 2:
                    self._die_in(producer, ids, number)
                self._commit(producer, ids, number, 2 * number + 1)
        records = read_topic(self._servers, self.name, **{"isolation.level": "read_committed"})
        assert sorted(int(value or b"") for value in values(records)) == list(range(BATCHES))
        deadline_ms = self._admin.deadline_in(PATIENCE_MS)
        assert self._client.open_task_transactions(self.name, deadline_ms) == []
        assert len(self._producer_ids) == 4, self._producer_ids

    def _die_in(self, producer, ids, number):
        def hook(reached):
            if reached == self.point:
                raise DiedError(reached)

        crash_points.set_hook(hook)
        try:
            self._commit(producer, ids, number, 2 * number)
        except DiedError:
            pass
        finally:
            crash_points.set_hook(None)

    def _commit(self, producer, ids, number, driver):
        protocol = CommitProtocol(self._client, self._config, SystemClock(), PATIENCE_MS)
        plan = protocol.plan(Driver(f"driver-{driver}", "here", driver, "/checkpoint", None), None)
        producer.begin_task([self.name])
        producer.begin_transaction(ids.next_id(plan.prefix, plan.token), plan.timeout_ms)
        batch = batch_of(value=[b"%d" % number])
        producer.append(batch, plan_of(batch, self.name))
        producer.flush()
        written = TaskTransaction(*producer.transaction, 0, 1, "1-0-0")  # type: ignore[call-arg]
        self._producer_ids |= {plan.token.producer_id, written.producer_id}
        protocol.commit(plan, Unit("query", number, None), [written])


@pytest.fixture(scope="module", params=VERSIONS)
def prefixes(request):
    """All are aged at the same time. By point."""
    with PatientKafka(version=request.param) as kafka:
        made = {point: Prefix(kafka, point) for point in POINTS}
        with ThreadPoolExecutor(len(made)) as pool:
            list(pool.map(Prefix.age, made.values()))
        yield made


@pytest.mark.parametrize("point", POINTS)
def test_exactly_once_goes_on_where_epochs_end(prefixes, point):
    prefixes[point].run()
