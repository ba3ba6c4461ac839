"""Leaders that change on brokers before KRaft: stopped as by an upgrade, and killed."""

import itertools
import threading

import pytest

from tests.broker.producing import batch_of, plan_of, producer_for
from tests.brokers_versions.conftest import COMMAND
from tests.brokers_versions.test_records import acknowledged
from tests.brokers_versions.zookeeper_kafka import ZooKeeperKafka
from tests.compatibility import results
from tests.patience import NO_OTHER_TIMEOUT, eventually
from tests.reading import read_topic

pytestmark = pytest.mark.long

TOPIC = "leaders"
PARTITIONS = 3
ROWS = 30
OPTIONS = {**NO_OTHER_TIMEOUT, "batch_size": "4096", "buffer_memory": "1048576"}


@pytest.mark.parametrize("version", ["2.1.1", "2.8.2"])
def test_leaders_change_while_a_task_writes(version):
    """Each broker leads all partitions in turn, one after a clean shutdown, one after a kill."""
    shown = {"what": "restart", "where": results.BROKER, "kafka": version, "command": COMMAND}
    stop, written = threading.Event(), [0]

    def write_on():
        for first in itertools.count(step=ROWS):
            if stop.is_set():
                return
            rows = range(first, first + ROWS)
            batch = batch_of(
                value=[b"%d:" % row + b"x" * 400 for row in rows],
                partition=[row % PARTITIONS for row in rows],
            )
            producer.append(batch, plan_of(batch, TOPIC))
            written[0] = first + ROWS

    def await_more():
        before = acknowledged(producer)
        assert eventually(lambda: acknowledged(producer) > before + 1000)

    with results.of(**shown), ZooKeeperKafka(version, brokers=2) as kafka:
        kafka.create_topic(TOPIC, PARTITIONS)
        with producer_for(kafka.bootstrap_servers, **OPTIONS) as producer:
            task = threading.Thread(target=write_on)
            task.start()
            try:
                for end, broker_id in ((kafka.stop, 1), (kafka.kill, 2), (kafka.stop, 1)):
                    await_more()
                    end(broker_id)
                    await_more()
                    kafka.restart(broker_id)
                    kafka.await_in_sync()
            finally:
                stop.set()
                task.join()
            producer.flush()
        records = read_topic(kafka.bootstrap_servers, TOPIC)
    for partition in range(PARTITIONS):
        rows = [int((r.value or b"").split(b":")[0]) for r in records if r.partition == partition]
        assert rows == list(range(partition, written[0], PARTITIONS))
