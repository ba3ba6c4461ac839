import os
import signal
import socket
import subprocess
import sys

import pytest

from spark_kafka_sink.base.errors import BrokerError
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.localkafka import FAST_FAILOVER, LocalKafka, LocalKafkaError, cluster
from spark_kafka_sink.localkafka.cluster import free_ports
from tests.broker.confluent import consume, produce
from tests.broker.processes import eventually, is_running
from tests.broker.unreachable import why_unreachable
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS

VALUES = [b"%d" % i for i in range(100)]


@pytest.fixture(scope="module")
def mortal():
    """A broker that tests may kill; they leave it running."""
    with PatientKafka(server_properties=FAST_FAILOVER) as local_kafka:
        yield local_kafka


def partition_0(bootstrap_servers, topic):
    with AdminClient.connect(bootstrap_servers) as admin:
        return (
            admin.metadata([topic], False, admin.deadline_in(PATIENCE_MS)).topics[0].partitions[0]
        )


class TestOneBroker:
    def test_holds_what_another_client_writes(self, kafka):
        kafka.create_topic("lk-written", partitions=3)
        produce(kafka.bootstrap_servers, "lk-written", VALUES)
        assert sorted(consume(kafka.bootstrap_servers, "lk-written", 3)) == sorted(VALUES)

    def test_creates_topics_by_itself_as_kafka_does(self, kafka):
        produce(kafka.bootstrap_servers, "lk-auto", VALUES)
        assert consume(kafka.bootstrap_servers, "lk-auto") == VALUES

    def test_topics_get_their_configs(self, kafka):
        kafka.create_topic("lk-configured", configs={"max.message.bytes": "1234"})
        described = kafka.run_tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", kafka.bootstrap_servers),
            *("--describe", "--topic", "lk-configured"),
        )
        assert "max.message.bytes=1234" in described
        assert "retention.ms=-1" in described, "test data may carry any timestamp"

    def test_refuses_a_topic_twice(self, kafka):
        kafka.create_topic("lk-twice")
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            kafka.create_topic("lk-twice")

    def test_tools_read_its_logs(self, kafka):
        kafka.create_topic("lk-dumped")
        produce(kafka.bootstrap_servers, "lk-dumped", [b"a value to find"])
        log = kafka.data_directory(1) / "lk-dumped-0" / "00000000000000000000.log"
        dump = kafka.run_tool("DumpLogSegments", "--print-data-log", "--files", str(log))
        assert "payload: a value to find" in dump

    def test_tool_that_fails_says_why(self, kafka):
        with pytest.raises(LocalKafkaError, match="nonsense is not a recognized option"):
            kafka.run_tool("TopicCommand", "--nonsense")
        with pytest.raises(LocalKafkaError, match="NoSuchTool is no class of this Kafka"):
            kafka.run_tool("NoSuchTool")

    def test_tool_that_hangs_is_ended(self, kafka):
        kafka.create_topic("lk-empty")
        arguments = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", "lk-empty")
        with pytest.raises(LocalKafkaError, match="did not end within 1500 ms"):
            kafka.run_tool("ConsoleConsumer", *arguments, timeout_ms=1_500)

    def test_console_consumer_reads(self, kafka):
        kafka.create_topic("lk-console")
        produce(kafka.bootstrap_servers, "lk-console", VALUES)
        arguments = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", "lk-console")
        printed = kafka.run_tool(
            "ConsoleConsumer", *arguments, "--from-beginning", "--max-messages", "100"
        )
        assert printed.split() == [value.decode() for value in VALUES]

    def test_unknown_broker(self, kafka):
        with pytest.raises(LocalKafkaError, match=r"there is no broker 7, only \[1\]"):
            kafka.kill(7)


class TestFailures:
    @pytest.mark.parametrize("end", [LocalKafka.kill, LocalKafka.stop])
    def test_restart_keeps_the_data(self, mortal, end):
        topic = f"kept-{end.__name__}"
        mortal.create_topic(topic)
        produce(mortal.bootstrap_servers, topic, VALUES)
        before = mortal.bootstrap_servers, mortal.process_id(1)
        end(mortal, 1)
        assert not is_running(before[1])
        mortal.restart(1)
        assert mortal.bootstrap_servers == before[0]
        assert mortal.process_id(1) != before[1]
        assert consume(mortal.bootstrap_servers, topic) == VALUES

    def test_paused_broker_is_silent_until_resumed(self, mortal):
        mortal.pause(1)
        with AdminClient.connect(mortal.bootstrap_servers) as admin:
            assert "no answer yet" in why_unreachable(admin, "no answer yet")
            mortal.resume(1)
            assert len(admin.metadata([], False, admin.deadline_in(PATIENCE_MS)).brokers) == 1

    def test_paused_broker_can_be_stopped(self, mortal):
        mortal.pause(1)
        with pytest.raises(LocalKafkaError, match="cannot pause broker 1: it is paused"):
            mortal.pause(1)
        mortal.stop(1)
        with pytest.raises(LocalKafkaError, match="cannot resume broker 1: it is stopped"):
            mortal.resume(1)
        mortal.restart(1)

    def test_death_is_noticed(self, mortal):
        assert mortal.await_failure(0) is None
        os.kill(mortal.process_id(1), signal.SIGKILL)
        failure = mortal.await_failure(PATIENCE_MS)
        assert failure.startswith("broker 1 ended by itself with code -9")
        mortal.restart(1)


@pytest.mark.long
def test_three_brokers_replicate_and_survive_one():
    with PatientKafka(3, server_properties=FAST_FAILOVER) as kafka:
        kafka.create_topic("replicated", configs={"min.insync.replicas": "2"})
        leader = partition_0(kafka.bootstrap_servers, "replicated").leader_id
        produce(kafka.bootstrap_servers, "replicated", VALUES[:50])
        kafka.kill(leader)
        produce(kafka.bootstrap_servers, "replicated", VALUES[50:])
        kafka.restart(leader)
        kafka.await_in_sync()
        partition = partition_0(kafka.bootstrap_servers, "replicated")
        assert sorted(partition.isr_nodes) == [1, 2, 3]
        assert consume(kafka.bootstrap_servers, "replicated") == VALUES


def test_older_kafka_with_a_further_listener(tmp_path):
    listeners = {"SECOND": "PLAINTEXT"}
    with PatientKafka(version="3.9.1", listeners=listeners, folder=tmp_path) as kafka:
        kafka.create_topic("old", partitions=2)
        second = kafka.bootstrap_servers_of("SECOND")
        assert second != kafka.bootstrap_servers
        produce(second, "old", VALUES)
        assert sorted(consume(kafka.bootstrap_servers, "old", 2)) == sorted(VALUES)
        assert kafka.data_directory(1).is_relative_to(tmp_path)
        kafka.restart(1)
        assert sorted(consume(second, "old", 2)) == sorted(VALUES)
    assert list(tmp_path.iterdir()) == []


class TestNothingStays:
    def test_after_close(self, tmp_path):
        kafka = PatientKafka(folder=tmp_path)
        kafka.start()
        pid = kafka.process_id(1)
        assert kafka.log_file(1).is_file()
        kafka.close()
        kafka.close()
        assert not is_running(pid)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(LocalKafkaError, match="not started"):
            _ = kafka.bootstrap_servers

    def test_after_sigkill_of_the_parent(self, tmp_path):
        """With a paused broker, and a forked child that still holds the supervisor's pipe."""
        parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        with parent:
            broker, supervisor, child = map(int, parent.stdout.readline().split())
            try:
                assert is_running(broker)
                assert is_running(supervisor)
                parent.kill()
                assert eventually(lambda: not is_running(broker))
                assert eventually(lambda: not is_running(supervisor))
                assert is_running(child)
            finally:
                os.kill(child, signal.SIGKILL)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
    def test_after_sigkill_of_the_supervisor(self, tmp_path):
        with PatientKafka(folder=tmp_path) as kafka:
            broker = kafka.process_id(1)
            os.kill(kafka._supervisor.pid, signal.SIGKILL)
            assert eventually(lambda: not is_running(broker))
            with pytest.raises(LocalKafkaError, match="keeper process"):
                kafka.kill(1)
        assert list(tmp_path.iterdir()) == []


_PARENT = """
import os, sys, time
from spark_kafka_sink.localkafka import LocalKafka
kafka = LocalKafka(folder=sys.argv[1])
kafka.start()
kafka.pause(1)
child = os.fork()
if child == 0:
    os.close(1)
    kafka.close()  # not its own: must do nothing
    time.sleep(3600)
print(kafka.process_id(1), kafka._supervisor.pid, child, flush=True)
time.sleep(3600)
"""


class TestErrors:
    def test_no_java(self, monkeypatch):
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        with pytest.raises(LocalKafkaError, match=r"no java on the PATH.*install a Java runtime"):
            PatientKafka().start()

    def test_wrong_java_home(self, monkeypatch):
        monkeypatch.setenv("JAVA_HOME", "/nowhere")
        with pytest.raises(LocalKafkaError, match="JAVA_HOME is /nowhere, but there is no"):
            PatientKafka().start()

    def test_old_java(self, tmp_path, monkeypatch):
        java = tmp_path / "java"
        java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        with pytest.raises(LocalKafkaError, match=r"Kafka 4.3.0 needs Java 17 .* is Java 11"):
            PatientKafka().start()

    def test_broker_that_dies_at_start(self, tmp_path):
        kafka = PatientKafka(heap="2m", folder=tmp_path)
        with pytest.raises(LocalKafkaError, match=r"(?s)ended by itself with code 1.*VM"):
            kafka.start()
        assert list(tmp_path.iterdir()) == []

    def test_wrong_server_property(self):
        with pytest.raises(LocalKafkaError, match=r"(?s)check server_properties.*log.cleaner"):
            PatientKafka(server_properties={"log.cleaner.threads": "-4"}).start()

    def test_port_that_is_taken(self, monkeypatch):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            calls = []

            def ports(count, host):
                calls.append(count)
                free = original(count, host)
                return [taken.getsockname()[1], *free[1:]] if len(calls) == 1 else free

            original = free_ports
            monkeypatch.setattr(cluster, "free_ports", ports)
            with PatientKafka() as kafka:
                assert kafka.address(1)[1] != taken.getsockname()[1]
            assert calls == [2, 2]

    def test_no_brokers(self):
        with pytest.raises(ValueError, match="at least 1"):
            PatientKafka(0)
