"""What kernels know of typed columns: a table of nodes, and how its rows are walked through.

A node is a column, or what is nested in one, in the order in which a schema is read: a struct is
followed by its fields, a list by its element, a map by its key and its value. Its numbers are
addresses in Arrow's buffers. One kernel for each format goes by the table, so no schema needs a
compilation of its own, and no depth a recursion.

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
