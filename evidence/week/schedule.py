"""The faults of a week, and the order in which a seed brings them about."""

import json
import random
import time
from typing import Any, Callable, NamedTuple

from evidence.week import broker_faults as brokers
from evidence.week import network_faults as network
from evidence.week import spark_faults as spark
from spark_kafka_sink.localkafka import DEFAULT_VERSION


class Fault(NamedTuple):
    """``happen(world, rng)`` brings it about, takes it back, and returns what was chosen.

    needs: the workload without which the fault hits nothing
    """

    what: str
    happen: Callable[..., dict]
    needs: str = ""


FAULTS = {
    "python worker": Fault("a Python worker is killed", spark.kill_python_worker),
    "executor": Fault("an executor is killed", spark.kill_executor),
    "node": Fault("a worker of Spark with its executor is killed, and returns", spark.kill_node),
    "driver": Fault("the driver is killed, and another one is started", spark.kill_driver),
    "network cut": Fault("connections to all brokers are reset", network.cut_network),
    "network hangs": Fault("connections to a broker carry nothing", network.hold_back_network),
    "network slow": Fault("data to and from brokers take longer", network.slow_network),
    "broker killed": Fault("a broker is killed, and returns", brokers.kill_broker),
    "broker paused": Fault("a broker hangs (SIGSTOP)", brokers.pause_broker),
    "brokers rolled": Fault("all brokers are restarted in turn", brokers.roll_brokers),
    "upgrade": Fault("all brokers are upgraded in turn", brokers.upgrade_brokers),
    "leaders moved": Fault("partitions get other leaders", brokers.move_leaders),
    "partitions added": Fault("a topic gets more partitions", brokers.add_partitions),
    "topic recreated": Fault("a topic is deleted and created", brokers.recreate_topic, "topics"),
    "isr shrunk": Fault("fewer replicas are in sync than must be", brokers.shrink_isr, "racks"),
    "certificates": Fault("brokers and clients get other keys", brokers.rotate_certificates),
    "password": Fault("the writers' password changes", brokers.rotate_password),
    "quota": Fault("brokers throttle the writers", brokers.set_quota, "backfill"),
    "issuer away": Fault("no tokens for longer than they live", network.issuer_away, "backfill"),
    "registry away": Fault("the registry hangs as a driver starts", network.registry_away, "avro"),
    "registry changes": Fault("a schema is added to a subject", network.registry_changes, "avro"),
    "disk full": Fault("no space for metrics and checkpoints", spark.fill_disk),
    "clock": Fault("the clocks of driver and executors jump", spark.jump_clock),
}
_QUIET_S = (5, 20)


def names_for(names, workloads, version):
    """Those of ``names`` that can hit something, the upgrade only for older brokers."""
    is_old = version != DEFAULT_VERSION
    possible = [n for n in names if FAULTS[n].needs in ("", *workloads)]
    return [n for n in possible if is_old or n != "upgrade"]


class Schedule:
    """All faults in the order of the seed, again and again until the time is over."""

    def __init__(self, seed, names):
        self._rng = random.Random(seed)
        self._names = names
        self._until = None
        self.events: list[dict[str, Any]] = []

    def suffer(self, world, minutes):
        """Return when the time is over; a fault that has begun is completed.

        It ends earlier if a fault could not be brought about, or the workloads stand still after it:
        what follows would show nothing.
        """
        self._until = time.monotonic() + 60 * minutes
        while self._is_time_left():
            for name in self._rng.sample(self._names, len(self._names)):
                self._wait(world, self._rng.uniform(*_QUIET_S))
                if not self._is_time_left():
                    return
                event = self._happen(world, name)
                self.events.append(event)
                print(json.dumps(event), flush=True)
                if event["stuck"] or "failed" in event:
                    return
            if not self._names:
                self._wait(world, _QUIET_S[1])

    def rest(self, world, minutes):
        """Let the workloads write without a fault."""
        self._until = time.monotonic() + 60 * minutes
        self._wait(world, 60 * minutes)

    def end_early(self):
        """End as if the time were over. Return False if the faults have not begun, or have ended."""
        if self._until is None or not self._is_time_left():
            return False
        self._until = time.monotonic()
        return True

    def _is_time_left(self):
        return time.monotonic() < self._until

    def _wait(self, world, seconds):
        pause_ends = time.monotonic() + seconds
        while (left := min(self._until, pause_ends) - time.monotonic()) > 0:
            world.supervise()
            time.sleep(min(1.0, left))

    def _happen(self, world, name):
        rng = random.Random(self._rng.random())
        began, started = time.time(), time.monotonic()
        note, stuck = {}, []
        try:
            note = FAULTS[name].happen(world, rng)
            ended = time.monotonic()
            # Without progress the next fault would hide what this one has broken.
            stuck = world.await_progress()
        except Exception as error:
            # Hours of results must not be lost with it.
            note = {**note, "failed": f"{type(error).__name__}: {error}"[:1000]}
            ended = time.monotonic()
        return {
            "fault": name,
            "at": round(began, 1),
            "lasted_s": round(ended - started, 1),
            "recovered_s": round(time.monotonic() - ended, 1),
            "stuck": stuck,
            **note,
        }
