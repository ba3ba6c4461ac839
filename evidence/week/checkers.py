"""What is in the topics at the end of a week, read back by confluent-kafka, beside what must be."""

from __future__ import annotations

import io
import json
from collections import Counter

import numpy as np
from confluent_kafka import KafkaError, TopicPartition

from evidence.pairs.user_code import MARK
from evidence.week.user_code import partition_of
from evidence.week.workloads import (
    DEAD_LETTERS,
    ID_DIGITS,
    LENGTHS,
    cause_of,
    key_of,
    text_of,
    timestamp_of,
)
from tests.patience import PATIENCE_S
from tests.reading import consumer

OTHER_CONTENT = "another content than its row's"


def records_of(servers, topics):
    """Yield all records of some topics, per partition in order of their offset."""
    reader = consumer(servers)
    try:
        places = [
            TopicPartition(topic, partition, 0)
            for topic in topics
            for partition in reader.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        ]
        reader.assign(places)
        ended, idle_polls = set(), 0
        while len(ended) < len(places):
            messages = reader.consume(10_000, timeout=0.2)
            idle_polls = 0 if messages else idle_polls + 1
            assert idle_polls < 5 * PATIENCE_S, f"nothing more from {topics}"
            for message in messages:
                if message.error() is None:
                    yield message
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add((message.topic(), message.partition()))
    finally:
        reader.close()


class Found:
    """Counts of the rows of one workload. ``problems``: sentences about single records."""

    def __init__(self, expected):
        self.copies = np.zeros(expected, np.int32)
        self.problems = Counter()
        self.out_of_order = 0
        self._latest = {}

    def add(self, number, sequence=None):
        """A row was read; ``sequence``: the partition and key within which ids must rise."""
        if not 0 <= number < len(self.copies):
            self.problems["a row that nobody wrote"] += 1
            return
        if sequence is not None and not self.copies[number]:
            # Copies come later; what is new must not be older than what was new before.
            self.out_of_order += number < self._latest.get(sequence, -1)
            self._latest[sequence] = number
        self.copies[number] += 1

    def verdict(self, is_deleted=None):
        """is_deleted: which rows were in a topic that the schedule deleted."""
        missing = self.copies == 0
        deleted = np.zeros_like(missing) if is_deleted is None else missing & is_deleted
        return {
            "expected": len(self.copies),
            "read": int(self.copies.sum()),
            "lost": int((missing & ~deleted).sum()),
            "deleted": int(deleted.sum()),
            "doubled": int(np.maximum(self.copies - 1, 0).sum()),
            "out_of_order": int(self.out_of_order),
            "problems": dict(self.problems),
        }


def check_avro(world, expected):
    """Good rows in the topic, as the registry's schema says; bad ones among the dead letters."""
    import fastavro  # of the extra registry

    found = Found(expected)
    schemas = {}
    for record in records_of(world.servers, ["week-avro"]):
        value = record.value()
        number = int(dict(record.headers())["id"])
        schema_id = int.from_bytes(value[1:5], "big")
        if schema_id not in schemas:
            answer = world.registry.ask("GET", f"/schemas/ids/{schema_id}")
            schemas[schema_id] = fastavro.parse_schema(json.loads(answer["schema"]))
        row = fastavro.schemaless_reader(io.BytesIO(value[5:]), schemas[schema_id])
        is_right = record.key() == key_of(number) and record.timestamp()[1] == timestamp_of(number)
        if cause_of(number) is not None:
            found.problems["a bad row that is no dead letter"] += 1
        elif not is_right or row["id"] != number or row["text"] != text_of(number):
            found.problems[OTHER_CONTENT] += 1
        found.add(number, (record.partition(), record.key()))
    causes = Counter()
    for record in records_of(world.servers, [DEAD_LETTERS]):
        headers = dict(record.headers())
        number = int(headers["id"])
        cause = headers["__connect.errors.cause"].decode()
        causes[cause] += 1
        if cause != cause_of(number):
            found.problems[f"a dead letter that nothing explains: {cause}"] += 1
        found.add(number)
    return {**found.verdict(), "dead_letters": dict(causes), "schemas": len(schemas)}


def check_topics(world, expected):
    """Each row in the topic of its column."""
    [workload] = [w for w in world.workloads if w.name == "topics"]
    found = Found(expected)
    for record in records_of(world.servers, list(workload.topics)):
        row = json.loads(record.value())
        number = row["id"]
        if record.topic() != workload.topics[number % len(workload.topics)]:
            found.problems["in another topic than its column's"] += 1
        if record.key() != key_of(number) or row["text"] != text_of(number):
            found.problems[OTHER_CONTENT] += 1
        found.add(number, (record.topic(), record.partition(), record.key()))
    return found.verdict(rows_deleted(expected, workload.topics, world.deleted))


def rows_deleted(expected, topics, deleted):
    """Return which rows may have been in a topic before it was deleted.

    deleted: by topic, the first row whose id was made when the topic was there again
    """
    numbers = np.arange(expected)
    first = np.array([deleted.get(topic, 0) for topic in topics])
    return numbers < first[numbers % len(topics)]


def check_raw(topic):
    """Values that begin with their id, keyed."""

    def check(world, expected):
        found = Found(expected)
        is_ordered = any(topic in w.topics and w.is_ordered for w in world.workloads)
        for record in records_of(world.servers, [topic]):
            value = record.value()
            number = int(value[:ID_DIGITS])
            if record.key() != key_of(number) or value[ID_DIGITS:].decode() != text_of(number):
                found.problems[OTHER_CONTENT] += 1
            sequence = (record.partition(), record.key()) if is_ordered else None
            found.add(number, sequence)
        return found.verdict()

    return check


def check_racks(world, expected):
    """The interceptor has seen each row, and the partitioner has placed those that it decides."""
    found = Found(expected)
    for record in records_of(world.servers, ["week-racks"]):
        value = record.value()
        number = int(value[:ID_DIGITS])
        if value[ID_DIGITS:] != b"x" * (number % LENGTHS) + MARK.encode():
            found.problems[OTHER_CONTENT] += 1
        if partition_of(len(value)) not in (None, record.partition()):
            found.problems["in another partition than the partitioner's"] += 1
        found.add(number)
    return found.verdict()


CHECKERS = {
    "avro": check_avro,
    "topics": check_topics,
    "writer": check_raw("week-writer"),
    "backfill": check_raw("week-backfill"),
    "racks": check_racks,
}


def check_all(world, expected, told):
    """Return the verdict by workload.

    expected: rows by workload
    told: rows and dead letters by workload, as the sink's lines about commits have them
    """
    return {w.name: _verdict(world, w, expected[w.name], told[w.name]) for w in world.workloads}


def _verdict(world, workload, expected, told):
    try:
        verdict = CHECKERS[workload.name](world, expected)
    except Exception as error:  # such as a record without a key, or a value that is no row
        verdict = Found(expected).verdict()
        verdict["problems"] = {f"it cannot be read: {error!r}"[:500]: 1}
    if workload.is_exactly_once:
        verdict["problems"].update(too_many(told, verdict))
    wrong = verdict["lost"] or verdict["problems"] or verdict["out_of_order"]
    if workload.is_exactly_once:
        wrong = wrong or verdict["doubled"]
    return {**verdict, "is_good": not wrong}


def too_many(told, verdict):
    """What the lines about commits count beyond what is there. Faults may cost lines, so no less."""
    there = {"rows": verdict["read"], "dead_letters": sum(verdict.get("dead_letters", {}).values())}
    return {
        f"{name} of commits by the metrics, beyond those that are there": told[name] - count
        for name, count in there.items()
        if told[name] > count
    }
