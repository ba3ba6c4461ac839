"""Misrouted connections (KIP-1242): a broker's address leads to another real cluster, under a stream."""

import contextlib

import pytest

from tests.chaos.scene import transactional_ids
from tests.local_kafka import PatientKafka
from tests.patience import eventually
from tests.proxy import TcpProxy
from tests.reading import read_topic
from tests.spark.test_exactly_once import exactly_once
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

LISTENER, TOPIC = "ROUTED", "routed"
REFUSALS = 3


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


@pytest.fixture(scope="module")
def router():
    """In front of the broker of one cluster; the other cluster's broker has the same id."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(Router())
        listener = {"listeners": {LISTENER: "PLAINTEXT"}, "advertised": {LISTENER: [made.address]}}
        made.clusters += [
            stack.enter_context(PatientKafka(**listener)),
            stack.enter_context(PatientKafka()),
        ]
        stack.callback(made.close)  # before the brokers, which it would look for
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


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stream_loses_nothing_and_writes_nothing_to_the_other_cluster(
    spark, router, tmp_path, guarantee
):
    topic, folder = f"{TOPIC}-{guarantee}", tmp_path / "in"
    mine, other = router.clusters
    for cluster in router.clusters:
        cluster.create_topic(topic, 2)
    folder.mkdir()
    options = exactly_once(f"routed-{guarantee}") if guarantee == "exactly-once" else {}
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
    assert transactional_ids(other) == {}
