"""What rows were written, as far as it takes to tell whether a replay has the same ones.

A task tells its rows as text, ``RECORDS-BYTES-w1.CONTENTS``: how many, how many bytes they have,
and in 16 hexadecimal digits the sum of their hashes, see ``record/kernels/digest.py``. ``w1`` names
this way to hash; contents that were hashed in another way, by earlier versions, are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_SCHEME = "w1."
_MODULUS = 2**64


class Rows(NamedTuple):
    """The rows of a task or of a unit, in whatever order and of whatever tasks.

    data_bytes: of keys, values, headers and the topic column
    digest: ``w1.CONTENTS``; something else where the contents are not known
    """

    records: int
    data_bytes: int
    digest: str

    @classmethod
    def of_contents(cls, records: int, data_bytes: int, contents: int) -> Rows:
        """contents: the sum of the rows' hashes, modulo 2**64."""
        return cls(records, data_bytes, f"{_SCHEME}{contents:016x}")

    @classmethod
    def of_task(cls, records: int, text: str) -> Rows:
        """From what a task has told of its ``records`` rows; earlier versions told it otherwise."""
        parts = text.split("-")
        is_known = len(parts) > 1 and parts[1].isdecimal()
        return cls(records, int(parts[1]) if is_known else 0, parts[-1])

    @classmethod
    def total(cls, tasks: Iterable[Rows]) -> Rows:
        """All rows of these tasks."""
        rows = list(tasks)
        records, data_bytes = sum(r.records for r in rows), sum(r.data_bytes for r in rows)
        if not all(r.has_contents for r in rows):
            return cls(records, data_bytes, "")
        contents = sum(int(r.digest.removeprefix(_SCHEME), 16) for r in rows)
        return cls.of_contents(records, data_bytes, contents % _MODULUS)

    @property
    def has_contents(self) -> bool:
        """Whether the contents can be compared."""
        return self.digest.startswith(_SCHEME)

    @property
    def text(self) -> str:
        """What a task tells of its rows."""
        return f"{self.records}-{self.data_bytes}-{self.digest}"

    def is_comparable(self, other: Rows) -> bool:
        """Whether contents of both are known, so that more than their size can be compared."""
        return self.has_contents and other.has_contents

    def may_be(self, other: Rows) -> bool:
        """Whether these are the same rows, as far as it is known."""
        if self.is_comparable(other):
            return self == other
        return (self.records, self.data_bytes) == (other.records, other.data_bytes)

    def __str__(self) -> str:
        return f"{self.records} records of {self.data_bytes} bytes"
