"""What the data source checks on the driver before it asks anybody."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.spark.source import KafkaSinkDataSource

ROWS = StructType([StructField("value", StringType())])


@pytest.mark.parametrize("method", ["writer", "streamWriter"])
def test_a_compiler_that_is_switched_off_is_refused_on_the_driver(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    source = KafkaSinkDataSource({"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(ConfigError, match="NUMBA_DISABLE_JIT is set, so numba would not compile"):
        getattr(source, method)(ROWS, False)
