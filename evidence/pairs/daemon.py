"""Spark's Python daemon, with a fault: a worker kills itself in the second Arrow batch of a task.

The file ``armed`` in the folder that PAIRS_FOLDER names makes it happen once; ``killed`` says that
it has happened. It is the daemon of ``spark.python.daemon.module``, and takes any Spark and Python.
"""

import importlib
import os
import signal
from pathlib import Path

from spark_kafka_sink.producer.producer import KafkaProducer

FOLDER = "PAIRS_FOLDER"
ARMED, KILLED = "armed", "killed"
_append, _begin_task = KafkaProducer.append, KafkaProducer.begin_task
_appends: dict = {}


def begin_task(self, *arguments):
    _appends[id(self)] = 0
    return _begin_task(self, *arguments)


def append(self, *arguments, **options):
    _append(self, *arguments, **options)
    _appends[id(self)] = _appends.get(id(self), 0) + 1
    if _appends[id(self)] == 2:
        folder = Path(os.environ[FOLDER])
        try:
            (folder / ARMED).rename(folder / KILLED)
        except FileNotFoundError:
            return
        # What brokers have acknowledged is written again: only exactly-once may hide that.
        self.flush()
        os.kill(os.getpid(), signal.SIGKILL)


# Not on import: programs and tests import the names of its files.
if __name__ == "__main__":
    setattr(KafkaProducer, "begin_task", begin_task)  # noqa: B010 (a method, for mypy)
    setattr(KafkaProducer, "append", append)  # noqa: B010
    importlib.import_module("pyspark.daemon").manager()
