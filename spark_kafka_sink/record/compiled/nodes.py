"""Describe typed columns to kernels: a table of nodes, how rows are walked, what a format writes.

A node is a column, or what is nested in one, in the order in which a schema is read: a struct is
followed by its fields, a list by its element, a map by its key and its value. Its numbers are
addresses in Arrow's buffers. One kernel for each format goes by the table, so no schema needs a
compilation of its own, and no depth a recursion. For each format there are the numbers that say
what to write, and why a row could not be written.

Source: Arrow's columnar format.
"""

from __future__ import annotations

# Kinds of nodes. Those from STRUCT have others in them.
NULL = 0
BOOLEAN = 1
INT8 = 2
INT16 = 3
INT32 = 4
INT64 = 5
FLOAT = 6
DOUBLE = 7
DECIMAL = 8
STRING = 9
BINARY = 10
DATE = 11
TIMESTAMP = 12
TIMESTAMP_NTZ = 13
TIME = 14
INTERVAL = 15
CONSTANT = 16  # of no column: the bytes of NAME
STRUCT = 17
LIST = 18
MAP = 19
VARIANT = 20  # a struct in Arrow: of two BINARY, its value and its metadata

# Fields of a node, int64[NODE_FIELDS].
KIND = 0
AFTER = 1  # address of the node after this one and all that is in it
FIRST = 2  # what is added to a row: Arrow's offset
VALIDITY = 3  # address of the bitmap, 0: nothing is null
DATA = 4  # address of the values
OFFSETS = 5  # address, for strings, lists and maps
OFFSET_BYTES = 6
NAME = 7  # address of the bytes that say what the field is called
NAME_BYTES = 8
PARAMETER = 9  # what each kind and format needs one for
WRITTEN_AS = 10  # for formats where a kind can be written in several ways
VALUE_BRANCH = 11  # of a union: number of the value's branch, negative if there is no union
NULL_BRANCH = 12  # of a union: number of the null's branch, negative if there must be no null
TAG = 13  # of a Protobuf field: the bytes of NAME, at the end of eight
RULES = 14  # of a Protobuf field: see ``protobuf_rows``
RIVAL = 15  # of a Protobuf field: address of the next one of the same oneof, 0 if there is none
NODE_FIELDS = 16
NODE_BYTES = 8 * NODE_FIELDS

# The state between calls, int64[STATE_FIELDS]. Addresses are of what its owner keeps.
NODES = 0  # address of int64[nodes, NODE_FIELDS]; the first is the row, a struct
FAULTS_COUNT = 1
FRAMES = 2  # address of int64[depth, FRAME_FIELDS]
NEXT_ROW = 3
ROWS_COUNT = 4
OUT = 5  # address of where values are written
LIMIT = 6  # address behind it
STARTS = 7  # address of int64[ROWS_COUNT + 1]: where in OUT each row's value begins
SKIPPED = 8  # address of uint8[ROWS_COUNT], 1: the row's value is null; or 0
FAULTS = 9  # address of int64[ROWS_COUNT], set for rows that could not be written
PREFIX = 10  # address of what comes before each value
PREFIX_BYTES = 11
SLACK = 12  # bytes that any name and number need at most, and all that ends with it
NEEDED = 13  # bytes of the row for which there was no room, and those before them
ZONES = 14  # address of int64[ZONES_COUNT, 2]: from when in seconds, seconds ahead of UTC
ZONES_COUNT = 15
FLAGS = 16
STATE_FIELDS = 17

# What a call ended with.
ALL_WRITTEN = 0
NEED_ROOM = 1

FAULT_CAUSES = 8
"""Why a row could not be written is FAULT_CAUSES times the node's number, and one of the causes of
the format.
"""

# Frames of what is being written: columns of int64[depth, FRAME_FIELDS].
FRAME_MODE = 0
FRAME_NODE = 1  # address of the next one
FRAME_END = 2  # address of the node behind a struct, the index behind a list or map
FRAME_INDEX = 3
FRAME_OWNER = 4  # address of the node that is written, where rows are written from their end
FRAME_STOP = 5  # where what is written of it ends, likewise
FRAME_FIELDS = 6
FRAME_BYTES = 8 * FRAME_FIELDS

IN_STRUCT = 0
IN_LIST = 1
AT_KEY = 2  # in a map
AT_VALUE = 3


# --- JSON: what its kernel writes -----------------------------------------------------------------

# In PARAMETER of an INTERVAL: its first unit times UNITS, and its last one.
UNIT_DAY, UNIT_HOUR, UNIT_MINUTE, UNIT_SECOND = 0, 1, 2, 3
UNITS = 4

ZONES_REPEAT = 16_725_225_600
"""2500-01-01 in seconds since 1970. From here on a time zone is as 400 years before, and so on. The
last changes that follow no yearly rule, Morocco's, are in 2087.
"""
ZONES_CYCLE = 400 * 31_556_952


IGNORE_NULLS = 1
"""In FLAGS: fields of structs that are null are left out."""


WIDEST_TEXT = 128


# --- JSON: the steps of a pattern of dates and times ----------------------------------------------

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


# --- JSON: limits of a VARIANT, and causes of faults ----------------------------------------------

MOST_LEVELS = 2000
"""Objects and arrays that may be in one another: ``parse_json`` makes up to 1000."""

# What ``put_variant`` returns in place of an address: NO_ROOM, or the negative of a fault.
NO_ROOM = 0
MALFORMED = 1
UNKNOWN_TYPE = 2
TOO_DEEP = 3
TOO_LONG = 4
NO_ZONE = 5
NO_TIME = 6  # of columns of times, not of variants: nanoseconds that no day has


# --- Avro: what its kernel writes, and causes of faults -------------------------------------------

# In NULL_BRANCH.
NO_NULLS = -1
NOTHING = -2  # the type is null itself

# In WRITTEN_AS.
PLAIN = 0  # integers as varints, floating point as it is, strings and bytes with their length
DIVIDED = 1  # an integer over PARAMETER
AS_FLOAT = 2
AVRO_AS_DOUBLE = 3
FIXED = 4  # bytes, as many as PARAMETER says; of decimals, too
ENUM = 5  # PARAMETER: address of int64[]: count, then address and length of each symbol

# Causes of faults.
AVRO_NULL_VALUE = 1
WRONG_SIZE = 2
AVRO_NO_SYMBOL = 3


# --- Protobuf: what its kernel writes, and causes of faults ---------------------------------------

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
CHECKS_RANGE = 64  # PARAMETER: one of the ranges of ``protobuf_rows``
IS_TEXT = 128  # must be UTF-8
IS_SYMBOL = 256  # a string. PARAMETER: address of symbols, followed by int64[]: their numbers
IS_NUMBER = 512  # an integer. PARAMETER: address of int64[]: a count, and as many numbers
PROTOBUF_AS_DOUBLE = 1024  # a float
IS_COPIED = 2048  # of a packed list: its bytes as they are. PARAMETER: those of an element
TAG_BYTES = 12  # from this bit on: bytes of the tag, 0 for elements without one
INNER_TAG = 16  # from this bit on: the tag in what is wrapped

# Causes of faults.
PROTOBUF_NULL_VALUE = 1
OUT_OF_RANGE = 2
PROTOBUF_NO_SYMBOL = 3
TWO_OF_ONE = 4
NOT_UTF8 = 5

WIDEST_FIELD = 64
"""Bytes that all but the bytes of a string take at most, and what is used before them."""


# Ranges of integers, the last two of microseconds.
SIGNED_32 = 1
UNSIGNED_32 = 2
NOT_NEGATIVE = 3
OF_TIMESTAMPS = 4  # google.protobuf.Timestamp: the years 1 to 9999
OF_DURATIONS = 5  # google.protobuf.Duration: 10,000 years in both directions
