"""What the limit server knows: one number per limit, and which queries are held. No I/O.

A limit is a token bucket, kept as the time at which everything that was reserved is earned: what is
reserved next may be sent when it is earned as well. So a reservation is one addition, and each gets
its own time.

When a connection ends before what was reserved over it could be sent, its time is given back: to
what is reserved next, if nothing was reserved behind it, else to what fits into it. What could have
been sent is not: nobody knows whether it was.

Source: the generic cell rate algorithm (ITU-T I.371), which is the same as a token bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.limits.messages import (
    Answer,
    Granted,
    Paused,
    Refused,
    Reservation,
    read_reservation,
    split_request,
    write_answer,
)

BURST_NS = 1_000_000_000
"""What was not used in that time may be sent later, at once. What was not used before is lost."""
ASK_AGAIN_MS = 500
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_MOST_QUERIES = 1000
_MOST_UNITS = 1000


class Slot(NamedTuple):
    """The time in which a reservation is earned. rate: the number of the bucket's rate"""

    from_ns: int
    until_ns: int
    rate: int


class Bucket:
    """One limit. It begins empty: the first second has no more than any other."""

    def __init__(self, now_ns: int) -> None:
        self.earned_at_ns = now_ns
        """When all that was reserved so far is earned."""
        self.latest = Slot(now_ns, now_ns, 0)
        """Of the last reservation."""
        self._per_second: int | None = None
        self._rate = 0
        # What was given back, and has something reserved behind it.
        self._gaps: list[tuple[int, int]] = []

    def reserve(self, amount: int, per_second: int, now_ns: int) -> int:
        """Reserve ``amount``; returns after how many nanoseconds it may be sent."""
        self._take_rate(per_second, now_ns)
        # Rounded up: never faster than the limit, however many reservations there are.
        length_ns = -(-amount * _NS_PER_S // per_second)
        from_ns = self._from_gap(length_ns, now_ns)
        if from_ns is None:
            from_ns = max(self.earned_at_ns, now_ns - BURST_NS)
            self.earned_at_ns = from_ns + length_ns
        self.latest = Slot(from_ns, from_ns + length_ns, self._rate)
        return max(self.latest.until_ns - now_ns, 0)

    def give_back(self, slot: Slot) -> None:
        """Nothing of what was reserved with ``slot`` was sent."""
        if slot.rate != self._rate or slot.from_ns == slot.until_ns:
            return
        self._gaps.append((slot.from_ns, slot.until_ns))
        self._gaps.sort()
        while self._gaps and self._gaps[-1][1] == self.earned_at_ns:
            self.earned_at_ns, _ = self._gaps.pop()

    def _from_gap(self, length_ns: int, now_ns: int) -> int | None:
        """Where in a gap there is room: the whole reservation fits, or it would come too early."""
        if not self._gaps:
            return None
        since_ns = now_ns - BURST_NS
        gaps = [(max(start, since_ns), end) for start, end in self._gaps if end > since_ns]
        room = next((gap for gap in gaps if gap[1] - gap[0] >= length_ns), None)
        if room is not None:
            gaps[gaps.index(room)] = (room[0] + length_ns, room[1])
        self._gaps = [(start, end) for start, end in gaps if start < end]
        return None if room is None else room[0]

    def _take_rate(self, per_second: int, now_ns: int) -> None:
        """Earn what is left with this rate from now on: the query has started with another one."""
        before = self._per_second
        self._per_second = per_second
        left_ns = self.earned_at_ns - now_ns
        if before is not None and before != per_second and left_ns > 0:
            self.earned_at_ns = now_ns - (-left_ns * before // per_second)
        if before != per_second:
            self._rate += 1
            self._gaps = []


class Ledger:
    """Answers reservations. is_there: whether a path exists."""

    def __init__(self, token: Secret, is_there: Callable[[str], bool]) -> None:
        self._token = token
        self._is_there = is_there
        self._buckets: dict[tuple[str, str], Bucket] = {}
        # The latest ones that have begun to send, in that order.
        self._begun: dict[str, None] = {}
        # By connection: of its last reservation, from when on it may be used.
        self._latest: dict[Hashable, tuple[int, list[tuple[Bucket, Slot]]]] = {}

    def knows(self, line: bytes) -> bool:
        """Whether a request has the token."""
        return Secret(split_request(line)[0]) == self._token

    def answer(self, line: bytes, now_ns: int, connection: Hashable = None) -> bytes:
        """One line for another. now_ns: of a monotonic clock; connection: over which it came"""
        return write_answer(self._answer(line, now_ns, connection))

    def closed(self, connection: Hashable, now_ns: int) -> None:
        """Its other end has closed it: it uses nothing any more that is not earned by now."""
        usable_at_ns, slots = self._latest.pop(connection, (now_ns, []))
        if now_ns < usable_at_ns:
            for bucket, slot in slots:
                bucket.give_back(slot)

    def lost(self, connection: Hashable) -> None:
        """It is not known what its other end knows of it."""
        self._latest.pop(connection, None)

    def _answer(self, line: bytes, now_ns: int, connection: Hashable) -> Answer:
        token, document = split_request(line)
        if Secret(token) != self._token:
            return Refused("the token is of another server")
        try:
            asked = read_reservation(document)
        except ValueError as error:
            return Refused(str(error))
        if self._is_held(asked):
            return Paused(ASK_AGAIN_MS)
        wait_ns, slots = self._reserve(asked, now_ns)
        if connection is not None:
            self._latest[connection] = now_ns + wait_ns, slots
        return Granted(-(-wait_ns // _NS_PER_MS))

    def _is_held(self, asked: Reservation) -> bool:
        """Units that have begun go on: their transactions must not wait, and then time out."""
        if asked.unit is not None and asked.unit in self._begun:
            return False
        if asked.pause_path is not None and self._is_there(asked.pause_path):
            return True
        if asked.unit is not None and asked.pause_path is not None:
            self._begun[asked.unit] = None
            if len(self._begun) > _MOST_UNITS:
                del self._begun[next(iter(self._begun))]
        return False

    def _reserve(self, asked: Reservation, now_ns: int) -> tuple[int, list[tuple[Bucket, Slot]]]:
        """After how long it may be sent, and what is reserved for it."""
        wait_ns, slots = 0, []
        for name, amount, per_second in (
            ("bytes", asked.bytes, asked.bytes_per_second),
            ("records", asked.records, asked.records_per_second),
        ):
            if per_second is not None:
                bucket = self._bucket((asked.query, name), now_ns)
                wait_ns = max(wait_ns, bucket.reserve(amount, per_second, now_ns))
                slots.append((bucket, bucket.latest))
        return wait_ns, slots

    def _bucket(self, name: tuple[str, str], now_ns: int) -> Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= _MOST_QUERIES:
                self._forget_idle(now_ns)
            bucket = self._buckets[name] = Bucket(now_ns)
        return bucket

    def _forget_idle(self, now_ns: int) -> None:
        """A new bucket allows no more than one that nobody has used for long."""
        since_ns = now_ns - BURST_NS
        self._buckets = {n: b for n, b in self._buckets.items() if b.earned_at_ns > since_ns}
