"""Queries and jobs are stopped at random moments and at each named point: nothing stays open in Kafka.

python -m evidence stops                  # 200 stops
python -m evidence stops --stops 20 --seed 3

Streams and jobs, with both guarantees, are ended by ``query.stop()`` or ``cancelAllJobs()``, by Ctrl-C
and by SIGTERM. Afterwards Kafka's own tool must list no transaction as open, or the log must have the line
that names the command which ends them. The result counts stops after which one was open for more than 10 s:
none, on a quiet machine. At the end the tool lists all once more, because a task may outlive its driver. At
least once, a stop has nothing to leave open: it must end, and must not have ended before. A driver that ends
while it writes its record leaves its own id open, with the decision log alone in that transaction, until the
brokers abort it. A line of JSON a stop; exit code 1 for anything else.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from evidence.harness.crash import COMMIT_STARTS, HOLD, Trap
from evidence.harness.driver import IN_ONE_JVM, Traps
from evidence.harness.planning import parser_of, show
from evidence.harness.scene import lingering
from spark_kafka_sink.localkafka import LocalKafka
from spark_kafka_sink.transactions.crash_points import POINTS
from tests.patience import PATIENCE_S, eventually

_REPOSITORY = Path(__file__).resolve().parents[2]
_RESULTS = Path(__file__).with_name("results.json")
_TOPIC = "stopped"
_STOPS = 200
_LATEST_S = 4.0
_SOON_S, _SETTLED_S = 10.0, 60.0
_AGAIN_S = 30.0
_OF_THE_DRIVER = ".driver"
_DRIVER_SETTLED_S = 90.0
"""Its transactions have a timeout of 60 s, and brokers look for such each 10 s."""
DOCUMENTED = "PKS-TXN-044"
RANDOM = "random"
STOP, CTRL_C, TERMINATE = "stop", "ctrl-c", "sigterm"
HELD = (
    COMMIT_STARTS,
    *(p for p in POINTS if p.startswith(("plan.", "task.", "commit.")) and p != "plan.claimed"),
)
"""Points that each query or job reaches in its first batch."""


class Stop(NamedTuple):
    """How one query or job ends. at: a named point, or RANDOM"""

    number: int
    kind: str
    guarantee: str
    how: str
    at: str
    after_s: float

    @property
    def prefix(self):
        return f"stop-{self.number}"


def stops(count, seed):
    """Half of them at a random moment; each held point in turn."""
    rng = random.Random(seed)
    for number in range(count):
        kind = ("stream", "job")[number % 2]
        how = rng.choice((STOP, STOP, CTRL_C, TERMINATE))
        is_exact = number % 10 < 8
        at = HELD[number // 4 % len(HELD)] if is_exact and number % 4 < 2 else RANDOM
        guarantee = "exactly-once" if is_exact else "at-least-once"
        yield Stop(number, kind, guarantee, how, at, round(rng.uniform(0, _LATEST_S), 2))


class Process:
    """A driver that obeys; see ``driver.py``."""

    def __init__(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.traps = Traps(folder)
        self.log = folder / "driver.log"
        self._words: Counter = Counter()
        environment = {**os.environ, **self.traps.environment, "PYSPARK_PYTHON": sys.executable}
        conf = {"spark.master": IN_ONE_JVM, "spark.task.maxFailures": "1"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evidence.stops.driver", json.dumps(conf)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=_REPOSITORY,
                start_new_session=True,
                text=True,
            )
        threading.Thread(target=self._read, daemon=True).start()
        self.await_word("ready", 1)

    def _read(self):
        for line in self._process.stdout:
            self._words[line.strip()] += 1

    def count(self, word):
        return self._words[word]

    def await_word(self, word, count):
        """Wait until it has said ``word`` so often, or has ended."""
        assert eventually(lambda: self._words[word] >= count or not self.is_running, PATIENCE_S), (
            self.text()[-3000:]
        )

    def text(self):
        """All that it has logged."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def is_running(self):
        return self._process.poll() is None

    def send(self, **command):
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def signal(self, number):
        """To the whole group, as a terminal does; SIGTERM to Python alone, as a supervisor does."""
        if number == signal.SIGINT:
            os.killpg(self._process.pid, number)
        else:
            os.kill(self._process.pid, number)

    def wait(self):
        self._process.wait(PATIENCE_S)

    def end(self):
        if self.is_running:
            self._process.stdin.close()
            self.wait()


def stopped(process, stop, kafka, folder):
    """Start it, stop it, and say what is open afterwards."""
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": _TOPIC,
        "metrics.log": "false",
        "delivery.guarantee": stop.guarantee,
    }
    if stop.guarantee == "exactly-once":
        options["transactional.id.prefix"] = stop.prefix
        options["transaction.log.replication.factor"] = "1"
    name = None if stop.at == RANDOM else process.traps.set(Trap(stop.at, HOLD))
    ended, started, stopping = map(process.count, ("ended", "started", "stopping"))
    logged = len(process.text())
    checkpoint = str(folder / stop.prefix)
    process.send(start=stop.kind, options=options, checkpoint=checkpoint)
    process.await_word("started", started + 1)
    if name is None:
        time.sleep(stop.after_s)
        if stop.kind == "stream":  # a job may be done by now
            assert process.count("ended") == ended, process.text()[logged:][-3000:]
    else:
        assert eventually(lambda: process.traps.sprung(name), PATIENCE_S), stop
    if stop.how == STOP:
        process.send(stop=True)
        if name is None:
            process.await_word("stopping", stopping + 1)
        else:
            eventually(lambda: process.count("stopping") > stopping, _LATEST_S)
            process.traps.release(name)
        process.await_word("ended", ended + 1)
    else:
        number = signal.SIGINT if stop.how == CTRL_C else signal.SIGTERM
        process.signal(number)
        # Python drops the KeyboardInterrupt if it is raised in a callback of Py4J's.
        while not eventually(lambda: not process.is_running, _AGAIN_S):
            process.signal(number)
        process.wait()
        if name is not None:  # the JVM waits for a process that is held
            process.traps.release(name)
    return _after(process, stop, kafka, logged)


def _after(process, stop, kafka, logged):
    began = time.monotonic()
    left, drivers = _open(kafka, f"{stop.prefix}.")
    while left and time.monotonic() - began < _SETTLED_S:
        left, drivers = _open(kafka, f"{stop.prefix}.")
    seconds = round(time.monotonic() - began, 1)
    text = process.text()[logged:]
    command = f"--prefix {stop.prefix} "
    if left:
        print(text, file=sys.stderr)
    is_documented = any(DOCUMENTED in line and command in f"{line} " for line in text.splitlines())
    return {
        **stop._asdict(),
        "open": left,
        "own_id_open": bool(drivers),
        "documented": is_documented,
        "failed_to_abort": text.count("failed to abort"),
        "seconds": seconds,
    }


def _open(kafka, prefix):
    """The ids of tasks under ``prefix`` that are open, and those of drivers."""
    left = lingering(kafka, prefix)
    drivers = [name for name in left if name.endswith(_OF_THE_DRIVER)]
    return [name for name in left if name not in drivers], drivers


def run(planned):
    """Carry out all stops; the results."""
    results = []
    with tempfile.TemporaryDirectory() as temporary, LocalKafka() as kafka:
        kafka.create_topic(_TOPIC, 3)
        folder = Path(temporary)
        process = None
        try:
            for stop in planned:
                if process is not None and stop.at == COMMIT_STARTS:
                    process.end()  # it is reached once in a driver
                if process is None or not process.is_running:
                    process = Process(folder / "driver")
                results.append(stopped(process, stop, kafka, folder))
                print(json.dumps(results[-1]), flush=True)
        finally:
            if process is not None:
                process.end()
        eventually(lambda: not _open(kafka, "stop-")[1], _DRIVER_SETTLED_S)
        left = lingering(kafka, "stop-")
    for result, stop in zip(results, planned):
        late = [i for i in left if i.startswith(f"{stop.prefix}.")]
        result["open"] = sorted({*result["open"], *late})
    return results


def main(arguments):
    """Return 0 if nothing stayed open without the documented line."""
    parser = parser_of(__doc__)
    parser.add_argument("--stops", type=int, default=_STOPS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help=f"keep the result in {_RESULTS.name}")
    arguments = parser.parse_args(arguments)
    planned = list(stops(arguments.stops, arguments.seed))
    if arguments.plan:
        return show(planned)
    results = run(planned)
    bad = [r for r in results if r["open"] and not r["documented"]]
    summary = {
        "stops": len(results),
        "by how": Counter(r["how"] for r in results),
        "by kind": Counter(r["kind"] for r in results),
        "at held points": sum(r["at"] != RANDOM for r in results),
        "that Spark could not abort": sum(r["failed_to_abort"] > 0 for r in results),
        "open": len(bad),
        "open for more than 10 s": sum(r["seconds"] > _SOON_S for r in results),
        "longest, s": max(r["seconds"] for r in results),
        "in the middle of the driver's record": sum(r["own_id_open"] for r in results),
        "documented": sum(bool(r["open"]) for r in results) - len(bad),
    }
    print(json.dumps(summary))
    if arguments.keep:
        _RESULTS.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
