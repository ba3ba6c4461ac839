"""``pykafka-sink check`` while a broker fails: each check still has its finding."""

import random

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.protocol.messages.inspection import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from spark_kafka_sink.protocol.messages.topics import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    ProduceRequest,
)
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    Coordinator,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from spark_kafka_sink.tools.check_cluster import (
    Outcome,
    bootstrap_addresses,
    broker_addresses,
    cluster_checks,
    exactly_once,
    formats,
    write_record,
)
from spark_kafka_sink.tools.command import EXIT_REFUSED
from spark_kafka_sink.tools.services import service_of
from tests.simulation.time import SimClock
from tests.unit.scripted_network import LoseConnection, ScriptedNetwork, Silence

NODE = Node(1, "broker", 9092)
REQUESTS = (
    MetadataRequest,
    DescribeQuorumRequest,
    DescribeConfigsRequest,
    DescribeClientQuotasRequest,
    InitProducerIdRequest,
)
OFFERED = {request: (request.min_version, request.max_version) for request in REQUESTS}
OFFERED_TRANSACTIONS = {
    request: (request.min_version, request.max_version)
    for request in (
        *(FindCoordinatorRequest, InitProducerIdRequest, AddPartitionsToTxnRequest),
        *(EndTxnRequest, DescribeTransactionsRequest, ListTransactionsRequest),
    )
}
GIVEN = {
    "kafka.bootstrap.servers": "broker:9092",
    "topic": "flights",
    "topic.creation.enable": "true",
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "letters",
}
OPTIONS = SinkOptions.parse(GIVEN)
MISSING = 3  # UNKNOWN_TOPIC_OR_PARTITION
UNAVAILABLE = 15  # COORDINATOR_NOT_AVAILABLE


class FailingBroker:
    """A broker that answers ``healthy`` requests, and then fails. missing: no topic exists.

    min_isr: of each topic, with one replica; None: no setting is told
    """

    def __init__(self, healthy=1000, failure=Silence, missing=False, min_isr="1", host=NODE.host):
        self.healthy, self.failure, self.missing = healthy, failure, missing
        self.min_isr = min_isr
        self.cluster_id = "Vw1Rk"
        self.clock = SimClock(0)
        self.node = NODE._replace(host=host)
        self.network = ScriptedNetwork({1: self.node}, self.clock, self._answer, OFFERED)
        self.admin = AdminClient(
            [(host, 9092)], DEFAULT_SETTINGS, self.network, self.clock, random.Random(1)
        )

    def findings(self, **more):
        """By subject."""
        options = SinkOptions.parse({**GIVEN, **more})
        with self.admin:
            return {one.subject: one for one in cluster_checks(self.admin, options, self.clock)}

    def exactly_once(self, without=None):
        self.network.offered |= OFFERED_TRANSACTIONS
        self.network.offered.pop(without, None)
        with self.admin as admin:
            return list(exactly_once(admin, EXACTLY_ONCE.exactly_once, 1000))

    def _answer(self, asked):
        if len(self.network.asked) > self.healthy:
            if self.failure is LoseConnection:
                self.network.down.add(1)
            raise self.failure
        request = asked.request
        if isinstance(request, MetadataRequest):
            topics = [self._topic(topic.name) for topic in request.topics or ()]
            brokers = [MetadataResponseBroker(*self.node[:3])]
            return MetadataResponse(brokers=brokers, cluster_id=self.cluster_id, topics=topics)
        if isinstance(request, DescribeConfigsRequest):
            if self.min_isr is None:
                return DescribeConfigsResponse(0, [DescribeConfigsResult(0, None, 2, "t", [])])
            configs = [DescribeConfigsResourceResult("min.insync.replicas", self.min_isr)]
            return DescribeConfigsResponse(0, [DescribeConfigsResult(0, None, 2, "t", configs)])
        if isinstance(request, DescribeQuorumRequest):
            return DescribeQuorumResponse()
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(
                coordinators=[Coordinator(request.coordinator_keys[0], -1, "", -1, UNAVAILABLE)]
            )
        return DescribeClientQuotasResponse(entries=[])

    def _topic(self, name):
        if self.missing:
            return MetadataResponseTopic(MISSING, name)
        partition = MetadataResponsePartition(0, 0, 1, 0, [1], [1], [])
        return MetadataResponseTopic(
            0, name, partitions=[partition], topic_authorized_operations=1 << 4
        )


CHECKED = {"clock", "topic flights", "topic letters", "quotas"}


@pytest.mark.parametrize("failure", [LoseConnection, Silence])
@pytest.mark.parametrize("missing", [False, True])
def test_each_check_has_a_finding(failure, missing):
    """The broker fails at the first request, at the second, …, and at none."""
    healthy = FailingBroker(1000, failure, missing)
    everything = healthy.findings()
    count = len(healthy.network.asked)
    assert everything.keys() >= CHECKED
    for answered in range(count):
        found = FailingBroker(answered, failure, missing).findings()
        assert found.keys() >= CHECKED, answered
        assert found != everything, answered


def test_rights_that_cannot_be_read_are_unknown():
    """The topic was described before: only its rights are missing."""
    found = FailingBroker(3, LoseConnection).findings()
    assert found["topic flights"].outcome is Outcome.PASSED
    assert found["rights on topic flights"].outcome is Outcome.UNKNOWN
    assert found["topic letters"].outcome is Outcome.FAILED
    assert "broker:9092" in found["topic letters"].text


@pytest.mark.parametrize(
    ("produce_version", "outcome", "words"),
    [(9, Outcome.FAILED, "brokers before Kafka 3.7 take no record"), (10, Outcome.WARNED, "lower")],
    ids=["Kafka 3.6", "Kafka 3.7"],
)
def test_more_in_sync_replicas_are_needed_than_there_are(produce_version, outcome, words):
    """Facts of Kafka's tags 3.6.2 and 3.7.0: ``Partition.effectiveMinIsr``, ProduceRequest.json."""
    broker = FailingBroker(1000, Silence, min_isr="2")
    broker.network.offered[ProduceRequest] = (0, produce_version)
    finding = broker.findings()["topic flights: min.insync.replicas"]
    assert finding.outcome is outcome
    assert words in finding.cure


def test_a_service_without_what_kafka_has():
    """As Oracle's: nothing is blamed on ZooKeeper, a right or an old Kafka. A job would fail."""
    broker = FailingBroker(min_isr=None)
    for request in (InitProducerIdRequest, DescribeQuorumRequest, DescribeClientQuotasRequest):
        del broker.network.offered[request]
    found = broker.findings()
    told = found["idempotence"]
    assert told.outcome is Outcome.FAILED
    for words in ("broker:9092", "InitProducerId", "Set kafka.enable.idempotence=false"):
        assert words in told.text
    assert "idempotence" not in broker.findings(**{"kafka.enable.idempotence": "false"})
    assert "do not offer DescribeQuorum" in found["clock"].text
    assert found["topic flights: settings"].text.endswith("reports no such setting")
    assert "does not offer DescribeClientQuotas" in found["quotas"].text
    assert not any("DESCRIBE_CONFIGS" in finding.text + finding.cure for finding in found.values())


def test_settings_that_brokers_do_not_report_have_no_value():
    """Not this client's own, and not Kafka's default."""
    found = FailingBroker().findings()
    limit = found["topic flights: max.message.bytes"]
    assert (limit.outcome, limit.text) == (Outcome.UNKNOWN, "the brokers do not report it")
    assert not {"idempotence", "service"} & found.keys(), "there is nothing to tell"


@pytest.mark.parametrize(
    ("host", "cluster_id", "name"),
    [
        ("ns.servicebus.windows.net", "ns", "Azure Event Hubs"),
        ("pkc-4r1.eu-west-1.aws.confluent.cloud", None, "Confluent Cloud"),
        ("b-1.flights.a1b2.c3.kafka.eu-west-1.amazonaws.com", None, "Amazon MSK"),
        ("boot-x.c1.kafka-serverless.eu-west-1.amazonaws.com", None, "Amazon MSK Serverless"),
        ("flights-project.a.aivencloud.com", None, "Aiven"),
        ("alikafka-post-cn-x-1.alikafka.aliyuncs.com", None, "ApsaraMQ of Alibaba Cloud"),
        ("streaming.us-phoenix-1.oci.oraclecloud.com", None, "Oracle Cloud's Streaming"),
        ("cell-1.STREAMING.us-phoenix-1.oci.oraclecloud.com.", None, "Oracle Cloud's Streaming"),
        ("seed.any.us-east-1.mpx.prd.cloud.redpanda.com", None, "Redpanda"),
        ("broker", "redpanda.9722a164-329b-4c17-8b03-e3109f0e9196", "Redpanda"),
        ("broker", "tansu_cluster", "Tansu"),
        ("pc-1.pool.streamnative.aws.snio.cloud", None, "StreamNative"),
        ("api-1.discoveryv2.prod-z.us-east-1.warpstream.com", None, "WarpStream"),
        ("broker", "Vw1Rk", None),
        ("confluent.cloud.example", None, None),
        ("notconfluent.cloud", "my-redpanda.x", None),
        ("ec2-1.eu-west-1.compute.amazonaws.com", "", None),
    ],
)
def test_a_service_is_named_only_by_what_shows_it(host, cluster_id, name):
    assert service_of(["10.0.0.1", host], cluster_id) == name
    assert service_of([host, "10.0.0.1"], cluster_id) == name


@pytest.mark.parametrize(("size", "is_warned"), [("1046528", True), ("1000000", False)])
def test_options_beyond_the_services_limit(size, is_warned):
    broker = FailingBroker(host="ns.servicebus.windows.net")
    found = broker.findings(**{"kafka.max.request.size": size})
    assert found["service"].text == "Azure Event Hubs: pykafka-sink docs services says what differs"
    assert ("kafka.max.request.size" in found) == is_warned
    if is_warned:
        assert found["kafka.max.request.size"].outcome is Outcome.WARNED
        assert "1000000 or less" in found["kafka.max.request.size"].cure


@pytest.mark.parametrize(
    "missing", [InitProducerIdRequest, AddPartitionsToTxnRequest, ListTransactionsRequest]
)
def test_exactly_once_names_what_is_not_offered(missing):
    (told,) = FailingBroker().exactly_once(without=missing)
    assert told.outcome is Outcome.FAILED
    name = missing.__name__.removesuffix("Request")
    assert f"broker:9092 does not offer {name}, which delivery.guarantee" in told.text


EXACTLY_ONCE = SinkOptions.parse(
    {
        "kafka.bootstrap.servers": "b:1",
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": "flights",
    }
)


def test_transactions_without_a_coordinator():
    """``__transaction_state`` cannot be created, or its partition has no leader."""
    findings = FailingBroker().exactly_once()
    (finding,) = (one for one in findings if one.subject == "transaction coordinator")
    assert finding.outcome is Outcome.FAILED
    assert "COORDINATOR_NOT_AVAILABLE" in finding.text
    assert "as many as transaction.state.log.replication.factor" in finding.text


def test_a_broker_that_refuses_connections():
    broker = FailingBroker(0, LoseConnection)
    broker.network.down.add(1)
    with broker.admin as admin:
        (found,) = bootstrap_addresses(admin, OPTIONS.producer.security, 1000)
    assert (found.outcome, found.subject) == (Outcome.FAILED, "bootstrap broker:9092")
    assert found.text == "Connection refused [PKS-CONNECT-001]"


def test_a_login_that_brokers_reject_after_the_first_address():
    def reject(host):
        raise AuthenticationError(f"{host}: the token has expired")

    broker = FailingBroker(1000, Silence)
    bootstrap = [(NODE.host, NODE.port)]
    network, clock, rng = broker.network, broker.clock, random.Random(1)
    with AdminClient(bootstrap, DEFAULT_SETTINGS, network, clock, rng, reject) as admin:
        (found,) = broker_addresses(admin, 1000)
    assert (found.outcome, found.subject) == (Outcome.FAILED, "cluster")
    assert "the token has expired" in found.text


def test_a_producer_that_cannot_log_in():
    """For example, the token endpoint has failed since the first checks."""
    trust = {"ssl.truststore.location": "/missing/truststore.pem", "ssl.truststore.type": "PEM"}
    given = {"bootstrap.servers": "broker:9092", "security.protocol": "SSL", **trust}
    (found,) = write_record(ProducerConfig.parse(given), "flights", SimClock(0))
    assert (found.outcome, found.subject) == (Outcome.FAILED, "test record to flights")
    assert "/missing/truststore.pem" in found.text


def found(**given):
    named = {name.replace("_", "."): value for name, value in given.items()}
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "topic": "t", **named})
    return [f"{one.outcome.value} {one.subject}: {one.text}" for one in formats(options)]


DATED = {"value_json_timestampFormat": "YYYY-MM-dd"}
PREFIXED = {"value_schema_id_prefix": "true", "schema_registry_url": "http://r"}
DESCRIBED = {"value_protobuf_descriptor_file": "/no/x.desc", "value_protobuf_message": "X"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"value_json_dateFormat": "yyyy-MM-dd"}, None),
        ({"value_avro_schema": '{"type":"record","name":"R","fields":[]}'}, None),
        (DATED, "value.json.timestampFormat=YYYY-MM-dd: "),
        ({"value_avro_schema": "{"}, "value.avro.schema={: the schema is no JSON"),
        ({"value_avro_schema": "/no/x.avsc"}, "value.avro.schema=/no/x.avsc: it is no schema as"),
        ({"value_json_schema": "/no/x", **PREFIXED}, "value.json.schema=/no/x: it is no schema"),
        (DESCRIBED, "value.protobuf.descriptor.file=/no/x.desc: it cannot be read"),
    ],
)
def test_what_a_job_would_refuse_is_failed(given, words):
    assert found() == []
    chosen = next(iter(given)).split("_")[1]
    told = found(value_format=chosen, **given)
    begins = f"failed value.format={chosen}: "
    assert [one.startswith(begins) and words in one for one in told] == ([True] if words else [])


def test_a_properties_file_of_another_client_is_named(tmp_path, capsys):
    """As ``broker --secure`` or Kafka's own tools write it: nothing in it is for the sink."""
    path = tmp_path / "client.properties"
    names = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "acks", "a", "b")
    for written, told in (
        (names, f"{path}: 6 settings, none begins with spark.pykafka. Write"),
        (names[:1], "1 setting, which does not begin with spark.pykafka. Write"),
        (["spark.pykafka.topic", "a"], "'kafka.bootstrap.servers' must be specified"),
    ):
        path.write_text("".join(f"{name}=x\n" for name in written))
        assert main(["check", "--properties-file", str(path)]) == EXIT_REFUSED
        assert told in capsys.readouterr().err
