"""Kafka brokers that need ZooKeeper: those before Kafka 3.3, which no LocalKafka runs.

Brokers and one ZooKeeper, from the jars that the brokers' module depends on.
"""

import os
import socket
import tempfile
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from spark_kafka_sink.localkafka import settings
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.localkafka.jars import fetch_jars, find_java
from spark_kafka_sink.localkafka.processes import LOGGER_MODULE, BrokerProcess, SupervisorClient
from spark_kafka_sink.localkafka.settings import tail_of
from tests.patience import PATIENCE_MS, PATIENCE_S, eventually

SCALA_VERSIONS = {"2.1.1": "2.12"}
"""Of Kafkas that were not built for Scala 2.13."""
_ZOOKEEPER_FOR_TODAYS_JAVA = ("zookeeper", "zookeeper-jute")
"""In place of 3.4, which Kafka had until 2.4: it takes the text of an address apart, and Java 14 has
changed that text (ZOOKEEPER-3779). Kafka 2.1 runs with the jars of 2.8."""
_ZOOKEEPER_VERSION = "3.5.9"
_ZOOKEEPER = "zookeeper"
# No JMX of log4j, which is not there, and no web server.
_ZOOKEEPER_OPTIONS = (
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.admin.enableServer=false",
    "-Xmx128m",
)
_QUICK_START = ("-XX:TieredStopAtLevel=1",)


class ZooKeeperKafka:
    """A context manager. What it has is named as in LocalKafka; ids of brokers begin at 1."""

    broker_ids = (1,)

    def __init__(self, version, server_properties=None):
        self.version = version
        self._server_properties = dict(server_properties or {})
        self._brokers = {}

    def __enter__(self):
        self._java = find_java()
        self._jars = _jars(self.version)
        self._zookeeper_port, *ports = free_ports(1 + len(self.broker_ids), settings.HOST)
        self._ports = dict(zip(self.broker_ids, ports))
        self._supervisor = SupervisorClient(Path(tempfile.gettempdir()))
        try:
            self._start_zookeeper()
            for broker_id in self.broker_ids:
                broker = BrokerProcess(self._supervisor, broker_id, self._supervisor.folder)
                self._brokers[broker_id] = broker
                properties = settings.render_properties(self._properties(broker))
                broker.properties_file.write_text(properties, encoding="utf-8")
                self._launch(broker)
            self._await_leaders()
        except BaseException:
            self._supervisor.close()
            raise
        return self

    def __exit__(self, exc_type, exc, traceback):
        self._supervisor.close()

    @property
    def bootstrap_servers(self):
        return ",".join(f"{settings.HOST}:{port}" for port in self._ports.values())

    def address(self, broker_id):
        return settings.HOST, self._ports[broker_id]

    def data_directory(self, broker_id):
        return self._brokers[broker_id].data_directory

    def stop(self, broker_id):
        """Shut a broker down cleanly: it hands its partitions over before."""
        self._brokers[broker_id].stop(PATIENCE_MS)

    def kill(self, broker_id):
        """Kill a broker, and wait until ZooKeeper has noticed: only then may it come back."""
        self._brokers[broker_id].kill()
        node = f"/brokers/ids/{broker_id}".encode()
        assert eventually(lambda: node not in self._ephemeral_nodes())

    def restart(self, broker_id):
        """Start a broker again, after ``stop`` if it runs, and wait until it serves."""
        self.stop(broker_id)
        self._launch(self._brokers[broker_id])
        self._await_leaders()

    def create_topic(self, name, partitions=1, configs=None):
        """On all brokers; by confluent-kafka."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        topic = NewTopic(name, partitions, len(self._ports), config=configs or {})
        (created,) = admin.create_topics([topic]).values()
        created.result(PATIENCE_S)
        self._await_leaders(name, partitions)

    def _launch(self, broker):
        jvm = [*settings.BROKER_JVM, "-Xmx512m", *_QUICK_START]
        program = settings.java_program("kafka.Kafka", self._jars, broker.folder, "info", jvm)
        broker.start([self._java, *program, str(broker.properties_file)])

    def _start_zookeeper(self):
        folder = self._supervisor.folder / _ZOOKEEPER
        folder.mkdir()
        properties = {
            "dataDir": str(folder),
            "clientPort": str(self._zookeeper_port),
            "clientPortAddress": settings.HOST,
            "tickTime": "500",
            "4lw.commands.whitelist": "dump",
        }
        file = folder / "zoo.cfg"
        file.write_text(settings.render_properties(properties), encoding="utf-8")
        class_path = os.pathsep.join(str(jar) for jar in self._jars)
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = [self._java, *_ZOOKEEPER_OPTIONS, "-cp", class_path, main, str(file)]
        log = folder / "zookeeper.log"
        self._supervisor.start(_ZOOKEEPER, command, log, log)

    def _ephemeral_nodes(self):
        with socket.create_connection((settings.HOST, self._zookeeper_port)) as connection:
            connection.sendall(b"dump")
            with connection.makefile("rb") as stream:
                return stream.read()

    def _properties(self, broker):
        replicas = str(len(self.broker_ids))
        return {
            "broker.id": str(broker.broker_id),
            "listeners": f"PLAINTEXT://{settings.HOST}:{self._ports[broker.broker_id]}",
            "zookeeper.connect": f"{settings.HOST}:{self._zookeeper_port}",
            # After that long, a broker that was killed may come back.
            "zookeeper.session.timeout.ms": "6000",
            "zookeeper.connection.timeout.ms": str(PATIENCE_MS),
            "log.dirs": str(broker.data_directory),
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            **settings.TEST_PROPERTIES,
            **self._server_properties,
        }

    def _await_leaders(self, topic=None, partitions=0):
        """Wait until the brokers that run know each other, and ``topic`` has all its leaders."""

        def has_leaders(known):
            running = {b.broker_id for b in self._brokers.values() if b.is_running}
            if not running <= known.brokers.keys():
                return False
            if topic is None:
                return True
            found = known.topics[topic].partitions.values() if topic in known.topics else []
            return [p.leader in running for p in found] == [True] * partitions

        self._await(has_leaders)

    def _await(self, is_enough):
        """Ask each broker that runs, until ``is_enough`` of what it knows of the cluster."""
        running = [broker for broker in self._brokers.values() if broker.is_running]

        def is_ready(broker):
            ended = self._supervisor.wait([broker.name, _ZOOKEEPER], 0)
            assert not ended, f"ended: {ended}\n{tail_of(broker.log_file)}"
            address = f"{settings.HOST}:{self._ports[broker.broker_id]}"
            admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
            try:
                return is_enough(admin.list_topics(timeout=5))
            except KafkaException:
                return False

        for broker in running:
            assert eventually(lambda: is_ready(broker)), tail_of(broker.log_file)  # noqa: B023


def _jars(version):
    scala = SCALA_VERSIONS.get(version, "2.13")
    modules = [f"org.apache.kafka:kafka_{scala}:{version}", LOGGER_MODULE]
    kafka = fetch_jars(modules, f"kafka-{version}")
    names = [f"org.apache.zookeeper:{n}:{_ZOOKEEPER_VERSION}" for n in _ZOOKEEPER_FOR_TODAYS_JAVA]
    zookeeper = fetch_jars(names, f"zookeeper-{_ZOOKEEPER_VERSION}", transitive=False)
    return [*zookeeper, *(jar for jar in kafka if not jar.name.startswith("zookeeper"))]


WITH_ZOOKEEPER = ("2.1.1", "2.8.2", "3.0.2")
WITH_KRAFT = ("3.3.2", "3.9.1", "4.1.2", "4.3.0", "4.4.0")
VERSIONS = (*WITH_ZOOKEEPER, *WITH_KRAFT)
TOO_OLD_FOR_TRANSACTIONS = ("2.1.1", "2.8.2")
"""They cannot tell what became of a transaction, which exactly-once needs."""
