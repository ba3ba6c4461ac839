"""A real broker's quota: what it delays is neither lost, nor late, nor sent twice."""

import pytest

from tests.broker.producing import batch_of, send
from tests.reading import read_topic

pytestmark = pytest.mark.long

CLIENT_ID = "of-a-small-quota"
BYTES_PER_SECOND = 100_000
RECORDS = 3_000


@pytest.mark.parametrize("in_flight", ["1", "5"])
def test_pauses_that_are_longer_than_all_timeouts(kafka, in_flight):
    """3 MB: the broker takes a window of ten seconds' bytes at once, then asks for long pauses."""
    client_id = f"{CLIENT_ID}-{in_flight}"
    kafka.run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "--alter"),
        *("--entity-type", "clients", "--entity-name", client_id),
        *("--add-config", f"producer_byte_rate={BYTES_PER_SECOND}"),
    )
    topic = f"quota-{in_flight}"
    kafka.create_topic(topic, 1)
    values = [b"%06d" % number + bytes(1_000) for number in range(RECORDS)]
    batches = [batch_of(value=values[at : at + 100]) for at in range(0, RECORDS, 100)]
    producer = send(
        kafka.bootstrap_servers,
        topic,
        batches,
        client_id=client_id,
        max_in_flight_requests_per_connection=in_flight,
        batch_size="50000",
        buffer_memory="1048576",
        max_block_ms="2000",
        request_timeout_ms="2000",
        linger_ms="0",
        delivery_timeout_ms="2500",
    )
    assert [record.value for record in read_topic(kafka.bootstrap_servers, topic)] == values
    metrics = producer.metrics
    assert metrics.throttle_time_max_ms > 2_500
    assert metrics.retries == 0
