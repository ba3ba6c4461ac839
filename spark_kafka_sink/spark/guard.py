"""End the transactions that a query leaves open when Spark stops it before its commit.

``query.stop()`` interrupts the query's thread in the JVM. A thread that is interrupted after the
last task starts neither the commit nor the abort: Spark logs ``failed to abort``, and no code of
the sink runs. The same is true of a driver that ends. Readers of committed records would wait for
the next start, or for ``kafka.transaction.timeout.ms``.

So each of Spark's processes that plan has a guard: a process in a session of its own, which
outlives both. It gets each plan by its standard input. When the query's thread, or the JVM of a
job, has ended, the guard aborts what is open, as Spark's abort does, and commits what is decided.
It leaves a later plan alone, and another driver's.

The JVM shows its threads under /proc, so a guard needs Linux. All query threads of a JVM have the
same name there. If several queries start at the same time, a guard cannot distinguish their
threads, and waits until all of these have ended. A job has the JVM alone, also in ``foreachBatch``:
Spark does not say which thread has planned it, and a job may outlive all queries.

A plan that cannot be sent at once is dropped, because planning must not wait. Then the guard has an
earlier plan of the prefix, whose token is no longer valid, and changes nothing.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.errors import KafkaSinkError, sentence, warn
from spark_kafka_sink.base.machine import start_process
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark.worker import set_up
from spark_kafka_sink.spark.writer import complete_commands
from spark_kafka_sink.transactions.model import Driver, DriverToken, FencedError, TransactionPlan
from spark_kafka_sink.transactions.session import clean_up_after, clean_up_late, is_unused

logger = logging.getLogger(__name__)

PROC = Path("/proc")
_JVM = "java"
# "stream execution thread for …": Linux keeps 15 bytes; newer JVMs keep the first 7 and the last 6.
_QUERY_THREAD = "stream "
_MAX_MESSAGE_BYTES = 1 << 20


# --- the threads of a JVM ------------------------------------------------------------------------


# Fields of /proc/ID/stat after the name, which may contain spaces: proc(5) counts from 3.
_STATE, _PARENT, _START_TIME = 0, 1, 19


def _stat(process_id: int) -> list[bytes]:
    """Return the fields of a process or thread. Raises OSError, as FileNotFoundError without it."""
    return (PROC / str(process_id) / "stat").read_bytes().rpartition(b")")[2].split()


def _is_proc_readable() -> bool:
    """Return False if /proc shows no process at all, because it is mounted no longer."""
    with suppress(OSError):
        return bool(_stat(os.getpid()))
    return False


def _name(process: Path) -> str:
    return (process / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")


class Life(NamedTuple):
    """A process or thread, by its id and the time of its start, as ids are used again."""

    process_id: int
    started: bytes

    @classmethod
    def of(cls, process_id: int) -> Life:
        """Return the present process or thread with this id. Raises OSError."""
        return cls(process_id, _stat(process_id)[_START_TIME])

    def has_ended(self) -> bool:
        """Return True if it has ended for certain."""
        try:
            fields = _stat(self.process_id)
        except (FileNotFoundError, ProcessLookupError):
            return _is_proc_readable()
        except OSError:
            return False  # too many open files, for example
        return fields[_STATE] in (b"Z", b"X") or fields[_START_TIME] != self.started


@cache
def jvm_above(process_id: int) -> Life | None:
    """Return the JVM that has started this process, directly or not; None without one."""
    try:
        while process_id > 1:
            process_id = int(_stat(process_id)[_PARENT])
            if _name(PROC / str(process_id)) == _JVM:
                return Life.of(process_id)
    except OSError:
        pass
    return None


def query_threads(jvm: Life) -> frozenset[Life]:
    """Return the threads in which the queries of a JVM run. Raises OSError if one is not readable.

    If it were left out, another query's thread might be the only one that is found.
    """
    found = set()
    for thread in (PROC / str(jvm.process_id) / "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if _name(thread).startswith(_QUERY_THREAD):
                found.add(Life.of(int(thread.name)))
    return frozenset(found)


# --- in the process that plans -------------------------------------------------------------------


_Key = tuple[Any, ...]


class Planned(NamedTuple):
    """A plan, as its guard knows it.

    lives: the threads, or the process, one of which runs the query or job
    """

    options: SinkOptions
    driver: Driver
    token: DriverToken
    lives: frozenset[Life]

    @property
    def key(self) -> _Key:
        """The cluster and the prefix, of which only the latest plan counts."""
        return _key(self.options)


def _key(options: SinkOptions) -> _Key:
    assert options.exactly_once is not None
    return options.producer.bootstrap_servers, options.exactly_once.prefix


class QueryThreads:
    """The thread of each query that this process has planned, as far as it is known."""

    def __init__(self) -> None:
        self._found: dict[_Key, frozenset[Life]] = {}

    def find(self, key: _Key, look: Callable[[], frozenset[Life]]) -> frozenset[Life]:
        """Return the threads one of which runs the query. look: returns all threads of queries

        While no thread of its last plan has ended, the query still runs in one of these. A thread
        that has ended may have been the query's, which was started again, so a new look is needed.
        A thread is excluded only if it is another query's for certain.
        """
        lives = self._found.get(key, frozenset())
        if not lives or any(life.has_ended() for life in lives):
            lives = look()
        others = {
            o for k, found in self._found.items() if k != key and len(found) == 1 for o in found
        }
        self._found[key] = (lives - others) or lives
        return self._found[key]


class GuardProcess:
    """The guard of this process, started with its first plan."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def close(self) -> None:
        """Send no more plans: the guard ends when nothing is left to guard."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def tell(self, planned: Planned) -> None:
        """Send a plan, without waiting. Raises OSError if no guard takes it."""
        message = pickle.dumps(planned)
        if self._connection is not None:
            try:
                self._connection.send(message)
            except ConnectionError:  # the guard was killed
                self.close()
            else:
                return
        self._connection = self._start()
        self._connection.send(message)

    def _start(self) -> socket.socket:
        # Sockets of this type send a message as a whole, or raise BlockingIOError.
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.setblocking(False)
        with there:
            self.process = start_process(__name__, stdin=there.fileno(), stdout=subprocess.DEVNULL)
        return here


_guard = GuardProcess()
_query_threads = QueryThreads()


def guard(options: SinkOptions, plan: TransactionPlan, is_query: bool) -> None:
    """Have the transactions of ``plan`` ended if the query or job does not commit them.

    Does nothing in a process that no JVM has started. Never raises: a guard is no part of a write.
    """
    jvm = jvm_above(os.getpid())
    if jvm is None:
        return
    lives = frozenset({jvm})
    # A guard writes no rows: large schemas and the registry's secrets stay here.
    options = replace(options, formats=None, registry=None, dead_letters=None, topics_plan=None)
    try:
        if is_query:
            lives = _query_threads.find(_key(options), partial(query_threads, jvm))
        if lives:
            _guard.tell(Planned(options, plan.driver, plan.token, lives))
    except OSError:
        logger.debug("no guard for the transactions of this plan", exc_info=True)


# --- the guard -----------------------------------------------------------------------------------

_LOOK_S = 0.5
_ASK_MS = 30_000
_LATE_LOOKS, _LATE_LOOK_S = 2, 2.0


class Guard:
    """The plans of one planning process, until each is committed, replaced or cleaned up."""

    def __init__(self, clock: Clock, clean_up: Callable[[Planned], None]) -> None:
        self._clock = clock
        self._clean_up = clean_up
        self._plans: dict[_Key, Planned] = {}
        self._asked_at_ms = clock.now_ms()

    def is_needed(self) -> bool:
        """Return True if a plan may still have to be cleaned up."""
        return bool(self._plans)

    def add(self, planned: Planned) -> None:
        """Replace the earlier plan of the same cluster and prefix."""
        self._plans[planned.key] = planned

    def look(self) -> None:
        """Clean up after what has ended."""
        for key, planned in list(self._plans.items()):
            if all(life.has_ended() for life in planned.lives):
                del self._plans[key]
                self._clean_up(planned)

    def forget_committed(self, is_unused: Callable[[SinkOptions, DriverToken], bool]) -> None:
        """Forget plans that are done, at most every ``_ASK_MS``: no later one replaces them."""
        if self._clock.now_ms() - self._asked_at_ms < _ASK_MS:
            return
        self._asked_at_ms = self._clock.now_ms()
        for key, planned in list(self._plans.items()):
            if not is_unused(planned.options, planned.token):
                del self._plans[key]


def clean_up(planned: Planned, late_look_s: float = _LATE_LOOK_S) -> None:
    """End what is open of a plan, and log it. late_look_s: s between looks for late tasks."""
    options, driver, token, _ = planned
    assert options.exactly_once is not None
    set_up(options)
    prefix = options.exactly_once.prefix
    try:
        ended, late_token = clean_up_after(options, driver, token)
        _log_ended(prefix, ended)
        if late_token is not None and not ended:
            logger.info(
                f"the query or job of transactional.id.prefix '{prefix}' has ended before its "
                "commit: no transaction was open, and its last plan can no longer be committed"
            )
        # Tasks may end later than the query, and be killed before they find the token used.
        for _ in range(_LATE_LOOKS):
            if late_token is not None:
                select.select([], [], [], late_look_s)
                _log_ended(prefix, clean_up_late(options, late_token))
    except FencedError:
        return  # it was committed, or planned again
    except KafkaSinkError as error:
        text = (
            f"the query or job of transactional.id.prefix '{prefix}' has ended before its commit, "
            f"and its transactions could not be aborted ({sentence(error)}): readers may wait for "
            "them until it is started again, for kafka.transaction.timeout.ms, or until "
            f"pykafka-sink transactions abort --prefix {prefix}"
        )
        warn(logger, "TXN-044", complete_commands(text, options))


def _log_ended(prefix: str, ended: Sequence[str]) -> None:
    if ended:
        logger.info(
            f"the query or job of transactional.id.prefix '{prefix}' has ended before its commit: "
            f"{len(ended)} transactions that it left open are ended"
        )


def _read(connection: socket.socket, plans: SimpleQueue[Planned | None]) -> None:
    """Queue each plan, and None when the sender has ended."""
    try:
        while message := connection.recv(_MAX_MESSAGE_BYTES):
            plans.put(pickle.loads(message))
    finally:
        plans.put(None)


def watch(connection: socket.socket, watching: Guard) -> None:
    """Guard the plans that come by ``connection``, and return when none needs it any more."""
    plans: SimpleQueue[Planned | None] = SimpleQueue()
    # A thread, because a clean-up may take long, and the sender drops plans that are not read.
    Thread(target=_read, args=(connection, plans), daemon=True).start()
    has_sender = True
    while has_sender or watching.is_needed():
        with suppress(Empty):
            planned = plans.get(timeout=_LOOK_S)
            if planned is None:
                has_sender = False
            else:
                watching.add(planned)
        watching.look()
        if not has_sender:
            watching.forget_committed(is_unused)


def main() -> None:
    """Guard the plans that come by standard input."""
    logging.raiseExceptions = False  # a driver that has ended reads no log
    with socket.socket(fileno=sys.stdin.fileno()) as connection:
        watch(connection, Guard(SystemClock(), clean_up))
