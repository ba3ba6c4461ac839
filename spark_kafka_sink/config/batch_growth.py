"""How large record batches may grow while they could only wait, as the driver has found out."""

from __future__ import annotations

from typing import NamedTuple


class BatchGrowth(NamedTuple):
    """Of one topic, the one of the ``topic`` option.

    accepted_bytes: the topic's ``max.message.bytes``, or its ``segment.bytes`` where that is less
    """

    topic: str
    accepted_bytes: int
