"""Misrouted connections (KIP-1242): a broker's address leads to another real cluster, under a stream.

The other cluster began as a copy of the first: its topics have the same ids, and its broker too. Only
the id of the cluster tells them apart, so that nothing else keeps records out of the wrong cluster.
"""

import contextlib
import re
import shutil

import pytest
from confluent_kafka import Producer

from evidence.harness.scene import transactional_ids
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.transactions.decision_log import prepare_log_topic
from spark_kafka_sink.transactions.model import driver_transactional_id
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS, PATIENCE_S, eventually
from tests.proxy import TcpProxy
from tests.reading import read_topic
from tests.spark.test_exactly_once import exactly_once
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file

pytestmark = pytest.mark.timeout(1800)

LISTENER, TOPIC = "ROUTED", "routed"
REFUSALS = 3
GUARANTEES = ("at-least-once", "exactly-once")


class Router(TcpProxy):
    """Leads to the broker that ``way`` names; counts the connections to the wrong one."""

    def __init__(self):
        self.clusters, self.way, self.misrouted_count = [], 0, 0
        super().__init__(self._broker)

    def _broker(self):
        self.misrouted_count += self.way
        return self.clusters[self.way].address(1, *([] if self.way else [LISTENER]))

    def lead_to(self, way):
        self.way, self.misrouted_count = way, 0
        self.cut()


def copy_cluster(source, copy):
    """Let the broker of ``copy`` have all data of the other, and keep its cluster's own id."""
    for cluster in (source, copy):
        cluster.stop(1)
    properties = copy.data_directory(1) / "meta.properties"
    own_id = re.search(r"^cluster\.id=.*$", properties.read_text(encoding="ascii"), re.M)[0]
    shutil.rmtree(copy.data_directory(1))
    shutil.copytree(source.data_directory(1), copy.data_directory(1))
    text = properties.read_text(encoding="ascii")
    copied = re.sub(r"^cluster\.id=.*$", lambda _: own_id, text, flags=re.M)
    assert copied != text
    properties.write_text(copied, encoding="ascii")
    for cluster in (source, copy):
        cluster.restart(1)


def prepare_for_exactly_once(kafka):
    """Create the topics that exactly-once needs: Kafka's own, and the decision log."""
    servers = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
    Producer({**servers, "transactional.id": TOPIC}).init_transactions(PATIENCE_S)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": TOPIC}
    config = SinkOptions.parse({**options, **exactly_once(TOPIC)}).exactly_once
    with AdminClient.connect(kafka.bootstrap_servers) as admin:
        prepare_log_topic(admin, config, admin.deadline_in(PATIENCE_MS))


@pytest.fixture(scope="module")
def router():
    """In front of the broker of one cluster; the other cluster is a copy with another id."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(Router())
        listener = {"listeners": {LISTENER: "PLAINTEXT"}, "advertised": {LISTENER: [made.address]}}
        made.clusters += [
            stack.enter_context(PatientKafka(**listener)),
            stack.enter_context(PatientKafka()),
        ]
        stack.callback(made.close)  # before the brokers, which it would look for
        mine, other = made.clusters
        for guarantee in GUARANTEES:
            for check in ("checked", "unchecked"):
                mine.create_topic(f"{TOPIC}-{check}-{guarantee}", 2)
        prepare_for_exactly_once(mine)
        copy_cluster(mine, other)
        yield made


def values_in(kafka, topic):
    committed = {"isolation.level": "read_committed"}
    return sorted(int(r.value) for r in read_topic(kafka.bootstrap_servers, topic, **committed))


def started(frame, router, topic, checkpoint, **options):
    # Only the addresses in metadata lead through the router.
    host, port = router.clusters[0].address(1, LISTENER)
    return (
        frame.writeStream.format("pykafka-sink")
        .options(**{"kafka.bootstrap.servers": f"{host}:{port}", "topic": topic, **options})
        .option("checkpointLocation", str(checkpoint))
        .start()
    )


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stream_loses_nothing_and_writes_nothing_to_the_other_cluster(
    spark, router, tmp_path, guarantee
):
    topic, folder = f"{TOPIC}-checked-{guarantee}", tmp_path / "in"
    mine, other = router.clusters
    folder.mkdir()
    options = exactly_once(topic) if guarantee == "exactly-once" else {}
    query = started(read_files(spark, folder), router, topic, tmp_path / "checkpoint", **options)
    try:
        for number in range(3):
            write_file(folder, number)
        assert eventually(lambda: len(values_in(mine, topic)) >= 3 * ROWS_PER_FILE)
        for number in range(3, 9):
            write_file(folder, number)
            if number % 2:
                router.lead_to(1)
                assert eventually(lambda: router.misrouted_count >= REFUSALS)
                assert query.isActive, query.exception()
                router.lead_to(0)
        rows = list(range(9 * ROWS_PER_FILE))
        assert eventually(lambda: set(values_in(mine, topic)) == set(rows))
        assert query.isActive, query.exception()
    finally:
        router.lead_to(0)
        query.stop()
    assert values_in(mine, topic) == rows
    assert values_in(other, topic) == []
    assert not any(name.startswith(topic) for name in transactional_ids(other))


def test_without_the_check_a_stream_writes_to_the_other_cluster(spark, router, tmp_path):
    """The test above could not fail otherwise."""
    topic, folder = f"{TOPIC}-unchecked-at-least-once", tmp_path / "in"
    mine, other = router.clusters
    folder.mkdir()
    write_file(folder, 0)
    unchecked = {"kafka.metadata.cluster.check.enable": "false"}
    query = started(read_files(spark, folder), router, topic, tmp_path / "checkpoint", **unchecked)
    try:
        query.processAllAvailable()
        router.lead_to(1)
        write_file(folder, 1)
        query.processAllAvailable()
    finally:
        router.lead_to(0)
        query.stop()
    assert values_in(mine, topic) == list(range(ROWS_PER_FILE))
    assert values_in(other, topic) == list(range(ROWS_PER_FILE, 2 * ROWS_PER_FILE))


def test_without_the_check_exactly_once_commits_in_the_other_cluster(spark, router, tmp_path):
    """From the first micro-batch on: later ones do not commit where decisions are missing."""
    topic, folder = f"{TOPIC}-unchecked-exactly-once", tmp_path / "in"
    mine, other = router.clusters
    folder.mkdir()
    write_file(folder, 0)
    unchecked = exactly_once(topic) | {"kafka.metadata.recovery.strategy": "none"}
    router.lead_to(1)
    query = started(read_files(spark, folder), router, topic, tmp_path / "checkpoint", **unchecked)
    try:
        query.processAllAvailable()
    finally:
        router.lead_to(0)
        query.stop()
    assert values_in(mine, topic) == []
    assert values_in(other, topic) == list(range(ROWS_PER_FILE))
    assert driver_transactional_id(topic) in transactional_ids(other)
