"""Kafka brokers for tests: quick to start, and given all the time they need."""

from spark_kafka_sink.localkafka import LocalKafka
from tests.patience import PATIENCE_MS

QUICK_START = ("-XX:TieredStopAtLevel=1",)
"""These brokers run for seconds: Java's slower compiler would take half of the CPU."""


class PatientKafka(LocalKafka):
    """As LocalKafka, on a machine of any load."""

    def __init__(self, *arguments, **options):
        options.setdefault("jvm_options", QUICK_START)
        options.setdefault("start_timeout_ms", PATIENCE_MS)
        options.setdefault("stop_timeout_ms", PATIENCE_MS)
        super().__init__(*arguments, **options)

    def create_topic(self, *arguments, **options):
        super().create_topic(*arguments, **{"timeout_ms": PATIENCE_MS, **options})

    def await_in_sync(self, timeout_ms=PATIENCE_MS):
        super().await_in_sync(timeout_ms)
