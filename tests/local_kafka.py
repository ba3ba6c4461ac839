"""Kafka brokers for tests: quick to start, and given all the time they need."""

from spark_kafka_sink.localkafka import DEFAULT_VERSION, LocalKafka
from tests import class_archives
from tests.patience import PATIENCE_MS

QUICK_START = ("-XX:TieredStopAtLevel=1",)
"""These brokers run for seconds: Java's slower compiler would take half of the CPU."""


class PatientKafka(LocalKafka):
    """As LocalKafka, on a machine of any load."""

    def __init__(self, brokers=1, version=DEFAULT_VERSION, *arguments, **options):
        jvm_options = options.pop("jvm_options", QUICK_START)
        options["jvm_options"] = (*jvm_options, *class_archives.of_kafka(version))
        options.setdefault("start_timeout_ms", PATIENCE_MS)
        options.setdefault("stop_timeout_ms", PATIENCE_MS)
        super().__init__(brokers, version, *arguments, **options)

    def create_topic(self, *arguments, **options):
        super().create_topic(*arguments, **{"timeout_ms": PATIENCE_MS, **options})

    def await_in_sync(self, timeout_ms=PATIENCE_MS):
        super().await_in_sync(timeout_ms)
