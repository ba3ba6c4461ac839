"""What is arranged in a process, each time in one of its own."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from spark_kafka_sink.spark import worker

only_with_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's")

FAULTS_BY_BLOCK = """
import resource
from spark_kafka_sink.spark.worker import keep_large_blocks
{setup}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def block():
    before = faults()
    bytearray(64 << 20)[::4096] = bytes(16384)
    return faults() - before
block()
print(block())
"""
PAGES = (64 << 20) // 4096


def run(code: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout.split()


def test_what_is_loaded_is_frozen_once():
    code = (
        "import gc, weakref\n"
        "from spark_kafka_sink.spark.worker import freeze_loaded\n"
        "freeze_loaded()\n"
        "frozen = gc.get_freeze_count()\n"
        "class Cycle: pass\n"
        "cycle = Cycle(); cycle.itself = cycle; gone = weakref.ref(cycle); del cycle\n"
        "freeze_loaded()\n"
        "gc.collect()\n"
        "print(frozen > 1000, gc.get_freeze_count() <= frozen, gone() is None)\n"
    )
    assert run(code) == ["True"] * 3


def test_what_is_loaded_later_is_frozen_too():
    """As the exporters of metrics are, by a thread, after the first commit."""
    code = (
        "import gc\n"
        "from spark_kafka_sink.spark.worker import freeze_loaded\n"
        "freeze_loaded()\n"
        "frozen = gc.get_freeze_count()\n"
        "import http.server, sqlite3, xml.dom.minidom\n"
        "freeze_loaded()\n"
        "print(gc.get_freeze_count() > frozen + 1000)\n"
    )
    assert run(code) == ["True"]


@only_with_glibc
def test_a_large_block_is_mapped_anew_each_time_and_kept_if_asked():
    anew, kept = (
        int(run(FAULTS_BY_BLOCK.format(setup=setup))[0]) for setup in ("", "keep_large_blocks()")
    )
    assert anew >= PAGES
    assert kept < PAGES // 10


@only_with_glibc
def test_what_the_user_has_set_for_glibc_stays():
    code = FAULTS_BY_BLOCK.format(setup="keep_large_blocks()")
    assert int(run(code, MALLOC_MMAP_THRESHOLD_="1048576")[0]) >= PAGES


def test_a_glibc_that_refuses_is_left_as_it_is(monkeypatch):
    """Older versions answer 0 to a block size above 32 MiB."""
    asked = []

    class OldGlibc:
        def mallopt(self, threshold: int, size_bytes: int) -> int:
            asked.append((threshold, size_bytes))
            return 0

    for name in worker._OF_THE_USER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: OldGlibc())
    worker.keep_large_blocks()
    assert asked == [(worker._M_MMAP_THRESHOLD, worker.LARGEST_KEPT_BYTES)]


def test_processes_that_plan_or_write_are_arranged() -> None:
    """On the driver, where nothing is waited for here, and in a task."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "preflight.timeout.ms": "1"}
    planning = f"""
from pyspark.sql.types import StringType, StructField, StructType
from spark_kafka_sink.spark.source import KafkaSinkDataSource
source = KafkaSinkDataSource({options})
source.streamWriter(StructType([StructField("value", StringType())]), False)
"""
    task = """
from spark_kafka_sink.spark.task import prepare_process
prepare_process()
"""
    for code in ("", planning, task):
        is_frozen = run(code + "import gc\nprint(gc.get_freeze_count() > 0)")
        assert is_frozen == [str(bool(code))]
