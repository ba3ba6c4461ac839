"""What goes between driver and tasks: only the version that has made it reads it."""

import io
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

import spark_kafka_sink
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.producer.metrics import PartitionReport
from spark_kafka_sink.spark import envelope, frames
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.envelope import VersionMismatchError
from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

PACKAGE = Path(spark_kafka_sink.__file__).parent
TEXTS = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "kafka.acks": "all"}
OPTIONS = SinkOptions.parse(TEXTS)
POSITIONS = ColumnPositions(value=0, key=1)
MESSAGE = KafkaCommitMessage(3, 1, "q", {TopicPartition("t", 0): PartitionReport()})
READ_ELSEWHERE = "import pickle, sys; pickle.load(sys.stdin.buffer)"


def sent():
    return {
        "batch writer": KafkaBatchWriter(OPTIONS, POSITIONS),
        "stream writer": KafkaStreamWriter(OPTIONS, POSITIONS),
        "message": MESSAGE,
        "writer of micro-batches": frames.BatchWriter(TEXTS),
        "task": frames.Task(OPTIONS, POSITIONS, None, ["value"]),
    }


class Unpickler(pickle.Unpickler):
    """Notes what of the sink is imported by name; not by what is called then."""

    def __init__(self, pickled):
        super().__init__(io.BytesIO(pickled))
        self.names = set()

    def find_class(self, module, name):
        if module.startswith(spark_kafka_sink.__name__):
            self.names.add(f"{module}.{name}")
        return super().find_class(module, name)


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps], ids=["pickle", "cloudpickle"])
@pytest.mark.parametrize("what", sent())
def test_a_pickle_has_the_version_outside_and_all_else_inside(what, dumps):
    pickled = dumps(sent()[what])
    unpickler = Unpickler(pickled)
    arrived = unpickler.load()
    assert unpickler.names == {"spark_kafka_sink.spark.envelope.open_envelope"}
    assert type(arrived) is type(sent()[what])
    assert vars(arrived) == vars(sent()[what])


def test_tasks_of_a_process_share_the_values_of_a_writer_and_of_nothing_that_changes():
    """Spark unpickles the same bytes for each task; the options take long to build."""
    other = KafkaBatchWriter(SinkOptions.parse({**TEXTS, "topic": "other"}), POSITIONS)
    writer, message = pickle.dumps(sent()["batch writer"]), pickle.dumps(MESSAGE)
    first = pickle.loads(writer)
    assert pickle.loads(message).partitions is not pickle.loads(message).partitions
    again = pickle.loads(writer)
    assert again is not first
    assert again._options is first._options
    assert pickle.loads(pickle.dumps(other))._options.topic == "other"
    assert pickle.loads(writer)._options == OPTIONS


@pytest.mark.parametrize("what", sent())
def test_of_another_version_nothing_is_read(what, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(envelope, "__version__", "9.8.7")
        pickled = pickle.dumps(sent()[what])
    unreadable = pickled.replace(b"spark_kafka_sink.config", b"spark_kafka_sink.absent")
    with pytest.raises(VersionMismatchError) as refused:
        pickle.loads(unreadable)
    said = str(refused.value)
    assert "pykafka-sink 9.8.7" in said
    assert f"pykafka-sink {spark_kafka_sink.__version__} in {PACKAGE} on " in said
    assert "install the same version" in said


def test_a_function_that_spark_runs_in_tasks_has_all_its_values_inside(
    monkeypatch,
):
    """Its code is sent too, so that a Connect client's code runs in the server's installation."""
    task = frames.Task(OPTIONS, POSITIONS, None, ["value"]).function()
    unpickler = Unpickler(cloudpickle.dumps(task))
    unpickler.load()
    assert unpickler.names == {"spark_kafka_sink.spark.envelope.open_envelope"}
    monkeypatch.setattr(envelope, "__version__", "9.8.7")
    pickled = cloudpickle.dumps(task)
    monkeypatch.undo()
    with pytest.raises(VersionMismatchError):
        pickle.loads(pickled)


def test_an_installation_of_another_version_refuses_what_it_would_misread(tmp_path):
    """With one option more, in its place by theme: what comes after it would be shifted."""
    other = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, other, ignore=shutil.ignore_patterns("__pycache__"))
    config = other / "config/producer_config.py"
    more, count = re.subn(
        r"(    bootstrap_servers: .*\n)", r"\1    new_key: int\n", config.read_text(), count=1
    )
    assert count == 1
    config.write_text(more)
    init = other / "__init__.py"
    init.write_text(init.read_text().replace(spark_kafka_sink.__version__, "9.8.7"))
    done = subprocess.run(
        [sys.executable, "-c", READ_ELSEWHERE],
        input=pickle.dumps(KafkaBatchWriter(OPTIONS, POSITIONS)),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        check=False,
    )
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("spark_kafka_sink.spark.envelope.VersionMismatchError: this was sent by")
    assert f"has arrived at pykafka-sink 9.8.7 in {other}" in last
