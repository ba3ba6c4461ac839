"""A few cases through Spark: batch, stream, exactly-once, on two brokers."""

from collections.abc import Callable

import pytest

from tests.patience import PATIENCE_S
from tests.security.cases import CASES
from tests.security.spark_writing import ROWS, ids_in, numbers, save
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file

pytestmark = pytest.mark.long

NewTopic = Callable[..., str]
A_FEW = (
    "SASL_TLS-SCRAM-SHA-512",
    "SASL_TLS-OAUTHBEARER",
    "pem-text-RSA-at-MUTUAL_RSA",
    "jks-EC-at-MUTUAL_EC",
)


@pytest.mark.parametrize("case", A_FEW)
def test_batch(spark, world, new_topic, case):
    topic = new_topic()
    save(numbers(spark), "pykafka-sink", topic, CASES[case](world))
    assert ids_in(world, topic) == list(range(ROWS))


STREAMS = [
    ("SASL_TLS-SCRAM-SHA-512", "at-least-once"),
    ("SASL_TLS-SCRAM-SHA-512", "exactly-once"),
    ("SASL_TLS-OAUTHBEARER", "exactly-once"),
    ("pem-RSA-at-MUTUAL_RSA", "exactly-once"),
]


@pytest.mark.parametrize(("case", "guarantee"), STREAMS)
def test_stream(spark, world, new_topic, tmp_path, case, guarantee):
    """Each row is there once for a reader of what is committed, after a stop and a restart, too."""
    topic, folder = new_topic(), tmp_path / "in"
    folder.mkdir()
    options = {**CASES[case](world), "topic": topic}
    options["checkpointLocation"] = str(tmp_path / "checkpoint")
    if guarantee == "exactly-once":
        options["delivery.guarantee"] = guarantee
        options["transactional.id.prefix"] = f"secured-{topic}"
        options["transaction.log.replication.factor"] = "2"
    for number in range(3):
        write_file(folder, number)
    write_all(spark, folder, options)
    write_file(folder, 3)
    write_all(spark, folder, options)
    assert ids_in(world, topic) == list(range(4 * ROWS_PER_FILE))


def write_all(spark, folder, options):
    """What is in ``folder`` and was not written before, one file in each micro-batch."""
    rows = read_files(spark, folder).repartition(2)
    stream = rows.writeStream.format("pykafka-sink").options(**options)
    assert stream.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
