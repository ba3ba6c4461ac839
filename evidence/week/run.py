"""All capabilities together under a seeded schedule of faults.

python -m evidence week --seed 1 --minutes 60 [--kafka 3.9.1] [--workloads avro topics] [--keep]
python -m evidence week --minutes 3 --faults "network cut" --planted "retry with a new sequence"

The first SIGTERM ends the faults, and the verdict follows. Another one ends everything at once.
"""

import contextlib
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from evidence.chaos.planted import BUGS
from evidence.harness.planning import parser_of, show
from evidence.week import alarms, slopes
from evidence.week.checkers import check_all
from evidence.week.page import keep, problems_of, versions
from evidence.week.schedule import FAULTS, Schedule, names_for
from evidence.week.spark_reading import REPOSITORY, read_by_spark
from evidence.week.watch import Watch
from evidence.week.workloads import ROWS_PER_JOB, WORKLOADS
from evidence.week.world import World
from spark_kafka_sink.localkafka import DEFAULT_VERSION
from tests.mutants.mutant import Tree

LONGEST_QUIET_MINUTES = 15
QUIET_SHARE = 0.2
LEAST_QUIET_MINUTES = 1


def run(arguments, folder, code):
    """One week; what came out of it."""
    started = time.monotonic()
    ran_with = versions(arguments.kafka)
    names = names_for(arguments.faults, arguments.workloads, arguments.kafka)
    schedule = Schedule(arguments.seed, names)
    signal.signal(signal.SIGTERM, lambda *_: schedule.end_early() or sys.exit(143))
    with World(folder, arguments, code) as world:
        watch = start(world)
        note(f"all workloads write, {time.monotonic() - started:.0f} s after the start")
        suffering = time.monotonic()
        schedule.suffer(world, arguments.minutes)
        minutes = round((time.monotonic() - suffering) / 60, 1)
        quiet = rest(world, schedule, arguments.quiet_minutes)
        rows = world.feed.stop()
        ending = world.finish()
        note(f"the driver ended after {ending['seconds']} s, with {ending['status']}")
        watch.stop()
        expected = dict.fromkeys(arguments.workloads, rows)
        expected["backfill"] = world.jobs_done("backfill") * ROWS_PER_JOB
        note("reading back")
        verdicts = check_all(world, expected, watch.committed)
        found = slopes.judge(watch.samples, watch.counts)
        return {
            "at": time.strftime("%Y-%m-%d", time.gmtime()),
            "seed": arguments.seed,
            "minutes": minutes,
            "quiet_minutes": quiet["minutes"],
            "versions": ran_with,
            "planted": arguments.planted,
            "lacking": world.lacking,
            "seconds_per_file": arguments.seconds_per_file,
            "faults": names,
            "verdicts": verdicts,
            "spark": read_by_spark(world.servers, world.workloads),
            "end": ending,
            "alarms": alarms.judge(watch.alarms, schedule.events, watch.elections),
            "elections": watch.elections,
            "slopes": found,
            "not_judged": slopes.not_judged(found, quiet["minutes"]),
            "producer_ids": quiet["producer_ids"],
            "scrapes": watch.scrapes,
            "metrics_lines": watch.lines,
            "same_rack": watch.same_rack,
            "driver_starts": world.driver.starts,
            "driver_deaths": world.deaths,
            "failures": world.driver.failures(),
            "watch_errors": watch.errors,
            "events": schedule.events,
            "seconds": round(time.monotonic() - started),
        }


def start(world):
    """Start all workloads; return the watch once each has committed."""
    world.driver.start()
    world.driver.await_started()
    world.watch = Watch(world)
    world.watch.start()
    world.feed.start()
    assert not world.await_progress(), world.driver.text()[-3000:]
    return world.watch


def rest(world, schedule, minutes):
    """Minutes without faults: no alarm, and no more producer ids."""
    if any(event["stuck"] or "failed" in event for event in schedule.events):
        return {"minutes": 0, "producer_ids": []}
    note(f"{minutes:.0f} minutes without faults")
    schedule.rest(world, alarms.AFTER_S / 60)
    before, began = world.producer_ids(), time.monotonic()
    schedule.rest(world, minutes)
    lasted = round((time.monotonic() - began) / 60, 1)
    return {"minutes": lasted, "producer_ids": slopes.judge_ids(before, world.producer_ids())}


def note(text):
    print(time.strftime("%H:%M:%S"), text, flush=True)


def arguments_of(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--quiet-minutes", type=float, help="at the end, without faults")
    parser.add_argument("--kafka", default=DEFAULT_VERSION)
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--planted", choices=list(BUGS), help="a bug with which a week must be red")
    parser.add_argument(
        "--seconds-per-file", type=float, default=5, help="of 1,000 rows; more on a slow machine"
    )
    parser.add_argument("--keep", action="store_true", help="write results.json and the page")
    arguments = parser.parse_args(words)
    if arguments.keep and arguments.planted:
        parser.error("a week with a planted bug is not kept")
    if arguments.quiet_minutes is None:
        share = max(QUIET_SHARE * arguments.minutes, LEAST_QUIET_MINUTES)
        arguments.quiet_minutes = min(share, LONGEST_QUIET_MINUTES)
    return arguments


@contextlib.contextmanager
def copy_with(bug, folder):
    """A copy of the checkout for driver and executors: edits during a week do not reach them.

    bug: planted into the copy; None for none
    """
    tree = Tree(REPOSITORY, folder)
    with contextlib.nullcontext() if bug is None else tree.changed_by(BUGS[bug].mutant):
        yield folder


def main(words=None):
    arguments = arguments_of(words)
    if arguments.plan:
        names = names_for(arguments.faults, arguments.workloads, arguments.kafka)
        return show((*(f"workload {name}" for name in arguments.workloads), *names))
    with tempfile.TemporaryDirectory(prefix="week-") as name:
        folder = Path(name)
        with copy_with(arguments.planted, folder / "code") as code:
            result = run(arguments, folder, code)
    result["problems"] = problems_of(result)
    print(json.dumps(result, indent=1))
    if result["lacking"]:
        note(f"this machine lacks {', '.join(result['lacking'])}")
    for problem in result["problems"]:
        note(problem)
    if arguments.keep:
        keep(result)
    return 1 if result["problems"] else 0
