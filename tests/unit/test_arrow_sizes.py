"""Large Arrow batches: jobs have none by default, and others are told of them once."""

import logging

import pyarrow as pa
import pytest

from spark_kafka_sink.jobs.session import defaults_of_jobs
from spark_kafka_sink.spark.task import LARGE_BYTES, ArrowSizeWarning

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def arrow_batch(value_bytes, rows):
    return pa.record_batch([pa.array([bytes(value_bytes)] * rows, pa.binary())], names=["value"])


def test_it_is_said_once_with_the_figure(caplog):
    sizes = ArrowSizeWarning()
    large = arrow_batch(10_000, LARGE_BYTES // 10_000 + 1)
    with caplog.at_level(logging.WARNING):
        sizes.check(arrow_batch(10_000, 400))
        assert caplog.messages == []
        sizes.check(large)
        sizes.check(large)
    (message,) = caplog.messages
    assert message.startswith(
        f"Arrow batches of 32 MiB ({large.num_rows} rows): with {ARROW_BYTES}=4m"
    )


@pytest.mark.parametrize(("given", "expected"), [(set(), "4m"), ({ARROW_BYTES}, None)])
def test_what_the_user_has_set_stays(given, expected):
    assert defaults_of_jobs(given.__contains__).get(ARROW_BYTES) == expected
