"""Producer epochs come to their end, on a real broker, in the middle of exactly-once commits.

python -m evidence epochs 4.4.0                       # a driver dies at each named point
python -m evidence epochs 3.9.1 commit.decided none   # at these alone

InitProducerId ages the driver's and a task's transactional id of one prefix per point to just below
the last epoch, which takes minutes. Then micro-batches go on until both have another producer id,
and the driver dies at the point in every second one. Every record must be visible once to another
client, and nothing may be open.
"""

import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from evidence.harness.planning import parser_of, show
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig
from spark_kafka_sink.localkafka import LocalKafka
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
from tests.reading import read_topic, values

logger = logging.getLogger("epochs")

_AGED_TO = 32_740
_BATCHES = 40
_TIMEOUT_MS = 600_000
_PATIENCE_MS = 60_000
_LOG_TOPIC = "decisions"
_WORKER = "0123456789ab"
_NOWHERE = "none"
_POINTS = tuple(p for p in crash_points.POINTS if p.startswith(("plan.", "commit.")))


class _DiedError(BaseException):
    """The driver is no more."""


class Prefix:
    """One query whose driver dies at ``point`` in every second micro-batch."""

    def __init__(self, kafka, point):
        self.point = point
        self.name = point.replace(".", "-")
        self._servers = kafka.bootstrap_servers
        self._admin = AdminClient.connect(self._servers)
        self._client = TransactionClient(self._admin)
        self._config = ExactlyOnceConfig(
            self.name, _TIMEOUT_MS, _LOG_TOPIC, 1, accepts_missing_record=True
        )
        self._producer_ids = set()
        kafka.create_topic(self.name)

    def age(self):
        """InitProducerId of both ids, again and again."""
        task_id = f"{self.name}.{_WORKER}.0"
        for name in (driver_transactional_id(self.name), task_id):
            epoch = -1
            while epoch < _AGED_TO:
                deadline_ms = self._admin.deadline_in(_PATIENCE_MS)
                found = self._client._init_producer_ids([name], _TIMEOUT_MS, deadline_ms)
                epoch = found[name].producer_epoch

    def run(self):
        """Micro-batches until both ids have crossed the end; how it went."""
        ids = WorkerTransactionalIds(_WORKER)
        with producer_for(self._servers) as producer:
            for number in range(_BATCHES):
                if number % 2:
                    self._die_in(producer, ids, number)
                self._commit(producer, ids, number, 2 * number + 1)
        records = read_topic(self._servers, self.name, **{"isolation.level": "read_committed"})
        seen = sorted(int(value or b"") for value in values(records))
        assert seen == list(range(_BATCHES)), f"{self.name}: {seen}"
        deadline_ms = self._admin.deadline_in(_PATIENCE_MS)
        assert self._client.open_task_transactions(self.name, deadline_ms) == []
        assert len(self._producer_ids) == 4, f"{self.name}: {self._producer_ids}"
        return f"{self.name}: {_BATCHES} micro-batches, once each"

    def _die_in(self, producer, ids, number):
        def hook(reached):
            if reached == self.point:
                raise _DiedError(reached)

        crash_points.set_hook(hook)
        try:
            self._commit(producer, ids, number, 2 * number)
        except _DiedError:
            pass
        finally:
            crash_points.set_hook(None)

    def _commit(self, producer, ids, number, driver):
        protocol = CommitProtocol(self._client, self._config, SystemClock(), _PATIENCE_MS)
        who = Driver(f"driver-{driver}", "here", driver, "/checkpoint", None)
        plan = protocol.plan(who, None)
        written = [self._write(producer, ids, plan, number)]
        self._producer_ids |= {plan.token.producer_id, written[0].producer_id}
        protocol.commit(plan, Unit("query", number, None), written)

    def _write(self, producer, ids, plan, number):
        producer.begin_task([self.name])
        producer.begin_transaction(ids.next_id(plan.prefix, plan.token), plan.timeout_ms)
        batch = batch_of(value=[b"%d" % number])
        producer.append(batch, plan_of(batch, self.name))
        producer.flush()
        prepared = producer.transaction
        return TaskTransaction(*prepared, 0, 1, "1-0-0")  # type: ignore[call-arg]


def run(version, points):
    """All prefixes are aged at the same time, and run one after another."""
    with LocalKafka(version=version) as kafka:
        with AdminClient.connect(kafka.bootstrap_servers) as admin:
            config = ExactlyOnceConfig("any", _TIMEOUT_MS, _LOG_TOPIC, 1)
            prepare_log_topic(admin, config, admin.deadline_in(_PATIENCE_MS))
        prefixes = [Prefix(kafka, point) for point in points]
        started = time.monotonic()
        with ThreadPoolExecutor(len(prefixes)) as pool:
            list(pool.map(Prefix.age, prefixes))
        logger.info(f"Kafka {version}: ids aged in {time.monotonic() - started:.0f} s")
        for prefix in prefixes:
            logger.info(prefix.run())


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("version", help="of Kafka")
    parser.add_argument("points", nargs="*", help=f"{_NOWHERE}, {', '.join(_POINTS)}")
    arguments = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    points = arguments.points or (_NOWHERE, *_POINTS)
    unknown = set(points) - {*_POINTS, _NOWHERE}
    if unknown:
        raise SystemExit(f"no such points: {sorted(unknown)}")
    if arguments.plan:
        return show(f"Kafka {arguments.version}: {point}" for point in points)
    run(arguments.version, points)
    return 0
