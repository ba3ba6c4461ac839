"""``dataclass`` for all Pythons of the sink: 3.9 knows no slots.

There a dataclass has a dictionary, which takes memory; everything else is the same.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 10):
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, *, slots: bool = False, **options: Any) -> Any:
        """As ``dataclasses.dataclass``, without regard to ``slots``."""
        return dataclasses.dataclass(cls, **options)


__all__ = ["dataclass"]
