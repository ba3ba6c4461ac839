"""A real Apache Kafka on this machine, for demo, tests and benchmarks.

A cluster is ready when the metadata of each broker shows it. A check inspects one broker's metadata
of the cluster, and returns what is still missing, or None. It ignores partitions with a replica on
a broker that does not run.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random, SystemRandom

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.errors import BootstrapError, BrokerError, error_for_code, sentence
from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.base.model import Node, format_address
from spark_kafka_sink.localkafka import settings
from spark_kafka_sink.localkafka.jars import Step, print_step
from spark_kafka_sink.localkafka.processes import BrokerProcess, SupervisorClient, Toolbox
from spark_kafka_sink.localkafka.security import (
    SECURED_LISTENER,
    Secured,
    SecuredListener,
    allowed_urls,
    listeners_of,
)
from spark_kafka_sink.localkafka.settings import (
    DEFAULT_VERSION,
    LocalKafkaError,
    check_version,
    tail_of,
)
from spark_kafka_sink.network.admin import DEFAULT_SETTINGS, AdminClient
from spark_kafka_sink.network.transport import SelectorNetwork
from spark_kafka_sink.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    MetadataRequest,
    MetadataResponse,
)

# --- free TCP ports ------------------------------------------------------------------------------

PORTS_VARIABLE = "PYKAFKA_SINK_PORTS"
"""Environment variable: the range of ports that brokers may use, such as ``15000-20000``."""

_FIRST_PORT = 15000
_USUAL_FIRST_EPHEMERAL_PORT = 32768
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 1000


def free_ports(count: int, host: str) -> list[int]:
    """Return ``count`` different ports of ``host`` that no process listens on at the moment.

    The ports lie below the range from which the operating system takes ports for outgoing
    connections. A broker must find its port free after a restart. A client that connects to a
    closed port of that range can connect to itself. The ports are not reserved, so another process
    may take one first. Programs that restart brokers on the same machine can keep apart with
    ``PORTS_VARIABLE``.
    """
    candidates = usual_ports() if PORTS_VARIABLE not in os.environ else _given_ports()
    random = SystemRandom()
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                break
            sock = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                # Port 0 takes any port, if the machine leaves no port below the ephemeral range.
                sock.bind((host, random.choice(candidates) if candidates else 0))
            except OSError:
                continue
            ports.append(sock.getsockname()[1])
    if len(ports) < count:
        raise OSError(f"no {count} free ports on {host}")
    return ports


def usual_ports() -> range:
    """Return the ports that other processes are unlikely to use."""
    try:
        first_ephemeral = int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first_ephemeral = _USUAL_FIRST_EPHEMERAL_PORT
    return range(_FIRST_PORT, first_ephemeral)


def _given_ports() -> range:
    text = os.environ[PORTS_VARIABLE]
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise LocalKafkaError(
            f"{PORTS_VARIABLE} is {text!r}, not a range such as 15000-20000", code="LOCAL-002"
        )
    return range(int(first), int(last) + 1)


def _checked_port(port: int) -> int:
    """Return ``port``. Raises LocalKafkaError if no process can listen on it now."""
    try:
        socket.create_server((settings.HOST, port)).close()
    except (OSError, OverflowError) as error:
        raise LocalKafkaError(
            f"port {port} of {settings.HOST} cannot be used ({error}): choose another one",
            code="LOCAL-015",
        ) from None
    return port


# --- readiness -----------------------------------------------------------------------------------

Check = Callable[[MetadataResponse], "str | None"]


def is_serving(running: Collection[int], in_sync: bool = False) -> Check:
    """Check that all ``running`` brokers and a controller are known, and all partitions led.

    in_sync: every replica must be in its ISR, too
    """

    def check(cluster: MetadataResponse) -> str | None:
        known = {broker.node_id for broker in cluster.brokers}
        missing = sorted(set(running) - known)
        if missing:
            return f"it knows brokers {sorted(known)}, not {missing}"
        if cluster.controller_id < 0:
            return "it knows no controller"
        for topic in cluster.topics:
            for partition in topic.partitions:
                where, replicas = (
                    f"{topic.name}-{partition.partition_index}",
                    partition.replica_nodes,
                )
                if not set(replicas) <= set(running):
                    continue
                if partition.leader_id not in running:
                    return f"{where} has no leader"
                if in_sync and set(partition.isr_nodes) != set(replicas):
                    return f"{where} has replicas {replicas}, in sync are {partition.isr_nodes}"
        return None

    return check


def has_topic(name: str, partitions: int) -> Check:
    """Check that topic ``name`` is known, and that each partition has a leader."""

    def check(cluster: MetadataResponse) -> str | None:
        topic = next((topic for topic in cluster.topics if topic.name == name), None)
        if topic is None:
            return f"topic {name} is unknown"
        if topic.error_code:
            return str(error_for_code(topic.error_code))
        led = sum(partition.leader_id >= 0 for partition in topic.partitions)
        return None if led == partitions else f"{led} of {partitions} have a leader"

    return check


# --- the cluster ---------------------------------------------------------------------------------

_PORT_ATTEMPTS = 3
_PORT_TAKEN = "Address already in use"
_ASK_TIMEOUT_MS = 2_000
_ASK_AGAIN_MS = 25


class LocalKafka:
    """Apache Kafka in KRaft mode, run from its own jars. A context manager.

    The jars (about 45 MB) are downloaded when a version is first used, and kept. Needs Java 17 and
    pyspark, whose Ivy downloads them. Everything else lives in a temporary folder that is removed
    at the end, also when this process is killed. Ports are chosen from 15000 on, or from the range
    in the environment variable ``PYKAFKA_SINK_PORTS`` (``20000-20999``).

    Every node is both broker and controller; ids begin at 1. Methods that act on a broker return
    when the action is complete. All raise LocalKafkaError.

    Parameters
    ----------
    brokers: number of brokers; 1 or 3, so that a majority exists.
    version: of Kafka, 3.3 or newer; 3.9 or newer for users of SCRAM.
    server_properties: added to those of every broker, or replacing them.
    heap: of every broker, as for ``-Xmx``.
    security: further listeners that admit only known clients, with generated certificates and
        users: ``"sasl_ssl"``, a ``LocalSecurity``, or several by name. ``bootstrap_servers`` names
        the first; the listener without security, PLAINTEXT, stays beside it.
    listeners: further listeners, security protocol by name, ``{"SECURE": "SASL_PLAINTEXT"}``;
        their settings belong into ``server_properties``.
    advertised: addresses that brokers advertise for a listener instead of their own, one
        ``host:port`` per broker: ``{"PROXIED": ["127.0.0.1:4001", …]}``.
    port: of the first address in ``bootstrap_servers``; further brokers have the ports after it. By
        default, free ports are chosen.
    racks: ``broker.rack`` of each broker, in the order of their ids; empty for none.
    jvm_options: for every broker.
    folder: parent of the temporary folder.
    start_timeout_ms, stop_timeout_ms: ms until brokers must serve, and must have shut down.
    step: called with a title before each step that downloads, starts or waits; its result is a
        context manager around the step. By default, titles are lines on standard error.

    Example
    -------
    >>> with LocalKafka() as kafka:
    ...     kafka.create_topic("flights", partitions=6)
    ...     print(kafka.bootstrap_servers)
    >>> with LocalKafka(security="sasl_ssl") as kafka:
    ...     frame.write.format("pykafka-sink").options(**kafka.client_options()).save()
    """

    def __init__(  # noqa: PLR0913 - users name the few arguments that they need; each has a default
        self,
        brokers: int = 1,
        version: str = DEFAULT_VERSION,
        server_properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        *,
        security: Secured | None = None,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, Sequence[str]] | None = None,
        racks: Sequence[str] = (),
        port: int | None = None,
        jvm_options: Sequence[str] = (),
        folder: str | Path | None = None,
        start_timeout_ms: int = 90_000,
        stop_timeout_ms: int = 60_000,
        step: Step = print_step,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers must be at least 1, not {brokers}")
        if len(racks) not in (0, brokers):
            raise ValueError(f"{len(racks)} racks for {brokers} brokers")
        self.version = check_version(version)
        self.broker_ids = tuple(range(1, brokers + 1))
        self._server_properties = dict(server_properties or {})
        self._racks = dict(zip(self.broker_ids, racks))
        self._port = port
        self._heap = heap
        self._security = listeners_of(security)
        self._protocols = {name: asked.protocol for name, asked in self._security.items()}
        self._protocols |= {settings.MAIN_LISTENER: "PLAINTEXT", **(listeners or {})}
        self._advertised = dict(advertised or {})
        self._ports: dict[int, settings.BrokerPorts] = {}
        self._jvm_options = tuple(jvm_options)
        self._parent_folder = Path(tempfile.gettempdir() if folder is None else folder)
        self._start_timeout_ms = start_timeout_ms
        self._stop_timeout_ms = stop_timeout_ms
        self._clock: Clock = SystemClock()
        self._supervisor: SupervisorClient | None = None
        self._step = step
        self._toolbox = Toolbox(self.version, step)
        self._secured: dict[str, SecuredListener] = {}
        self._brokers: dict[int, BrokerProcess] = {}

    # --- life ----------------------------------------------------------------------------------

    def __enter__(self) -> LocalKafka:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Fetch jars, start all brokers, and wait until they serve. May be called again."""
        if self._supervisor is not None:
            return
        self._toolbox.fetch()
        count = "a broker" if len(self.broker_ids) == 1 else f"{len(self.broker_ids)} brokers"
        with self._step(f"Starting {count} of Kafka {self.version}"):
            self._start_brokers()

    def _start_brokers(self) -> None:
        self._supervisor = SupervisorClient(self._parent_folder)
        try:
            folder = self._supervisor.folder
            for name, security in self._security.items():
                self._secured[name] = SecuredListener(name, security, folder)
            for broker_id in self.broker_ids:
                self._brokers[broker_id] = BrokerProcess(self._supervisor, broker_id, folder)
            self._configure()
            credentials = [c for one in self._secured.values() for c in one.scram_credentials()]
            self._toolbox.format(self._supervisor, list(self._brokers.values()), credentials)
            self._launch_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill all processes and remove the data folder. May be called at any time, and again."""
        supervisor, self._supervisor = self._supervisor, None
        self._brokers.clear()
        self._secured.clear()
        if supervisor is not None:
            supervisor.close()
        self._toolbox.release()

    # --- addresses and files -------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Return ``host:port`` of every broker, running or not, separated by commas.

        The addresses are those of the first secured listener, if one exists.
        """
        return self.bootstrap_servers_of(None)

    def bootstrap_servers_of(self, listener: str | None) -> str:
        """Return ``bootstrap_servers`` of a listener by its name."""
        addresses = [self.address(broker_id, listener) for broker_id in self.broker_ids]
        return ",".join(format_address(host, port) for host, port in addresses)

    def address(self, broker_id: int, listener: str | None = None) -> tuple[str, int]:
        """Return host and port of a broker, by default on the listener of ``bootstrap_servers``."""
        self._broker(broker_id)
        name = next(iter(self._protocols)) if listener is None else listener
        if name not in self._protocols:
            known = ", ".join(self._protocols)
            raise LocalKafkaError(f"there is no listener {name}, only {known}", code="LOCAL-011")
        return settings.HOST, self._ports[broker_id].listeners[name]

    def controller_address(self, broker_id: int) -> tuple[str, int]:
        """Return host and port of a node's listener for the Raft quorum."""
        self._broker(broker_id)
        return settings.HOST, self._ports[broker_id].controller

    @property
    def folder(self) -> Path:
        """The temporary folder, readable only for this user, and removed at the end."""
        return self._running_supervisor().folder

    def data_directory(self, broker_id: int) -> Path:
        """Return the broker's log directory: one folder per partition, for DumpLogSegments."""
        return self._broker(broker_id).data_directory

    def log_file(self, broker_id: int) -> Path:
        """Return the file of the broker's log, over all its restarts."""
        return self._broker(broker_id).log_file

    def process_id(self, broker_id: int) -> int:
        """Return the broker's process id, which changes with ``restart``."""
        return self._broker(broker_id).pid

    # --- for clients of secured listeners ------------------------------------------------------

    def secured(self, listener: str = SECURED_LISTENER) -> SecuredListener:
        """Return a secured listener: its users' passwords and its key files."""
        self._running_supervisor()
        if listener not in self._secured:
            known = ", ".join(self._secured) or "none"
            raise LocalKafkaError(
                f"there is no secured listener {listener}, only {known}", code="LOCAL-011"
            )
        return self._secured[listener]

    def client_options(
        self,
        user: str | None = None,
        listener: str = SECURED_LISTENER,
        mechanism: str | None = None,
    ) -> dict[str, str]:
        """Return all options that a Spark job needs to write, with ``kafka.bootstrap.servers``.

        Both sinks accept the options. By default: the first user, the first mechanism.
        """
        properties = self.secured(listener).client_properties(user, mechanism)
        properties["bootstrap.servers"] = self.bootstrap_servers_of(listener)
        return {f"kafka.{key}": value for key, value in properties.items()}

    def write_client_properties(
        self, path: str | Path, user: str | None = None, listener: str = SECURED_LISTENER
    ) -> Path:
        """Write the client options as a properties file for Kafka's tools, private to this user."""
        options = self.client_options(user, listener)
        properties = {key.removeprefix("kafka."): value for key, value in options.items()}
        return write_private(Path(path), settings.render_properties(properties))

    def write_spark_properties(self, path: str | Path, client_properties: Path) -> Path:
        """Write the client options as a properties file for jobs, private to this user.

        Passwords are references to the file that ``write_client_properties`` has written.
        """
        properties = {
            f"spark.pykafka.{key}": f"${{file:{client_properties}:{key.removeprefix('kafka.')}}}"
            if key == "kafka.sasl.jaas.config"
            else value
            for key, value in self.client_options().items()
        }
        return write_private(Path(path), settings.render_properties(properties))

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

        ``replication_factor``: min(3, brokers) by default. Raises BrokerError if the broker rejects
        the request, for example because the topic exists.
        """
        if replication_factor is None:
            replication_factor = min(3, len(self.broker_ids))
        configuration = [CreatableTopicConfig(*item) for item in (configs or {}).items()]
        topic = CreatableTopic(name, partitions, replication_factor, [], configuration)
        deadline_ms = self._clock.now_ms() + timeout_ms
        with self._admin(self._running(), timeout_ms) as admin:
            before = admin.metadata([name], False, deadline_ms).topics[0]
            left_ms = max(1, deadline_ms - self._clock.now_ms())
            error = admin.create_topics([topic], left_ms)[name]
        # A request to a busy broker is retried, and the retry finds the topic that the first
        # request created.
        is_ours = before.error_code and error and error.error.name == "TOPIC_ALREADY_EXISTS"
        if error is not None and not is_ours:
            raise error
        self._await(has_topic(name, partitions), f"topic {name}", timeout_ms, deadline_ms)

    def run_tool(self, class_name: str, *arguments: str, timeout_ms: int = 120_000) -> str:
        """Run a command-line class of Kafka and return its stdout.

        ``class_name``: full, or a short name that is looked up, such as ``DumpLogSegments``,
        ``ConsoleConsumer`` or ``TopicCommand``. kafka-tools is fetched at the first call. Raises
        LocalKafkaError with the tool's stderr if the tool fails or does not end in time.
        """
        return self._toolbox.run(self._running_supervisor(), class_name, arguments, timeout_ms)

    # --- what can happen to brokers ------------------------------------------------------------

    def stop(self, broker_id: int) -> None:
        """Shut a broker down cleanly (SIGTERM), which needs a running quorum.

        Does nothing if the broker does not run.
        """
        self._broker(broker_id).stop(self._stop_timeout_ms)

    def kill(self, broker_id: int) -> None:
        """Kill a broker (SIGKILL). Does nothing if the broker does not run."""
        self._broker(broker_id).kill()

    def pause(self, broker_id: int) -> None:
        """Suspend a broker (SIGSTOP): its connections stay open, and it answers nothing."""
        self._broker(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker (SIGCONT)."""
        self._broker(broker_id).resume()

    def restart(self, broker_id: int) -> None:
        """Stop a broker if it runs, start it again, and wait until it serves.

        Ports and data stay. The broker leads and follows again then, but may not be in every ISR
        yet.
        """
        broker = self._broker(broker_id)
        broker.stop(self._stop_timeout_ms)
        self._launch(broker)
        self._await_serving()

    def await_in_sync(self, timeout_ms: int = 60_000) -> None:
        """Wait until the ISR of every partition whose replicas all run has all replicas."""
        self._await(is_serving(self._running(), in_sync=True), "replicas", timeout_ms)

    def await_failure(self, timeout_ms: int) -> str | None:
        """Wait for a broker to end by itself; return the end of its log, or None if none ends."""
        alive = {broker.name: broker for broker in self._brokers.values() if broker.is_alive}
        for name, code in self._running_supervisor().wait(list(alive), timeout_ms).items():
            broker = alive[name]
            return (
                f"broker {broker.broker_id} ended by itself with code {code}. The end of its log:\n"
                f"{tail_of(broker.log_file)}"
            )
        return None

    # --- internals -----------------------------------------------------------------------------

    def _running_supervisor(self) -> SupervisorClient:
        if self._supervisor is None:
            raise LocalKafkaError("this LocalKafka is not started", code="LOCAL-012")
        return self._supervisor

    def _broker(self, broker_id: int) -> BrokerProcess:
        self._running_supervisor()
        if broker_id not in self._brokers:
            raise LocalKafkaError(
                f"there is no broker {broker_id}, only {list(self.broker_ids)}", code="LOCAL-011"
            )
        return self._brokers[broker_id]

    def _running(self) -> list[int]:
        return [broker_id for broker_id, broker in self._brokers.items() if broker.is_running]

    def _configure(self) -> None:
        """Choose ports and write every server.properties."""
        ports = iter(free_ports(len(self._brokers) * (1 + len(self._protocols)), settings.HOST))
        for index, broker_id in enumerate(self._brokers):
            clients = {listener: next(ports) for listener in self._protocols}
            if self._port is not None:
                clients[next(iter(clients))] = _checked_port(self._port + index)
            self._ports[broker_id] = settings.BrokerPorts(next(ports), clients)
        for index, (broker_id, broker) in enumerate(self._brokers.items()):
            advertised = {name: addresses[index] for name, addresses in self._advertised.items()}
            properties = settings.server_properties(
                broker_id, self._ports, self._protocols, broker.data_directory, advertised
            )
            if broker_id in self._racks:
                properties["broker.rack"] = self._racks[broker_id]
            for secured in self._secured.values():
                properties |= secured.broker_properties()
            text = settings.render_properties(properties | self._server_properties)
            write_private(broker.properties_file, text)

    def _launch_all(self) -> None:
        """Start every broker; choose other ports if another process has taken one."""
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
        options = [*self._jvm_options, *allowed_urls(self._secured.values())]
        self._toolbox.start_broker(broker, self._heap, options)

    def _await_serving(self) -> None:
        check = is_serving(self._running())
        self._await(check, f"Kafka {self.version}", self._start_timeout_ms)

    def _await(
        self, check: Check, what: str, timeout_ms: int, deadline_ms: int | None = None
    ) -> None:
        """Ask every running broker until ``check`` returns None for each.

        deadline_ms: the end of ``timeout_ms`` if it has begun before; by default it begins now
        """
        if deadline_ms is None:
            deadline_ms = self._clock.now_ms() + timeout_ms
        running = self._running()
        with self._admin(running) as admin:
            for broker_id, node in zip(running, admin.bootstrap_nodes):
                while True:
                    problem = self._ask(admin, node, check, deadline_ms)
                    if problem is None:
                        break
                    if self._clock.now_ms() >= deadline_ms:
                        raise LocalKafkaError(
                            f"{what} not ready within {timeout_ms} ms. Broker {broker_id}: "
                            f"{problem}. The end of its log:\n{tail_of(self.log_file(broker_id))}",
                            code="LOCAL-010",
                        )
                    failure = self.await_failure(_ASK_AGAIN_MS)
                    if failure is not None:
                        raise LocalKafkaError(f"Kafka {self.version}: {failure}", code="LOCAL-010")

    def _ask(self, admin: AdminClient, node: Node, check: Check, deadline_ms: int) -> str | None:
        """Return what ``check`` finds in the node's metadata, or why the request failed."""
        ask_until_ms = min(deadline_ms, admin.deadline_in(_ASK_TIMEOUT_MS))
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        try:
            response = admin.request(node, request, ask_until_ms)
        except (BootstrapError, BrokerError) as error:
            return sentence(error)
        assert isinstance(response, MetadataResponse)
        return check(response)

    def _admin(
        self, broker_ids: Sequence[int], request_timeout_ms: int = _ASK_TIMEOUT_MS
    ) -> AdminClient:
        addresses = [self.address(broker_id, settings.MAIN_LISTENER) for broker_id in broker_ids]
        network_settings = DEFAULT_SETTINGS._replace(
            request_timeout_ms=request_timeout_ms, reconnect_backoff_max_ms=100
        )
        return AdminClient(addresses, network_settings, SelectorNetwork(), self._clock, Random())
