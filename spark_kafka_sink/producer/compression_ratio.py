"""How well a topic compresses, as seen so far, so that full batches fill ``batch.size``.

``batch.size`` limits the compressed size, but rows are appended uncompressed. The estimate starts
at 1 (no compression), follows a worse ratio quickly and a better one slowly, so that batches are
too small rather than too large.

Source: ``CompressionRatioEstimator``; it moves by fixed steps, this by shares, because a
task is short.
"""

from __future__ import annotations

_IMPROVING_SHARE = 0.25
_DETERIORATING_SHARE = 0.75
_SAFETY_FACTOR = 1.05
# A batch is decompressed whole by every consumer, and held uncompressed here until it is full.
_MAX_EXPANSION = 8


class CompressionRatio:
    """Estimate of compressed / uncompressed size for one topic."""

    def __init__(self) -> None:
        self.estimate = 1.0

    def observe(self, uncompressed_bytes: int, compressed_bytes: int) -> None:
        """Learn from a full batch."""
        ratio = compressed_bytes / uncompressed_bytes
        share = _IMPROVING_SHARE if ratio < self.estimate else _DETERIORATING_SHARE
        self.estimate += (ratio - self.estimate) * share

    def uncompressed_limit(self, batch_size: int) -> int:
        """Uncompressed bytes that should fill ``batch_size`` after compression."""
        expansion = 1 / max(self.estimate * _SAFETY_FACTOR, 1 / _MAX_EXPANSION)
        return int(batch_size * max(expansion, 1.0))
