"""What goes between driver and tasks: only the version that has made it reads it."""

from __future__ import annotations

import os
import pickle
import pickletools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

import spark_kafka_sink
from spark_kafka_sink.base.model import TopicPartition
from spark_kafka_sink.columns.positions import ColumnPositions
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.producer.metrics import PartitionReport
from spark_kafka_sink.spark import envelope
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.envelope import EnvelopedValues, VersionMismatchError
from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

PACKAGE = Path(spark_kafka_sink.__file__).parent
OPTIONS = SinkOptions.parse(
    {"kafka.bootstrap.servers": "b:9092", "topic": "t", "kafka.acks": "all"}
)
POSITIONS = ColumnPositions(value=0, key=1)
MESSAGE = KafkaCommitMessage(3, 1, "q", {TopicPartition("t", 0): PartitionReport()})
READ_ELSEWHERE = "import pickle, sys; pickle.load(sys.stdin.buffer)"


def sent() -> dict[str, object]:
    return {
        "batch writer": KafkaBatchWriter(OPTIONS, POSITIONS),
        "stream writer": KafkaStreamWriter(OPTIONS, POSITIONS),
        "message": MESSAGE,
        "values": EnvelopedValues(OPTIONS, POSITIONS, None),
    }


def names_in(pickled: bytes) -> set[str]:
    """What is imported before anything is called, and by it, when this is unpickled."""
    texts: list[str] = []
    names = set()
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name == "STACK_GLOBAL":
            names.add(".".join(texts[-2:]))
        if opcode.name == "GLOBAL":
            names.add(str(argument).replace(" ", "."))
        if isinstance(argument, str):
            texts.append(argument)
    return {name for name in names if name.startswith(spark_kafka_sink.__name__)}


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps], ids=["pickle", "cloudpickle"])
@pytest.mark.parametrize("what", sent())
def test_a_pickle_has_the_version_outside_and_all_else_inside(
    what: str, dumps: Callable[[Any], bytes]
):
    pickled = dumps(sent()[what])
    assert names_in(pickled) == {"spark_kafka_sink.spark.envelope.open_envelope"}
    arrived = pickle.loads(pickled)
    assert type(arrived) is type(sent()[what])
    assert vars(arrived) == vars(sent()[what])


@pytest.mark.parametrize("what", sent())
def test_of_another_version_nothing_is_read(what: str, monkeypatch: pytest.MonkeyPatch):
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


def test_an_installation_of_another_version_refuses_what_it_would_misread(tmp_path: Path):
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
