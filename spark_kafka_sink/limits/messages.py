"""What tasks ask the limit server, and what it answers: a JSON document each, on a line.

A request has the token in front of its document: who does not know it has nothing parsed.

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
    return token.encode() + b" " + _line(reservation._asdict())


def split_request(line: bytes) -> tuple[str, bytes]:
    """Token and document of a request, unread. Of what is none, a token that nobody has."""
    token, _, document = line.partition(b" ")
    return token.decode(errors="replace"), document


def read_reservation(document: bytes) -> Reservation:
    """Raises ValueError for what is none."""
    try:
        asked = Reservation(**_read(document))
    except TypeError as error:
        raise ValueError(f"not a reservation: {error}") from error
    amounts, rates = (
        (asked.bytes, asked.records),
        (asked.bytes_per_second, asked.records_per_second),
    )
    if not all(_is_number(amount) and amount >= 0 for amount in amounts):
        raise ValueError("not a reservation: amounts are whole numbers")
    if not all(rate is None or (_is_number(rate) and rate >= 1) for rate in rates):
        raise ValueError("not a reservation: rates are whole numbers of 1 or more")
    texts = (asked.pause_path, asked.unit)
    if not isinstance(asked.query, str) or any(
        t is not None and not isinstance(t, str) for t in texts
    ):
        raise ValueError("not a reservation: names are texts")
    return asked


def write_answer(answer: Answer) -> bytes:
    """As it is sent."""
    return _line({_KINDS[type(answer)]: answer[0]})


def read_answer(line: bytes) -> Answer:
    """Raises ValueError for what is no answer."""
    try:
        ((name, value),) = _read(line).items()
        answer: Answer = _ANSWERS[name](value)
    except KeyError as error:
        raise ValueError(f"not an answer: {error}") from error
    is_right = isinstance(value, str) if isinstance(answer, Refused) else _is_number(value)
    if not is_right:
        raise ValueError("not an answer: of another type")
    return answer


def _is_number(value: object) -> bool:
    return type(value) is int  # true and false are of a type of their own


def _read(line: bytes) -> dict[str, Any]:
    """Raises ValueError for what is no document."""
    try:
        document = json.loads(line)
    except RecursionError as error:
        raise ValueError("lists in lists, too many") from error
    if not isinstance(document, dict):
        raise ValueError("not a document")
    return document


def _line(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
