"""What services differ in, shown by kfake: Redpanda's versions, no producer ids, a limit for requests.

The versions of Redpanda: its ``src/v/kafka/server/handlers``, of 24.1 and before for Produce.
"""

import random
from pathlib import Path

import pytest

from evidence.kfake.writing import Numbers
from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError
from spark_kafka_sink.config.config_def import read_properties
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.preflight import check_cluster
from spark_kafka_sink.transactions.model import Unit
from tests.broker.producing import batch_of, plan_of, producer_for
from tests.broker.test_records import CODECS
from tests.broker.test_transactions import assert_committed, open_query
from tests.reading import read_topic

REDPANDA = {
    "Produce": 7,
    "Metadata": 8,
    "InitProducerID": 3,
    "AddPartitionsToTxn": 1,
    "EndTxn": 3,
    "DescribeCluster": -1,
    "DescribeQuorum": -1,
    "GetTelemetrySubscriptions": -1,
}
ROWS = list(range(600))
CONF = Path(__file__).parents[2] / "conf"


@pytest.mark.parametrize("codec", CODECS)
def test_redpandas_versions(new_cluster, codec):
    cluster = new_cluster(brokers=3, version="3.9", offered=REDPANDA)
    numbers = Numbers(cluster).create()
    cluster.do("lose", api="Produce", count=3, skip=2)
    assert numbers.deliver(compression_type=codec).retries > 0


def test_exactly_once_with_redpandas_versions(new_cluster):
    """A driver dies after its decision, and the next one goes on."""
    with open_query(new_cluster(brokers=3, version="3.9", offered=REDPANDA), "p") as query:
        query.decide()
        plan, written = query.begin()
        assert_committed(query.kafka, query.topic, ROWS)
        query.protocol.commit(plan, Unit("query-1", 8, None), written)
        assert_committed(query.kafka, query.topic, sorted(2 * ROWS))


class TestWithoutProducerIds:
    """As Oracle's streaming."""

    @pytest.fixture
    def cluster(self, new_cluster):
        return new_cluster(offered={"InitProducerID": -1})

    def test_a_job_fails_before_its_tasks_and_check_says_so(self, cluster, capsys):
        Numbers(cluster).create()
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "numbers"}
        with pytest.raises(ConfigError, match="PKS-CONNECT-012"):
            check_cluster(SinkOptions.parse(given), is_stream=False)
        arguments = [text for pair in given.items() for text in ("--option", "=".join(pair))]
        assert main(["check", *arguments]) == 1
        assert "✗ idempotence" in capsys.readouterr().out
        without = "kafka.enable.idempotence=false"
        assert main(["check", *arguments, "--option", without]) == 0

    def test_without_idempotence_records_arrive(self, cluster):
        Numbers(cluster).create().deliver(enable_idempotence="false")


def options_in(file):
    prefix = "spark.pykafka.kafka."
    values = {name: value for name, value, _ in read_properties(CONF / file)}
    sizes = ("batch.size", "max.request.size", "compression.type")
    return {name.replace(".", "_"): values[prefix + name] for name in sizes}


class TestTheLimitOfEventHubs:
    @pytest.fixture
    def cluster(self, new_cluster):
        cluster = new_cluster(limit=1_046_528)
        cluster.create_topic("large", 6)
        return cluster

    def write(self, cluster, value_bytes, **options):
        """Two rows for each partition, whose bytes no codec makes fewer."""
        partitions = [*range(6)] * 2
        values = [random.Random(n).randbytes(value_bytes) for n in range(len(partitions))]
        batch = batch_of(value=values, partition=partitions)
        with producer_for(cluster.bootstrap_servers, **options) as producer:
            producer.append(batch, plan_of(batch, "large"))
            producer.flush()
        return sorted(values)

    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_the_file_for_it_keeps_to_it(self, cluster, codec):
        options = {**options_in("event-hubs.conf"), "compression_type": codec}
        values = self.write(cluster, 250_000, **options)
        read = read_topic(cluster.bootstrap_servers, "large")
        assert sorted(record.value for record in read) == values

    def test_larger_requests_fail_with_their_size_and_the_options(self, cluster):
        larger = {"batch_size": "1200000", "max_request_size": "1200000", "retries": "5"}
        with pytest.raises(KafkaSinkError) as raised:
            self.write(cluster, 1_060_000, **larger)
        told = str(raised.value)
        for words in ("times while a request of 106", "kafka.max.request.size", "kafka.batch.size"):
            assert words in told
        assert raised.value.code == "CONNECT-013"
        assert "SASL" not in told
