"""Brokers that die for good while a job writes."""

import re
import threading

import pytest

from evidence.harness.faults import Situation
from evidence.harness.jobs import Shape, run_batch
from tests.local_kafka import PatientKafka
from tests.patience import AN_HOUR_MS

# Minutes of CPU, on a machine of any load.
pytestmark = pytest.mark.timeout(1800)

DELIVERY_TIMEOUT_MS = 15_000


def test_the_job_fails_when_delivery_timeout_is_over(spark, tmp_path):
    with PatientKafka() as kafka:
        kafka.create_topic("doomed", partitions=2)
        situation = Situation(kafka, [], "doomed", 2, threading.Event())

        def kill():
            situation.await_records(2000)
            kafka.kill(1)

        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.request.timeout.ms": "2000",
            "kafka.delivery.timeout.ms": str(DELIVERY_TIMEOUT_MS),
            # Nothing else ends the wait.
            "kafka.max.block.ms": str(AN_HOUR_MS),
            "kafka.batch.size": "2000",
            "topic": "doomed",
        }
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(Exception) as caught:
            run_batch(spark, options, 400_000, Shape(pause_ms=50), tmp_path)
        situation.is_over.set()
        killer.join()
    message = str(caught.value)
    line = next(line for line in message.splitlines() if "DeliveryError" in line)
    for pattern in (
        r"doomed-[01]\b",
        r"broker 1 \(127\.0\.0\.1:\d+\)",
        r"NETWORK_EXCEPTION|Connection refused|REQUEST_TIMED_OUT",
        r"\d+ (failed )?attempt",
        r"\d+ ms",
        r"delivery\.timeout\.ms",
    ):
        assert re.search(pattern, line), f"{pattern} is not in: {line}"
