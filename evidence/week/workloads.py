"""The five workloads of a week: what each writes, with which options, and what it promises."""

import hashlib
from typing import NamedTuple

TOPICS = 200
KEYS = 100
ROWS_PER_FILE = 1000
FILES_PER_BATCH = 4
# A job takes some seconds, and three hours of jobs can be read back in minutes.
ROWS_PER_JOB = 5_000
BYTES_PER_SECOND_PER_TASK = 20_000
EXACTLY_ONCE = "exactly-once"
ID_DIGITS = 10
_ID = f"lpad(id, {ID_DIGITS}, '0')"
LENGTHS = 7
# A micro-batch reads at most FILES_PER_BATCH files in a row, and a task reads a whole file in its
# order: rows of one key are never in two tasks at a time.
_KEY = f"concat(id div {ROWS_PER_FILE} % {FILES_PER_BATCH}, '-', id % {KEYS})"
_TEXT = "sha2(cast(id as string), 256)"

# Bad rows of the stream with dead letters, in the order in which the sink looks for causes.
OLD_EVERY, OLD_AT = 997, 5
LARGE_EVERY, LARGE_AT = 1999, 7
_LARGE_BYTES = 150_000
_MAX_REQUEST_BYTES = 100_000
DEAD_LETTERS = "week-dead-letters"
_FIRST_TIMESTAMP_S = 1_700_000_000


def cause_of(number):
    """Return why a row of the stream with dead letters is one; None for a good row."""
    if number % OLD_EVERY == OLD_AT:
        return "bad-timestamp"
    return "too-large" if number % LARGE_EVERY == LARGE_AT else None


def key_of(number):
    """Return the key of a row, as the columns have it."""
    return b"%d-%d" % (number // ROWS_PER_FILE % FILES_PER_BATCH, number % KEYS)


def text_of(number):
    """Return the text of a row, as ``_TEXT`` has it."""
    return hashlib.sha256(b"%d" % number).hexdigest()


def timestamp_of(number):
    """Return the time of a good row of the stream with dead letters, in ms."""
    return 1000 * (_FIRST_TIMESTAMP_S + number)


class Workload(NamedTuple):
    """Serialised for the driver, which runs it.

    kind: stream, foreachBatch or batch; columns: SQL over ``id``; is_ordered: rows of a key keep the
    order of their ids; drops_id: ``id`` is no column of the record; listener: of the brokers
    """

    name: str
    kind: str
    columns: list
    options: dict
    partitions: int = 6
    topics: tuple = ()
    is_ordered: bool = False
    drops_id: bool = True
    rows_per_job: int = 0
    listener: str = "SECURED"
    uses_registry: bool = False

    @property
    def is_exactly_once(self):
        return self.options.get("delivery.guarantee") == EXACTLY_ONCE


def _avro():
    large = f"repeat('x', {_LARGE_BYTES})"
    old, new = "timestamp'1960-01-01'", f"timestamp_seconds({_FIRST_TIMESTAMP_S} + id)"
    return Workload(
        "avro",
        "stream",
        [
            "id",
            f"if(id % {LARGE_EVERY} = {LARGE_AT}, {large}, {_TEXT}) as text",
            f"{_KEY} as key",
            "array(named_struct('key', 'id', 'value', cast(cast(id as string) as binary))) headers",
            f"if(id % {OLD_EVERY} = {OLD_AT}, {old}, {new}) timestamp",
        ],
        {
            "topic": "week-avro",
            "value.format": "avro",
            "timestamp.column": "timestamp",
            "delivery.guarantee": EXACTLY_ONCE,
            "transactional.id.prefix": "week-avro",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": DEAD_LETTERS,
            "errors.deadletterqueue.max.ratio": "0.5",
            "kafka.max.request.size": str(_MAX_REQUEST_BYTES),
        },
        topics=("week-avro",),
        is_ordered=True,
        drops_id=False,
        uses_registry=True,
    )


def _topics():
    names = tuple(f"week-topics-{number:03}" for number in range(TOPICS))
    return Workload(
        "topics",
        "stream",
        [
            "id",
            f"{_TEXT} as text",
            f"{_KEY} as user",
            f"concat('week-topics-', lpad(id % {TOPICS}, 3, '0')) as topic",
        ],
        {"value.format": "json", "key.columns": "user"},
        partitions=1,
        topics=names,
        is_ordered=True,
        drops_id=False,
    )


def _writer():
    return Workload(
        "writer",
        "foreachBatch",
        ["id", f"concat({_ID}, {_TEXT}) as value", f"{_KEY} as key"],
        {
            "topic": "week-writer",
            "delivery.guarantee": EXACTLY_ONCE,
            "transactional.id.prefix": "week-writer",
            "write.id": "week-writer",
            "kafka.compression.type": "lz4",
        },
        topics=("week-writer",),
        is_ordered=True,
    )


def _backfill():
    return Workload(
        "backfill",
        "batch",
        ["id", f"concat({_ID}, {_TEXT}) as value", f"{_KEY} as key"],
        {
            "topic": "week-backfill",
            "max.bytes.per.second.per.task": str(BYTES_PER_SECOND_PER_TASK),
            "kafka.compression.type": "zstd",
        },
        topics=("week-backfill",),
        rows_per_job=ROWS_PER_JOB,
        listener="TOKENS",
    )


def _racks():
    return Workload(
        "racks",
        "stream",
        ["id", f"concat({_ID}, repeat('x', cast(id % {LENGTHS} as int))) as value"],
        {
            "topic": "week-racks",
            "interceptors": "evidence.pairs.user_code:Marks",
            "kafka.partitioner": "evidence.week.user_code:by_length",
            "kafka.partitioner.rack.aware": "true",
            "kafka.client.rack": "${env:AZ}",
            "kafka.compression.type": "snappy",
        },
        topics=("week-racks",),
    )


WORKLOADS = {w.name: w for w in (_avro(), _topics(), _writer(), _backfill(), _racks())}
