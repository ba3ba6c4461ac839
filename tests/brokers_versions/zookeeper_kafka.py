"""Kafka brokers that need ZooKeeper: those before Kafka 3.3, which no LocalKafka runs.

One broker and one ZooKeeper, from the jars that the broker's module depends on.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from spark_kafka_sink.localkafka import settings
from spark_kafka_sink.localkafka.broker_process import BrokerProcess
from spark_kafka_sink.localkafka.errors import tail_of
from spark_kafka_sink.localkafka.jars import fetch_jars
from spark_kafka_sink.localkafka.java import find_java
from spark_kafka_sink.localkafka.keeper_client import KeeperClient
from spark_kafka_sink.localkafka.ports import free_ports
from spark_kafka_sink.localkafka.toolbox import LOGGER_MODULE
from tests.broker.processes import eventually
from tests.patience import PATIENCE_MS, PATIENCE_S

SCALA_VERSIONS = {"2.1.1": "2.12"}
"""Of Kafkas that were not built for Scala 2.13."""
_ZOOKEEPER_FOR_TODAYS_JAVA = ("zookeeper", "zookeeper-jute")
"""In place of 3.4, which Kafka had until 2.4: it takes the text of an address apart, and Java 14 has
changed that text (ZOOKEEPER-3779). Kafka 2.1 runs with the jars of 2.8."""
_ZOOKEEPER_VERSION = "3.5.9"
BROKER_ID = 1
_ZOOKEEPER = "zookeeper"
# No JMX of log4j, which is not there, and no web server.
_ZOOKEEPER_OPTIONS = (
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.admin.enableServer=false",
    "-Xmx128m",
)
_QUICK_START = ("-XX:TieredStopAtLevel=1",)


class ZooKeeperKafka:
    """A context manager. What it has is named as in LocalKafka."""

    def __init__(self, version: str, server_properties: Mapping[str, str] | None = None) -> None:
        self.version = version
        self._server_properties = dict(server_properties or {})

    def __enter__(self) -> ZooKeeperKafka:
        self._java = find_java()
        self._jars = _jars(self.version)
        self._port, self._zookeeper_port = free_ports(2, settings.HOST)
        self._keeper = KeeperClient(Path("/tmp"))
        try:
            self._broker = BrokerProcess(self._keeper, BROKER_ID, self._keeper.folder)
            self._start_zookeeper()
            properties = settings.render_properties(self._properties())
            self._broker.properties_file.write_text(properties, encoding="utf-8")
            self.restart()
        except BaseException:
            self._keeper.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._keeper.close()

    @property
    def bootstrap_servers(self) -> str:
        return f"{settings.HOST}:{self._port}"

    def address(self, broker_id: int = BROKER_ID) -> tuple[str, int]:
        assert broker_id == BROKER_ID
        return settings.HOST, self._port

    def data_directory(self, broker_id: int = BROKER_ID) -> Path:
        assert broker_id == BROKER_ID
        return self._broker.data_directory

    def kill(self, broker_id: int = BROKER_ID) -> None:
        """Kill the broker, and wait until ZooKeeper has noticed: only then may it come back."""
        assert broker_id == BROKER_ID
        self._broker.kill()
        assert eventually(lambda: b"/brokers/ids" not in self._ephemeral_nodes())

    def restart(self, broker_id: int = BROKER_ID) -> None:
        """Start the broker again, and wait until it serves."""
        assert broker_id == BROKER_ID
        self._broker.stop(PATIENCE_MS)
        command = settings.broker_command(
            self._java, self._jars, "512m", self._broker.folder, _QUICK_START
        )
        self._broker.start(command)
        self._await_leaders()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """By confluent-kafka."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        (created,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
        created.result(PATIENCE_S)
        self._await_leaders(name, partitions)

    def _start_zookeeper(self) -> None:
        folder = self._keeper.folder / _ZOOKEEPER
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
        class_path = ":".join(str(jar) for jar in self._jars)
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = [self._java, *_ZOOKEEPER_OPTIONS, "-cp", class_path, main, str(file)]
        log = folder / "zookeeper.log"
        self._keeper.start(_ZOOKEEPER, command, log, log)

    def _ephemeral_nodes(self) -> bytes:
        with socket.create_connection((settings.HOST, self._zookeeper_port)) as connection:
            connection.sendall(b"dump")
            with connection.makefile("rb") as stream:
                return stream.read()

    def _properties(self) -> dict[str, str]:
        return {
            "broker.id": str(BROKER_ID),
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "zookeeper.connect": f"{settings.HOST}:{self._zookeeper_port}",
            # After that long, a broker that was killed may come back.
            "zookeeper.session.timeout.ms": "2000",
            "log.dirs": str(self._broker.data_directory),
            "default.replication.factor": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **settings.TEST_PROPERTIES,
            **self._server_properties,
        }

    def _await_leaders(self, topic: str | None = None, partitions: int = 0) -> None:
        """Wait until the broker answers, and ``topic`` has all its leaders."""

        def is_ready() -> bool:
            ended = self._keeper.wait([self._broker.name, _ZOOKEEPER], 0)
            assert not ended, f"ended: {ended}\n{tail_of(self._broker.log_file)}"
            admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            try:
                known = admin.list_topics(timeout=5)
            except KafkaException:
                return False
            if topic is None:
                return BROKER_ID in known.brokers
            if topic not in known.topics:
                return False
            leaders = [p.leader for p in known.topics[topic].partitions.values()]
            return leaders == [BROKER_ID] * partitions

        assert eventually(is_ready), tail_of(self._broker.log_file)


def _jars(version: str) -> list[Path]:
    scala = SCALA_VERSIONS.get(version, "2.13")
    modules = [f"org.apache.kafka:kafka_{scala}:{version}", LOGGER_MODULE]
    kafka = fetch_jars(modules, f"kafka-{version}")
    names = [f"org.apache.zookeeper:{n}:{_ZOOKEEPER_VERSION}" for n in _ZOOKEEPER_FOR_TODAYS_JAVA]
    zookeeper = fetch_jars(names, f"zookeeper-{_ZOOKEEPER_VERSION}", transitive=False)
    return [*zookeeper, *(jar for jar in kafka if not jar.name.startswith("zookeeper"))]
