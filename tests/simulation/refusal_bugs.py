"""Bugs of what becomes of records that brokers refuse, which simulated lives must catch."""

from __future__ import annotations

from spark_kafka_sink.producer.producer_batch import BatchSplitter, BatchWithoutRecords
from spark_kafka_sink.producer.rejections import RejectionHandler
from spark_kafka_sink.producer.sequences import ProducerState, _PartitionSequences
from tests.simulation.bugs import BUGS, Bug


def _gap_left_open(original):  # type: ignore[no-untyped-def]
    def record_gap(self, sequence):  # type: ignore[no-untyped-def]
        pass

    return record_gap


def _others_left_out_too(original):  # type: ignore[no-untyped-def]
    def without_records(self, batch, rows):  # type: ignore[no-untyped-def]
        return BatchWithoutRecords([], original(self, batch, rows).removed)

    return without_records


REFUSAL_BUGS: dict[str, Bug] = {
    "refused records forgotten": Bug(
        "the task does not get back what brokers have refused",
        RejectionHandler,
        "take_rejected",
        lambda original: lambda self: [],
    ),
    "records beside refused ones forgotten": Bug(
        "the rest of a batch of which some records are refused is not sent again",
        BatchSplitter,
        "without_records",
        _others_left_out_too,
    ),
    "gap after refused records": Bug(
        "batches behind one of which records are refused keep their numbers",
        _PartitionSequences,
        "record_gap",
        _gap_left_open,
    ),
    "refused although perhaps appended": Bug(
        "records are left out of a batch whose earlier attempt had no answer",
        ProducerState,
        "can_remove_records",
        lambda original: lambda self, batch: True,
    ),
}

PRODUCER_BUGS = {**BUGS, **REFUSAL_BUGS}
