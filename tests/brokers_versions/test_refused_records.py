"""Brokers of each version refuse rows that were sent: those are dead letters, the others arrive."""

import itertools

import pytest

from spark_kafka_sink.base.errors import DeliveryError
from tests.broker.refused import Refusing
from tests.brokers_versions.conftest import ON_BROKERS_THAT_TELL
from tests.brokers_versions.versions import WITH_ZOOKEEPER

pytestmark = pytest.mark.long

CAUSES = ["refused", "too-large", "bad-timestamp"]
NAMES_NO_RECORDS = WITH_ZOOKEEPER[0]
"""Older than KIP-467: what a compacted topic refuses it calls corrupt, which is sent again."""
_numbers = itertools.count()


def refusing(broker, cause, **more):
    return Refusing(broker, f"refused-{cause}-{next(_numbers)}", cause, **more)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("cause", CAUSES)
def test_refused_rows_are_dead_letters(broker, cause, codec):
    if broker.version == NAMES_NO_RECORDS and cause == "refused":
        given = refusing(
            broker,
            cause,
            kafka_delivery_timeout_ms="3000",
            kafka_request_timeout_ms="2000",
            kafka_compression_type=codec,
        )
        with pytest.raises(DeliveryError, match="CORRUPT_MESSAGE"):
            given.write()
        return
    given = refusing(broker, cause, kafka_compression_type=codec)
    given.check(given.write())


@pytest.mark.parametrize("cause", CAUSES)
def test_without_idempotence_too(broker, cause):
    if broker.version == NAMES_NO_RECORDS and cause == "refused":
        return
    in_turn = {
        "kafka_enable_idempotence": "false",
        "kafka_max_in_flight_requests_per_connection": "1",
    }
    given = refusing(broker, cause, kafka_acks="1", **in_turn)
    given.check(given.write())


@ON_BROKERS_THAT_TELL
@pytest.mark.parametrize("cause", CAUSES)
def test_a_transaction_goes_on_after_a_refusal(broker, cause):
    given = refusing(
        broker,
        cause,
        delivery_guarantee="exactly-once",
        transactional_id_prefix=f"refused-{next(_numbers)}",
        transaction_log_replication_factor="1",
    )
    given.check(given.write())
