"""What tasks ask the limit server, and what it answers: a JSON document each, on a line.

Both sides are of the same version of the sink: a driver's server belongs to one.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Union

MOST_BYTES = 65536
"""A line that is longer is none of ours."""


class Reservation(NamedTuple):
    """A task wants to send so much.

    query: whose limits these are. bytes_per_second, records_per_second: None for no limit
    pause_path: of a file that holds the query; None for none
    unit: what is written in transactions that wait for each other, None without exactly-once
    """

    query: str
    bytes: int
    records: int
    bytes_per_second: int | None = None
    records_per_second: int | None = None
    pause_path: str | None = None
    unit: str | None = None


class Granted(NamedTuple):
    """It may send that, ``wait_ms`` from now."""

    wait_ms: int


class Paused(NamedTuple):
    """Nothing is reserved; it may ask again ``ask_again_ms`` from now."""

    ask_again_ms: int


class Refused(NamedTuple):
    """The server does not take the request, and will not."""

    reason: str


Answer = Union[Granted, Paused, Refused]
_ANSWERS: dict[str, Any] = {"granted": Granted, "paused": Paused, "refused": Refused}
_KINDS = {kind: name for name, kind in _ANSWERS.items()}


def write_request(token: str, reservation: Reservation) -> bytes:
    """As it is sent."""
    return _line({"token": token, **reservation._asdict()})


def read_request(line: bytes) -> tuple[str, Reservation]:
    """Token and reservation. Raises ValueError for what is neither."""
    fields = json.loads(line)
    try:
        token = fields.pop("token")
        reservation = Reservation(**fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a reservation: {error}") from error
    if not isinstance(token, str) or not all(
        isinstance(amount, int) and amount >= 0
        for amount in (reservation.bytes, reservation.records)
    ):
        raise ValueError("not a reservation: amounts are whole numbers")
    return token, reservation


def write_answer(answer: Answer) -> bytes:
    """As it is sent."""
    return _line({_KINDS[type(answer)]: answer[0]})


def read_answer(line: bytes) -> Answer:
    """Raises ValueError for what is no answer."""
    try:
        ((name, value),) = json.loads(line).items()
        answer: Answer = _ANSWERS[name](value)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not an answer: {error}") from error
    return answer


def _line(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
