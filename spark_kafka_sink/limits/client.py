"""A task's side of the limit: asks the server on the driver, and says what may be sent when.

A state machine like the sender, whose thread it belongs to: it waits for nothing, its events come
through the sender's own network, and the time is passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.config.limits import PAUSE_PATH, SERVER_HOST, SERVER_PORT, LimitAccess
from spark_kafka_sink.limits.messages import (
    MOST_BYTES,
    Granted,
    Paused,
    Refused,
    Reservation,
    read_answer,
    write_request,
)
from spark_kafka_sink.network.interface import (
    Address,
    Connected,
    Disconnected,
    Network,
    NetworkEvent,
    Received,
    Resolved,
)
from spark_kafka_sink.protocol.types import Buffer

logger = logging.getLogger(__name__)

_ATTEMPTS_IN_TIME = 5
_LONG_MS = 10_000
_PAUSE_LEASE_MS = 1000
_MORE_THAN_IS_SENT = 1 << 40


class LimitUnavailableError(KafkaSinkError):
    """Nobody tells how fast the task may send, so that it sends nothing."""


class LimitTooLowError(KafkaSinkError):
    """What a transaction still has to write may be sent only after it has timed out."""


class LimitClient:
    """Reserves what is to be sent. One reservation at a time; what is granted may be used later.

    bytes_left, records_left: what may be sent now
    unit: that all tasks of a micro-batch with exactly-once have in common
    is_paused: the last answer was that the query is held
    failure: why nothing may be sent any more
    """

    def __init__(
        self,
        access: LimitAccess,
        network: Network,
        clock: Clock,
        backoff: ExponentialBackoff,
        timeout_ms: int,
    ) -> None:
        """timeout_ms: of a server that does not answer, after all attempts"""
        self._access = access
        self._network = network
        self._clock = clock
        self._backoff = backoff
        self._timeout_ms = timeout_ms
        self.bytes_left = 0
        self.records_left = 0
        self.unit: str | None = None
        self._begun_at_ms: int | None = None
        self._transaction_timeout_ms = 0
        self._is_wait_told = False
        self._held_since_ms: int | None = None
        self.is_paused = False
        self.failure: LimitUnavailableError | LimitTooLowError | None = None
        self._asked: Reservation | None = None
        self._granted: Reservation | None = None
        self._usable_at_ms = 0
        self._lost_at_ms: int | None = None
        self._silent_since_ms = 0
        # Of the connection: ids below zero, which no broker's connection has.
        self._channel_id = 0
        self._is_open = False
        self._is_connected = False
        self._is_sent = False
        self._received = bytearray()
        self._deadline_ms = 0
        self._retry_at_ms = 0
        self._attempts = 0
        self._last_failure = "no answer"

    @property
    def chunk(self) -> tuple[int, int]:
        """Bytes and records up to which several batches are reserved at once: of 100 ms."""
        limits = self._access.limits
        return _of_100_ms(limits.bytes_per_second), _of_100_ms(limits.records_per_second)

    def begin_task(self) -> None:
        """For another task: it belongs to no unit yet, and nothing is logged of it."""
        self.unit = None
        self._is_wait_told = False

    def begin_unit(self, unit: str, timeout_ms: int) -> None:
        """The task writes in a transaction of ``unit``. timeout_ms: of the transaction"""
        self._begun_at_ms = None
        self._transaction_timeout_ms = timeout_ms
        self.unit = unit

    @property
    def has_begun(self) -> bool:
        """Whether something of the unit was granted; always so without one."""
        return self.unit is None or self._begun_at_ms is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being reserved."""
        return self._asked is None and self._granted is None

    def reserve(self, size_bytes: int, records: int, now_ms: int) -> None:
        """Begin to reserve what is missing of so much. Call ``advance`` after it."""
        limits = self._access.limits
        if not limits.has_rate:  # there is only the pause to be asked for: once a second
            size_bytes = records = _MORE_THAN_IS_SENT
        self._asked = Reservation(
            self._access.query,
            max(size_bytes - self.bytes_left, 0),
            max(records - self.records_left, 0),
            limits.bytes_per_second,
            limits.records_per_second,
            limits.pause_path,
            self.unit,
        )
        self._silent_since_ms = now_ms
        self._is_sent = False

    def spend(self, size_bytes: int, records: int) -> None:
        """So much is being sent."""
        self.bytes_left -= size_bytes
        self.records_left -= records

    def advance(self, now_ms: int) -> int | None:
        """Do what is due; returns after how long to call again, None: after an event."""
        if self._lost_at_ms is not None and now_ms >= self._lost_at_ms:
            self.bytes_left = self.records_left = 0
            self._lost_at_ms = None
        if self._granted is not None:
            return self._wait_for_grant(self._granted, now_ms)
        if self._asked is None:
            return None
        left_ms = self._silent_since_ms + self._timeout_ms - now_ms
        if left_ms <= 0:
            self._fail(f"{self._last_failure}, within kafka.request.timeout.ms")
            return None
        return max(min(self._go_on(self._asked, now_ms), left_ms), 0)

    def _go_on(self, asked: Reservation, now_ms: int) -> int:
        """The next step towards an answer; returns after how long the one after it is due."""
        waits_for_peer = self._is_sent or not self._is_connected
        if self._is_open and waits_for_peer and now_ms >= self._deadline_ms:
            self._lose(f"no answer within {self._attempt_ms} ms", now_ms)
        if not waits_for_peer or not self._is_open:
            if now_ms < self._retry_at_ms:
                return self._retry_at_ms - now_ms
            if self._is_open:
                self._send(asked, now_ms)
            else:
                self._connect(now_ms)
        return self._deadline_ms - now_ms

    def _wait_for_grant(self, granted: Reservation, now_ms: int) -> int | None:
        if now_ms < self._usable_at_ms:
            return self._usable_at_ms - now_ms
        self._granted = None
        if self._begun_at_ms is None and granted.unit == self.unit:
            self._begun_at_ms = now_ms
        self.bytes_left += granted.bytes
        self.records_left += granted.records
        if not self._access.limits.has_rate:
            self._lost_at_ms = now_ms + _PAUSE_LEASE_MS
        return None

    @property
    def _attempt_ms(self) -> int:
        return max(self._timeout_ms // _ATTEMPTS_IN_TIME, 1)

    def _fail(self, why: str) -> None:
        access = self._access
        self.failure = LimitUnavailableError(
            f"the query has a limit or a pause, and its server at {access.host}:{access.port}, on "
            f"the driver, cannot be asked: {why}. Executors must reach that address: set "
            f"{SERVER_HOST} to a name of the driver that they know, and {SERVER_PORT} to a port "
            "that firewalls let through. If the server has ended, the next start of the query "
            "starts another one"
        )

    def _check_timeout(self, wait_ms: int, now_ms: int) -> None:
        """Fail at once where a transaction would wait, open, and be aborted in the end."""
        began_ms, timeout_ms = self._begun_at_ms, self._transaction_timeout_ms
        since_ms = now_ms if began_ms is None else began_ms
        if self.unit is not None and now_ms + wait_ms > since_ms + timeout_ms:
            self.failure = LimitTooLowError(
                f"what this task sends next is {wait_ms // 1000} s away, for "
                f"{self._access.limits.rates}, and by then its transaction is aborted: "
                f"kafka.transaction.timeout.ms = {timeout_ms}. Set either higher, or write less in "
                "a micro-batch or job"
            )

    # --- connection ----------------------------------------------------------------------------

    def _connect(self, now_ms: int) -> None:
        self._channel_id -= 1
        self._is_open, self._is_connected, self._is_sent = True, False, False
        self._received.clear()
        self._deadline_ms = now_ms + self._attempt_ms
        self._network.resolve(self._channel_id, self._access.host, self._access.port)

    def _send(self, asked: Reservation, now_ms: int) -> None:
        self._is_sent = True
        self._deadline_ms = now_ms + self._attempt_ms
        request = write_request(self._access.token.reveal(), asked)
        self._network.send(self._channel_id, [memoryview(request)])

    def _lose(self, why: str, now_ms: int) -> None:
        self._network.disconnect(self._channel_id)
        self._is_open = self._is_connected = self._is_sent = False
        self._last_failure = why
        if self._granted is not None:
            # The server gives it to others when it learns of this.
            self._asked, self._granted = self._granted, None
            self._silent_since_ms = now_ms
        self._retry_at_ms = now_ms + self._backoff.backoff_ms(self._attempts)
        self._attempts += 1

    def handle(self, event: NetworkEvent) -> None:
        """What has happened to the connection."""
        if event.channel_id != self._channel_id or not self._is_open:
            return  # one that was given up
        now_ms = self._clock.now_ms()
        if isinstance(event, Resolved):
            address = event.addresses[self._attempts % len(event.addresses)]
            self._network.connect(self._channel_id, address, self._access.host)
        elif isinstance(event, Connected):
            self._is_connected = True
        elif isinstance(event, Disconnected):
            self._lose(event.reason, now_ms)
        elif isinstance(event, Received):
            self._received += event.data
            line, end, rest = self._received.partition(b"\n")
            if end:
                self._received = rest
                self._take(bytes(line), now_ms)
            elif len(self._received) > MOST_BYTES:
                self._fail("something else listens there")

    def _take(self, line: bytes, now_ms: int) -> None:
        if self._asked is None or not self._is_sent:
            return
        try:
            answer = read_answer(line)
        except ValueError as error:
            self._fail(f"something else listens there ({error})")
            return
        self._attempts = 0
        self._is_sent = False
        self.is_paused = isinstance(answer, Paused)
        self._tell_of_pause(now_ms)
        if isinstance(answer, Granted):
            self._granted, self._asked = self._asked, None
            self._usable_at_ms = now_ms + answer.wait_ms
            self._check_timeout(answer.wait_ms, now_ms)
            self._tell_of_wait(answer.wait_ms)
        elif isinstance(answer, Paused):
            self._silent_since_ms = self._retry_at_ms = now_ms + answer.ask_again_ms
        elif isinstance(answer, Refused):
            self._fail(answer.reason)

    # --- log -----------------------------------------------------------------------------------

    def _tell_of_wait(self, wait_ms: int) -> None:
        """Once for each task."""
        if wait_ms >= _LONG_MS and not self._is_wait_told and self.failure is None:
            self._is_wait_told = True
            logger.warning(
                "this task waits %d s for %s, before it sends more. If that is too slow, start the "
                "query again with a higher limit",
                wait_ms // 1000,
                self._access.limits.rates,
            )

    def _tell_of_pause(self, now_ms: int) -> None:
        """When it begins, and when it ends."""
        path, since_ms = self._access.limits.pause_path, self._held_since_ms
        if self.is_paused and since_ms is None:
            self._held_since_ms = now_ms
            logger.warning(
                "this task is held, as %s = %s is there on the driver: it goes on when that is "
                "removed",
                PAUSE_PATH,
                path,
            )
        elif not self.is_paused and since_ms is not None:
            self._held_since_ms = None
            held_s = (now_ms - since_ms) // 1000
            logger.warning(
                "%s = %s does not hold this task any more: %d s", PAUSE_PATH, path, held_s
            )


def _of_100_ms(per_second: int | None) -> int:
    return _MORE_THAN_IS_SENT if per_second is None else per_second // 10


class LimitedNetwork:
    """A :class:`Network` beside whose connections to brokers there is one to the limit server."""

    def __init__(self, network: Network, take: Callable[[NetworkEvent], None]) -> None:
        """take: gets the events of channels with ids below zero"""
        self._network = network
        self._take = take

    def resolve(self, channel_id: int, host: str, port: int) -> None:
        self._network.resolve(channel_id, host, port)

    def connect(self, channel_id: int, address: Address, host: str) -> None:
        self._network.connect(channel_id, address, host)

    def send(self, channel_id: int, buffers: Sequence[Buffer]) -> None:
        self._network.send(channel_id, buffers)

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        events = self._network.poll(timeout_ms)
        for event in events:
            if event.channel_id < 0:
                self._take(event)
        return [event for event in events if event.channel_id >= 0]

    def disconnect(self, channel_id: int) -> None:
        self._network.disconnect(channel_id)

    def wakeup(self) -> None:
        self._network.wakeup()

    def close(self) -> None:
        self._network.close()
