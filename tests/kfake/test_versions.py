"""Brokers that know the requests of every Kafka from 2.1 on, and those that are too old."""

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from tests.broker.test_records import CODECS
from tests.kfake.writing import Numbers

pytestmark = pytest.mark.long

VERSIONS = (
    *(f"2.{minor}" for minor in range(1, 9)),
    *(f"3.{minor}" for minor in range(10)),
    *(f"4.{minor}" for minor in range(3)),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_is_spoken_with(new_cluster, version):
    cluster = new_cluster(version=version, brokers=2)
    for codec in CODECS:
        numbers = Numbers(cluster, codec, chunks=3).create()
        cluster.do("fault", api="Produce", error="NOT_LEADER_FOR_PARTITION", count=1, skip=1)
        cluster.do("lose", api="Produce", count=1, skip=2)
        assert numbers.deliver(compression_type=codec).retries > 0


def test_too_old(new_cluster):
    numbers = Numbers(new_cluster(version="0.10.2")).create()
    with pytest.raises(KafkaSinkError, match="Kafka 2.1 or newer is needed"):
        numbers.deliver()
