"""The daemon that loads the sink before it forks workers, as Spark starts it: by its module's name."""

import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

OURS, SPARKS_OWN = "spark_kafka_sink.spark.daemon", "pyspark.daemon"
REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow

IN_A_CHILD = """
import json, os
from spark_kafka_sink.spark import daemon
daemon.load()
import gc, io, mmap, random, resource, socket, sys
import numpy as np
import pyspark.worker
def acknowledges_at_once(ours):
    return ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
def between_tasks():  # a connection to Spark's JVM, on which both sides have answered each other
    server = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(server.getsockname())
    theirs, _ = server.accept()
    for _ in range(3):
        theirs.sendall(b"rows")
        ours.recv(4)
        ours.sendall(b"message")
        theirs.recv(7)
    return ours, theirs
def begin_a_task(ours, theirs):
    theirs.shutdown(socket.SHUT_WR)
    try:
        pyspark.worker.main(os.fdopen(os.dup(ours.fileno()), "rb"), io.BytesIO())
    except (Exception, SystemExit):  # there is no task to read
        pass
tcp = between_tasks()
acknowledges = [acknowledges_at_once(tcp[0])]
begin_a_task(*tcp)
acknowledges.append(acknowledges_at_once(tcp[0]))
begin_a_task(*socket.socketpair())  # a Unix domain socket
limit = int(os.environ["PYSPARK_EXECUTOR_MEMORY_MB"]) << 20
threads = len(os.listdir("/proc/self/task"))
told = []
for _ in range(2):
    read, write = os.pipe()
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))  # as pyspark.worker does
        square = np.ones((200, 200))
        from spark_kafka_sink.producer.producer import POOL
        from spark_kafka_sink.transactions.model import TRANSACTIONAL_IDS
        os.write(write, json.dumps({
            "numpy": np.random.random(), "python": random.random(),
            "ids": TRANSACTIONAL_IDS._worker, "idle": POOL.idle_count,
            "blas": float((square @ square)[0, 0]),
            "room": len(mmap.mmap(-1, limit // 2)),
            "frozen": gc.get_freeze_count(), "collects": gc.isenabled(),
            "loaded": sorted({n.split(".")[0] for n in sys.modules}),
        }).encode())
        os._exit(0)
    os.close(write)
    with open(read) as file:
        told.append(json.load(file))
    os.wait()
refused = []
def load_again():
    try:
        daemon.load()
    except Exception as error:
        refused.append(f"{type(error).__name__}: {error}")
os.environ["PYSPARK_EXECUTOR_MEMORY_MB"] = "300"
load_again()
del os.environ["PYSPARK_EXECUTOR_MEMORY_MB"]
daemon._OF_SPARK = (*daemon._OF_SPARK, "starts_a_thread")
load_again()
daemon._THREADS = "/no/such/folder"
load_again()
left_set = [n for n in os.environ if "MALLOC" in n]
print(json.dumps([threads, acknowledges, left_set, told, refused]))
"""
LIMIT = "PYSPARK_EXECUTOR_MEMORY_MB"
"""How Spark tells its Python processes what spark.executor.pyspark.memory leaves for each worker."""


@contextmanager
def daemon(*arguments, path=None):
    """As Spark's JVM starts it: it ends when its standard input is closed."""
    folders = [str(folder) for folder in (path, REPOSITORY) if folder is not None]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "PYTHON_WORKER_FACTORY_SECRET": "secret",
    }
    with subprocess.Popen(
        [sys.executable, "-m", OURS, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
            process.wait(PATIENCE_S)


def new_worker(process):
    """Its process id, by way of the port that the daemon tells, which must be all that it tells."""
    assert process.stdout is not None
    (port,) = struct.unpack("!i", process.stdout.read(4))
    assert 0 < port <= 0xFFFF, f"standard output began with {struct.pack('!i', port)!r}"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        (process_id,) = struct.unpack("!i", connection.makefile("rb").read(4))
    return int(process_id)


def said_by(process):
    """What it has written to standard error until its end."""
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.close()
    return process.stderr.read().decode()


def running(process):
    command = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(process.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    return command.stdout


def test_a_worker_has_all_loaded_nothing_of_anothers_own_and_room_for_its_own_data(tmp_path):
    """spark.executor.pyspark.memory: pyspark.worker limits the addresses of each worker. Loading
    once is what takes the time, so what load() refuses is tried with all in memory.
    """
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CHILD],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            LIMIT: "2400",  # enough also when kernels have to be compiled first
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)]),
        },
    )
    threads, acknowledges, left_set, told, (small, threaded, unseen) = json.loads(done.stdout)
    first, second = told
    assert threads == 1
    assert acknowledges == [0, 1], "a worker acknowledges at once from the beginning of a task"
    assert left_set == []
    for worker in (first, second):
        assert worker["idle"] == 0
        assert worker["blas"] == 200.0
        assert worker["frozen"] > 50_000
        assert worker["collects"]
        assert {"crc32c", "pyarrow", "pyspark"} <= set(worker["loaded"])
    for own in ("numpy", "python", "ids"):
        assert first[own] != second[own], own
    assert small.startswith(
        "TooLittleMemoryError: spark.executor.pyspark.memory leaves 300 MiB for each worker, and "
    )
    assert threaded.startswith("ThreadsStartedError: threads were started: ")
    assert unseen == "ThreadsStartedError: there is no /no/such/folder, which would show threads"


def test_it_is_sparks_daemon_and_what_imports_print_is_not_taken_for_its_port(tmp_path):
    (tmp_path / "pandas.py").write_text("print('imported')\nraise ImportError('no pandas')\n")
    with daemon("pyspark.worker", path=tmp_path) as process:
        assert new_worker(process) > 0
        assert OURS in running(process)
        said = said_by(process)
    assert "imported" in said
    assert "not loaded" not in said


@pytest.mark.parametrize(
    ("crc32c", "reason"),
    [
        ("raise ImportError('libc is too old')", "ImportError: libc is too old"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
    ids=["import fails", "import exits"],
)
def test_what_cannot_be_loaded_leaves_sparks_own_daemon(tmp_path, crc32c, reason):
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "crc32c.py").write_text(crc32c)
    with daemon("pyspark.worker", path=shadow) as process:
        assert new_worker(process) > 0
        assert SPARKS_OWN in running(process)
        said = said_by(process)
    assert reason in said
    assert "each loads it by itself" in said


def test_workers_that_plan_load_nothing(tmp_path):
    """The driver's: they must start at once, and need no kernels."""
    (tmp_path / "crc32c.py").write_text("raise ImportError('not for planning')\n")
    with daemon("pyspark.sql.worker.plan_data_source_read", path=tmp_path) as process:
        assert new_worker(process) > 0
        assert "not loaded" not in said_by(process)
