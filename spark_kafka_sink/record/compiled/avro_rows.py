"""The numbers by which the Avro kernel is told what to write, and why it could not."""

from __future__ import annotations

# In NULL_BRANCH.
NO_NULLS = -1
NOTHING = -2  # the type is null itself

# In WRITTEN_AS.
PLAIN = 0  # integers as varints, floating point as it is, strings and bytes with their length
DIVIDED = 1  # an integer over PARAMETER
AS_FLOAT = 2
AS_DOUBLE = 3
FIXED = 4  # bytes, as many as PARAMETER says; of decimals, too
ENUM = 5  # PARAMETER: address of int64[]: count, then address and length of each symbol

# Why a row could not be written: FAULT_CAUSES times the node's number, and one of these.
NULL_VALUE = 1
WRONG_SIZE = 2
NO_SYMBOL = 3
FAULT_CAUSES = 8
