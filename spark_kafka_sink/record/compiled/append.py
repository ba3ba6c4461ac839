"""The numbers of the append kernel's tables: open batches, and the state between calls."""

from __future__ import annotations

RECORD_BATCH_OVERHEAD = 61
"""Bytes of a v2 batch header; every batch keeps them free at its start."""

NO_PAGE = -1

# What append_records() stopped for.
APPENDED_ALL = 0
BATCH_FULL = 1
NEED_PAGES = 2

# Columns of the open batches' table, int64[slots, OPEN_BATCH_FIELDS]: one row per partition.
RECORDS_COUNT = 0  # 0: the partition has no open batch
BATCH_BYTES = 1  # header and records so far, uncompressed
LIMIT_BYTES = 2  # a further record must not lead beyond it
BASE_TIMESTAMP = 3
MAX_TIMESTAMP = 4
CREATED_AT_MS = 5
FIRST_PAGE = 6
LAST_PAGE = 7
FILL = 8  # bytes used in the last page
OPEN_BATCH_FIELDS = 9

# The state between calls, int64[STATE_FIELDS]. Addresses are of what its owner keeps.
STICKY_SLOTS = 0  # address of int32[STICKY_COUNT]
STICKY_COUNT = 1
BATCHES = 2  # address of the open batches' table, int64[SLOTS_COUNT, OPEN_BATCH_FIELDS]
SLOTS_COUNT = 3
ARENA = 4  # address of uint8[PAGES_COUNT * PAGE_SIZE]
PAGE_SIZE = 5
PAGES_COUNT = 6
NEXT_PAGE = 7  # address of int32[PAGES_COUNT]
RESERVE = 8  # address of int32[PAGES_COUNT], a stack of free pages
RESERVE_COUNT = 9
SPILL = 10  # address of a buffer for the largest record
# What the call came back with.
NEXT_ROW = 11
STOP_SLOT = 12
PAGES_NEEDED = 13
STATE_FIELDS = 14
