"""Minutes in the life of a secured producer: sessions end, tokens expire, keys and passwords change.

In all of it 0 records are lost, 0 doubled, 0 out of order, and no error is raised.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.sql import SparkSession

from spark_kafka_sink.localkafka import LocalKafka, LocalSecurity
from spark_kafka_sink.localkafka.certificates import LOCAL_HOSTS, Authority, write_private
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

pytestmark = pytest.mark.long

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


def write_for(
    options: Options, topic: str, seconds: float, events: Mapping[float, Event] | None = None
) -> int:
    """Write numbers without a pause, in one task; how many.

    events : what happens so many seconds after the begin, when all before is acknowledged.
    """
    waiting = sorted((events or {}).items())
    producer = open_producer({**UNDER_LOAD, **options})
    written = 0
    try:
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds or waiting:
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


def assert_complete(kafka: LocalKafka, topic: str, count: int) -> None:
    """Each number once, and in order within its partition."""
    records = read_topic(kafka.bootstrap_servers_of(MAIN_LISTENER), topic)
    for partition in range(PARTITIONS):
        found = [int(r.value or b"") for r in records if r.partition == partition]
        assert found == list(range(partition, count, PARTITIONS))


@contextlib.contextmanager
def running(security: LocalSecurity, brokers: int = 2, **more: object) -> Iterator[LocalKafka]:
    """Three of them where one is restarted: the others are a quorum."""
    with PatientKafka(brokers, security=security, **more) as kafka:
        kafka.create_topic("t", PARTITIONS, replication_factor=1)
        yield kafka


def test_sessions_that_end_every_15_seconds_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are renewed on the connection that is there: no other is made, unless one is lost."""
    events: list[ConnectionEvent] = []
    change = NodeConnection.change

    def noted(connection: NodeConnection, event: ConnectionEvent) -> None:
        events.append(event)
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
        count = write_for(options, "t", AT_LEAST_S)
        assert_complete(kafka, "t", count)
        assert events.count(ConnectionEvent.REAUTHENTICATE) >= 2
        # One to bootstrap, one to each broker, and one for each that was lost: a machine without
        # time for this process lets a session end before it is renewed, and the broker hangs up.
        lost = events.count(ConnectionEvent.FAIL)
        assert sum(proxy.accepted_count for proxy in proxies) <= 3 + lost


def test_tokens_of_20_seconds() -> None:
    with Issuer(SECRETS, life_s=20) as issuer:
        security = LocalSecurity("sasl_ssl", ["OAUTHBEARER"], SECRETS, oauth=issuer.oauth)
        with running(security) as kafka:
            count = write_for(kafka.client_options(), "t", AT_LEAST_S)
            assert_complete(kafka, "t", count)
        assert len(issuer.requests) >= 4, "a token is fetched anew before it expires"


def test_tokens_of_20_seconds_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    with Issuer(SECRETS, life_s=20) as issuer:
        security = LocalSecurity("sasl_ssl", ["OAUTHBEARER"], SECRETS, oauth=issuer.oauth)
        with running(security) as kafka:
            rows = spark.readStream.format("rate").option("rowsPerSecond", "500").load()
            query = (
                rows.selectExpr("cast(value as string) as value")
                .writeStream.format("pykafka-sink")
                .options(**kafka.client_options(), topic="t")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(processingTime="1 second")
                .start()
            )
            assert not query.awaitTermination(AT_LEAST_S)
            # The micro-batch that runs is interrupted: some of its rows are there.
            query.stop()
            records = read_topic(kafka.bootstrap_servers_of(MAIN_LISTENER), "t")
            found = sorted(int(record.value or b"") for record in records)
            complete = sum(progress.numInputRows for progress in query.recentProgress)
            assert complete > 0
            assert [number for number in found if number < complete] == list(range(complete))
        assert len(issuer.requests) >= 4


def test_an_issuer_that_is_away_for_30_seconds() -> None:
    """Longer than the token lives: there is none for a while, and writing goes on afterwards."""
    with Issuer(SECRETS, life_s=30) as issuer:
        security = LocalSecurity("sasl_ssl", ["OAUTHBEARER"], SECRETS, oauth=issuer.oauth)
        with running(security) as kafka:
            events = {20.0: lambda: issuer.be_away_for(30)}
            count = write_for(kafka.client_options(), "t", AT_LEAST_S, events)
            assert_complete(kafka, "t", count)


def test_a_certificate_that_is_rotated_while_brokers_restart(tmp_path: Path) -> None:
    """Brokers trust the new authority alone: who comes back with the old certificate is refused."""
    old, new = Authority("old"), Authority("new")
    client = write_private(tmp_path / "client.pem", old.issue("alice").pem())
    security = LocalSecurity("SSL", authority=old, client_auth="required")
    with running(security, brokers=3) as kafka:
        trusted = kafka.secured().authority_file
        write_private(trusted, old.pem + new.pem)
        kafka.restart(1)
        kafka.restart(2)
        options = kafka.client_options()
        options["kafka.ssl.keystore.location"] = str(client)

        def rotate() -> None:
            write_private(client, new.issue("alice").pem())

        def forget_the_old() -> None:
            """The brokers' own certificate stays the old authority's, which the client trusts."""
            write_private(trusted, new.pem)
            kafka.restart(1)
            kafka.restart(2)

        options["kafka.ssl.truststore.location"] = str(
            write_private(tmp_path / "trusted.pem", old.pem)
        )
        count = write_for(options, "t", 40, {5: rotate, 10: forget_the_old})
        assert_complete(kafka, "t", count)


def change_password(kafka: LocalKafka, user: str, password: str) -> None:
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


def test_a_password_that_is_changed_under_sessions_that_end(tmp_path: Path) -> None:
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

        def change() -> None:
            change_password(kafka, "alice", "after")
            secrets.write_text("password=after\n")

        count = write_for(options, "t", 60, {15: change})
        assert_complete(kafka, "t", count)


def test_brokers_that_restart_on_another_key() -> None:
    authority = Authority()
    with running(LocalSecurity("SSL", authority=authority), brokers=3) as kafka:

        def restart() -> None:
            other = authority.issue("broker", LOCAL_HOSTS, "RSA")
            write_private(kafka.secured().broker_file, other.pem())
            kafka.restart(1)
            kafka.restart(2)

        count = write_for(kafka.client_options(), "t", 30, {5: restart})
        assert_complete(kafka, "t", count)
