"""Sessions that end under load. Tokens, passwords and certificates change in ``make evidence NAME=week``."""

import contextlib
import time

from spark_kafka_sink.localkafka import LocalKafka, LocalSecurity
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from spark_kafka_sink.network.node_connection import ConnectionEvent, NodeConnection
from tests.broker.producing import batch_of, plan_of
from tests.local_kafka import PatientKafka
from tests.proxy import TcpProxy
from tests.reading import read_topic
from tests.security.writing import open_producer

PARTITIONS = 4
ROWS_PER_BATCH = 500
# Many requests, five of them in flight on each connection.
UNDER_LOAD = {
    "kafka.batch.size": "2000",
    "kafka.linger.ms": "0",
    "kafka.max.in.flight.requests.per.connection": "5",
    "kafka.delivery.timeout.ms": "1800000",
    "kafka.max.block.ms": "1800000",
}
AT_LEAST_S = 90
SESSION_MS = 15_000


def write_until(options, is_enough):
    """Write numbers without a pause, in one task, for AT_LEAST_S and until ``is_enough``; how many."""
    written, began = 0, time.monotonic()
    with contextlib.closing(open_producer({**UNDER_LOAD, **options})) as producer:
        while time.monotonic() - began < AT_LEAST_S or not is_enough():
            numbers = range(written, written + ROWS_PER_BATCH)
            batch = batch_of(
                value=[b"%d" % number for number in numbers],
                partition=[number % PARTITIONS for number in numbers],
            )
            producer.append(batch, plan_of(batch, "t"))
            written += ROWS_PER_BATCH
            if written % (20 * ROWS_PER_BATCH) == 0:
                producer.flush()
        producer.flush()
    return written


def test_sessions_that_end_every_15_seconds_under_load(monkeypatch):
    """They are renewed on the connection that is there: no other is made, unless one is lost."""
    events, in_flight = [], []
    change = NodeConnection.change

    def noted(connection, event):
        events.append(event)
        if event is ConnectionEvent.REAUTHENTICATE:
            in_flight.append(len(connection.in_flight))
        change(connection, event)

    monkeypatch.setattr(NodeConnection, "change", noted)
    properties = {"scram-sha-512.connections.max.reauth.ms": str(SESSION_MS)}
    security = LocalSecurity("SASL_PLAINTEXT", properties=properties)
    with contextlib.ExitStack() as stack:
        kafka: LocalKafka
        proxies = [
            stack.enter_context(TcpProxy(lambda n=n: kafka.address(n, "SECURED"), "127.0.0.1"))
            for n in (1, 2)
        ]
        told = {"SECURED": [proxy.address for proxy in proxies]}
        kafka = stack.enter_context(PatientKafka(2, security=security, advertised=told))
        kafka.create_topic("t", PARTITIONS, replication_factor=1)
        options = kafka.client_options()
        options["kafka.bootstrap.servers"] = ",".join(proxy.address for proxy in proxies)
        # Whoever started the brokers has tried to connect, too.
        events.clear()
        in_flight.clear()
        accepted = sum(proxy.accepted_count for proxy in proxies)
        count = write_until(options, is_enough=lambda: any(in_flight[1:]))
        records = read_topic(kafka.bootstrap_servers_of(MAIN_LISTENER), "t")
        for partition in range(PARTITIONS):
            found = [int(r.value or b"") for r in records if r.partition == partition]
            assert found == list(range(partition, count, PARTITIONS))
        # One to each bootstrap address, because the second is asked if the first is slow, and to each
        # broker; and one for each that was lost: a machine without time for this process lets a
        # session end before it is renewed, and the broker hangs up. Renewals are many more.
        lost = events.count(ConnectionEvent.FAIL)
        assert sum(proxy.accepted_count for proxy in proxies) - accepted <= 4 + lost
        assert len(in_flight) > 5
