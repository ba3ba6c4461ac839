"""What a fault of a query is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.chaos.scene import Scene

Note = dict[str, Any]


class QueryFault(NamedTuple):
    """``happen`` leaves a query that runs, and tells what it has seen."""

    kind: str
    what: str
    happen: Callable[[Scene], Note]
