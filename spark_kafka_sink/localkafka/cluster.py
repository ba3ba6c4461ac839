"""A real Apache Kafka on this machine, for demo, tests and benchmarks."""

from __future__ import annotations

import base64
import signal
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.errors import BootstrapError, BrokerError
from spark_kafka_sink.base.model import Node, format_address
from spark_kafka_sink.client.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.localkafka import readiness, settings
from spark_kafka_sink.localkafka.broker_process import BrokerProcess
from spark_kafka_sink.localkafka.errors import LocalKafkaError, tail_of
from spark_kafka_sink.localkafka.jars import fetch_jars
from spark_kafka_sink.localkafka.java import find_java_for_kafka
from spark_kafka_sink.localkafka.keeper_client import KeeperClient
from spark_kafka_sink.localkafka.ports import free_ports
from spark_kafka_sink.localkafka.tools import find_tool_class
from spark_kafka_sink.localkafka.versions import DEFAULT_VERSION, check_version
from spark_kafka_sink.network.transport import SelectorNetwork
from spark_kafka_sink.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from spark_kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataResponse

_PORT_ATTEMPTS = 3
_PORT_TAKEN = "Address already in use"
_FORMAT_TIMEOUT_MS = 300_000
_ASK_TIMEOUT_MS = 2_000
_ASK_AGAIN_MS = 25
# Kafka's own dependencies bring no logger: without one, a broker that fails logs nothing.
LOGGER_MODULE = "org.slf4j:slf4j-simple:1.7.36"


class LocalKafka:
    """Apache Kafka in KRaft mode, run from its own jars. A context manager.

    The jars (about 45 MB) are downloaded at the first use of a version and kept; needs Java 17
    and pyspark, whose Ivy does the download. Everything else lives in a temporary folder that is
    removed at the end, also when this process is killed. Ports are chosen from 15000 on, or from
    what the environment variable ``PYKAFKA_SINK_PORTS`` allows (``20000-20999``).

    Every node is broker and controller in one; ids begin at 1. Methods that act on a broker return
    when that is done. All raise LocalKafkaError.

    Parameters
    ----------
    brokers : how many; 1 or 3, so that a majority exists.
    version : of Kafka, 3.9 or newer.
    server_properties : added to those of every broker, or replacing them.
    heap : of every broker, as for ``-Xmx``.
    listeners : further listeners, security protocol by name, ``{"SECURE": "SASL_PLAINTEXT"}``;
        their settings belong into ``server_properties``.
    advertised : what clients of a listener are told instead of its addresses, one ``host:port``
        per broker: ``{"PROXIED": ["127.0.0.1:4001", …]}``.
    jvm_options : for every broker.
    folder : where the temporary folder is made.
    start_timeout_ms, stop_timeout_ms : how long brokers may take to serve, and to shut down.

    Example
    -------
    >>> with LocalKafka() as kafka:
    ...     kafka.create_topic("flights", partitions=6)
    ...     print(kafka.bootstrap_servers)
    """

    def __init__(
        self,
        brokers: int = 1,
        version: str = DEFAULT_VERSION,
        server_properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        *,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, Sequence[str]] | None = None,
        jvm_options: Sequence[str] = (),
        folder: str | Path | None = None,
        start_timeout_ms: int = 90_000,
        stop_timeout_ms: int = 60_000,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers must be at least 1, not {brokers}")
        self.version = check_version(version)
        self.broker_ids = tuple(range(1, brokers + 1))
        self._server_properties = dict(server_properties or {})
        self._heap = heap
        self._protocols = {settings.MAIN_LISTENER: "PLAINTEXT", **(listeners or {})}
        self._advertised = dict(advertised or {})
        self._jvm_options = tuple(jvm_options)
        self._parent_folder = Path(tempfile.gettempdir() if folder is None else folder)
        self._start_timeout_ms = start_timeout_ms
        self._stop_timeout_ms = stop_timeout_ms
        self._clock: Clock = SystemClock()
        self._keeper: KeeperClient | None = None
        self._java = ""
        self._jars: list[Path] = []
        self._ports: dict[int, settings.BrokerPorts] = {}
        self._brokers: dict[int, BrokerProcess] = {}
        self._tool_runs = 0

    # --- life ----------------------------------------------------------------------------------

    def __enter__(self) -> LocalKafka:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Fetch, format, start all brokers, and wait until they serve. Does nothing if started."""
        if self._keeper is not None:
            return
        self._java = find_java_for_kafka(self.version)
        modules = [f"org.apache.kafka:kafka_2.13:{self.version}", LOGGER_MODULE]
        self._jars = fetch_jars(modules, f"kafka-{self.version}")
        self._keeper = KeeperClient(self._parent_folder)
        try:
            folder = self._keeper.folder
            for broker_id in self.broker_ids:
                self._brokers[broker_id] = BrokerProcess(self._keeper, broker_id, folder)
            self._configure()
            self._format()
            self._launch_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill what runs and remove the data folder. May be called at any time, and again."""
        keeper, self._keeper = self._keeper, None
        self._brokers.clear()
        if keeper is not None:
            keeper.close()

    # --- addresses and files -------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, running or not, separated by commas."""
        return self.bootstrap_servers_of(settings.MAIN_LISTENER)

    def bootstrap_servers_of(self, listener: str) -> str:
        """Like ``bootstrap_servers``, for one of the ``listeners``."""
        addresses = (self.address(broker_id, listener) for broker_id in self.broker_ids)
        return ",".join(format_address(host, port) for host, port in addresses)

    def address(self, broker_id: int, listener: str = settings.MAIN_LISTENER) -> tuple[str, int]:
        """Host and port of a broker."""
        self._broker(broker_id)
        return settings.HOST, self._ports[broker_id].listeners[listener]

    def controller_address(self, broker_id: int) -> tuple[str, int]:
        """Host and port at which a node takes part in the Raft quorum."""
        self._broker(broker_id)
        return settings.HOST, self._ports[broker_id].controller

    def data_directory(self, broker_id: int) -> Path:
        """The broker's log directory: one folder per partition, as DumpLogSegments reads them."""
        return self._broker(broker_id).data_directory

    def log_file(self, broker_id: int) -> Path:
        """What the broker logged, over all its restarts."""
        return self._broker(broker_id).log_file

    def process_id(self, broker_id: int) -> int:
        """The broker's process id, for those who measure it; changes with ``restart``."""
        return self._broker(broker_id).pid

    # --- topics and tools ----------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        timeout_ms: int = 30_000,
    ) -> None:
        """Create a topic, and wait until every running broker knows all its leaders.

        ``replication_factor``: min(3, brokers) by default. Raises BrokerError if the broker
        refuses, as it does for a topic that exists.
        """
        if replication_factor is None:
            replication_factor = min(3, len(self.broker_ids))
        configuration = [CreatableTopicConfig(*item) for item in (configs or {}).items()]
        topic = CreatableTopic(name, partitions, replication_factor, [], configuration)
        with self._admin(self._running()) as admin:
            error = admin.create_topics([topic], timeout_ms)[name]
        if error is not None:
            raise error
        self._await(readiness.has_topic(name, partitions), f"topic {name}", timeout_ms)

    def run_tool(self, class_name: str, *arguments: str, timeout_ms: int = 120_000) -> str:
        """Run a command-line class of Kafka and return what it printed on stdout.

        ``class_name``: full, or just ``DumpLogSegments``, ``ConsoleConsumer``, ``TopicCommand`` …,
        which is then looked up. kafka-tools is fetched at the first call. Raises LocalKafkaError
        with the tool's stderr if it fails or does not end in time.
        """
        keeper = self._running_keeper()
        kafka = [
            f"org.apache.kafka:{name}:{self.version}" for name in ("kafka_2.13", "kafka-tools")
        ]
        jars = fetch_jars([*kafka, LOGGER_MODULE], f"kafka-tools-{self.version}")
        full_name = find_tool_class(jars, class_name)
        self._tool_runs += 1
        name = f"tool-{self._tool_runs}"
        stdout, stderr = keeper.folder / f"{name}.out", keeper.folder / f"{name}.err"
        command = settings.tool_command(self._java, jars, keeper.folder, full_name, arguments)
        keeper.start(name, command, stdout, stderr)
        code = keeper.wait([name], timeout_ms).get(name)
        if code is None:
            keeper.signal(name, signal.SIGKILL)
            raise LocalKafkaError(
                f"{full_name} did not end within {timeout_ms} ms:\n{tail_of(stderr)}"
            )
        if code:
            raise LocalKafkaError(f"{full_name} ended with code {code}:\n{tail_of(stderr)}")
        return stdout.read_text(encoding="utf-8", errors="replace")

    # --- what can happen to brokers ------------------------------------------------------------

    def stop(self, broker_id: int) -> None:
        """Shut a broker down cleanly (SIGTERM); for that, a quorum must be running.

        Does nothing if it does not run.
        """
        self._broker(broker_id).stop(self._stop_timeout_ms)

    def kill(self, broker_id: int) -> None:
        """Kill a broker (SIGKILL). Does nothing if it does not run."""
        self._broker(broker_id).kill()

    def pause(self, broker_id: int) -> None:
        """Stop a broker without ending it (SIGSTOP): connections stay open, it answers nothing."""
        self._broker(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Let a paused broker go on (SIGCONT)."""
        self._broker(broker_id).resume()

    def restart(self, broker_id: int) -> None:
        """Start a broker again, after ``stop`` if it runs, and wait until it serves.

        Ports and data stay. It leads and follows again then, but need not be in every ISR yet.
        """
        broker = self._broker(broker_id)
        broker.stop(self._stop_timeout_ms)
        self._launch(broker)
        self._await_serving()

    def await_in_sync(self, timeout_ms: int = 60_000) -> None:
        """Wait until every partition whose replicas all run has all of them in its ISR."""
        self._await(readiness.is_in_sync(self._running()), "replicas", timeout_ms)

    def await_failure(self, timeout_ms: int) -> str | None:
        """Wait for a broker that ends without being stopped; the end of its log, or None."""
        alive = {broker.name: broker for broker in self._brokers.values() if broker.is_alive}
        for name, code in self._running_keeper().wait(list(alive), timeout_ms).items():
            return alive[name].failure(code)
        return None

    # --- how -----------------------------------------------------------------------------------

    def _running_keeper(self) -> KeeperClient:
        if self._keeper is None:
            raise LocalKafkaError("this LocalKafka is not started")
        return self._keeper

    def _broker(self, broker_id: int) -> BrokerProcess:
        self._running_keeper()
        if broker_id not in self._brokers:
            raise LocalKafkaError(f"there is no broker {broker_id}, only {list(self.broker_ids)}")
        return self._brokers[broker_id]

    def _running(self) -> list[int]:
        return [broker_id for broker_id, broker in self._brokers.items() if broker.is_running]

    def _configure(self) -> None:
        """Choose ports and write every server.properties."""
        ports = iter(free_ports(len(self.broker_ids) * (1 + len(self._protocols)), settings.HOST))
        for broker_id in self.broker_ids:
            clients = {listener: next(ports) for listener in self._protocols}
            self._ports[broker_id] = settings.BrokerPorts(next(ports), clients)
        for broker_id, broker in self._brokers.items():
            advertised = {
                listener: addresses[self.broker_ids.index(broker_id)]
                for listener, addresses in self._advertised.items()
            }
            properties = settings.server_properties(
                broker_id, self._ports, self._protocols, broker.data_directory, advertised
            )
            text = settings.render_properties({**properties, **self._server_properties})
            broker.properties_file.write_text(text, encoding="ascii")

    def _format(self) -> None:
        """Prepare every data directory, all nodes at once."""
        keeper = self._running_keeper()
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # A leading dash would be taken for an option.
        arguments = ["format", "--cluster-id=" + cluster_id, "--config"]
        for broker in self._brokers.values():
            command = settings.tool_command(
                self._java,
                self._jars,
                broker.folder,
                "kafka.tools.StorageTool",
                [*arguments, str(broker.properties_file)],
            )
            keeper.start(f"format-{broker.broker_id}", command, broker.log_file, broker.log_file)
        for broker in self._brokers.values():
            name = f"format-{broker.broker_id}"
            code = keeper.wait([name], _FORMAT_TIMEOUT_MS).get(name)
            if code != 0:
                raise LocalKafkaError(
                    f"the data directory could not be formatted (exit code {code}), check "
                    f"server_properties:\n{tail_of(broker.log_file)}"
                )

    def _launch_all(self) -> None:
        """Start every broker; with other ports if another process has taken one."""
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            for broker in self._brokers.values():
                self._launch(broker)
            try:
                self._await_serving()
                return
            except LocalKafkaError:
                logs = [tail_of(broker.log_file, 1000) for broker in self._brokers.values()]
                if not attempts_left or not any(_PORT_TAKEN in log for log in logs):
                    raise
            for broker in self._brokers.values():
                broker.kill()
                broker.log_file.unlink()
            self._configure()

    def _launch(self, broker: BrokerProcess) -> None:
        broker.start(
            settings.broker_command(
                self._java, self._jars, self._heap, broker.folder, self._jvm_options
            )
        )

    def _await_serving(self) -> None:
        check = readiness.is_serving(self._running())
        self._await(check, f"Kafka {self.version}", self._start_timeout_ms)

    def _await(self, check: readiness.Check, what: str, timeout_ms: int) -> None:
        """Ask every running broker until ``check`` returns None for each."""
        deadline_ms = self._clock.now_ms() + timeout_ms
        running = self._running()
        with self._admin(running) as admin:
            for broker_id, node in zip(running, admin.bootstrap_nodes, strict=True):
                while True:
                    problem = self._ask(admin, node, check, deadline_ms)
                    if problem is None:
                        break
                    if self._clock.now_ms() >= deadline_ms:
                        raise LocalKafkaError(
                            f"{what} not ready within {timeout_ms} ms. Broker {broker_id}: "
                            f"{problem}. The end of its log:\n{tail_of(self.log_file(broker_id))}"
                        )
                    failure = self.await_failure(_ASK_AGAIN_MS)
                    if failure is not None:
                        raise LocalKafkaError(f"Kafka {self.version}: {failure}")

    def _ask(
        self, admin: AdminClient, node: Node, check: readiness.Check, deadline_ms: int
    ) -> str | None:
        """What ``check`` says of the node's metadata, or why there are none."""
        ask_until_ms = min(deadline_ms, admin.deadline_in(_ASK_TIMEOUT_MS))
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        try:
            response = admin.request(node, request, ask_until_ms)
        except (BootstrapError, BrokerError) as error:
            return str(error)
        assert isinstance(response, MetadataResponse)
        return check(response)

    def _admin(self, broker_ids: Sequence[int]) -> AdminClient:
        addresses = [self.address(broker_id) for broker_id in broker_ids]
        network_settings = DEFAULT_SETTINGS._replace(
            request_timeout_ms=_ASK_TIMEOUT_MS, reconnect_backoff_max_ms=100
        )
        return AdminClient(addresses, network_settings, SelectorNetwork(), self._clock, Random())
