"""The producer under test, with the options of a Spark job and without Spark."""

from collections.abc import Mapping

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.localkafka.settings import MAIN_LISTENER
from spark_kafka_sink.producer.producer import ThreadedProducer
from tests.broker.producing import batch_of, plan_of
from tests.patience import NO_OTHER_TIMEOUT
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
