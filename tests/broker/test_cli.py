"""``pykafka-sink broker``, ``check`` and ``quota`` against a real broker."""

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import confluent_kafka.admin
import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.protocol.messages.inspection import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
    ReplicaState,
)
from spark_kafka_sink.tools.check_cluster import Outcome, clock_finding
from tests.broker.producing import Topics, why_unreachable
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.reading import read_topic


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_runs_until_it_is_stopped(number):
    (port,) = free_ports(1, "127.0.0.1")
    command = [sys.executable, "-m", "spark_kafka_sink", "broker", "--topic", "a:3", "b"]
    command += ["--port", str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            servers = process.stdout.readline().strip()
            assert servers == f"127.0.0.1:{port}"
            with AdminClient.connect(servers) as admin:
                topics = admin.metadata(None, False, admin.deadline_in(PATIENCE_MS)).topics
            assert {topic.name: len(topic.partitions) for topic in topics} == {"a": 3, "b": 1}
            # The command names Ctrl-C after the address: a signal before it would leave it out.
            assert any("Ctrl-C" in line for line in process.stderr)
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()
    with AdminClient.connect(servers) as admin:
        assert "Connection refused" in why_unreachable(admin, "Connection refused")


@contextmanager
def running(*arguments, stderr=None):
    command = [sys.executable, "-m", "spark_kafka_sink", "broker", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def properties_of(path):
    lines = path.read_text(encoding="ascii").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_secured_it_tells_what_a_client_needs():
    with running("--secure", "--topic", "a") as process:
        servers = process.stdout.readline().strip()
        path = Path(process.stdout.readline().strip())
        properties = properties_of(path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert properties["bootstrap.servers"] == servers
        assert properties["security.protocol"] == "SASL_SSL"
        login = re.search(r'username="(\w+)" password="(\S+)"', properties["sasl.jaas.config"])
        config = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": properties["sasl.mechanism"],
            "sasl.username": login[1],
            "sasl.password": login[2],
            "ssl.ca.location": properties["ssl.truststore.location"],
            "log_level": "0",
        }
        assert set(confluent_kafka.admin.AdminClient(config).list_topics("a").topics) == {"a"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not path.parent.exists()


# A broker of its own for what the one above and TestChecks show with theirs: its logins, and a file of properties.


@pytest.mark.long
def test_a_schema_registry_until_it_is_stopped():
    command = [sys.executable, "-m", "spark_kafka_sink", "registry"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            url = process.stdout.readline().strip()
            with urlopen(f"{url}/config") as answer:
                assert json.load(answer) == {"compatibilityLevel": "BACKWARD"}
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
            assert "Starting the schema registry Apicurio" in process.stderr.read()
        finally:
            process.kill()
    with pytest.raises(URLError, match="Connection refused"):
        urlopen(f"{url}/config")


PATIENT = ("--option", f"preflight.timeout.ms={PATIENCE_MS}")


class Cluster:
    """What the commands say of a cluster."""

    def __init__(self, kafka, capsys):
        self.kafka = kafka
        self._capsys = capsys

    def run(self, *arguments, servers=None):
        servers = self.kafka.bootstrap_servers if servers is None else servers
        bootstrap = ("--option", f"kafka.bootstrap.servers={servers}")
        exit_code = main([*arguments, *bootstrap, "--json"])
        return exit_code, json.loads(self._capsys.readouterr().out)

    def check(self, *arguments, **servers):
        """Outcome and text of each subject."""
        code, document = self.run("check", *PATIENT, *arguments, **servers)
        assert document["passed"] == (code == 0)
        return code, {
            one["subject"]: (one["outcome"], f"{one['text']} {one['cure']}")
            for one in document["findings"]
        }

    def topic(self, name, partitions=1, **configs):
        given = {key.replace("_", "."): value for key, value in configs.items()}
        self.kafka.create_topic(name, partitions, configs=given, timeout_ms=PATIENCE_MS)
        return name


@pytest.fixture
def cluster(kafka, capsys):
    return Cluster(kafka, capsys)


class TestWhatIsInOrder:
    def test_everything_passes(self, cluster):
        topic = cluster.topic("check-good", 3)
        code, found = cluster.check("--topic", topic)
        assert code == 0, found
        assert {outcome for outcome, _ in found.values()} == {"passed"}
        assert found[f"topic {topic}"][1] == "3 partitions "
        assert found["clock"][1] == "within 5 s of the controller's "
        assert found[f"rights on topic {topic}"][1] == "WRITE "
        assert read_topic(cluster.kafka.bootstrap_servers, topic) == []

    def test_a_record_is_written_if_asked(self, cluster):
        topic = cluster.topic("check-write")
        code, found = cluster.check("--topic", topic, "--write")
        assert code == 0
        outcome, text = found[f"test record to {topic}"]
        assert outcome == "passed"
        assert text.startswith(f"acknowledged: {topic}-0, offset 0")
        (record,) = read_topic(cluster.kafka.bootstrap_servers, topic)
        assert record.key == b"pykafka-sink check"

    def test_exactly_once_creates_no_decision_log(self, cluster):
        topic, log = cluster.topic("check-eo"), "check-eo-log"
        options = ["delivery.guarantee=exactly-once", "transactional.id.prefix=check"]
        options += [f"transaction.log.topic={log}", "transaction.log.replication.factor=1"]
        given = [text for option in options for text in ("--option", option)]
        code, found = cluster.check("--topic", topic, *given)
        assert code == 0
        assert found["transaction coordinator"][0] == "passed"
        assert found[f"decision log {log}"][1].startswith("not there yet")
        assert found["rights on transactional ids check."][0] == "passed"
        assert Topics(cluster.kafka.bootstrap_servers).topic_id(log) is None

    def test_for_people(self, cluster, capsys):
        servers = f"kafka.bootstrap.servers={cluster.kafka.bootstrap_servers}"
        assert main(["check", *PATIENT, "--option", servers, "--topic", "check-missing"]) == 1
        lines = capsys.readouterr().out.splitlines()
        (wrong,) = (number for number, line in enumerate(lines) if line.startswith("✗"))
        assert "topic check-missing" in lines[wrong]
        assert "→ create it" in lines[wrong + 1]


class TestWhatIsNot:
    @pytest.fixture
    def nobody(self):
        (port,) = free_ports(1, "127.0.0.1")
        return f"127.0.0.1:{port}"

    def test_no_broker_at_an_address(self, cluster, nobody):
        """One address of several is enough for a job, and none is not."""
        both = f"{cluster.kafka.bootstrap_servers},{nobody}"
        short = ("--option", "preflight.timeout.ms=2000")
        code, found = cluster.check(*short, servers=both)
        assert code == 0
        assert found[f"bootstrap {nobody}"][0] == "warned"
        code, found = cluster.check(*short, servers=nobody)
        assert code == 1
        outcome, text = found[f"bootstrap {nobody}"]
        assert outcome == "failed"
        assert "Connection refused" in text
        assert set(found) == {"options", f"bootstrap {nobody}"}

    def test_the_port_of_a_controller(self, cluster):
        host, port = cluster.kafka.controller_address(1)
        code, found = cluster.check("--topic", "a", servers=f"{host}:{port}")
        assert code == 1
        outcome, text = found[f"bootstrap {host}:{port}"]
        assert outcome == "failed"
        assert "a KRaft controller, not a broker" in text
        assert "[PKS-CONNECT-002]" in text

    def test_a_missing_topic_is_answered_with_similar_names(self, cluster):
        cluster.topic("check-similar-names")
        code, found = cluster.check("--topic", "check-similar-nams")
        assert code == 1
        outcome, text = found["topic check-similar-nams"]
        assert outcome == "failed"
        assert "does not exist" in text
        assert "Topics with similar names: check-similar-names" in text

    def test_settings_of_the_topic(self, cluster):
        topic = cluster.topic(
            "check-settings",
            cleanup_policy="compact",
            compression_type="gzip",
            max_message_bytes="1000",
            message_timestamp_type="LogAppendTime",
            min_insync_replicas="2",
        )
        code, found = cluster.check("--topic", topic)
        assert code == 0
        told = {name.removeprefix(f"topic {topic}: "): one for name, one in found.items()}
        # One replica is enough for these brokers.
        for name in (
            "min.insync.replicas",
            "max.message.bytes",
            "cleanup.policy",
            "message.timestamp.type",
        ):
            assert told[name][0] == "warned", name
        assert "set kafka.compression.type=gzip" in told["compression.type"][1]
        # With acks=1 nobody waits for replicas.
        _, found = cluster.check("--topic", topic, "--option", "kafka.acks=1")
        assert found[f"topic {topic}: min.insync.replicas"][0] == "passed"

    def test_a_decision_log_that_cannot_be_created(self, cluster):
        options = ("delivery.guarantee=exactly-once", "transactional.id.prefix=check")
        given = [text for option in options for text in ("--option", option)]
        code, found = cluster.check(*given, "--option", "transaction.log.topic=check-none")
        assert code == 1
        assert "replication.factor = 3: there are 1 brokers" in found["decision log check-none"][1]

    def test_a_wrong_option(self, cluster, capsys):
        """Nothing was looked at, so it is not what a ✗ gives."""
        wrong = {
            "kafka.aks": ["--option", "kafka.aks=all"],
            "--topic": ["--write", "--option", "kafka.bootstrap.servers=a:1"],
            "/nowhere.conf": ["--properties-file", "/nowhere.conf"],
            "'kafka.bootstrap.servers' must be specified": [],
            "no-value": ["--option", "no-value"],
        }
        for named, arguments in wrong.items():
            assert main(["check", *arguments]) == 2
            assert named in capsys.readouterr().err
        assert main(["quota"]) == 2


class TestDeadLetters:
    @staticmethod
    def options(name, *more):
        given = ("errors.tolerance=all", f"errors.deadletterqueue.topic.name={name}", *more)
        return [text for option in given for text in ("--option", option)]

    def test_one_that_is_compacted_or_takes_little(self, cluster):
        topic = cluster.topic("check-rows-2")
        dead = cluster.topic(
            "check-dead-compacted", cleanup_policy="compact", max_message_bytes="1000"
        )
        code, found = cluster.check("--topic", topic, *self.options(dead))
        assert code == 1
        outcome, text = found[f"topic {dead}: cleanup.policy"]
        assert (outcome, "set cleanup.policy=delete" in text) == ("failed", True)
        outcome, text = found[f"topic {dead}: max.message.bytes"]
        assert (outcome, "is cut off to it" in text) == ("warned", True)

    def test_one_that_is_missing(self, cluster):
        topic, dead = cluster.topic("check-rows-3"), "check-dead-none"
        code, found = cluster.check("--topic", topic, *self.options(dead))
        assert code == 0
        created = "not there yet: errors.deadletterqueue.topic.name creates it"
        assert found[f"topic {dead}"][1].startswith(created)
        replicas = "errors.deadletterqueue.topic.replication.factor"
        code, found = cluster.check("--topic", topic, *self.options(dead, f"{replicas}=3"))
        assert code == 1
        assert f"{replicas} = 3: there are 1 brokers" in found[f"topic {dead}"][1]
        assert Topics(cluster.kafka.bootstrap_servers).topic_id(dead) is None


class TestQuotas:
    def test_of_this_client(self, cluster):
        given = ("--option", "kafka.client.id=check-quota")
        code, found = cluster.run("quota", *given)
        assert (code, found) == (0, [])
        cluster.kafka.run_tool(
            "ConfigCommand",
            *("--bootstrap-server", cluster.kafka.bootstrap_servers, "--alter"),
            *("--entity-type", "clients", "--entity-name", "check-quota"),
            *("--add-config", "producer_byte_rate=1048576,consumer_byte_rate=1"),
        )
        code, found = cluster.run("quota", *given)
        wanted = [{"entity": "client-id check-quota", "producer_byte_rate": 1048576.0}]
        assert (code, found) == (0, wanted)
        code, told = cluster.check(*given)
        assert code == 0
        outcome, text = told["quota of client-id check-quota"]
        assert (outcome, text.strip()) == ("warned", "producer_byte_rate=1.04858e+06")


class TestClocks:
    @staticmethod
    def judged(theirs_ms, before_ms, after_ms):
        voters = [ReplicaState(2, 0, 0, 1), ReplicaState(1, 0, 0, theirs_ms)]
        partition = DescribeQuorumResponsePartition(leader_id=1, current_voters=voters)
        topic = DescribeQuorumResponseTopic("__cluster_metadata", [partition])
        finding = clock_finding(DescribeQuorumResponse(topics=[topic]), before_ms, after_ms)
        return finding.outcome, finding.text

    def test_a_slow_answer_is_no_difference(self):
        assert self.judged(1_000_000, 970_000, 1_001_000)[0] is Outcome.PASSED

    def test_ahead_and_behind(self):
        ahead = (Outcome.WARNED, "60.0 s ahead of the controller's")
        assert self.judged(1_000_000, 1_060_000, 1_061_000) == ahead
        behind = (Outcome.WARNED, "59.0 s behind the controller's")
        assert self.judged(1_000_000, 940_000, 941_000) == behind

    def test_who_tells_no_time(self):
        assert clock_finding(DescribeQuorumResponse(31), 0, 0).outcome is Outcome.UNKNOWN
        assert self.judged(-1, 0, 0)[0] is Outcome.UNKNOWN


@pytest.mark.long
def test_secured_it_writes_the_properties_file_of_a_job(capsys):
    with running("--secure", "ssl", "--topic", "a", "--json") as process:
        path = json.loads(process.stdout.readline())["spark_properties"]
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert "password" not in Path(path).read_text("ascii")
        properties = ["--properties-file", path, "--topic", "a", "--write", "--json"]
        code = main(["check", *PATIENT, *properties])
        document = json.loads(capsys.readouterr().out)
        assert (code, document["passed"]) == (0, True), document
