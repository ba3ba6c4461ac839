"""Describe typed columns to kernels: a table of nodes, and the numbers of each format.

A node is a column or a type nested in a column. The table has the order of the schema: a struct is
followed by its fields, a list by its element, a map by its key and its value. The fields of a node
include addresses in Arrow's buffers. One kernel per format follows the table, so no schema needs
its own compilation, and no depth needs recursion. Numbers of each format name its encodings and
the causes of faults.

Source: Arrow's columnar format.
"""

from __future__ import annotations

# Kinds of nodes. Kinds from STRUCT on contain other nodes.
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
INTERVAL = 15  # Of days and times, in microseconds.
MONTHS = 16  # An interval of years and months.
CONSTANT = 17  # No column: the bytes of NAME are written.
STRUCT = 18
LIST = 19
MAP = 20
VARIANT = 21  # In Arrow a struct of two BINARY: value and metadata.

# Fields of a node, int64[NODE_FIELDS].
KIND = 0
AFTER = 1  # Address of the node after this one and its descendants.
FIRST = 2  # Added to a row number: Arrow's offset.
VALIDITY = 3  # Address of the bitmap, 0: no nulls.
DATA = 4  # Address of the values.
OFFSETS = 5  # Address, for strings, lists and maps.
OFFSET_BYTES = 6
NAME = 7  # Address of the bytes before the value, such as the field's name.
NAME_BYTES = 8
PARAMETER = 9  # Depends on kind and format.
WRITTEN_AS = 10  # For formats with several encodings of a kind.
VALUE_BRANCH = 11  # Avro: number of the value's branch in a union, negative without a union.
NULL_BRANCH = 12  # Avro: number of the null's branch in a union, or NO_NULLS or NOTHING.
TAG = 13  # Protobuf: the bytes of NAME, at the end of eight bytes.
RULES = 14  # Protobuf: see RULES below.
RIVAL = 15  # Protobuf: address of the next field of the same oneof, or 0.
NODE_FIELDS = 16
NODE_BYTES = 8 * NODE_FIELDS

# The state between calls, int64[STATE_FIELDS]. Its owner keeps the memory at the addresses.
NODES = 0  # Address of int64[nodes, NODE_FIELDS]; the first is the row, a struct.
FAULTS_COUNT = 1
FRAMES = 2  # Address of int64[depth, FRAME_FIELDS].
NEXT_ROW = 3
ROWS_COUNT = 4
OUT = 5  # Address of the output.
LIMIT = 6  # Address behind the output.
STARTS = 7  # Address of int64[ROWS_COUNT + 1]: start of each row's value in OUT.
SKIPPED = 8  # Address of uint8[ROWS_COUNT], 1: the row's value is null; or 0.
FAULTS = 9  # Address of int64[ROWS_COUNT], set for rows that could not be written.
PREFIX = 10  # Address of the bytes before each value.
PREFIX_BYTES = 11
SLACK = 12  # Most bytes that a name, a number and the ends of enclosing nodes need.
NEEDED = 13  # Bytes of the current row so far, plus the bytes that did not fit.
ZONES = 14  # Address of int64[ZONES_COUNT, 2]: start in seconds, offset from UTC in seconds.
ZONES_COUNT = 15
FLAGS = 16
STATE_FIELDS = 17

# Results of a call.
ALL_WRITTEN = 0
NEED_ROOM = 1

FAULT_CAUSES = 8
"""A row's fault is FAULT_CAUSES times the node's number plus a cause of the format."""

# Frames of the nodes being written: columns of int64[depth, FRAME_FIELDS].
FRAME_MODE = 0
FRAME_NODE = 1  # Address of the next node.
FRAME_END = 2  # Address of the node behind a struct, the index behind a list or map.
FRAME_INDEX = 3
FRAME_OWNER = 4  # Address of the node being written, if rows are written from their end.
FRAME_STOP = 5  # End of its encoded bytes, if rows are written from their end.
FRAME_FIELDS = 6
FRAME_BYTES = 8 * FRAME_FIELDS

IN_STRUCT = 0
IN_LIST = 1
AT_KEY = 2  # In a map.
AT_VALUE = 3


# --- JSON: numbers of the kernel ------------------------------------------------------------------

# In PARAMETER of an INTERVAL or MONTHS: its first unit times UNITS plus its last unit.
UNIT_DAY, UNIT_HOUR, UNIT_MINUTE, UNIT_SECOND, UNIT_YEAR, UNIT_MONTH = 0, 1, 2, 3, 4, 5
UNITS = 6

ZONES_REPEAT = 16_725_225_600
"""2500-01-01 in seconds since 1970. From here on, a zone's offsets repeat every 400 years. The last
changes without a yearly rule, Morocco's, are in 2087.
"""
ZONES_CYCLE = 400 * 31_556_952


IGNORE_NULLS = 1
"""Flag in FLAGS: null fields of structs are omitted."""


WIDEST_TEXT = 128


# --- JSON: the steps of a pattern of dates and times ----------------------------------------------

# The first number of a step. For numbers, the second is the smallest count of digits.
BYTE = 0  # The second number is the byte.
YEAR = 1
YEAR_OF_CENTURY = 2
MONTH = 3
DAY = 4
HOUR = 5
MINUTE = 6
SECOND = 7
FRACTION = 8
OFFSET = 9  # The second number: OFFSET_KINDS * a kind of ZERO_… + a kind of OFFSET_….
STEP_BYTES = 16

# Forms of an offset, as in Java's table of patterns.
OFFSET_HHMM_SHORT = 1  # With minutes if they are not 0.
OFFSET_HHMM = 3
OFFSET_HH_MM = 4
OFFSET_HHMMSS = 5  # With seconds if they are not 0.
OFFSET_HH_MM_SS = 6
OFFSET_KINDS = 10
ZERO_Z, ZERO_HH, ZERO_HHMM, ZERO_HH_MM = 0, 1, 2, 3

WIDEST_STEP = 24
"""Most bytes that a step writes."""


# --- JSON: limits of a VARIANT, and causes of faults ----------------------------------------------

MOST_LEVELS = 2000
"""Limit of nested objects and arrays; ``parse_json`` builds up to 1000."""

# Results of ``put_variant`` instead of an address: NO_ROOM, or a negated fault.
NO_ROOM = 0
MALFORMED = 1
UNKNOWN_TYPE = 2
TOO_DEEP = 3
TOO_LONG = 4
NO_ZONE = 5
NO_TIME = 6  # For columns of times, not VARIANTs: nanoseconds outside a day.


# --- Avro: numbers of the kernel, and causes of faults --------------------------------------------

# In NULL_BRANCH.
NO_NULLS = -1
NOTHING = -2  # The type is null itself.

# In WRITTEN_AS.
PLAIN = 0  # Integers as varints, floating point unchanged, strings and bytes with their length.
DIVIDED = 1  # An integer divided by PARAMETER.
AS_FLOAT = 2
AVRO_AS_DOUBLE = 3
FIXED = 4  # PARAMETER bytes; also for decimals.
ENUM = 5  # PARAMETER: address of int64[]: count, then address and length of each symbol.

# Causes of faults.
AVRO_NULL_VALUE = 1
WRONG_SIZE = 2
AVRO_NO_SYMBOL = 3


# --- Protobuf: numbers of the kernel, and causes of faults ----------------------------------------

# In WRITTEN_AS.
VARINT = 0
ZIGZAG = 1
FIXED_4 = 2
FIXED_8 = 3
SECONDS = 4  # Microseconds as a message of seconds and nanos: nanos are positive.
SIGNED_SECONDS = 5  # As SECONDS, but nanos have the sign of the seconds.

# In RULES.
LEAVES_ZERO_OUT = 1  # A field without presence.
NEEDS_VALUE = 2  # Null is a fault.
IS_PACKED = 4  # A list with one length before all elements.
IS_WRAPPED = 8  # Field 1 of a wrapper message.
IN_ONEOF = 16  # See RIVAL.
OF_32_BITS = 32  # The lower 32 bits of an integer, as unsigned.
CHECKS_RANGE = 64  # PARAMETER: one of the ranges below.
IS_TEXT = 128  # Must be UTF-8.
IS_SYMBOL = 256  # A string. PARAMETER: address of symbols, followed by int64[]: their numbers.
IS_NUMBER = 512  # An integer. PARAMETER: address of int64[]: a count, and as many numbers.
PROTOBUF_AS_DOUBLE = 1024  # A float.
IS_COPIED = 2048  # A packed list whose bytes are copied. PARAMETER: bytes of an element.
TAG_BYTES = 12  # From this bit on: bytes of the tag, 0 for elements without a tag.
INNER_TAG = 16  # From this bit on: the tag inside a wrapper message.

# Causes of faults.
PROTOBUF_NULL_VALUE = 1
OUT_OF_RANGE = 2
PROTOBUF_NO_SYMBOL = 3
TWO_OF_ONE = 4
NOT_UTF8 = 5

WIDEST_FIELD = 64
"""Most bytes of a field with its tags, without a string's own bytes."""


# Ranges of integers, the last two of microseconds.
SIGNED_32 = 1
UNSIGNED_32 = 2
NOT_NEGATIVE = 3
OF_TIMESTAMPS = 4  # Google.protobuf.Timestamp: the years 1 to 9999.
OF_DURATIONS = 5  # Google.protobuf.Duration: 10,000 years in both directions.
