"""The limits of the JSON kernel for a VARIANT, and why it could not write one."""

from __future__ import annotations

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
FAULT_CAUSES = 8
