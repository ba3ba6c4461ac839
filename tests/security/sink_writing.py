"""What a batch write of Spark does with the sink, in this process: planned, then written in a task."""

from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.source import KafkaSinkDataSource
from spark_kafka_sink.spark.task import write_rows
from tests.broker.producing import batch_of
from tests.patience import AN_HOUR_MS, NO_OTHER_TIMEOUT

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
    batch = batch_of(value=[b"a value"])
    write_rows([batch], writer._options, writer._positions, message, transactions)
    writer.commit([message])
