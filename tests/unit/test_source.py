"""What the data source checks on the driver before it asks anybody."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.spark import source as module
from spark_kafka_sink.spark.source import KafkaSinkDataSource

ROWS = StructType([StructField("value", StringType())])


@pytest.mark.parametrize("kind", [dict, CaseInsensitiveDict])
def test_no_pickle_of_a_source_shows_an_option(kind: type) -> None:
    """Spark keeps it between planning and committing, and ships it."""
    options = {"kafka.bootstrap.servers": "b:9092", "kafka.sasl.pasword": "marked-hush"}
    source = KafkaSinkDataSource(kind(options))
    pickled = pickle.dumps(source)
    assert b"marked-hush" not in pickled
    restored = pickle.loads(pickled)
    assert restored.options == options
    assert type(restored.options) is kind
    assert b"marked-hush" not in pickle.dumps(restored)


def test_credentials_that_are_missing_are_told_before_anybody_is_asked() -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
    }
    with pytest.raises(ConfigError, match=r"needs kafka\.sasl\.username and kafka\.sasl\.password"):
        KafkaSinkDataSource(options).writer(ROWS, False)


def test_the_process_that_commits_plans_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is written: a cluster that is away, or other transactional ids, must not end that."""

    def planned(*_: object) -> None:
        raise AssertionError("planned")

    source = KafkaSinkDataSource({"kafka.bootstrap.servers": "b:1", "topic": "t"})
    for name in ("check_surroundings", "plan_schemas", "plan_transactions"):
        monkeypatch.setattr(module, name, planned)
    pickle.loads(pickle.dumps(source)).streamWriter(ROWS, False)
    with pytest.raises(AssertionError, match="planned"):
        source.streamWriter(ROWS, False)
