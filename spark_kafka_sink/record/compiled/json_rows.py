"""The numbers by which the JSON kernel is told what to write."""

from __future__ import annotations

# In PARAMETER of an INTERVAL: its first unit times UNITS, and its last one.
DAY, HOUR, MINUTE, SECOND = 0, 1, 2, 3
UNITS = 4

ZONES_REPEAT = 16_725_225_600
"""2500-01-01 in seconds since 1970. From here on a time zone is as 400 years before, and so on. The
last changes that follow no yearly rule, Morocco's, are in 2087.
"""
ZONES_CYCLE = 400 * 31_556_952


IGNORE_NULLS = 1
"""In FLAGS: fields of structs that are null are left out."""


WIDEST_TEXT = 128
