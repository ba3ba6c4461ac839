"""Which settings have changed from one batch of a query to the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

_MOST_CHANGES = 30


class Change(NamedTuple):
    """before, after: None where the option was not told; batch_id: of the first batch after it"""

    batch_id: int | None
    time_ms: float
    name: str
    before: str | None
    after: str | None


class Changes:
    """Those of the lines so far. The latest are kept."""

    def __init__(self) -> None:
        self.found: deque[Change] = deque(maxlen=_MOST_CHANGES)
        self._known: dict[str, Mapping[str, str]] = {}

    def look_at(self, line: Mapping[str, Any]) -> None:
        """Compare with the line before of the same query."""
        settings = line.get("settings")
        if settings is None:
            return
        query = str(line.get("query_id", ""))
        known = self._known.get(query, settings)
        self._known[query] = settings
        if known == settings:
            return
        for name in dict.fromkeys((*known, *settings)):
            before, after = known.get(name), settings.get(name)
            if before != after:
                at = line.get("batch_id"), float(line["time_ms"])
                self.found.append(Change(*at, name, before, after))
