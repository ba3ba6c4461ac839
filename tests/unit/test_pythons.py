"""Which Python a session of Spark will run, and one that runs already: tests/spark/test_documents.py has a real one."""

import os
import sys

import pytest
from pyspark import SparkContext

from spark_kafka_sink import configure
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS
from tests.tables import each_row


class Builder(dict[str, str]):
    """Of a session."""

    def config(self, name, value):
        self[name] = value
        return self


SUBMITTED = {"PYSPARK_GATEWAY_PORT": "1"}


@each_row(
    ("given", "python", "settings"),
    [
        ({}, sys.executable, {UNIX_SOCKETS: "true"}),
        ({"PYSPARK_PYTHON": "theirs"}, "theirs", {UNIX_SOCKETS: "true"}),
        ({**SUBMITTED, "PYSPARK_PYTHON": sys.executable}, sys.executable, {}),
        ({**SUBMITTED, "PYSPARK_PYTHON": "{other}"}, "{other}", {}),
        ({**SUBMITTED, "PYSPARK_PYTHON": "no-python"}, None, {}),
        ({**SUBMITTED, "PYSPARK_PYTHON": "false"}, None, {}),
        (
            {**SUBMITTED, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": "false"},
            None,
            {},
        ),
    ],
)
def test_the_python_of_a_session(given, python, settings, tmp_path, monkeypatch):
    """Of one that runs, only if it has the sink: ``python`` is None if not."""
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setattr(SparkContext, "_jvm", None)  # other tests of this process have a session
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value.format(other=other))
    builder = Builder()
    if python is None:
        with pytest.raises(ConfigError, match="Spark runs already") as raised:
            configure(builder)
        assert raised.value.code == "SPARK-013"
    else:
        assert configure(builder) is builder
        assert os.environ["PYSPARK_PYTHON"] == python.format(other=other)
    assert builder == settings
