"""End the transactions that a query leaves open when Spark stops it before its commit.

``query.stop()`` interrupts the query's thread in the JVM. A thread that is interrupted after the
last task starts neither the commit nor the abort: Spark logs ``failed to abort``, and no code of
the sink runs. The same is true of a driver that ends. Readers of committed records would wait for
the next start, or for ``kafka.transaction.timeout.ms``.

So each of Spark's processes that plan has a guard: a process in a session of its own, which
outlives both. It gets each plan by its standard input. When the query's thread, or the JVM of a
job, has ended, the guard ends what is open, as Spark's abort does: by the commit protocol, which
changes nothing that is decided or belongs to a later plan.

The JVM shows its threads under /proc, so a guard needs Linux. All query threads of a JVM have the
same name there. If several queries start at the same time, a guard cannot tell their threads apart,
and waits until all of these have ended.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import KafkaSinkError, warn
from spark_kafka_sink.base.machine import process_identity
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.worker import set_up
from spark_kafka_sink.spark.writer import complete_commands
from spark_kafka_sink.transactions.model import Driver, DriverToken, FencedError, TransactionPlan
from spark_kafka_sink.transactions.session import clean_up_after, is_unused

logger = logging.getLogger(__name__)

_PROC = Path("/proc")
_JVM = "java"
# "stream execution thread for …": Linux keeps 15 bytes; newer JVMs keep the first 7 and the last 6.
_QUERY_THREAD = "stream "
_LENGTH_BYTES = 8


# --- the threads of a JVM ------------------------------------------------------------------------


def _name_of(process: Path) -> str:
    return (process / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")


def _parent_of(process_id: int) -> int:
    stat = (_PROC / str(process_id) / "stat").read_bytes()
    return int(stat.rpartition(b")")[2].split()[1])


def jvm_above(process_id: int) -> int | None:
    """Return the id of the JVM that has started this process, directly or not; None without one."""
    try:
        while process_id > 1:
            process_id = _parent_of(process_id)
            if _name_of(_PROC / str(process_id)) == _JVM:
                return process_id
    except OSError:
        pass
    return None


def query_threads(jvm_id: int) -> frozenset[str]:
    """Return the identities of the threads in which the queries of a JVM run."""
    found = set()
    with suppress(OSError):
        for thread in (_PROC / str(jvm_id) / "task").iterdir():
            with suppress(OSError):  # it has just ended
                if _name_of(thread).startswith(_QUERY_THREAD):
                    found.add(process_identity(int(thread.name)))
    return frozenset(identity for identity in found if identity is not None)


def has_ended(identity: str) -> bool:
    """Return True if the process or thread with this identity has ended."""
    return process_identity(int(identity.partition("-")[0])) != identity


# --- in the process that plans -------------------------------------------------------------------


class Planned(NamedTuple):
    """What a guard gets to know of a plan.

    lives: identities of the threads, or of the process, one of which runs the query or job
    """

    options: SinkOptions
    driver: Driver
    token: DriverToken
    lives: frozenset[str]

    @property
    def key(self) -> tuple[Any, ...]:
        """The cluster and the prefix, of which only the latest plan counts."""
        assert self.options.exactly_once is not None
        return self.options.producer.bootstrap_servers, self.options.exactly_once.prefix


class GuardProcess:
    """The guard of this process, started with its first plan."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self, planned: Planned) -> None:
        """Send a plan. Raises OSError if there can be no guard."""
        body = pickle.dumps(planned)
        message = len(body).to_bytes(_LENGTH_BYTES, "big") + body
        if self._process is not None:
            try:
                self._send(message)
            except BrokenPipeError:
                self._process = None  # it was killed
            else:
                return
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Spark ends its Python processes by their group
        )
        self._send(message)

    def _send(self, message: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(message)
        self._process.stdin.flush()


_guard = GuardProcess()


def guard(options: SinkOptions, plan: TransactionPlan | None, is_query: bool) -> None:
    """Have the transactions of ``plan`` ended if the query or job does not commit them.

    Does nothing in a process that no JVM has started. Never raises: a guard is no part of a write.
    """
    jvm_id = None if plan is None else jvm_above(os.getpid())
    if plan is None or jvm_id is None:
        return
    jvm = process_identity(jvm_id)
    lives = query_threads(jvm_id) if is_query else frozenset({jvm} if jvm else ())
    try:
        if lives:
            _guard.tell(Planned(options, plan.driver, plan.token, lives))
    except OSError:
        logger.debug("no guard for the transactions of this plan", exc_info=True)


# --- the guard -----------------------------------------------------------------------------------

_LOOK_S = 0.5
_ASK_MS = 30_000


@dataclass
class _Watched:
    planned: Planned
    lives: frozenset[str]


class Guard:
    """The plans of one planning process, until each is committed, replaced or cleaned up."""

    def __init__(self) -> None:
        self._watched: dict[tuple[Any, ...], _Watched] = {}
        self._clock = SystemClock()
        self._asked_at_ms = self._clock.now_ms()

    def is_needed(self) -> bool:
        """Return True if a plan may still have to be cleaned up."""
        return bool(self._watched)

    def add(self, planned: Planned) -> None:
        """Replace the earlier plan of the prefix.

        A query's thread was there at each of its plans. A thread that is another query's is not its
        own.
        """
        before = self._watched.pop(planned.key, None)
        lives = planned.lives
        if before is not None:
            lives = (before.lives & lives) or lives
        known = {one for w in self._watched.values() if len(w.lives) == 1 for one in w.lives}
        self._watched[planned.key] = _Watched(planned, (lives - known) or lives)

    def look(self, is_last: bool) -> None:
        """Clean up after what has ended.

        is_last: there will be no other plan, so that a plan which is committed is no longer watched
        """
        for key, watched in list(self._watched.items()):
            if all(has_ended(identity) for identity in watched.lives):
                del self._watched[key]
                clean_up(watched.planned)
        if is_last and self._clock.now_ms() - self._asked_at_ms >= _ASK_MS:
            self._asked_at_ms = self._clock.now_ms()
            for key, watched in list(self._watched.items()):
                if not is_unused(watched.planned.options, watched.planned.token):
                    del self._watched[key]


def clean_up(planned: Planned) -> None:
    """End what is open of a plan, and log it."""
    options, driver, token, _ = planned
    assert options.exactly_once is not None
    set_up(options)
    prefix = options.exactly_once.prefix
    try:
        ended = clean_up_after(options, driver, token)
    except FencedError:
        return  # it was committed, or planned again
    except KafkaSinkError as error:
        text = (
            f"the query or job of transactional.id.prefix '{prefix}' has ended before its commit, "
            f"and its transactions could not be aborted ({error}): readers may wait for them until "
            "it is started again, for kafka.transaction.timeout.ms, or until "
            f"pykafka-sink transactions abort --prefix {prefix}"
        )
        warn(logger, "TXN-044", complete_commands(text, options))
        return
    if ended:
        logger.info(
            f"the query or job of transactional.id.prefix '{prefix}' has ended before its commit: "
            f"{len(ended)} transactions that it left open are ended"
        )


def _messages(descriptor: int) -> Iterator[Planned | None]:
    """Yield each plan, and None when there was none for a moment; end when the sender has ended."""
    received = bytearray()
    while True:
        if not select.select([descriptor], [], [], _LOOK_S)[0]:
            yield None
            continue
        part = os.read(descriptor, 1 << 16)
        if not part:
            return
        received += part
        while len(received) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(received[:_LENGTH_BYTES], "big")
            if len(received) < end:
                break
            yield pickle.loads(received[_LENGTH_BYTES:end])
            del received[:end]


def main() -> None:
    """Guard the plans that come by standard input."""
    logging.raiseExceptions = False  # a driver that has ended reads no log
    watching = Guard()
    for planned in _messages(sys.stdin.fileno()):
        if planned is not None:
            watching.add(planned)
        watching.look(is_last=False)
    while watching.is_needed():
        watching.look(is_last=True)
        select.select([], [], [], _LOOK_S)
