"""JSON from outside: schemas of users and of registries."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str) -> Any:
    """Return what a JSON text holds, as ``json.loads`` has it.

    Raises ValueError, also for the NaN and Infinity that Python takes and JSON does not have, and
    for what is nested more deeply than Python can follow.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
