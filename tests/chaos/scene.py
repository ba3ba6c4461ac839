"""A query under faults: what every fault needs to do to it, and what is noted down meanwhile."""

import re
import time
from contextlib import contextmanager

from spark_kafka_sink.base.model import TopicPartition, format_address
from tests.chaos.crash import ATTEMPTS, HOLD, Trap
from tests.chaos.readers import lingering

LOG = TopicPartition("pykafka-sink-transactions", 0)
"""The decision log, by its default name."""
_SERVERS = "kafka.bootstrap.servers"
_TIMEOUT_S = 600.0
_MOST_FAILURES = 20
_ERROR = re.compile(r"spark_kafka_sink\S*Error: .*|Caused by: .*|[A-Za-z.]+Exception: .*")


class Scene:
    """One query, and the faults that it has survived so far.

    topic: that it writes to
    prefix: None for the control, a query without transactions
    failures: why the query failed when nobody had killed its driver
    """

    def __init__(self, brokers, driver, watch, topic, prefix):
        self.kafka = brokers.kafka
        self.links = brokers.links
        self.topic = topic
        self.driver = driver
        self.watch = watch
        self.prefix = prefix
        self.failures = []
        self.kills = 0
        self._log_end = 0

    @property
    def is_control(self):
        return self.prefix is None

    # --- traps ---------------------------------------------------------------------------------

    def set(self, trap):
        """Set a trap; in the control at a point that its query reaches."""
        return self.driver.traps.set(_for_control(trap) if self.is_control else trap)

    def spring(self, trap):
        """Set a trap and wait for who runs into it."""
        return self.await_sprung(self.set(trap))

    def await_sprung(self, name):
        self.until(lambda: self.driver.traps.sprung(name) is not None, f"trap {name}")
        sprung = self.driver.traps.sprung(name)
        assert sprung is not None
        return sprung

    # --- the query -----------------------------------------------------------------------------

    def until(self, is_so, what):
        """Wait; a query that fails by itself is noted, and started again."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not is_so():
            if not self.driver.is_running and not is_so():
                self.failures.append(self._reason())
                assert len(self.failures) <= _MOST_FAILURES, self.failures
                self.driver.start()
            assert time.monotonic() < deadline, f"no {what}:\n{self.driver.tail()}"
            time.sleep(0.02)

    def run_on(self, micro_batches):
        """Wait until so many more are committed."""
        target = self.driver.committed + micro_batches
        self.until(lambda: self.driver.committed >= target, f"micro-batch {target}")

    def dead(self):
        """Wait for the end of a driver that was killed."""
        self.driver.wait()
        self.kills += 1
        self._log_end = len(self.driver.text())

    def recover(self):
        """Start the query again; how long it took to commit something, and what was left open."""
        self.driver.traps.clear()
        started = time.monotonic()
        quiet = self.set(Trap("plan.swept", HOLD)) if not self.is_control else None
        before = self.driver.committed
        self.driver.start()
        told = {} if quiet is None else self._open_at(quiet)
        paused_s = told.pop("paused_s", 0.0)
        self.until(lambda: self.driver.committed > before, "micro-batch after the restart")
        return {**told, "recovery_s": round(time.monotonic() - started - paused_s, 1)}

    @contextmanager
    def bootstrap_begins_with(self, broker_id):
        """Drivers that are started meanwhile ask this broker first who leads what."""
        servers = self.driver.options[_SERVERS]
        first = format_address(*self.kafka.address(broker_id))
        others = [server for server in servers.split(",") if server != first]
        self.driver.options[_SERVERS] = ",".join((first, *others))
        try:
            yield
        finally:
            self.driver.options[_SERVERS] = servers

    def check_open(self):
        """What is open at the beginning of some micro-batch that is still to come.

        An attempt that Spark has not ended yet may begin a transaction after that micro-batch's
        sweep: then the next one's must find it.
        """
        if self.is_control:
            return {}
        first = self._open_at(self.set(Trap("plan.swept", HOLD)))["lingering"]
        if not first:
            return {"lingering": []}
        again = self._open_at(self.set(Trap("plan.swept", HOLD)))["lingering"]
        return {"open_once": first, "lingering": sorted(set(first) & set(again))}

    def _open_at(self, quiet):
        assert self.prefix is not None
        self.await_sprung(quiet)
        started = time.monotonic()
        found = lingering(self.kafka, f"{self.prefix}.")
        self.driver.traps.release(quiet)
        return {"lingering": found, "paused_s": time.monotonic() - started}

    def lag(self, since):
        """How long readers waited for what a killed task had written."""
        found = []

        def is_known():
            lag = self.watch.lag_since(since)
            found.extend([] if lag is None else [lag])
            return bool(found)

        try:
            self.until(is_known, "stable offset beyond what the killed task has written")
        except AssertionError as error:
            open_now = lingering(self.kafka, f"{self.prefix}.")
            details = f"{self.watch.told}, open: {open_now}, at {time.time()}, since {since}"
            raise AssertionError(f"{error}\n{details}") from error
        return {"reader_lag_s": found[0].seconds, "reader_lag_batches": found[0].micro_batches}

    def attempts_count(self):
        """Attempts at tasks that were not the first."""
        path = self.driver.folder / ATTEMPTS
        return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0

    def _reason(self):
        new = self.driver.text()[self._log_end :]
        self._log_end += len(new)
        found = _ERROR.findall(new)
        return (found[-1] if found else new[-300:])[:400]


def _for_control(trap):
    """Without transactions there is nothing but tasks: they have written when they are flushed."""
    if trap.point in ("task.written", "task.flushed"):
        return trap
    return trap._replace(point="task.flushed", nth=1)
