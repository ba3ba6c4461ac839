"""Every case through Spark as a batch, by this sink and by Spark's own; a few as streams."""

import pytest

from tests.patience import PATIENCE_S
from tests.security.cases import CASES, NOT_OF_JAVA
from tests.security.writing import ROWS, ids_in, numbers, save
from tests.spark.test_streaming import ROWS_PER_FILE, read_files, write_file

WITH_JAVA = [case for case in CASES if not case.startswith(NOT_OF_JAVA)]


def let_java_call(spark, world, options):
    """Java's client calls no other URLs than those."""
    file = options.get("kafka.sasl.oauthbearer.token.endpoint.url", world.issuer.token_url)
    name = "org.apache.kafka.sasl.oauthbearer.allowed"
    system = spark._jvm.java.lang.System
    system.setProperty(f"{name}.urls", f"{world.issuer.token_url},{file}")
    assertion = options.get("kafka.sasl.oauthbearer.assertion.private.key.file", "")
    system.setProperty(f"{name}.files", f"{file.removeprefix('file://')},{assertion}")


@pytest.mark.parametrize("sink", ["pykafka-sink", "kafka"])
@pytest.mark.parametrize("case", WITH_JAVA)
def test_both_sinks_take_the_same_options(spark, world, new_topic, case, sink):
    topic, options = new_topic(), CASES[case](world)
    let_java_call(spark, world, options)
    save(numbers(spark), sink, topic, options)
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
