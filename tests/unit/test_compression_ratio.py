"""The estimate by which uncompressed rows fill batch.size after compression."""

from __future__ import annotations

import pytest

from spark_kafka_sink.producer.open_batches import CompressionRatio

BATCH_SIZE = 131_072


def observed(*ratios: float) -> CompressionRatio:
    compression = CompressionRatio()
    for ratio in ratios:
        compression.observe(100_000, int(100_000 * ratio))
    return compression


def test_begins_without_compression() -> None:
    assert CompressionRatio().estimate == 1
    assert CompressionRatio().uncompressed_limit(BATCH_SIZE) == BATCH_SIZE


def test_follows_a_better_ratio_slowly_and_a_worse_one_quickly() -> None:
    compression = observed(0.2)
    assert compression.estimate == pytest.approx(1 - 0.8 * 0.25)
    worse = observed(*[0.2] * 50, 0.8)
    assert worse.estimate == pytest.approx(0.2 + 0.6 * 0.75, abs=1e-3)


@pytest.mark.parametrize("ratio", [0.14, 0.5, 0.9])
def test_settles_where_batches_just_fit(ratio: float) -> None:
    compression = observed(*[ratio] * 60)
    assert compression.estimate == pytest.approx(ratio, rel=1e-3)
    compressed = compression.uncompressed_limit(BATCH_SIZE) * ratio
    # A safety factor of 5 %: too small rather than too large.
    assert 0.93 * BATCH_SIZE < compressed <= 0.96 * BATCH_SIZE


def test_eight_times_at_most() -> None:
    compression = observed(*[0.001] * 100)
    assert compression.uncompressed_limit(BATCH_SIZE) == 8 * BATCH_SIZE


def test_batches_that_grow_do_not_shrink_the_limit() -> None:
    """batch.size is the least: a record that does not compress is no reason to send less."""
    compression = observed(*[1.3] * 20)
    assert compression.estimate == pytest.approx(1.3, rel=1e-3)
    assert compression.uncompressed_limit(BATCH_SIZE) == BATCH_SIZE


def test_the_limit_grows_as_the_ratio_falls() -> None:
    limits = [observed(*[0.3] * count).uncompressed_limit(BATCH_SIZE) for count in range(20)]
    assert limits == sorted(limits)
    assert limits[-1] > 3 * BATCH_SIZE


def test_a_batch_size_of_0() -> None:
    assert CompressionRatio().uncompressed_limit(0) == 0
