"""Minutes in the life of a secured producer: sessions end, tokens expire, keys and passwords change.

In all of it 0 records are lost, 0 doubled, 0 out of order, and no error is raised.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.localkafka import LocalKafka, LocalSecurity
from spark_kafka_sink.localkafka.certificates import LOCAL_HOSTS, Authority
from spark_kafka_sink.localkafka.security import SECURED_LISTENER
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from spark_kafka_sink.network.node_connection import ConnectionEvent, NodeConnection
from tests.broker.producing import batch_of, plan_of
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_S
from tests.proxy import TcpProxy
from tests.reading import read_topic
from tests.security.issuer import Issuer
from tests.security.listeners import SECRETS
from tests.security.stores import Options
from tests.security.writing import open_producer

PARTITIONS = 4
ROWS_PER_BATCH = 500
# Many requests, five of them in flight on each connection.
UNDER_LOAD = {
    "kafka.batch.size": "2000",
    "kafka.linger.ms": "0",
    "kafka.max.in.flight.requests.per.connection": "5",
    # A broker that is restarted on a busy machine is away for long.
    "kafka.delivery.timeout.ms": "1800000",
    "kafka.max.block.ms": "1800000",
}
AT_LEAST_S = 90

Event = Callable[[], object]


class Meanwhile:
    """An event that takes long: writing goes on, and does not end before it."""

    def __init__(self, event):
        self._executor = ThreadPoolExecutor(1)
        self._event = event
        self._running = None

    def __call__(self):
        self._running = self._executor.submit(self._event)

    def is_over(self):
        """Raises what the event raised."""
        if self._running is None or not self._running.done():
            return False
        self._running.result()
        return True


def write_for(options, topic, seconds, events=None, is_enough=lambda: True):
    """Write numbers without a pause, in one task; how many.

    events : what happens so many seconds after the begin, when all before is acknowledged.
    is_enough : what must have been seen, however long it takes.
    """
    waiting = sorted((events or {}).items())
    producer = open_producer({**UNDER_LOAD, **options})
    written = 0
    try:
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds or waiting or not is_enough():
            if waiting and elapsed >= waiting[0][0]:
                producer.flush()
                waiting.pop(0)[1]()
            numbers = range(written, written + ROWS_PER_BATCH)
            batch = batch_of(
                value=[b"%d" % number for number in numbers],
                partition=[number % PARTITIONS for number in numbers],
            )
            producer.append(batch, plan_of(batch, topic))
            written += ROWS_PER_BATCH
            if written % (20 * ROWS_PER_BATCH) == 0:
                producer.flush()
        producer.flush()
    finally:
        producer.close()
    return written


def assert_complete(kafka, topic, count):
    """Each number once, and in order within its partition."""
    records = read_topic(kafka.bootstrap_servers_of(MAIN_LISTENER), topic)
    for partition in range(PARTITIONS):
        found = [int(r.value or b"") for r in records if r.partition == partition]
        assert found == list(range(partition, count, PARTITIONS))
    print(f"{count:,} records, each once and in order")


def assert_stream_is_complete(rows, kafka, options, checkpoint, event):
    """Numbers from 0 on, in micro-batches of a second; ``event`` happens in the middle."""
    query = (
        rows.selectExpr("cast(value as string) as value")
        .writeStream.format("pykafka-sink")
        .options(**options, topic="t")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .start()
    )
    assert not query.awaitTermination(AT_LEAST_S / 3)
    if event is not None:
        event()
    after = query.lastProgress
    assert not query.awaitTermination(2 * AT_LEAST_S / 3)
    while event is not None and query.lastProgress == after:
        assert not query.awaitTermination(1)
    # The micro-batch that runs is interrupted: some of its rows are there.
    query.stop()
    records = read_topic(kafka.bootstrap_servers_of(MAIN_LISTENER), "t")
    found = sorted(int(record.value or b"") for record in records)
    complete = sum(progress.numInputRows for progress in query.recentProgress)
    assert complete > 0
    assert [number for number in found if number < complete] == list(range(complete))
    print(f"{len(query.recentProgress)} micro-batches, {complete:,} records, each once")


@contextlib.contextmanager
def running(security, brokers=2, **more):
    """Three of them where one is restarted: the others are a quorum."""
    with PatientKafka(brokers, security=security, **more) as kafka:
        kafka.create_topic("t", PARTITIONS, replication_factor=1)
        yield kafka


def test_sessions_that_end_every_15_seconds_under_load(monkeypatch):
    """They are renewed on the connection that is there: no other is made, unless one is lost."""
    events = []
    in_flight = []
    change = NodeConnection.change

    def noted(connection, event):
        events.append(event)
        if event is ConnectionEvent.REAUTHENTICATE:
            in_flight.append(len(connection.in_flight))
        change(connection, event)

    monkeypatch.setattr(NodeConnection, "change", noted)
    mechanism = "scram-sha-512"
    security = LocalSecurity(
        "SASL_PLAINTEXT", properties={f"{mechanism}.connections.max.reauth.ms": "15000"}
    )
    with contextlib.ExitStack() as stack:
        kafka: LocalKafka
        proxies = [
            stack.enter_context(TcpProxy(lambda n=n: kafka.address(n, "SECURED"), "127.0.0.1"))
            for n in (1, 2)
        ]
        told = {"SECURED": [proxy.address for proxy in proxies]}
        kafka = stack.enter_context(running(security, advertised=told))
        options = kafka.client_options()
        options["kafka.bootstrap.servers"] = ",".join(proxy.address for proxy in proxies)
        # Whoever started the brokers has tried to connect, too.
        events.clear()
        in_flight.clear()
        accepted = sum(proxy.accepted_count for proxy in proxies)
        count = write_for(options, "t", AT_LEAST_S, is_enough=lambda: any(in_flight[1:]))
        assert_complete(kafka, "t", count)
        print(f"renewed with so many requests in flight: {in_flight}")
        # One to bootstrap, one to each broker, and one for each that was lost: a machine without
        # time for this process lets a session end before it is renewed, and the broker hangs up.
        lost = events.count(ConnectionEvent.FAIL)
        assert sum(proxy.accepted_count for proxy in proxies) - accepted <= 3 + lost
        print(f"{lost} connections lost")


def numbers(spark):
    return spark.readStream.format("rate").option("rowsPerSecond", "500").load()


def test_tokens_of_20_seconds():
    with Issuer(SECRETS, life_s=20) as issuer:
        security = LocalSecurity("sasl_ssl", ["OAUTHBEARER"], SECRETS, oauth=issuer.oauth)
        with running(security) as kafka:
            count = write_for(kafka.client_options(), "t", AT_LEAST_S)
            assert_complete(kafka, "t", count)
        assert len(issuer.requests) >= 4, "a token is fetched anew before it expires"


def test_tokens_of_20_seconds_in_a_stream(spark, tmp_path):
    with Issuer(SECRETS, life_s=20) as issuer:
        security = LocalSecurity("sasl_ssl", ["OAUTHBEARER"], SECRETS, oauth=issuer.oauth)
        with running(security) as kafka:
            options = kafka.client_options()
            assert_stream_is_complete(numbers(spark), kafka, options, tmp_path, None)
        assert len(issuer.requests) >= 4


def test_an_issuer_that_is_away_for_30_seconds():
    """Longer than the token lives: there is none for a while, and writing goes on afterwards."""
    with Issuer(SECRETS, life_s=30) as issuer:
        security = LocalSecurity("sasl_ssl", ["OAUTHBEARER"], SECRETS, oauth=issuer.oauth)
        with running(security) as kafka:
            events = {20.0: lambda: issuer.be_away_for(30)}
            count = write_for(kafka.client_options(), "t", AT_LEAST_S, events)
            assert_complete(kafka, "t", count)


def restart_all(kafka):
    """One after the other: the others are a quorum."""
    for number in (1, 2, 3):
        kafka.restart(number)


class Rotation(NamedTuple):
    """Three brokers that trust two authorities, and a client with a certificate of the old one."""

    kafka: LocalKafka
    options: Options
    rotate: Event
    forget_the_old: Event


@contextlib.contextmanager
def rotation(folder):
    old, new = Authority("old"), Authority("new")
    client = write_private(folder / "client.pem", old.issue("alice").pem())
    security = LocalSecurity("SSL", authority=old, client_auth="required")
    with running(security, brokers=3) as kafka:
        trusted = kafka.secured().authority_file
        write_private(trusted, old.pem + new.pem)
        restart_all(kafka)

        def rotate():
            write_private(client, new.issue("alice").pem())

        def forget_the_old():
            """The brokers' own certificate stays the old authority's, which the client trusts."""
            write_private(trusted, new.pem)
            restart_all(kafka)

        options = {
            **kafka.client_options(),
            "kafka.ssl.keystore.location": str(client),
            "kafka.ssl.truststore.location": str(write_private(folder / "trusted.pem", old.pem)),
        }
        yield Rotation(kafka, options, rotate, forget_the_old)


def test_a_certificate_that_is_rotated_while_brokers_restart(tmp_path):
    """Brokers trust the new authority alone: who comes back with the old certificate is refused."""
    with rotation(tmp_path) as found:
        restarts = Meanwhile(found.forget_the_old)
        events = {5.0: found.rotate, 10.0: restarts}
        count = write_for(found.options, "t", 40, events, restarts.is_over)
        assert_complete(found.kafka, "t", count)


def test_a_certificate_that_is_rotated_under_a_stream(spark, tmp_path):
    with rotation(tmp_path) as found:

        def event():
            found.rotate()
            found.forget_the_old()

        options = {**UNDER_LOAD, **found.options}
        checkpoint = tmp_path / "checkpoint"
        assert_stream_is_complete(numbers(spark), found.kafka, options, checkpoint, event)


def change_password(kafka, user, password):
    """Both brokers know the new one alone."""
    servers = kafka.bootstrap_servers_of(MAIN_LISTENER)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    admin = AdminClient({"bootstrap.servers": servers})
    for changed in admin.alter_user_scram_credentials([change]).values():
        changed.result(PATIENCE_S)
    for address in kafka.bootstrap_servers_of(SECURED_LISTENER).split(","):
        config = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": "0",
        }
        assert AdminClient(config).list_topics(timeout=PATIENCE_S).brokers


def test_a_password_that_is_changed_under_sessions_that_end(tmp_path):
    """It comes by reference: who authenticates again finds the new one."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("password=before\n")
    mechanism = "scram-sha-512"
    security = LocalSecurity(
        "SASL_PLAINTEXT",
        users={"alice": "before"},
        properties={f"{mechanism}.connections.max.reauth.ms": "10000"},
    )
    with running(security) as kafka:
        options = kafka.client_options()
        del options["kafka.sasl.jaas.config"]
        options["kafka.sasl.username"] = "alice"
        options["kafka.sasl.password"] = f"${{file:{secrets}:password}}"

        def change():
            change_password(kafka, "alice", "after")
            secrets.write_text("password=after\n")

        # The last of several sessions is authenticated with the new one.
        began_with_the_new = []

        def is_enough():
            return time.monotonic() > began_with_the_new[0] + 30

        def change_and_note():
            change()
            began_with_the_new.append(time.monotonic())

        count = write_for(options, "t", 60, {15: change_and_note}, is_enough)
        assert_complete(kafka, "t", count)


def test_brokers_that_restart_on_another_key():
    authority = Authority()
    with running(LocalSecurity("SSL", authority=authority), brokers=3) as kafka:

        def restart():
            other = authority.issue("broker", LOCAL_HOSTS, "RSA")
            write_private(kafka.secured().broker_file, other.pem())
            restart_all(kafka)

        restarts = Meanwhile(restart)
        count = write_for(kafka.client_options(), "t", 30, {5: restarts}, restarts.is_over)
        assert_complete(kafka, "t", count)
