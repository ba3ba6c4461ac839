"""No token can be had while a write begins: who waits for brokers waits for it, too."""

import logging
import threading

import pytest

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    BootstrapError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.producer.producer import ThreadedProducer
from spark_kafka_sink.spark.preflight import check_cluster
from spark_kafka_sink.transactions import session
from tests.patience import AN_HOUR_MS
from tests.unit.scripted_endpoint import Scripted, scripted

HOST = "127.0.0.1"


def is_away():
    raise RuntimeError("the issuer is away")


def gives_nothing(): ...


def values_with(provider, test):
    """``test``: makes a login of its own, which other tests have not asked before."""
    (port,) = free_ports(1, HOST)
    return {
        "bootstrap.servers": f"{HOST}:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": f"{__name__}:{provider}",
        "sasl.oauthbearer.scope": test,
    }


def options_with(provider, test, **more):
    values = {f"kafka.{name}": text for name, text in values_with(provider, test).items()}
    return SinkOptions.parse({**values, "topic": "t", **more})


def test_a_producer_waits_for_them():
    producer = ThreadedProducer(ProducerConfig.parse(values_with("is_away", "producer")))
    try:
        assert producer.is_healthy
    finally:
        producer.close()


def test_an_admin_client_waits_for_them():
    config = ProducerConfig.parse(values_with("is_away", "admin"))
    with AdminClient.of(config) as admin, pytest.raises(BootstrapError):
        admin.metadata([], False, admin.deadline_in(0))


@pytest.mark.parametrize("make", [ThreadedProducer, AdminClient.of])
def test_what_is_no_token_is_told_at_once(make):
    with pytest.raises(AuthenticationError, match="returned nothing"):
        make(ProducerConfig.parse(values_with("gives_nothing", "nothing")))


def test_the_check_before_the_first_task_tells_a_new_query():
    with pytest.raises(CredentialsUnavailableError, match="the issuer is away") as raised:
        check_cluster(options_with("is_away", "new"), is_stream=False)
    assert "kafka.sasl.oauthbearer.token.provider" in str(raised.value)


def test_and_only_warns_of_a_stream_that_may_have_run_for_weeks(caplog, tmp_path):
    options = options_with("is_away", "stream", checkpointLocation=str(tmp_path))
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        check_cluster(options, is_stream=True)
    assert "the issuer is away" in caplog.text
    assert "the tasks will wait" in caplog.text


EXACTLY_ONCE = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": "p"}


def test_the_abort_of_a_failed_task_hides_no_error():
    """Spark is told why the task failed, not that its transaction could not be aborted."""
    options = options_with("gives_nothing", "abort", **EXACTLY_ONCE)
    session.abort_task(options, "p.1", is_superseded=False)


@pytest.mark.usefixtures("no_proxy")
def test_nor_does_it_wait_longer_for_a_token_than_for_brokers(monkeypatch):
    monkeypatch.setattr(session, "_TASK_ABORT_TIMEOUT_MS", 50)
    is_over = threading.Event()
    with scripted(Scripted(waits=is_over)) as (url, received):
        options = SinkOptions.parse({"topic": "t", **EXACTLY_ONCE, **_endpoint(url)})
        session.abort_task(options, "p.1", is_superseded=False)
        is_over.set()
    assert len(received) <= 1


def _endpoint(url):
    """One that nothing but the caller's patience ends the wait for."""
    oauth = "kafka.sasl.oauthbearer"
    return {
        "kafka.bootstrap.servers": f"{HOST}:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        f"{oauth}.token.endpoint.url": url,
        f"{oauth}.client.credentials.client.id": "app",
        f"{oauth}.client.credentials.client.secret": "S3CRET",
        "kafka.sasl.login.connect.timeout.ms": str(AN_HOUR_MS),
        "kafka.sasl.login.read.timeout.ms": str(AN_HOUR_MS),
        "kafka.max.block.ms": str(AN_HOUR_MS),
    }
