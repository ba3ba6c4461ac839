"""A LocalKafka, as other clients see it; and the jars that it fetches."""

import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from spark_kafka_sink.localkafka import (
    DEFAULT_VERSION,
    FAST_FAILOVER,
    KNOWN_VERSIONS,
    LocalKafka,
    LocalKafkaError,
    cluster,
    fetch_jars,
)
from spark_kafka_sink.localkafka import jars as jars_module
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.localkafka.jars import CACHE_VARIABLE, IVY_SETTINGS_VARIABLE, cache_folder
from spark_kafka_sink.localkafka.processes import broker_jars, tool_jars
from tests.broker.producing import produce
from tests.local_kafka import PatientKafka
from tests.patience import PATIENCE_MS, PATIENCE_S, eventually, is_running
from tests.reading import read_values

VALUES = [b"%d" % i for i in range(100)]


@pytest.fixture(scope="module")
def mortal():
    """A broker that tests may kill; they leave it running."""
    with PatientKafka(server_properties=FAST_FAILOVER) as local_kafka:
        yield local_kafka


class TestOneBroker:
    def test_topics_get_their_configs(self, kafka):
        kafka.create_topic("lk-configured", configs={"max.message.bytes": "1234"})
        described = kafka.run_tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", kafka.bootstrap_servers),
            *("--describe", "--topic", "lk-configured"),
        )
        assert "max.message.bytes=1234" in described
        assert "retention.ms=-1" in described, "test data may carry any timestamp"

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
        assert read_values(mortal.bootstrap_servers, topic) == VALUES

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
def test_older_kafka_with_a_further_listener(tmp_path):
    listeners = {"SECOND": "PLAINTEXT"}
    with PatientKafka(version="3.9.1", listeners=listeners, folder=tmp_path) as kafka:
        kafka.create_topic("old", partitions=2)
        second = kafka.bootstrap_servers_of("SECOND")
        assert second != kafka.bootstrap_servers
        produce(second, "old", VALUES)
        assert sorted(read_values(kafka.bootstrap_servers, "old")) == sorted(VALUES)
        assert kafka.data_directory(1).is_relative_to(tmp_path)
        kafka.restart(1)
        assert sorted(read_values(second, "old")) == sorted(VALUES)
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
        with pytest.raises(LocalKafkaError, match=r"Kafka 4.4.0 needs Java 17 .* is Java 11"):
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


POOL = "org.apache.commons:commons-pool2:2.12.1"
SLF4J = "org.slf4j:slf4j-simple:1.7.36"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def names(jars):
    return [jar.name for jar in jars]


def test_is_fetched_once_and_replaced_when_modules_change(cache, monkeypatch):
    (stale,) = [cache / ".pykafka-sink-part-killed"]
    stale.mkdir(parents=True)
    first = fetch_jars([POOL], "some", transitive=False)
    assert names(first) == ["commons-pool2-2.12.1.jar"]
    assert not stale.exists()
    second = fetch_jars([SLF4J], "some")
    assert names(second) == ["slf4j-api-1.7.36.jar", "slf4j-simple-1.7.36.jar"]
    # No Java, no pyspark: what is there needs neither.
    monkeypatch.setenv("PATH", "")
    assert fetch_jars([SLF4J], "some") == second


def test_two_processes_at_once(cache):
    code = f"from spark_kafka_sink.localkafka import fetch_jars; fetch_jars([{SLF4J!r}], 'both')"
    fetching = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(PATIENCE_S) for process in fetching] == [0, 0]
    found = sorted(path.name for path in cache.iterdir())
    assert found == [".pykafka-sink-lock", "both"]
    jars = sorted((cache / "both").glob("*.jar"))
    assert names(jars) == ["slf4j-api-1.7.36.jar", "slf4j-simple-1.7.36.jar"]


def test_module_that_does_not_exist(cache):
    with pytest.raises(LocalKafkaError) as raised:
        fetch_jars(["org.apache.commons:commons-pool2:0.0.0-none"], "none")
    assert "Ivy could not fetch org.apache.commons:commons-pool2:0.0.0-none" in str(raised.value)
    assert IVY_SETTINGS_VARIABLE in str(raised.value)
    assert "not found" in str(raised.value)
    assert [path.name for path in cache.iterdir()] == [".pykafka-sink-lock"]


class TestErrorsOfFetching:
    def test_no_pyspark(self, cache, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(LocalKafkaError, match="pyspark is not installed"):
            fetch_jars([POOL], "some")

    def test_cache_that_cannot_be_written(self, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
        with pytest.raises(LocalKafkaError, match=f"cannot be written .* set {CACHE_VARIABLE}"):
            fetch_jars([POOL], "some")

    def test_coordinates(self):
        with pytest.raises(LocalKafkaError, match="'a:b' is not group:artifact:version"):
            fetch_jars(["a:b"], "wrong")


@pytest.mark.parametrize("brokers", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_word_precedes_each_step_of_a_start(tmp_path, brokers):
    running = []
    shown = []

    @contextmanager
    def step(title):
        shown.append(title)
        running.append(title)
        yield
        running.pop()

    with PatientKafka(brokers, folder=tmp_path, step=step) as kafka:
        assert not running
        kafka.run_tool("TopicCommand", "--bootstrap-server", kafka.bootstrap_servers, "--list")
    count = "a broker" if brokers == 1 else "3 brokers"
    own = [title for title in shown if not title.startswith(("Downloading", "Waiting"))]
    assert own == [f"Starting {count} of Kafka {kafka.version}", "Running TopicCommand"]


ARCHIVE = b"archive" * 100_000


class Mirror(BaseHTTPRequestHandler):
    """A repository of one module, which answers 503 as often as ``failures`` says."""

    failures = 0

    def do_GET(self):
        if type(self).failures:
            type(self).failures -= 1
            self.send_error(503)
        elif self.path == "/org/example/thing/1.0/thing-1.0.pom":
            self.answer(
                b"<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
                b"<artifactId>thing</artifactId><version>1.0</version></project>"
            )
        elif self.path == "/org/example/thing/1.0/thing-1.0.jar":
            self.answer(b"PK\x05\x06" + bytes(18))
        elif self.path == "/org/example/thing/1.0/thing-1.0-all.tar.gz":
            self.answer(ARCHIVE)
        else:
            self.send_error(404)

    def do_HEAD(self):
        self.do_GET()

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    monkeypatch.setattr(Mirror, "failures", 0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        settings = tmp_path / "ivysettings.xml"
        settings.write_text(
            '<ivysettings><settings defaultResolver="mirror"/><resolvers><ibiblio name="mirror" '
            f'm2compatible="true" root="http://127.0.0.1:{server.server_port}/"/></resolvers>'
            "</ivysettings>"
        )
        monkeypatch.setenv(IVY_SETTINGS_VARIABLE, str(settings))
        yield server
        server.shutdown()
        thread.join()


def test_a_repository_that_fails_once_is_asked_again(cache, mirror, monkeypatch, caplog):
    monkeypatch.setattr(Mirror, "failures", 2)  # Ivy asks for the descriptor, then for the jar
    assert names(fetch_jars(["org.example:thing:1.0"], "thing")) == ["thing-1.0.jar"]
    assert "Service Unavailable" in caplog.text
    assert caplog.text.count("Ivy is run once more") == 1


def test_a_failure_names_its_cause_in_one_sentence(cache, mirror, monkeypatch):
    monkeypatch.setattr(Mirror, "failures", -1)
    with pytest.raises(LocalKafkaError, match="Service Unavailable") as raised:
        fetch_jars(["org.example:thing:1.0"], "thing")
    assert str(raised.value).startswith("Ivy could not fetch org.example:thing:1.0: ")
    assert "\n" not in str(raised.value)
    mirror.shutdown()
    mirror.server_close()
    with pytest.raises(LocalKafkaError, match="Connection refused"):
        fetch_jars(["org.example:thing:1.0"], "thing")


def test_a_host_that_has_no_address_is_the_cause(cache, tmp_path, monkeypatch):
    """Ivy says too that the module is not found, as for a version that does not exist."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers><ibiblio name="mirror" '
        'm2compatible="true" root="http://no-such-host.invalid/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv(IVY_SETTINGS_VARIABLE, str(settings))
    with pytest.raises(LocalKafkaError, match=r": Host no-such-host\.invalid not found\. "):
        fetch_jars(["org.example:thing:1.0"], "thing")


def test_an_archive_is_fetched_again_after_a_failure_and_must_have_its_digest(
    cache, mirror, monkeypatch
):
    """Its settings are the mirror's. Without settings it comes from where Ivy takes jars from."""
    monkeypatch.setattr(Mirror, "failures", 2)
    digests = {"thing-1.0-all.tar.gz": sha256(ARCHIVE).hexdigest()}
    monkeypatch.setattr(jars_module, "_digests_of", lambda name: digests)
    archive = "org.example:thing:1.0:all"
    path = jars_module.fetch_archive(archive, "a", "an archive")
    assert path.read_bytes() == ARCHIVE
    mirror.shutdown()
    assert jars_module.fetch_archive(archive, "a", "an archive") == path
    digests["thing-1.0-all.tar.gz"] = "0" * 64
    with pytest.raises(LocalKafkaError, match="is not the jar that this version"):
        jars_module.fetch_archive(archive, "a", "an archive")


def test_ivy_leaves_nothing_outside_of_the_cache(cache, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={home}")
    assert names(fetch_jars([POOL], "some", transitive=False)) == ["commons-pool2-2.12.1.jar"]
    assert list(home.iterdir()) == []
    assert sorted(path.name for path in cache.iterdir()) == [".pykafka-sink-lock", "some"]


def test_a_word_precedes_a_download_and_a_wait_for_one(cache, mirror, monkeypatch):
    """And while it lasts, what has arrived."""
    monkeypatch.setattr(jars_module, "_PROGRESS_S", 0.001)
    shown, told = [], []

    @contextmanager
    def step(title):
        shown.append(title)
        yield SimpleNamespace(say=told.append)

    thing = ["org.example:thing:1.0"]
    with jars_module._cache_lock(cache, "another", step):
        fetching = threading.Thread(target=fetch_jars, args=(thing, "thing"), kwargs={"step": step})
        fetching.start()
        assert eventually(lambda: shown)
    fetching.join()
    fetch_jars(thing, "thing", step=step)
    waits = f"Waiting for org.example:thing:1.0: another process downloads into {cache}"
    assert shown == [waits, "Downloading org.example:thing:1.0"]
    assert {*told} <= {f"{shown[1]}: {size} MB" for size in (0, 1)}
    assert told


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_a_download_that_cannot_be_stored_names_the_cache_folder(cache):
    """A limit for the size of files stands for a disk that is full."""
    code = (
        "import resource, sys, tempfile; from spark_kafka_sink.__main__ import main; "
        "tempfile.gettempdir(); "  # Python looks once for a folder that takes files
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); sys.exit(main(['broker']))"
    )
    done = run_python(code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"pykafka-sink: the cache folder {cache} cannot be written (File too large): set "
        f"{CACHE_VARIABLE} to a folder that can [PKS-LOCAL-005]"
    )
    assert "Traceback" not in done.stderr


def test_a_disk_that_is_full_during_a_download_names_the_cache_folder(cache, mirror):
    """A limit for the size of files stands for a disk on which the archive has no place."""
    code = (
        "import resource; from spark_kafka_sink.localkafka import jars; "
        f"limit = {len(ARCHIVE) // 2}; resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)); "
        "jars.fetch_archive('org.example:thing:1.0:all', 'a', 'an archive')"
    )
    done = run_python(code)
    assert done.stderr.splitlines()[-1] == (
        f"spark_kafka_sink.localkafka.settings.LocalKafkaError: the cache folder {cache} cannot be "
        f"written (File too large): set {CACHE_VARIABLE} to a folder that can [PKS-LOCAL-005]"
    )
    assert "Ivy is run once more" not in done.stderr


@pytest.mark.long
def test_a_broker_keeps_its_jars_when_the_cache_is_cleared(monkeypatch, tmp_path):
    """Its JVM opens the jars of a codec with the first batch of that codec."""
    modules, name = broker_jars(DEFAULT_VERSION)
    folder = tmp_path / "cache"
    shutil.copytree(fetch_jars(modules, name)[0].parent, folder / name)
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    with PatientKafka() as kafka:
        with pytest.raises(LocalKafkaError, match="a broker runs from"):
            jars_module.clear_cache()
        kafka.create_topic("kept")
        options = {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "zstd"}
        producer = Producer({**options, "message.timeout.ms": PATIENCE_MS})
        producer.produce("kept", b"1")
        assert producer.flush(PATIENCE_S) == 0
        assert read_values(kafka.bootstrap_servers, "kept") == [b"1"]
    jars_module.clear_cache()
    assert not folder.exists()


def test_a_lock_whose_file_was_removed_during_the_wait_is_not_taken(cache):
    """``clear_cache`` removes the file: a third process would lock a new one."""
    waits, holds, ends = threading.Event(), threading.Event(), threading.Event()

    @contextmanager
    def step(title):
        waits.set()
        yield

    def hold():
        with jars_module._cache_lock(cache, "another", step):
            holds.set()
            ends.wait(PATIENCE_S)

    holder = threading.Thread(target=hold)
    with jars_module._cache_lock(cache, "one", step):
        holder.start()
        assert waits.wait(PATIENCE_S)
        (cache / jars_module._LOCK).unlink()
    try:
        assert holds.wait(PATIENCE_S)
        with open(cache / jars_module._LOCK) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        ends.set()
        holder.join()


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_digests_of_known_versions_are_shipped(version):
    for _, name in (broker_jars(version), tool_jars(version)):
        assert jars_module._digests_of(name), name


def test_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pykafka-sink"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache/pykafka-sink"
    monkeypatch.setenv(CACHE_VARIABLE, "~/elsewhere")
    assert cache_folder() == Path.home() / "elsewhere"
