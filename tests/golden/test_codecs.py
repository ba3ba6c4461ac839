"""Compressed batches: what comes out of our codecs and of Java's is the same, and so is the header.

The compressed bytes themselves may differ: other libraries, other but equally valid choices.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.model import ProducerIdAndEpoch
from spark_kafka_sink.record.compression import CODEC_IDS, decompress
from spark_kafka_sink.record.record_batch import RECORD_BATCH_OVERHEAD, is_crc_valid, read_header
from tests import twin
from tests.golden import case_files as cases
from tests.golden.producing import Golden

CASES = cases.load("codecs")


def golden(case):
    producer = case["producer"]
    codec = case["codec"]
    options = {"compression_type": codec}
    if case["level"] is not None:
        options[f"compression_{codec}_level"] = case["level"]
    identity = ProducerIdAndEpoch(producer["id"], producer["epoch"])
    return Golden(
        producer=identity, first_sequence=producer["first_sequence"], batch_size=1 << 20, **options
    )


def java_batch(case):
    """(header, compressed records, uncompressed records) that Java wrote."""
    (batch,) = case["batches"]
    compressed = bytes.fromhex(batch["records"])
    header = read_header(bytes.fromhex(batch["header"]))
    return header, compressed, twin.decompress(case["codec"], compressed)


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_batch_is_javas_but_for_what_the_codec_chose(case):
    (batch,) = case["batches"]
    ours = golden(case).write_batch(cases.rows(batch["rows"]))
    java_header, _, java_records = java_batch(case)
    assert twin.decompress(case["codec"], ours[RECORD_BATCH_OVERHEAD:]) == java_records
    header = read_header(ours)
    neutral = {"batch_length": 0, "crc": 0}
    assert header._replace(**neutral) == java_header._replace(**neutral)
    assert header.size_bytes == len(ours)
    assert is_crc_valid(ours)


@pytest.mark.parametrize("case", CASES, ids=cases.name_of)
def test_what_java_compressed_can_be_read(case):
    _, compressed, records = java_batch(case)
    assert decompress(CODEC_IDS[case["codec"]], compressed, len(records)) == records


@pytest.mark.parametrize("codec", [codec for codec in CODEC_IDS if codec != "none"])
def test_every_codec_has_cases(codec):
    levels = {case["level"] for case in CASES if case["codec"] == codec}
    assert len(levels) >= (1 if codec == "snappy" else 5)


def test_snappy_blocks_are_framed_as_javas():
    """snappy-java's readers take any block size; ours is Java's own, and so is the stream header."""
    (case,) = (case for case in CASES if case["name"] == "snappy: several blocks")
    (batch,) = case["batches"]
    _, compressed, records = java_batch(case)
    ours = golden(case).write_batch(cases.rows(batch["rows"]))[RECORD_BATCH_OVERHEAD:]
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
    (case,) = (case for case in CASES if case["name"] == f"lz4 level 9: {name}")
    (batch,) = case["batches"]
    _, compressed, _ = java_batch(case)
    ours = golden(case).write_batch(cases.rows(batch["rows"]))[RECORD_BATCH_OVERHEAD:]
    assert ours[:5] == compressed[:5]
    assert (ours[5:7] == compressed[5:7]) is is_javas_block_size
