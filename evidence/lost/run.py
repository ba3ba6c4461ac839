"""Executors, Python workers and nodes that are lost while a batch or a stream writes to a real Kafka.

python -m evidence lost                                   # 20 runs of each kill, 3 of the rest
python -m evidence lost --missing --keep                  # what an interruption has left
python -m evidence lost --faults node --jobs stream --guarantees exactly-once --runs 1

Each run writes 100,000 rows on a standalone cluster of two workers, and something is lost at an
instant that its number chooses. What is in the topic then is read back by another client. Writes
evidence/lost/results.json and the table in docs/internals/reliability.md.
"""

import json
import random
import tempfile
import threading
import time
from itertools import groupby
from pathlib import Path

from evidence.chaos.table import LOST, read, write_lost
from evidence.harness.jobs import JOBS, dead_letter_topic, judge_job
from evidence.harness.planning import parser_of, show
from evidence.harness.scene import lingering, proxied_kafka
from evidence.lost.faults import (
    AT_LEAST_ONCE,
    CONFS,
    DYNAMIC,
    EXACTLY_ONCE,
    FAULTS,
    KILLS,
    PARTITIONS,
    RECORDS,
    application,
    await_instant,
    choose,
)

_KEY = ("fault", "job", "guarantee", "number")
RUNS_OF_KILLS, RUNS_OF_OTHERS = 20, 3
_MOST_ATTEMPTS = 5


class Running:
    """A job in a thread: Spark waits in it for its end."""

    def __init__(self, app, job, options, fault):
        self.failure = ""
        self._app = app
        self._run = lambda: JOBS[job](app.spark, options, RECORDS, fault.shape, app.folder)
        self._thread = threading.Thread(target=self._note_failure)
        self._thread.start()

    def _note_failure(self):
        try:
            # Spark finds Python data sources only in threads that have an active session.
            self._app.spark.createDataFrame([], "id BIGINT")
            self._run()
        except Exception as error:
            self.failure = str(error)[:600]

    def is_over(self):
        return not self._thread.is_alive()

    def join(self):
        self._thread.join()


def suffer(app, fault, key, running, topic):
    """What was done to the job, and when; ``missed`` if it had ended before."""
    _, job, guarantee, _ = key
    rng = random.Random(topic)
    if fault.meanwhile is not None:
        return fault.meanwhile(app, rng, running.is_over)
    instant = choose(rng, job, guarantee, fault.of_tasks, fault.only_point)
    held = await_instant(app, instant, topic, running.is_over)
    if held is None:
        return {"instant": str(instant), "missed": True}
    try:
        return {"instant": str(instant), **fault.happen(app, held, rng)}
    finally:
        if held.trap is not None:
            app.traps.release(held.trap)


def run(app, key):
    """One job and its fault; what came out of it.

    A job that had ended before its instant came shows nothing: it is run again, with another.
    """
    topic = "-".join(map(str, key)).replace(" ", "-")
    result = run_once(app, key, topic)
    for attempt in range(1, _MOST_ATTEMPTS):
        if not result.get("missed"):
            break
        result = run_once(app, key, f"{topic}-attempt-{attempt}")
    return result


def run_once(app, key, topic):
    """Into ``topic``, whose name decides the instant."""
    name, job, guarantee, number = key
    fault = FAULTS[name]
    if fault.group != DYNAMIC:
        app.make_whole()
    app.kafka.create_topic(topic, PARTITIONS)
    app.kafka.create_topic(dead_letter_topic(topic), PARTITIONS)
    started = time.monotonic()
    running = Running(app, job, app.options(topic, guarantee, fault.is_proxied), fault)
    try:
        note = suffer(app, fault, key, running, topic)
    finally:
        running.join()
    seconds = round(time.monotonic() - started, 1)
    if "missed" not in note:
        fault.after(app, note)
    servers, metrics = app.kafka.bootstrap_servers, app.metrics(topic)
    verdict = judge_job(job, servers, topic, PARTITIONS, RECORDS, metrics)
    return {
        "fault": name,
        "what": fault.what,
        "job": job,
        "guarantee": guarantee,
        "number": number,
        "topic": topic,
        **note,
        **verdict,
        "seconds": seconds,
        "failure": running.failure,
    }


def is_good(result):
    """Nothing lost or miscounted; with exactly-once nothing doubled, out of order or left open."""
    wrong = result["lost"] or result.get("miscounted") or result["failure"]
    wrong = wrong or result.get("missed")
    if result["guarantee"] == EXACTLY_ONCE or FAULTS[result["fault"]].is_exact:
        wrong = wrong or result["doubled"] or result["out_of_order"] or result.get("left_open")
    return not wrong


def look_for_open(kafka, results):
    """Note what Kafka's own tool lists as open under each run's prefix."""
    found = lingering(kafka, "")
    for result in results:
        if result["guarantee"] == EXACTLY_ONCE:
            result["left_open"] = [i for i in found if i.startswith(f"{result['topic']}.")]


def keys_of(arguments, group):
    """All runs on one application, so that an interruption leaves some of each kind."""
    runs = {
        name: arguments.runs or (RUNS_OF_KILLS if name in KILLS else RUNS_OF_OTHERS)
        for name in arguments.faults
        if FAULTS[name].group == group
    }
    done = {tuple(r[k] for k in _KEY) for r in read(LOST)} if arguments.missing else set()
    return [
        (name, job, guarantee, number)
        for number in range(arguments.first, arguments.first + max(runs.values(), default=0))
        for name in runs
        if number < arguments.first + runs[name]
        for job in arguments.jobs
        for guarantee in arguments.guarantees
        if (name, job, guarantee, number) not in done
    ]


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--jobs", nargs="*", default=list(JOBS))
    parser.add_argument("--guarantees", nargs="*", default=[EXACTLY_ONCE, AT_LEAST_ONCE])
    parser.add_argument("--runs", type=int, default=0, help="of each; 0: 20 of kills, 3 of others")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--missing", action="store_true", help="only runs that are not kept")
    parser.add_argument("--keep", action="store_true", help="write results and table")
    arguments = parser.parse_args(words)
    if arguments.plan:
        return show(key for group in CONFS for key in keys_of(arguments, group))
    results = []
    with proxied_kafka(1) as (kafka, (proxy,)), tempfile.TemporaryDirectory() as folder:
        for group, conf in CONFS.items():
            rounds = [list(keys) for _, keys in groupby(keys_of(arguments, group), lambda k: k[3])]
            if not rounds:
                continue
            with application(kafka, proxy, Path(folder) / group.replace(" ", "-"), conf) as app:
                for keys in rounds:
                    for key in keys:
                        results.append(run(app, key))
                        print(json.dumps(results[-1]), flush=True)
                    keep(kafka, results, arguments.keep)
        keep(kafka, results, arguments.keep)
    bad = [result for result in results if not is_good(result)]
    for result in bad:
        print("not as it must be:", json.dumps(result), flush=True)
    return 1 if bad else 0


def keep(kafka, results, is_asked):
    """So that what an interruption leaves is whole. What is open is looked for again later: an
    attempt that was killed may not have ended yet.
    """
    look_for_open(kafka, results)
    if is_asked:
        write_lost(results)
