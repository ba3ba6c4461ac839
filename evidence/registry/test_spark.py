"""A registry, a real Kafka and real Spark: jobs and streams of typed columns as Avro."""

import subprocess
import sys
from pathlib import Path

import pytest

import spark_kafka_sink
from evidence.harness.apicurio import running_apicurio
from tests.reading import read_topic
from tests.spark.session import spark_session

registry_client = pytest.importorskip("confluent_kafka.schema_registry")
avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
serialization = pytest.importorskip("confluent_kafka.serialization")

# Confluent's client leaves its connections to the garbage collection.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def ids_in(kafka, topic, client):
    """By Confluent's own deserializer."""
    read = avro.AvroDeserializer(client)
    context = serialization.SerializationContext(topic, serialization.MessageField.VALUE)
    records = read_topic(kafka.bootstrap_servers, topic)
    return sorted(read(record.value, context)["id"] for record in records)


def test_the_demo_sends_avro_where_there_is_a_registry():
    demo = Path(__file__).resolve().parents[2] / "jobs" / "demo.py"
    with running_apicurio() as registry:
        arguments = ["--flights", "20000", "--schema-registry-url", registry.url]
        done = subprocess.run(
            [sys.executable, str(demo), *arguments], capture_output=True, text=True, check=False
        )
        [subject] = registry.ask("GET", "/subjects")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert subject == "flights-value"
    assert '"carrier": "' in done.stdout
    assert "Equal: every flight arrived once, with its key" in done.stdout


def options_of(kafka, registry, topic):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "value.format": "avro",
        "key.columns": "id",
        "schema.registry.url": registry.url,
        "schema.registry.timeout.ms": "20000",
    }


@pytest.mark.parametrize("is_reused", ["true", "false"])
def test_a_stream_outlives_its_registry_and_a_new_one_does_not_start(kafka, tmp_path, is_reused):
    """Also where Spark plans each micro-batch in a new process, as it does after a pause."""
    topic = f"stream-of-avro-{is_reused}"
    kafka.create_topic(topic, 2)
    settings = {"spark.python.worker.reuse": is_reused}
    with spark_session(settings=settings) as spark, running_apicurio() as registry:
        folder = str(tmp_path / "in")
        rows = spark.range(100).selectExpr("id", "CAST(id AS STRING) AS text", "id / 2 AS half")
        rows.write.parquet(folder)
        options = options_of(kafka, registry, topic)
        writer = spark.readStream.schema(rows.schema).parquet(folder).writeStream
        writer = writer.format("pykafka-sink").options(**options)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
        query.processAllAvailable()
        client = registry_client.SchemaRegistryClient({"url": registry.url})
        assert ids_in(kafka, topic, client) == [*range(100)]
        registry.stop()
        rows.where("id < 10").write.mode("append").parquet(folder)
        query.processAllAvailable()
        query.stop()
        assert len(read_topic(kafka.bootstrap_servers, topic)) == 110
        job = rows.write.format("pykafka-sink").mode("append")
        with pytest.raises(
            Exception, match=r"no schema registry of schema\.registry\.url is available"
        ):
            job.options(**{**options, "topic": "another"}).save()


EARLIER = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'
LATER = EARLIER.replace("}]}", '},{"name":"more","type":["null","int"],"default":null}]}')


@pytest.mark.parametrize("is_for_each_batch", [False, True])
def test_a_query_that_is_started_after_another_has_the_schema_of_now(
    kafka, tmp_path, is_for_each_batch
):
    """In one session, with the same options: of foreachBatch the same query again, else another."""
    topic = f"two-queries-{is_for_each_batch}"
    kafka.create_topic(topic, 1)
    with spark_session() as spark, running_apicurio() as registry:
        folder = str(tmp_path / "in")
        options = options_of(kafka, registry, topic)
        del options["key.columns"]
        options["use.latest.version"] = "true"
        ids = []
        for number, schema in enumerate((EARLIER, LATER)):
            path = f"/subjects/{topic}-value/versions"
            ids.append(registry.ask("POST", path, {"schema": schema})["id"])
            spark.range(1).write.mode("append").parquet(folder)
            writer = spark.readStream.schema("id long").parquet(folder).writeStream
            if is_for_each_batch:
                writer = writer.foreachBatch(spark_kafka_sink.batch_writer(options))
                writer = writer.option("checkpointLocation", str(tmp_path / "c"))
            else:
                writer = writer.format("pykafka-sink").options(**options)
                writer = writer.option("checkpointLocation", str(tmp_path / f"c{number}"))
            writer.trigger(availableNow=True).start().awaitTermination()
        records = read_topic(kafka.bootstrap_servers, topic)
        found = [int.from_bytes(record.value[1:5], "big") for record in records]
        assert ids[0] != ids[1]
        assert found == [ids[0], *[ids[1]] * (len(found) - 1)]
        assert len(found) == (2 if is_for_each_batch else 3)
