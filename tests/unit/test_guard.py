"""Which threads a guard waits for, and when it cleans up. Stops of real queries: tests/spark/test_exactly_once.py."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from itertools import repeat
from pathlib import Path

import pytest

from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark import guard as module
from spark_kafka_sink.spark.guard import (
    Guard,
    GuardProcess,
    Life,
    Planned,
    QueryThreads,
    clean_up,
    jvm_above,
    query_threads,
    watch,
)
from spark_kafka_sink.transactions.commit_protocol import CleanUp
from spark_kafka_sink.transactions.model import Driver, DriverToken
from tests.patience import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are read under /proc")

TOKEN = DriverToken(1, 0, 0, 2)
# What a JVM does: threads with names, and a Python process below another one that looks.
JVM = """
import ctypes, subprocess, sys, threading
def run(name):
    ctypes.CDLL(None).prctl(15, name)
    named.wait()
    sys.stdin.read()
named = threading.Barrier(4)
for name in (b"stream executio", b"stream ..3f91c]", b"streaming-shuff"):
    threading.Thread(target=run, args=(name,), daemon=True).start()
named.wait()
subprocess.run(["sh", "-c", sys.argv[1] + " -c '" + sys.argv[2] + "'; true"])
"""
LOOK = """
import json, os
from spark_kafka_sink.spark.guard import jvm_above, query_threads
jvm = jvm_above(os.getpid())
print(json.dumps([jvm.process_id, len(query_threads(jvm))]))
"""


def test_the_threads_of_queries_are_found_from_below(tmp_path):
    java = tmp_path / "java"
    java.symlink_to(os.path.realpath(sys.executable))
    command = [java, "-c", JVM, sys.executable, LOOK]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=os.getcwd()
    ) as jvm:
        found = json.loads(jvm.stdout.readline())
        assert found == [jvm.pid, 2]
        jvm.kill()


def test_without_a_jvm_there_is_no_guard():
    assert jvm_above(1) is None


def test_a_process_has_ended_before_its_parent_asks():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        life = Life.of(process.pid)
        assert not life.has_ended()
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert life.has_ended()  # a zombie
    assert life.has_ended()
    assert Life(os.getpid(), b"another start").has_ended()


def test_nothing_has_ended_for_certain_without_proc(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "PROC", tmp_path)
    assert not Life(os.getpid(), b"1").has_ended()


def test_threads_of_which_one_is_unreadable_are_no_knowledge(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "PROC", tmp_path)
    (tmp_path / "7" / "task" / "8" / "comm").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        query_threads(Life(7, b"1"))


@pytest.fixture
def threads():
    """Three threads that live."""
    end, ids = threading.Event(), []
    started = threading.Barrier(4)

    def run():
        ids.append(threading.get_native_id())
        started.wait()
        end.wait()

    all_threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in all_threads:
        thread.start()
    started.wait()
    yield [Life.of(native_id) for native_id in ids]
    end.set()
    for thread in all_threads:
        thread.join()


ENDED = Life(os.getpid(), b"0")


class TestWhichThread:
    def test_the_only_one_is_known_whatever_begins_later(self, threads):
        first, second, _ = threads
        found = QueryThreads()
        assert found.find("a", lambda: frozenset({first})) == {first}
        assert found.find("a", lambda: frozenset({first, second})) == {first}
        assert found.find("b", lambda: frozenset({first, second})) == {second}

    def test_of_several_it_is_one_of_these_whatever_begins_later(self, threads):
        first, second, _ = threads
        found = QueryThreads()
        assert found.find("a", lambda: frozenset({first, second})) == {first, second}
        assert found.find("a", lambda: frozenset(threads)) == {first, second}

    def test_after_one_of_several_has_ended_it_is_not_the_other(self, threads):
        """Two queries begin together; then the first is stopped and started again."""
        second, again, _ = threads
        found = QueryThreads()
        for key in "ab":
            assert found.find(key, lambda: frozenset({ENDED, second})) == {ENDED, second}
        for key in "ab":
            assert found.find(key, lambda: frozenset({again, second})) == {again, second}

    def test_a_query_that_begins_again_has_another(self, threads):
        found = QueryThreads()
        found.find("a", lambda: frozenset({ENDED}))
        assert found.find("a", lambda: frozenset(threads[:1])) == {threads[0]}


class Clock:
    ms = 0

    def now_ms(self):
        return self.ms


def planned(*lives, prefix="p"):
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.max.block.ms": "1000",
            "topic": "t",
            "delivery.guarantee": "exactly-once",
            "transactional.id.prefix": prefix,
        }
    )
    return Planned(options, Driver("d", "host", 0, None, None, None), TOKEN, frozenset(lives))


class TestGuard:
    def test_it_cleans_up_once_when_all_have_ended(self, threads):
        done = []
        guard = Guard(Clock(), done.append)
        guard.add(planned(ENDED))
        last = planned(ENDED, threads[0])
        guard.add(last)
        guard.look()
        assert done == []
        ended = planned(ENDED, prefix="q")
        guard.add(ended)
        guard.look()
        guard.look()
        assert done == [ended]
        assert guard.is_needed()

    def test_after_the_last_plan_it_waits_only_for_what_is_not_committed(self, threads):
        clock, answers = Clock(), [True, False]
        guard = Guard(clock, lambda _: None)
        guard.add(planned(*threads))
        for clock.ms, is_needed in (
            (29_999, True),
            (30_000, True),
            (59_999, True),
            (60_000, False),
        ):
            guard.forget_committed(lambda options, token: answers.pop(0))
            assert guard.is_needed() == is_needed


class TestProcess:
    @pytest.fixture
    def guard(self):
        guard = GuardProcess()
        yield guard
        guard.close()
        guard.process.kill()
        guard.process.wait()

    def test_one_that_hangs_holds_up_no_plan_and_one_that_is_killed_is_replaced(
        self, guard, threads
    ):
        plan = planned(*threads)
        guard.tell(plan)
        first = guard.process
        first.send_signal(signal.SIGSTOP)
        with pytest.raises(BlockingIOError):
            deque(map(guard.tell, repeat(plan, 10_000)))
        first.kill()
        first.wait()
        guard.tell(plan)
        assert guard.process is not first

    def test_it_has_no_secret_of_spark(self, guard, threads, monkeypatch):
        monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "s3cr3t")
        guard.tell(planned(*threads))
        file = Path(f"/proc/{guard.process.pid}/environ")
        assert eventually(lambda: b"PATH=" in file.read_bytes())  # exec fills it a moment later
        assert b"s3cr3t" not in file.read_bytes()


def test_plans_are_read_during_a_clean_up():
    begun, end = threading.Event(), threading.Event()

    def clean_up(_):
        begun.set()
        end.wait()

    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        guard = threading.Thread(target=watch, args=(there, Guard(Clock(), clean_up)))
        guard.start()
        with here:
            here.settimeout(60)
            message = pickle.dumps(planned(ENDED))
            here.send(message)
            begun.wait()
            try:
                for _ in range(2_000):  # more than the socket holds
                    here.send(message)
            finally:
                end.set()
        guard.join()


def test_without_brokers_the_log_names_the_command(caplog):
    clean_up(planned(ENDED))
    (told,) = caplog.messages
    assert "pykafka-sink transactions abort --bootstrap-server 127.0.0.1:1 --prefix p" in told
    assert told.endswith("[PKS-TXN-044]")


def test_a_token_that_is_used_up_for_nothing_has_a_line(caplog, monkeypatch):
    caplog.set_level("INFO")
    monkeypatch.setattr(module, "clean_up_after", lambda *_: CleanUp((), TOKEN))
    monkeypatch.setattr(module, "clean_up_late", lambda *_: ())
    clean_up(planned(ENDED), late_look_s=0)
    (told,) = caplog.messages
    assert "prefix 'p' has ended before its commit: no transaction was open" in told
