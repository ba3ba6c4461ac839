"""JSON of Spark's VARIANT in plain Python: slow, obvious, written independently.

Source: the Variant encoding of Apache Parquet; Spark's ``Variant.toJson`` for the texts.
"""

from __future__ import annotations

import base64
import struct
import uuid
from decimal import Context, Decimal

from tests.formats import json_twin

MALFORMED, UNKNOWN_TYPE, TOO_DEEP = 1, 2, 3
MOST_LEVELS = 2000
MOST_BYTES = 2**24
DIGITS = {4: 9, 8: 18, 16: 38}


class VariantError(Exception):
    """The first argument is its number."""


def text(value: bytes, metadata: bytes, zone: str, may_overlap: bool = False) -> str:
    """may_overlap: one place may be that of several values, as in Spark. Raises VariantError."""
    if not metadata or metadata[0] & 15 != 1 or max(len(value), len(metadata)) > MOST_BYTES:
        raise VariantError(MALFORMED)
    walk = _Walk(value, metadata, zone)
    if may_overlap:
        walk.unwritten = 2**63
    return walk.at(0, 0)


class _Walk:
    def __init__(self, value: bytes, metadata: bytes, zone: str) -> None:
        self.value, self.metadata, self.zone = value, metadata, zone
        self.unwritten = len(value)

    def cut(self, start: int, count: int) -> bytes:
        found = self.value[start : start + count]
        if len(found) < count:
            raise VariantError(MALFORMED)
        return found

    def number(self, start: int, count: int) -> int:
        return int.from_bytes(self.cut(start, count), "little")

    def written(self, count: int) -> None:
        self.unwritten -= count
        if self.unwritten < 0:
            raise VariantError(MALFORMED)

    def at(self, here: int, level: int) -> str:
        header = self.cut(here, 1)[0]
        basic, kind = header & 3, header >> 2
        if basic == 1:
            found = _string(self.cut(here + 1, kind))
            self.written(1 + kind)
            return found
        if basic == 2:
            return self.object(here, kind, level)
        if basic == 3:
            return self.array(here, kind, level)
        if kind in (15, 16):
            count = self.number(here + 1, 4)
            data = self.cut(here + 5, count)
            self.written(5 + count)
            return _string(data) if kind == 16 else f'"{base64.b64encode(data).decode()}"'
        sizes = {0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 4, 6: 8, 7: 8, 8: 5, 9: 9, 10: 17}
        sizes |= {11: 4, 12: 8, 13: 8, 14: 4, 20: 16}
        if kind not in sizes:
            raise VariantError(UNKNOWN_TYPE)
        found = self.primitive(kind, self.cut(here + 1, sizes[kind]))
        self.written(1 + sizes[kind])
        return found

    def object(self, here: int, kind: int, level: int) -> str:
        width = 4 if kind & 16 else 1
        count = self.number(here + 1, width)
        id_width, place_width = (kind >> 2 & 3) + 1, (kind & 3) + 1
        ids = here + 1 + width
        places = ids + count * id_width
        self.cut(ids, count * (id_width + place_width))
        if level == MOST_LEVELS:
            raise VariantError(TOO_DEEP)
        self.written(places + count * place_width - here)
        inside = places + (count + 1) * place_width
        found = []
        for n in range(count):
            name = self.name(self.number(ids + n * id_width, id_width))
            place = self.number(places + n * place_width, place_width)
            found.append(f"{name}:{self.at(inside + place, level + 1)}")
        return "{" + ",".join(found) + "}"

    def array(self, here: int, kind: int, level: int) -> str:
        width = 4 if kind & 4 else 1
        count = self.number(here + 1, width)
        place_width = (kind & 3) + 1
        places = here + 1 + width
        self.cut(places, count * place_width)
        if level == MOST_LEVELS:
            raise VariantError(TOO_DEEP)
        self.written(places + count * place_width - here)
        inside = places + (count + 1) * place_width
        starts = [self.number(places + n * place_width, place_width) for n in range(count)]
        return "[" + ",".join(self.at(inside + start, level + 1) for start in starts) + "]"

    def name(self, number: int) -> str:
        data = self.metadata
        width = (data[0] >> 6) + 1

        def entry(start: int) -> int:
            if start + width > len(data):
                raise VariantError(MALFORMED)
            return int.from_bytes(data[start : start + width], "little")

        count = entry(1)
        if number >= count:
            raise VariantError(MALFORMED)
        start, stop = entry(1 + (number + 1) * width), entry(1 + (number + 2) * width)
        texts = 1 + (count + 2) * width
        if start > stop or texts + stop > len(data):
            raise VariantError(MALFORMED)
        return _string(data[texts + start : texts + stop])

    def primitive(self, kind: int, data: bytes) -> str:
        if kind < 3:
            return ("null", "true", "false")[kind]
        if kind < 7:
            return str(int.from_bytes(data, "little", signed=True))
        if kind in (7, 14):
            (number,) = struct.unpack("<d" if kind == 7 else "<f", data)
            return json_twin.floating(number, kind == 14)
        if kind in (8, 9, 10):
            return _decimal(data[0], data[1:])
        if kind == 11:
            return f'"{json_twin.day(int.from_bytes(data, "little", signed=True))}"'
        if kind == 20:
            return f'"{uuid.UUID(bytes=data)}"'
        micros = int.from_bytes(data, "little", signed=True)
        return f'"{_moment(micros, self.zone if kind == 12 else None)}"'


def _string(data: bytes) -> str:
    return json_twin.quoted(data.decode("utf-8", "replace"))


def _decimal(scale: int, data: bytes) -> str:
    unscaled = int.from_bytes(data, "little", signed=True)
    most = DIGITS[len(data)]
    if scale > most or len(str(abs(unscaled))) > most:
        raise VariantError(MALFORMED)
    found = f"{Decimal(unscaled).scaleb(-scale, Context(prec=60)):f}"
    if unscaled == 0:
        return "0"
    return found.rstrip("0").rstrip(".") if "." in found else found


def _moment(micros: int, zone: str | None) -> str:
    ahead = 0 if zone is None else json_twin.seconds_ahead(micros // 10**6, zone)
    days, rest = divmod(micros + ahead * 10**6, json_twin.DAY_US)
    found = f"{json_twin.day(days)} {json_twin.clock(rest, 6)}"
    if zone is None:
        return found
    minutes = abs(ahead) // 60
    sign = "-" if ahead < 0 and minutes else "+"
    return f"{found}{sign}{minutes // 60:02d}:{minutes % 60:02d}"
