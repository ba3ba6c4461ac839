"""Batches of records: the bytes of our producer are those of Kafka's Java client, and we read its own."""

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.base.model import ColumnPositions, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.producer.producer_batch import BatchSplitter, ProducerBatch
from spark_kafka_sink.record import record_batch
from spark_kafka_sink.record.columns import arrow_records, bytes_view
from spark_kafka_sink.record.compiled import calls
from spark_kafka_sink.record.compression import CODEC_IDS
from spark_kafka_sink.record.record_batch import NewRecord, encode_batch
from tests import twin
from tests.golden import case_files as cases
from tests.golden.producing import Golden, Topic
from tests.tables import each_row

BATCH_CASES = cases.load("batches")
LOG_CASES = cases.load("record_sets")
CODEC_CASES = cases.load("codecs")
TRANSACTIONAL = cases.load("transactional")
KEY_CASES = cases.load("keys")
TEXT_CASES = cases.load("texts")
# All of memory in pages of 4 KiB instead of 32.
SMALL_MEMORY = 65536


def named(some, name):
    (found,) = (case for case in some if case["name"] == name)
    return found


def golden(case, **options):
    """A producer that puts any of the cases into one batch."""
    producer = case["producer"]
    given = {"batch_size": 1 << 25, "max_request_size": 1 << 25, **options}
    if case.get("codec"):
        given["compression_type"] = case["codec"]
        if case["level"] is not None:
            given[f"compression_{case['codec']}_level"] = case["level"]
    if producer is None:
        return Golden(**given)
    identity = ProducerIdAndEpoch(producer["id"], producer["epoch"])
    return Golden(producer=identity, first_sequence=producer["first_sequence"], **given)


def assert_java_wrote(ours, batch):
    cases.assert_same_bytes(ours[record_batch.RECORD_BATCH_OVERHEAD :], batch["records"])
    assert ours[: record_batch.RECORD_BATCH_OVERHEAD].hex() == batch["header"]


# --- without a codec ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_large", [False, True], ids=["32-bit offsets", "64-bit offsets"])
@each_row("case", BATCH_CASES, ids=cases.name_of)
def test_batch_is_javas(case, is_large):
    ours = golden(case)
    for batch in case["batches"]:
        written = ours.write_batch(cases.rows(batch["rows"]), is_large)
        assert_java_wrote(written, batch)


def fits_small_memory(case):
    return all(
        isinstance(batch["records"], str) or batch["records"]["size"] < SMALL_MEMORY // 2
        for batch in case["batches"]
    )


@each_row("case", [*filter(fits_small_memory, BATCH_CASES)], ids=cases.name_of)
def test_batch_over_many_small_pages_is_javas(case):
    ours = golden(case, buffer_memory=SMALL_MEMORY)
    assert ours.producer.pool.page_size == 4096
    for batch in case["batches"]:
        assert_java_wrote(ours.write_batch(cases.rows(batch["rows"])), batch)


def test_batch_of_rows_that_came_one_by_one_is_javas():
    case = named(BATCH_CASES, "1000 records")
    (batch,) = case["batches"]
    ours = golden(case)
    *rows, last = cases.rows(batch["rows"])
    for row in rows:
        ours.producer.append(cases.arrow_batch([row]), cases.PLAN)
    assert_java_wrote(ours.write_batch([last]), batch)


def test_batch_of_a_slice_is_javas():
    case = named(BATCH_CASES, "headers on some rows")
    (batch,) = case["batches"]
    rows = cases.rows(batch["rows"])
    other = cases.Row(1, b"other", b"row", [("h", b"x")])
    arrow_batch = cases.arrow_batch([other, other, other, *rows, other])
    ours = golden(case)
    ours.producer.append(arrow_batch.slice(3, len(rows) - 1), cases.PLAN)
    assert_java_wrote(ours.write_batch(rows[-1:]), batch)


def test_parts_of_a_split_batch_are_javas():
    """Java's batches of one record each, whose sequences wrap, out of one batch of them all."""
    case = named(BATCH_CASES, "sequence wraps between single records")
    rows = [row for batch in case["batches"] for row in cases.rows(batch["rows"])]
    whole = bytearray(golden(case).write_batch(rows))
    numbers, times = case["producer"], [row.timestamp for row in rows]
    sizes = len(whole), len(whole), len(rows), 0
    place = TopicPartition("t", 0)
    batch = ProducerBatch(place, [memoryview(whole)], [], *sizes, times[0], max(times), 0, 0)
    producer = ProducerIdAndEpoch(numbers["id"], numbers["epoch"])
    batch.set_producer_state(producer, numbers["first_sequence"])
    parts = BatchSplitter(None).split(batch, 1)
    assert len(parts) == len(case["batches"])
    for part, javas in zip(parts, case["batches"]):
        part.close()
        assert_java_wrote(b"".join(part.buffers), javas)


@pytest.mark.parametrize("case", TRANSACTIONAL, ids=cases.name_of)
def test_a_batch_written_without_kernels_is_javas(case):
    numbers = case["producer"]
    assert numbers["transactional"] is True
    producer = ProducerIdAndEpoch(numbers["id"], numbers["epoch"])
    sequence = numbers["first_sequence"]
    for batch in case["batches"]:
        rows = cases.rows(batch["rows"])
        records = [NewRecord(row.key, row.value, row.headers) for row in rows]
        assert_java_wrote(encode_batch(records, rows[0].timestamp, producer, sequence), batch)
        sequence += len(rows)


# --- logs that Java wrote -------------------------------------------------------------------------


def told(batch):
    """A batch of ours in the words of the cases."""
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.header.base_sequence,
        "leader_epoch": batch.header.partition_leader_epoch,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "records": [told_record(record) for record in batch.records()],
    }


def told_record(record):
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": hex_of(record.key),
        "value": hex_of(record.value),
        "headers": [[key, hex_of(value)] for key, value in record.headers],
    }


def hex_of(data):
    return None if data is None else data.hex()


def marker_of(batch):
    """The marker that Java found in a batch, if it ends a transaction."""
    if batch.get("type") not in ("COMMIT", "ABORT"):
        return None
    return record_batch.EndTransactionMarker(batch["type"] == "COMMIT", batch["coordinator_epoch"])


@each_row("case", LOG_CASES, ids=cases.name_of)
def test_what_java_reads_of_a_log(case):
    ours = list(record_batch.read_batches(bytes.fromhex(case["records"])))
    about_markers = {"type", "coordinator_epoch"}
    javas = [
        {name: value for name, value in batch.items() if name not in about_markers}
        for batch in case["batches"]
    ]
    assert [told(batch) for batch in ours] == javas
    assert [batch.marker for batch in ours] == [marker_of(batch) for batch in case["batches"]]


@each_row("case", LOG_CASES, ids=cases.name_of)
def test_a_batch_that_is_cut_short_is_left_out(case):
    data = bytes.fromhex(case["records"])
    whole = list(record_batch.read_batches(data))
    ends = [0]
    for batch in whole:
        ends.append(ends[-1] + batch.header.size_bytes)
    for cut in range(len(data)):
        complete = sum(end <= cut for end in ends) - 1
        assert list(record_batch.read_batches(data[:cut])) == whole[:complete]


def test_the_cases_have_all_that_a_log_may_have():
    batches = [batch for case in LOG_CASES for batch in case["batches"]]
    assert {batch.get("type") for batch in batches} == {None, "COMMIT", "ABORT", "LEADER_CHANGE"}
    gaps = [b for b in batches if len(b["records"]) <= b["last_offset"] - b["base_offset"]]
    assert {bool(batch["records"]) for batch in gaps} == {True, False}


# --- with a codec: the libraries' choices differ, what comes out of them does not --------------------


def java_batch(case):
    """(rows, header, compressed records, uncompressed records) that Java wrote."""
    (batch,) = case["batches"]
    compressed = bytes.fromhex(batch["records"])
    header = record_batch.read_header(bytes.fromhex(batch["header"]))
    return cases.rows(batch["rows"]), header, compressed, twin.decompress(case["codec"], compressed)


@each_row("case", CODEC_CASES, ids=cases.name_of)
def test_batch_is_javas_but_for_what_the_codec_chose(case):
    rows, java_header, _, java_records = java_batch(case)
    ours = golden(case).write_batch(rows)
    assert (
        twin.decompress(case["codec"], ours[record_batch.RECORD_BATCH_OVERHEAD :]) == java_records
    )
    header = record_batch.read_header(ours)
    neutral = {"batch_length": 0, "crc": 0}
    assert header._replace(**neutral) == java_header._replace(**neutral)
    assert header.size_bytes == len(ours)
    assert record_batch.is_crc_valid(ours)


@each_row("case", CODEC_CASES, ids=cases.name_of)
def test_what_java_compressed_is_read(case):
    rows, _, compressed, _ = java_batch(case)
    data = bytes.fromhex(case["batches"][0]["header"]) + compressed
    (ours,) = record_batch.read_batches(memoryview(data))
    read = [(r.timestamp_ms, r.key, r.value, list(r.headers)) for r in ours.records()]
    assert read == [(row.timestamp, row.key, row.value, row.headers) for row in rows]
    assert [record.offset for record in ours.records()] == list(range(len(rows)))


@pytest.mark.parametrize("codec", [codec for codec in CODEC_IDS if codec != "none"])
def test_every_codec_has_cases(codec):
    levels = {case["level"] for case in CODEC_CASES if case["codec"] == codec}
    assert len(levels) >= (1 if codec == "snappy" else 5)


def test_snappy_blocks_are_framed_as_javas():
    """snappy-java's readers take any block size; ours is Java's own, and so is the stream header."""
    case = named(CODEC_CASES, "snappy: several blocks")
    rows, _, compressed, records = java_batch(case)
    ours = golden(case).write_batch(rows)[record_batch.RECORD_BATCH_OVERHEAD :]
    assert ours[:16] == compressed[:16]
    assert blocks_count(ours) == blocks_count(compressed) == -(-len(records) // 32768)


def blocks_count(stream):
    at, count = 16, 0
    while at < len(stream):
        at += 4 + int.from_bytes(stream[at : at + 4], "big")
        count += 1
    return count


@pytest.mark.parametrize(
    ("name", "is_javas_block_size"), [("200 records", True), ("several blocks", False)]
)
def test_lz4_frames_have_javas_descriptor(name, is_javas_block_size):
    """Version, independent blocks, no checksums: Java's readers refuse linked blocks.

    Blocks are as large as Java's, too, unless there would be several.
    """
    case = named(CODEC_CASES, f"lz4 level 9: {name}")
    rows, _, compressed, _ = java_batch(case)
    ours = golden(case, batch_size=1 << 20).write_batch(rows)[record_batch.RECORD_BATCH_OVERHEAD :]
    assert ours[:5] == compressed[:5]
    assert (ours[5:7] == compressed[5:7]) is is_javas_block_size


# --- texts ----------------------------------------------------------------------------------------


@each_row("case", TEXT_CASES, ids=cases.name_of)
@each_row("kind", [pa.string(), pa.large_string()], ids=str)
def test_texts_of_rows_are_written_as_java_writes_them(case, kind):
    """Keys of headers, and names of topics, of any bytes that a row of Spark may have."""
    given = [bytes.fromhex(text) for text in case["texts"]]
    binary = pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()
    texts = pa.array(given, binary).view(kind)
    entries = pa.StructArray.from_arrays([texts, pa.array(given)], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array(range(len(given) + 1), pa.int32()), entries)
    batch = pa.record_batch({"value": pa.array(given), "headers": headers, "topic": texts})
    written = [bytes.fromhex(text).decode() for text in case["texts"].values()]
    ours = Golden()
    ours.producer.append(batch, ColumnPositions(value=0, headers=1, topic_option="t"))
    ours.producer.flush()
    (partition,) = ours.broker.sent[-1].request.topic_data[0].partition_data
    records = twin.decode_batch(b"".join(partition.records.buffers)).records
    assert [record.headers for record in records] == [
        ((text, raw),) for text, raw in zip(written, given)
    ]
    rows = arrow_records(batch, ColumnPositions(value=0, topic=2), 0)
    indices = [0] * len(given) if rows.topic_indices is None else rows.topic_indices
    assert [rows.topics[n] for n in indices] == written


# --- partitions of keys ---------------------------------------------------------------------------

KEYS = [cases.blob(case["key"]) for case in KEY_CASES]


@each_row("count", [int(count) for count in KEY_CASES[0]["partitions"]])
@each_row("data_type", [pa.binary(), pa.large_binary()], ids=str)
def test_partitions_are_javas(count, data_type):
    slots = np.full(len(KEYS), -99, np.int32)
    keys = pa.array(KEYS, data_type)
    topics = calls.Topics(None, np.array([0], np.int32), np.array([count], np.int32))
    bad = calls.assign_slots(
        topics, calls.ABSENT_INTEGERS, None, bytes_view(keys), calls.MURMUR2, slots
    )
    assert bad == calls.ALL_ASSIGNED
    assert slots.tolist() == [case["partitions"][str(count)] for case in KEY_CASES]


@pytest.mark.parametrize("count", [7, 30])
def test_producer_sends_keys_to_javas_partitions(count):
    rows = [cases.Row(0, key, b"%d" % n, [], partition=None) for n, key in enumerate(KEYS)]
    ours = Golden({"t": Topic(partitions_count=count)})
    found = {}
    for sent in ours.write(rows):
        for partition in sent.request.topic_data[0].partition_data:
            for record in twin.decode_batch(b"".join(partition.records.buffers)).records:
                found[int(record.value)] = partition.index
    assert found == {i: case["partitions"][str(count)] for i, case in enumerate(KEY_CASES)}


def test_the_twin_of_other_tests_is_java_as_well():
    for key, case in zip(KEYS, KEY_CASES):
        assert twin.murmur2(key) == case["murmur2"] & 0xFFFFFFFF
