"""Faults of Spark's processes and of their machine: kills, a full disk, a clock that jumps."""

import contextlib
import struct
import subprocess
import time
from pathlib import Path

import psutil

from tests.patience import eventually

_SOURCE = Path(__file__).parents[2] / "tests" / "shifted_clock.c"
_FULL_S = 20
_JUMP_S = 900


def _executor(world, rng):
    """A running executor, at random."""
    found = []
    assert eventually(lambda: found.extend(world.spark.executors()) or found)
    return rng.choice(found)


def kill_python_worker(world, rng):
    """SIGKILL of one Python process below an executor."""
    victims = []

    def is_one_found():
        # Workers, and the daemon that forks them, may end at this moment.
        with contextlib.suppress(psutil.NoSuchProcess):
            victims[:] = _executor(world, rng).python_workers()
            if victims:
                rng.choice(victims).kill()
                return True
        return False

    assert eventually(is_one_found), "no executor has a Python worker"
    return {"of": len(victims)}


def kill_executor(world, rng):
    """SIGKILL of an executor's JVM; Spark starts another one."""
    victim = _executor(world, rng)
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.process.kill()
    return {"worker": victim.worker}


def kill_node(world, rng):
    """SIGKILL of a worker and all below it; it comes back after some seconds."""
    number = rng.randrange(2)
    world.spark.kill_worker(number)
    time.sleep(rng.uniform(1, 10))
    world.spark.start_worker(number)
    return {"worker": number}


def kill_driver(world, rng):
    """SIGKILL of the driver and all its processes, and another driver."""
    world.driver.kill()
    time.sleep(rng.uniform(0, 5))
    world.driver.start()
    world.driver.await_started()
    return {}


def fill_disk(world, rng):
    """No space is left below the metrics and the checkpoints, until a log or a failure says so."""
    if not world.has_small_disk:
        return {"skipped": "this machine mounts no small file system"}
    filler = world.small_disk / "filler"

    def fill(file):
        # Spark removes old files meanwhile.
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 12))

    try:
        with filler.open("wb", buffering=0) as file:
            world.hold("disk full", _FULL_S, meanwhile=lambda: fill(file))
    finally:
        filler.unlink(missing_ok=True)
    return {}


class JumpingClock:
    """The clock of the driver, of executors and of their Python processes.

    environment: for these processes; empty if the machine has no compiler
    """

    def __init__(self, folder):
        self._file = folder / "clock-shift"
        self._write(0)
        library = folder / "shifted_clock.so"
        command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except OSError:
            self.environment = {}
        else:
            self.environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(self._file)}

    def jump(self, seconds):
        """Processes see a clock that is ``seconds`` ahead of the machine's."""
        self._write(seconds)

    def _write(self, seconds):
        # In place, because processes have mapped the file.
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", seconds))


def jump_clock(world, rng):
    """The clocks of driver and executors jump, forth or back, and return after some seconds."""
    if not world.clock.environment:
        return {"skipped": "this machine has no compiler"}
    seconds = rng.choice((-1, 1)) * rng.randint(_JUMP_S // 3, _JUMP_S)
    try:
        world.clock.jump(seconds)
        time.sleep(rng.uniform(20, 40))
    finally:
        world.clock.jump(0)
    return {"jump_s": seconds}
