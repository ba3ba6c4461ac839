"""The numbers by which the Protobuf kernel is told what to write, and why it could not."""

from __future__ import annotations

# In WRITTEN_AS.
VARINT = 0
ZIGZAG = 1
FIXED_4 = 2
FIXED_8 = 3
SECONDS = 4  # a message of seconds and nanos, of microseconds: nanos are positive
SIGNED_SECONDS = 5  # the same, but both have the same sign

# In RULES.
LEAVES_ZERO_OUT = 1  # a field without presence
NEEDS_VALUE = 2  # null is a fault
IS_PACKED = 4  # of a list: a length before all elements
IS_WRAPPED = 8  # in a message of its own, as the field 1
IN_ONEOF = 16  # see RIVAL
OF_32_BITS = 32  # an integer's lower half, as unsigned
CHECKS_RANGE = 64  # PARAMETER: one of the ranges of ``protobuf_values``
IS_TEXT = 128  # must be UTF-8
IS_SYMBOL = 256  # a string. PARAMETER: address of symbols, followed by int64[]: their numbers
IS_NUMBER = 512  # an integer. PARAMETER: address of int64[]: a count, and as many numbers
AS_DOUBLE = 1024  # a float
IS_COPIED = 2048  # of a packed list: its bytes as they are. PARAMETER: those of an element
TAG_BYTES = 12  # from this bit on: bytes of the tag, 0 for elements without one
INNER_TAG = 16  # from this bit on: the tag in what is wrapped

# Why a row could not be written: FAULT_CAUSES times the node's number, and one of these.
NULL_VALUE = 1
OUT_OF_RANGE = 2
NO_SYMBOL = 3
TWO_OF_ONE = 4
NOT_UTF8 = 5
FAULT_CAUSES = 8

WIDEST_FIELD = 64
"""Bytes that all but the bytes of a string take at most, and what is used before them."""


# Ranges of integers, the last two of microseconds.
SIGNED_32 = 1
UNSIGNED_32 = 2
NOT_NEGATIVE = 3
OF_TIMESTAMPS = 4  # google.protobuf.Timestamp: the years 1 to 9999
OF_DURATIONS = 5  # google.protobuf.Duration: 10,000 years in both directions
