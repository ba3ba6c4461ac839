"""The parts that run during a week: brokers, registry, Spark's cluster, Prometheus and the input."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import shutil
import ssl
import subprocess
import sys
import threading
import time

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from evidence.harness.apicurio import running_apicurio
from evidence.harness.scene import lingering
from evidence.harness.standalone import CLIENT_CONF, RACKS, InZones
from evidence.monitoring.test_prometheus import prometheus
from evidence.week.alarms import MUST
from evidence.week.driver import Driver, Feed
from evidence.week.program import Settings, number_in
from evidence.week.spark_faults import JumpingClock
from evidence.week.workloads import DEAD_LETTERS, WORKLOADS
from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.localkafka import DEFAULT_VERSION, LocalKafkaError, LocalSecurity
from spark_kafka_sink.localkafka.certificates import LOCAL_HOSTS, Authority
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.localkafka.processes import Toolbox
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS, PATIENCE_S, eventually
from tests.proxy import TcpProxy
from tests.security.issuer import Issuer

USER = "alice"
SECURED, TOKENS = "SECURED", "TOKENS"
_SECRET = "the secret of the client"
TOKEN_LIFE_S = 60
SESSION_MS = 60_000
_SMALL_DISK_MIB = 96
_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_FAILOVER = {"broker.session.timeout.ms": "5000", "broker.heartbeat.interval.ms": "500"}
_BROKER_JVM = ()  # brokers run for hours: Java's slower compiler is worth its time


class Brokers(PatientKafka):
    """Three secured brokers, whose version can change while their data stay.

    Operators and checks use the listener without security, and the tools of the newest version.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._tools = Toolbox(DEFAULT_VERSION, self._step)
        self._tools_lock = threading.Lock()

    def start(self):
        """Fetch everything first: a download would prolong the fault that needs it."""
        self._tools.fetch()
        super().start()
        self.run_tool("TransactionsCommand", "--bootstrap-server", self.bootstrap_servers, "list")

    @property
    def bootstrap_servers(self):
        return self.bootstrap_servers_of(MAIN_LISTENER)

    def run_tool(self, class_name, *arguments, timeout_ms=PATIENCE_MS):
        supervisor = self._running_supervisor()
        with self._tools_lock:
            return self._tools.run(supervisor, class_name, arguments, timeout_ms)

    def upgrade(self):
        """Each broker that is started from now on has the newest version."""
        self._toolbox.release()
        self._toolbox, self.version = self._tools, DEFAULT_VERSION


STAYING = {"org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"}
"""Classes of the processes that are left once an application has ended."""


class SlowProxy(TcpProxy):
    """Adds ``delay_s`` to each piece of data that passes."""

    delay_s = 0.0

    def _passage_of(self, client):
        def pass_slowly():
            self._lets_through.wait()
            if self.delay_s:
                time.sleep(self.delay_s)

        return pass_slowly


class Cluster(InZones):
    """Spark's processes leave the cores to brokers: no schedule has brokers that are too slow."""

    def launch(self, name, command, environment=None):
        return super().launch(name, ["nice", "-n", "5", *command], environment)


class World:
    """A context manager of everything.

    arguments: of the command line; code: the folder whose package driver and executors run
    watch: looks at the alarms; deleted: see ``checkers.rows_deleted``
    deaths: the ends of drivers that had not been asked to end
    """

    def __init__(self, folder, arguments, code):
        self.folder = folder
        self.code = code
        self.version = arguments.kafka
        self.workloads = [WORKLOADS[name] for name in arguments.workloads]
        self._seconds_per_file = arguments.seconds_per_file
        self.clock = JumpingClock(folder)
        # Processes that are killed leave their files behind.
        self.python_files, self._java_files = folder / "python", folder / "java"
        self.python_files.mkdir()
        self._java_files.mkdir()
        self.environment = {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(code),
            "TMPDIR": str(self.python_files),
            "SPARK_LOCAL_DIRS": str(self._java_files),
        }
        self.watch = None
        self.deleted = {}
        self.deaths = []
        self.session_s, self.token_life_s = SESSION_MS / 1000, TOKEN_LIFE_S
        self._stack = contextlib.ExitStack()

    @property
    def lacking(self):
        """What this machine does not have; the faults that need it are skipped."""
        there = {
            "prometheus": self.prometheus is not None,
            "gcc": bool(self.clock.environment),
            "the right to mount": self.has_small_disk,
        }
        return [name for name, is_there in there.items() if not is_there]

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exception):
        self._stack.close()

    def _start(self):
        enter = self._stack.enter_context
        self.small_disk = self._mount_small_disk()
        self.authority = Authority("authority of the week")
        self._start_brokers()
        self._start_registry()
        [self.port] = free_ports(1, "127.0.0.1")
        # Executors that die are replaced without an end.
        java = f"{_JAVA} -Dspark.deploy.maxExecutorRetries=-1"
        environment = {**self.environment, "SPARK_DAEMON_JAVA_OPTS": java}
        spark = Cluster(self.folder / "cluster", environment, cores=2, memory="1500m")
        self.spark = enter(spark)
        self.feed = Feed(self.folder / "in", self._seconds_per_file)
        self.driver = Driver(self)
        self._stack.callback(self.driver.kill)
        self.prometheus = None
        if shutil.which("prometheus") is not None:
            (self.folder / "prometheus").mkdir()
            self.prometheus = enter(prometheus(self.folder / "prometheus", self.port))

    # --- brokers -------------------------------------------------------------------------------

    def _start_brokers(self):
        enter = self._stack.enter_context
        self.password_file = self.folder / "secrets.properties"
        self.client_file = write_private(self.folder / "client.properties", f"secret={_SECRET}\n")
        [port] = free_ports(1, "127.0.0.1")
        self.issuer = enter(Issuer({USER: _SECRET}, life_s=TOKEN_LIFE_S, port=port))
        self.set_password("the first password")

        def target_of(broker_id):
            try:
                return self.kafka.address(broker_id, SECURED)
            except LocalKafkaError as error:  # it is being stopped, and a client still tries
                raise ConnectionRefusedError(str(error)) from error

        self.proxies = {b: enter(SlowProxy(lambda b=b: target_of(b))) for b in (1, 2, 3)}
        session = "connections.max.reauth.ms"
        secured = LocalSecurity(
            users={USER: "the first password"},
            authority=self.authority,
            client_auth="required",
            properties={f"scram-sha-512.{session}": str(SESSION_MS)},
        )
        # Without this, a connection outlives the token that it began with.
        tokens = LocalSecurity(
            mechanisms=("OAUTHBEARER",),
            users=self.issuer.clients,
            authority=self.authority,
            oauth=self.issuer.oauth,
            properties={f"oauthbearer.{session}": str(SESSION_MS)},
        )
        self.kafka = Brokers(
            3,
            self.version,
            {**_FAILOVER, "auto.create.topics.enable": "false"},
            security={SECURED: secured, TOKENS: tokens},
            advertised={SECURED: [proxy.address for proxy in self.proxies.values()]},
            racks=list(RACKS.values()),
            jvm_options=_BROKER_JVM,
        )
        enter(self.kafka)
        wanted = {topic: w.partitions for w in self.workloads for topic in w.topics}
        self.create_topics({**wanted, DEAD_LETTERS: 3})

    def set_password(self, password):
        """Write the file that the writers' options refer to."""
        write_private(self.password_file, f"password={password}\n")

    @property
    def servers(self):
        """The listener without security, for checks and for what operators do."""
        return self.kafka.bootstrap_servers

    @functools.cached_property
    def admin(self):
        """Another client than the one under test."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    @property
    def topics(self):
        """All topics of the workloads."""
        return [topic for workload in self.workloads for topic in workload.topics]

    def run_tool(self, class_name, *arguments):
        """Run one of Kafka's own tools, of the newest version, on these brokers."""
        return self.kafka.run_tool(class_name, "--bootstrap-server", self.servers, *arguments)

    def producer_ids(self):
        """By workload: ids that a broker remembers for one partition, and writes committed so far.

        Empty if Kafka's tool fails.
        """
        committed = self.committed()
        try:
            ids = {w.name: self._producer_ids_of(w.topics[0]) for w in self.workloads}
        except LocalKafkaError:
            return {}
        return {name: (count, committed[name]) for name, count in ids.items()}

    def _producer_ids_of(self, topic):
        told = self.run_tool(
            "TransactionsCommand", *("describe-producers", "--topic", topic, "--partition", "0")
        )
        return len([line for line in told.splitlines() if line[:1].isdigit()])

    def create_topics(self, partitions):
        """Partitions by name, with three replicas. Return when all brokers know their leaders."""
        config = {"min.insync.replicas": "2"}
        topics = [NewTopic(name, count, 3, config=config) for name, count in partitions.items()]
        for created in self.admin.create_topics(topics).values():
            created.result(PATIENCE_S)
        self.kafka.await_in_sync()

    # --- registry ------------------------------------------------------------------------------

    def _start_registry(self):
        enter = self._stack.enter_context
        self.registry = enter(running_apicurio())
        identity = self.authority.issue("registry", LOCAL_HOSTS)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(write_private(self.folder / "registry.pem", identity.pem()))
        address, self._registry_path = self.registry.url.removeprefix("http://").split("/", 1)
        host, port = address.split(":")
        self.registry_proxy = enter(TcpProxy(lambda: (host, int(port)), tls=context))

    # --- the driver ----------------------------------------------------------------------------

    def _mount_small_disk(self):
        """A file system that can be filled, for metrics and checkpoints; None if not allowed."""
        path = self.folder / "small"
        path.mkdir()
        # Among mounts of this process and of its children, which end with these.
        is_alone = ctypes.CDLL(None).unshare(_NEW_MOUNTS) == 0
        commands = (
            ["mount", "--make-rprivate", "/"],
            ["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK_MIB}m", "tmpfs", str(path)],
        )
        self.has_small_disk = is_alone and all(
            subprocess.run(command, capture_output=True).returncode == 0 for command in commands
        )
        if self.has_small_disk:
            self._stack.callback(subprocess.run, ["umount", "--lazy", str(path)], check=True)
        return path

    @property
    def metrics(self):
        return self.small_disk / "metrics.jsonl"

    def options_of(self, workload):
        """The workload's own, and those of the cluster."""
        options = {
            **self.kafka.client_options(USER, workload.listener),
            "metrics.path": str(self.metrics),
            "metrics.path.max.bytes": "2000000",
            "metrics.log": "false",
            "log.format": "json",
        }
        if workload.listener == TOKENS:
            login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            credentials = "kafka.sasl.oauthbearer.client.credentials.client"
            options["kafka.sasl.jaas.config"] = login
            options[f"{credentials}.id"] = USER
            options[f"{credentials}.secret"] = f"${{file:{self.client_file}:secret}}"
            options["kafka.sasl.oauthbearer.scope"] = "kafka"
        else:
            del options["kafka.sasl.jaas.config"]
            options["kafka.bootstrap.servers"] = ",".join(p.address for p in self.proxies.values())
            options["kafka.sasl.username"] = USER
            options["kafka.sasl.password"] = f"${{file:{self.password_file}:password}}"
        if workload.uses_registry:
            trusted = str(self.kafka.secured(SECURED).authority_file)
            options["schema.registry.url"] = (
                f"https://{self.registry_proxy.address}/{self._registry_path}"
            )
            options["schema.registry.ssl.truststore.type"] = "PEM"
            options["schema.registry.ssl.truststore.location"] = trusted
        return {**options, **workload.options}

    def committed(self):
        """The latest committed micro-batch or job of each workload, -1 before the first."""
        done = {}
        for workload in self.workloads:
            if workload.kind == "batch":
                done[workload.name] = self.jobs_done(workload.name) - 1
            else:
                folder = self.small_disk / "checkpoints" / workload.name / "commits"
                names = [p.name for p in folder.glob("[0-9]*") if p.name.isdecimal()]
                done[workload.name] = max(map(int, names), default=-1)
        return done

    def jobs_done(self, name):
        """How many batch jobs have succeeded."""
        return number_in(self.driver.folder / f"{name}.done")

    def supervise(self):
        """Start the driver again if it has ended without being asked."""
        if not self.driver.is_running:
            self.deaths.append({"at": time.time(), "end": self.driver.text()[-1000:]})
            self.driver.start()
            self.driver.has_started()

    def hold(self, fault, least_s, meanwhile=lambda: None):
        """Let a fault last for ``least_s``, and until the alarm was seen that it must raise."""
        began = time.time()
        deadline = time.monotonic() + PATIENCE_S
        while time.time() < began + least_s or not self.watch.has_seen(MUST[fault], began):
            if time.monotonic() > deadline:
                return  # the alarm is missing, which is a verdict
            meanwhile()
            time.sleep(0.5)

    def finish(self):
        """Let everything end; return what did not end as it must.

        status: of the driver; left_open: transactions; processes: that are left of the driver and
        of executors
        """
        started = time.monotonic()
        status = self.driver.finish()
        seconds = round(time.monotonic() - started)
        left = []

        def has_ended():
            commands = map(words_of, self.spark.processes())
            left[:] = [words for words in commands if words and not STAYING & set(words)]
            return not left

        eventually(has_ended)
        return {
            "status": status,
            "seconds": seconds,
            "left_open": self._left_open(),
            "processes": [" ".join(words)[:200] for words in left],
        }

    def await_progress(self):
        """Wait until each workload has committed something that it began after now.

        Return the workloads that have not gone on by then: none, if all is well.
        """
        before, deadline = self.committed(), time.monotonic() + PATIENCE_S
        while True:
            self.supervise()
            # The next commit may be of what was nearly finished before.
            left = [name for name, now in self.committed().items() if now < before[name] + 2]
            if not left or time.monotonic() >= deadline:
                return left
            time.sleep(0.5)

    def _left_open(self):
        try:
            return lingering(self.kafka, "week-")
        except LocalKafkaError as error:
            return [f"not known: {error}"[:500]]

    def settings(self):
        """Of the driver, as its next start finds them."""
        # Heaps have their size from the start: what grows besides is no garbage.
        java = f"{_JAVA} -XX:+AlwaysPreTouch -Djava.io.tmpdir={self._java_files}"
        conf = {
            **CLIENT_CONF,
            **{f"spark.executorEnv.{name}": v for name, v in self.clock.environment.items()},
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"{java} -Xms1g",
            "spark.executor.extraJavaOptions": f"{java} -Xms700m",
            "spark.master": self.spark.master,
            "spark.cores.max": "4",
            "spark.executor.cores": "2",
            # New Python workers, of which kills make many, start soon then.
            "spark.python.daemon.module": "spark_kafka_sink.spark.daemon",
            "spark.executor.memory": "700m",
            "spark.scheduler.mode": "FAIR",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.adaptive.enabled": "false",
            "spark.python.unix.domain.socket.enabled": "true",
            # Spark keeps these, and no more: the number of files is flat soon.
            "spark.sql.streaming.minBatchesToRetain": "20",
            "spark.sql.streaming.fileSource.log.cleanupDelay": "1m",
            # Without an interval of the trigger: Spark would wait for it by a clock that jumps.
            "spark.sql.streaming.pollingDelay": "2s",
        }
        return Settings(
            folder=str(self.driver.folder),
            source=str(self.feed.folder),
            checkpoints=str(self.small_disk / "checkpoints"),
            metrics=str(self.metrics),
            port=self.port,
            conf=conf,
            workloads=[{**w._asdict(), "options": self.options_of(w)} for w in self.workloads],
        )


def words_of(process):
    """The command line of a process; empty if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
