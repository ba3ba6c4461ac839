"""The producer under test, with the options of a Spark job and without Spark."""

from collections.abc import Mapping

from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from spark_kafka_sink.producer.producer import ThreadedProducer
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.source import KafkaSinkDataSource
from spark_kafka_sink.spark.task import write_rows
from tests.broker.producing import batch_of, plan_of
from tests.patience import AN_HOUR_MS, NO_OTHER_TIMEOUT
from tests.reading import read_topic

VALUES = [b"%d" % number for number in range(1_000)]

Options = Mapping[str, str]


def open_producer(options):
    """``options``: with ``kafka.`` in front, as LocalKafka.client_options gives them."""
    given = {key.removeprefix("kafka."): value for key, value in options.items()}
    return ThreadedProducer(ProducerConfig.parse(given))


def write(options, topic, values=VALUES):
    """Append, flush, close. No timeout but those that are given ends anything within an hour."""
    patient = {f"kafka.{key.replace('_', '.')}": text for key, text in NO_OTHER_TIMEOUT.items()}
    producer = open_producer({**patient, **options})
    try:
        batch = batch_of(value=values)
        producer.append(batch, plan_of(batch, topic))
        producer.flush()
    finally:
        producer.close()


def values_in(kafka, topic):
    """Sorted, read by another client through the listener without security."""
    records = read_topic(kafka.bootstrap_servers_of(MAIN_LISTENER), topic)
    return sorted(record.value or b"" for record in records)


SCHEMA = StructType([StructField("value", BinaryType())])
PATIENT = {
    **{f"kafka.{key.replace('_', '.')}": text for key, text in NO_OTHER_TIMEOUT.items()},
    "preflight.timeout.ms": str(AN_HOUR_MS),
}


def write_through_the_sink(options, topic, patience=None):
    """patience: options, instead of timeouts of an hour."""
    given = PATIENT if patience is None else patience
    source = KafkaSinkDataSource({**given, **options, "topic": topic})
    writer = source.writer(SCHEMA, False)
    message = KafkaCommitMessage(partition_id=0, attempt_number=0, query_id=None)
    transactions = writer._transactions
    if transactions is not None:
        message.belong_to(transactions)
    _write_a_value(writer, message)
    writer.commit([message])


def write_a_micro_batch(options, topic, query):
    """The first one of a streaming query of that name."""
    texts = {**PATIENT, **options, "topic": topic, "queryName": query}
    source = KafkaSinkDataSource({**texts, "checkpointLocation": f"/checkpoints/{query}"})
    writer = source.streamWriter(SCHEMA, False)
    message = KafkaCommitMessage(partition_id=0, attempt_number=0, query_id=query)
    message.belong_to(writer._transactions)
    _write_a_value(writer, message)
    writer.commit([message], 0)


def _write_a_value(writer, message):
    batch = batch_of(value=[b"a value"])
    write_rows([batch], writer._options, writer._positions, message, writer._transactions)


ROWS = 400


def ids_in(world, topic):
    """What a reader of committed records finds."""
    records = read_topic(world.kafka.bootstrap_servers_of(MAIN_LISTENER), topic)
    return sorted(int(record.value or b"") for record in records)


def numbers(spark):
    return spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")


def save(frame, sink, topic, options):
    frame.write.format(sink).mode("append").options(**options).option("topic", topic).save()
