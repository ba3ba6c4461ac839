"""One broker of each version after the other."""

import pytest

from evidence.brokers_versions.zookeeper_kafka import (
    TOO_OLD_FOR_TRANSACTIONS,
    VERSIONS,
    WITH_ZOOKEEPER,
    ZooKeeperKafka,
)
from evidence.compatibility import results
from spark_kafka_sink.localkafka.settings import FAST_FAILOVER
from tests.local_kafka import PatientKafka
from tests.spark.session import spark_session

COMMAND = "make evidence NAME=versions"


def _on(versions):
    return pytest.mark.parametrize("broker", list(versions), indirect=True, scope="session")


ON_BROKERS_THAT_TELL = _on(v for v in VERSIONS if v not in TOO_OLD_FOR_TRANSACTIONS)
"""What became of a transaction, which exactly-once needs: since Kafka 3.0."""
ON_BROKERS_THAT_DO_NOT = _on(TOO_OLD_FOR_TRANSACTIONS)
_PROPERTIES = {"auto.create.topics.enable": "false"}


@pytest.fixture(scope="session", params=VERSIONS)
def broker(request):
    """Whoever stops it starts it again."""
    if request.param in WITH_ZOOKEEPER:
        with ZooKeeperKafka(request.param, _PROPERTIES) as kafka:
            yield kafka
    else:
        with PatientKafka(
            version=request.param, server_properties={**_PROPERTIES, **FAST_FAILOVER}
        ) as local_kafka:
            yield local_kafka


@pytest.fixture
def shows(broker):
    """Records whether its body passes, as a result of this broker."""
    return lambda what: results.of(
        what=what, where=results.BROKER, kafka=broker.version, command=COMMAND
    )


@pytest.fixture(scope="session")
def spark():
    """One for all brokers."""
    with spark_session() as session:
        yield session
