"""The steps of a pattern of dates and times, as the JSON kernel reads them."""

from __future__ import annotations

# What a step writes. Of numbers the second one is how many digits there are at least.
BYTE = 0  # the second one
YEAR = 1
YEAR_OF_CENTURY = 2
MONTH = 3
DAY = 4
HOUR = 5
MINUTE = 6
SECOND = 7
FRACTION = 8
OFFSET = 9  # the second one: OFFSET_KINDS * a kind of ZERO_… + one of OFFSET_…
STEP_BYTES = 16

# How an offset is written, as in Java's table of patterns.
OFFSET_HHMM_SHORT = 1  # minutes where there are some
OFFSET_HHMM = 3
OFFSET_HH_MM = 4
OFFSET_HHMMSS = 5  # seconds where there are some
OFFSET_HH_MM_SS = 6
OFFSET_KINDS = 10
ZERO_Z, ZERO_HH, ZERO_HHMM, ZERO_HH_MM = 0, 1, 2, 3

WIDEST_STEP = 24
"""Bytes that a step writes at most."""
