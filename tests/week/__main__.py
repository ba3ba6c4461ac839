"""All capabilities together under a seeded schedule of faults.

python -m tests.week --seed 1 --minutes 60 [--kafka 3.9.1] [--workloads avro topics] [--keep]
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from spark_kafka_sink.localkafka import DEFAULT_VERSION
from tests.week import alarms, slopes
from tests.week.checkers import check_all
from tests.week.page import keep, problems_of
from tests.week.schedule import FAULTS, Schedule, names_for
from tests.week.spark_reading import read_by_spark
from tests.week.watch import Watch
from tests.week.workloads import ROWS_PER_JOB, WORKLOADS
from tests.week.world import World


def run(arguments, folder):
    """One week; what came out of it."""
    started = time.monotonic()
    names = names_for(arguments.faults, arguments.workloads, arguments.kafka)
    schedule = Schedule(arguments.seed, names)
    # The first SIGTERM ends the faults, and the verdict follows; another one cleans up and exits.
    signal.signal(signal.SIGTERM, lambda *_: schedule.end_early() or sys.exit(143))
    with World(folder, arguments) as world:
        world.driver.start()
        world.driver.await_started()
        watch = Watch(world)
        watch.start()
        world.feed.start()
        assert not world.await_progress(), world.driver.text()[-3000:]
        note(f"all workloads write, {time.monotonic() - started:.0f} s after the start")
        suffering = time.monotonic()
        schedule.suffer(world, arguments.minutes)
        minutes = round((time.monotonic() - suffering) / 60, 1)
        rows = world.feed.stop()
        ending = time.monotonic()
        status = world.driver.finish()
        seconds_to_end = round(time.monotonic() - ending)
        note(f"the driver ended by itself after {seconds_to_end} s, with {status}")
        expected = dict.fromkeys(arguments.workloads, rows)
        expected["backfill"] = world.jobs_done("backfill") * ROWS_PER_JOB
        watch.stop()
        note("reading back")
        verdicts = check_all(world, expected, world.deleted)
        return {
            "seconds_per_file": arguments.seconds_per_file,
            "seed": arguments.seed,
            "minutes": minutes,
            "kafka": arguments.kafka,
            "faults": names,
            "verdicts": verdicts,
            "spark": read_by_spark(world.servers, exactly_once_topics(world)),
            "end": {"status": status, "seconds": seconds_to_end},
            "alarms": alarms.judge(watch.alarms, schedule.events),
            "slopes": slopes.judge(watch.samples, watch.counts),
            "producer_ids": [c["producer_ids"] for c in watch.counts if "producer_ids" in c],
            "scrapes": watch.scrapes,
            "metrics_lines": watch.lines,
            "same_rack": watch.same_rack,
            "driver_starts": world.driver.starts,
            "driver_deaths": world.deaths,
            "failures": world.driver.failures(),
            "events": schedule.events,
            "seconds": round(time.monotonic() - started),
        }


def exactly_once_topics(world):
    return [w.topics[0] for w in world.workloads if w.is_exactly_once]


def note(text):
    print(time.strftime("%H:%M:%S"), text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kafka", default=DEFAULT_VERSION)
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument(
        "--seconds-per-file", type=float, default=5, help="of 1,000 rows; more on a slow machine"
    )
    parser.add_argument("--keep", action="store_true", help="write results.json and the page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="week-") as folder:
        result = run(arguments, Path(folder))
    print(json.dumps(result, indent=1))
    problems = problems_of(result)
    for problem in problems:
        note(problem)
    if arguments.keep:
        keep(result)
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
