"""A standalone Spark cluster on this machine: a master and workers in JVMs of their own.

Executors are children of their worker's JVM, and Python workers children of their executor's. Every
process of a cluster has its mark in its environment: all of them are ended with the cluster, also
those that have lost their parent.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import uuid
from pathlib import Path
from typing import NamedTuple

import psutil
import pyspark

from tests.patience import eventually

SPARK_HOME = Path(pyspark.__file__).parent
HERE = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"
_MARK = "PYKAFKA_SINK_TEST_CLUSTER"
_STARTED = re.compile(r"Starting Spark master at (spark://\S+:\d+)")

QUICK_CONF = {
    "spark.executor.memory": "600m",
    "spark.ui.enabled": "false",
    # Such JVMs run for a minute: Java's slower compiler would take half of the CPU.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""What drivers are quicker with."""
CLIENT_CONF = {"spark.driver.host": HERE, "spark.driver.bindAddress": HERE, **QUICK_CONF}
"""And what every driver of such a cluster needs."""


class Executor(NamedTuple):
    """The JVM of one executor. ``number``: as Spark counts within its application."""

    process: psutil.Process
    application: str
    number: int
    worker: int

    @property
    def pid(self):
        return self.process.pid

    def python_processes(self):
        """The daemon that forks, and the workers that it has forked."""
        return [p for p in children_of(self.process) if "python" in name_of(p)]

    def python_workers(self):
        """Those that run tasks, or wait for the next one."""
        return [p for p in self.python_processes() if p.ppid() != self.pid]


class Processes:
    """Processes that end together: each has the mark of all in its environment."""

    def __init__(self, folder, environment):
        """``folder``: for what they say. ``environment``: theirs, unless one has its own."""
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._environment = dict(environment)
        self._launched = []

    def processes(self):
        """All that run now."""
        return [p for p in psutil.process_iter() if self._is_ours(p)]

    def log(self, name):
        """What a process has said since it was launched last."""
        path = self.folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def launch(self, name, command, environment=None):
        """A process that is ended with the others; its output is in ``log(name)``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        own = self._environment if environment is None else environment
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                # Executors end when their worker is gone.
                tied_to_this_process(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**own, _MARK: self._mark},
            )
        self._launched.append(process)
        return process

    def await_said(self, name, process, is_said):
        """Wait for something in the output of a process; it is an error if it ends before that."""
        eventually(lambda: is_said(self.log(name)) or process.poll() is not None)
        assert is_said(self.log(name)), f"{name}: {self.log(name)[-3000:]}"

    def end(self):
        """SIGKILL for all, also for those that have lost their parent."""
        for process in self._launched:
            process.kill()
            process.wait()
        self._launched.clear()

        def all_ended():
            left = self.processes()
            for process in left:
                _kill(process)
            return not left

        assert eventually(all_ended), "there are processes that do not end"

    def _is_ours(self, process):
        try:
            is_running = process.status() != psutil.STATUS_ZOMBIE
            return is_running and process.environ().get(_MARK) == self._mark
        except psutil.Error:
            return False  # it has ended, or is another user's


class StandaloneCluster(Processes):
    """A context manager; ``master`` is its address for ``spark-submit``."""

    def __init__(
        self,
        folder,
        environment=None,
        *,
        hosts=(HERE, HERE),
        cores=1,
        memory="1g",
        spark_home=SPARK_HOME,
    ):
        """``folder``: for logs and the executors' work. ``environment``: added to that of all
        its processes. ``hosts``: of the workers, one for each. ``spark_home``: of another Spark.
        """
        daemons = {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_HOME": str(spark_home),
        }
        self.spark_home = spark_home
        super().__init__(folder, {**os.environ, **daemons, **(environment or {})})
        self.master = ""
        self._hosts = tuple(hosts)
        self._size = ("--cores", str(cores), "--memory", memory)
        self._workers = {}

    def __enter__(self):
        try:
            self._start_master()
            for number in range(len(self._hosts)):
                self.start_worker(number, is_waited_for=False)
            for number in range(len(self._hosts)):
                self._await_registered(number)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, exc_type, exc, traceback):
        self.end()
        self._workers.clear()

    def executors(self, application=None):
        """Those that run now, of one application or of all."""
        found = [
            executor
            for number, worker in sorted(self._workers.items())
            for executor in _executors(number, worker.pid)
        ]
        return [one for one in found if application in (None, one.application)]

    def worker(self, number):
        """The JVM of a worker."""
        return psutil.Process(self._workers[number].pid)

    def kill_worker(self, number):
        """SIGKILL for a whole node: the worker, its executors and all below them, at once."""
        kill_all_of(self._workers.pop(number))

    def is_worker_running(self, number):
        """Whether it was started, and has not ended since."""
        return number in self._workers and self._workers[number].poll() is None

    def decommission_worker(self, number):
        """The signal that announces the end of its node."""
        self.worker(number).send_signal(signal.SIGPWR)

    def start_worker(self, number, is_waited_for=True):
        """One that was killed, again; or one more, if ``number`` is the next one."""
        if number == len(self._hosts):
            self._hosts = (*self._hosts, self._hosts[-1])
        place = ("--host", self._hosts[number], "--port", "0", "--webui-port", "0")
        work = ("--work-dir", str(self.folder / f"work-{number}"))
        arguments = (*place, *self._size, *work, self.master)
        self._workers[number] = self._launch(f"worker-{number}", "worker.Worker", arguments)
        if is_waited_for:
            self._await_registered(number)

    def submit(self, *arguments, conf=CLIENT_CONF):
        """A command: this cluster's ``spark-submit``. ``arguments``: further ones, and the job."""
        settings = [word for item in conf.items() for word in ("--conf", "=".join(item))]
        spark_submit = str(self.spark_home / "bin" / "spark-submit")
        return [spark_submit, "--master", self.master, *settings, *arguments]

    def logs_of_work(self):
        """All that executors and drivers of this cluster have written to stdout and stderr."""
        paths = sorted(self.folder.glob("work-*/*/**/std*"))
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)

    def _start_master(self):
        arguments = ("--host", HERE, "--port", "0", "--webui-port", "0")
        process = self._launch("master", "master.Master", arguments)
        self.await_said("master", process, lambda text: _STARTED.search(text) is not None)
        [self.master] = _STARTED.findall(self.log("master"))

    def _await_registered(self, number):
        name = f"worker-{number}"
        registered = "Successfully registered with master"
        self.await_said(name, self._workers[number], lambda text: registered in text)

    def _launch(self, name, class_name, arguments):
        spark_class = str(self.spark_home / "bin" / "spark-class")
        return self.launch(name, [spark_class, f"{_DEPLOY}.{class_name}", *arguments])


RACKS = {1: "zone-a", 2: "zone-b", 3: "zone-c"}
"""Of brokers, beside ``InZones``."""
_ZONE_OF_WORKER = {"worker-0": "zone-a", "worker-1": "zone-b"}


class InZones(StandaloneCluster):
    """Each worker, with its executors, has the variable AZ of its own; nothing else has one."""

    def launch(self, name, command, environment=None):
        zone = _ZONE_OF_WORKER.get(name)
        own = environment if zone is None else {**self._environment, "AZ": zone}
        return super().launch(name, command, own)


def _executors(worker, pid):
    for process in psutil.Process(pid).children():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue  # it has just ended
        if any(word.endswith("CoarseGrainedExecutorBackend") for word in words):
            application = words[words.index("--app-id") + 1]
            number = int(words[words.index("--executor-id") + 1])
            yield Executor(process, application, number, worker)


def children_of(process):
    """All processes below it; none if it has ended."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def name_of(process):
    """Its name; empty if it has ended."""
    try:
        return process.name()
    except psutil.Error:
        return ""


def tied_to_this_process(command):
    """Return a command whose process ends with this one, however this one ends, if Linux allows it.

    The thread that starts the process must live as long: Linux looks at that thread.
    """
    setpriv = shutil.which("setpriv")
    return [*command] if setpriv is None else [setpriv, "--pdeathsig", "KILL", *command]


def kill_all_of(started):
    """SIGKILL for a process that was started here, and for all below it, at once."""
    if started.poll() is None:
        process = psutil.Process(started.pid)
        for one in [process, *children_of(process)]:
            _kill(one)
        started.wait()


def _kill(process):
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass


_HOSTS = ("127.0.0.1", "127.0.0.2")

SPECULATION = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "600m",
    "spark.task.maxFailures": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "50ms",
}
"""Spark's settings: one task slot per host, and a second attempt at whatever takes longer."""


def on_two_hosts(folder, environment):
    """A context manager. ``environment``: added to that of the executors."""
    return StandaloneCluster(folder, environment, hosts=_HOSTS)
