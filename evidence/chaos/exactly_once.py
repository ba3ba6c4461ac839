"""Exactly-once against three real brokers and real Spark, both killed at every step.

python -m evidence exactly-once                          # all versions, and the control
python -m evidence exactly-once --versions 4.4.0 --guarantees exactly-once --only task

A query of 400 micro-batches is killed and started again, and its brokers are killed, stopped, cut
off from each other. It is read back what readers of committed records find, and what Kafka's own
tool lists as open. Writes evidence/chaos/exactly_once_results.json and the table in docs/internals/reliability.md.
Runs against several versions may go on beside each other.
"""

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

from evidence.chaos.query_faults import IN_ONE_PROCESS, WITH_SPECULATION
from evidence.chaos.table import write_exactly_once
from evidence.harness.driver import IN_ONE_JVM, SparkDriver
from evidence.harness.jobs import judge
from evidence.harness.planning import parser_of, show
from evidence.harness.scene import EndOffsets, Scene, Watch, lingering, linked_brokers
from evidence.harness.standalone import SPECULATION, on_two_hosts
from spark_kafka_sink.localkafka.cluster import PORTS_VARIABLE, usual_ports

MICRO_BATCHES = 400
ROWS_PER_BATCH = 800
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
VERSIONS = ("4.4.0", "4.1.2", "3.9.1")
"""Versions with a whole run in the stored results."""
_PARTITIONS = 6
_BETWEEN_FAULTS = 2
_REPOSITORY = Path(__file__).resolve().parents[2]


def options_of(guarantee, servers, topic):
    """The sink's. The control calls the traps where it can."""
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        # What a task has appended is sent at once, so that it can die with a part of it written.
        "kafka.linger.ms": "0",
        "kafka.batch.size": "2048",
        "delivery.guarantee": guarantee,
    }
    if guarantee == EXACTLY_ONCE:
        return {**options, "transactional.id.prefix": topic}
    return {**options, "interceptors": "evidence.harness.crash:Interceptor"}


def suffer(scene, faults, micro_batches):
    """All faults, one after the other; there must be rows left for the last one."""
    events = []
    for fault in faults:
        scene.run_on(_BETWEEN_FAULTS)
        at, started = scene.driver.committed + 1, time.monotonic()
        assert at < micro_batches, f"{fault.what}: no rows are left"
        event = {"kind": fault.kind, "what": fault.what, "batch_id": at}
        event.update(fault.happen(scene))
        event["seconds"] = round(time.monotonic() - started, 1)
        print(json.dumps(event), flush=True)
        events.append(event)
    return events


def run(brokers, guarantee, micro_batches, only, folder):
    """One query, from its first micro-batch to its last; what came out."""
    kafka = brokers.kafka
    topic = f"chaos-{guarantee}"
    kafka.create_topic(topic, _PARTITIONS, configs={"min.insync.replicas": "2"})
    servers = kafka.bootstrap_servers
    records = micro_batches * ROWS_PER_BATCH
    driver = SparkDriver(
        folder / "query",
        options_of(guarantee, servers, topic),
        ROWS_PER_BATCH,
        records,
        folder / "checkpoint",
    )
    watch = Watch(EndOffsets(servers, topic, _PARTITIONS), lambda: driver.committed)
    prefix = topic if guarantee == EXACTLY_ONCE else None
    scene = Scene(brokers, driver, watch, topic, prefix)
    started = time.monotonic()
    try:
        events = []
        faults = [f for f in WITH_SPECULATION if only in f.what]
        if faults:
            environment = {**driver.traps.environment, "PYTHONPATH": str(_REPOSITORY)}
            with on_two_hosts(folder, environment) as cluster:
                driver.conf = {**SPECULATION, "spark.master": cluster.master}
                driver.start()
                events += suffer(scene, faults, micro_batches)
                assert driver.stop() == 0, driver.tail()
        driver.conf = {"spark.master": IN_ONE_JVM}
        driver.start()
        events += suffer(scene, [f for f in IN_ONE_PROCESS if only in f.what], micro_batches)
        scene.until(lambda: driver.committed >= micro_batches + 1, "last micro-batch")
        assert driver.stop() == 0, driver.tail()
        left_open = [] if prefix is None else lingering(kafka, f"{prefix}.")
    finally:
        watch.close()
        driver.clean_up()
    verdict = judge(servers, topic, _PARTITIONS, records)
    return {
        "kafka": kafka.version,
        "guarantee": guarantee,
        "micro_batches": micro_batches,
        "records": records,
        **verdict._asdict(),
        "left_open": left_open,
        "driver_kills": scene.kills,
        **summary(events),
        "attempts": scene.attempts_count(),
        "failures": scene.failures,
        "commit_ms": _commit_ms(driver),
        "seconds": round(time.monotonic() - started),
        "events": events,
    }


def summary(events):
    """How often what happened, and the worst of what was measured."""
    told = {
        "faults": dict(Counter(e["kind"] for e in events)),
        "looked_for_open": sum("lingering" in e for e in events),
        "found_open": [i for e in events for i in e.get("lingering", [])],
    }
    for name in ("recovery_s", "reader_lag_s", "reader_lag_batches"):
        values = [e[name] for e in events if name in e]
        if values:
            told[name] = {"median": statistics.median(values), "max": max(values)}
    return told


def _commit_ms(driver):
    values = [e["commit_ms"] for e in driver.events() if e.get("transactions")]
    return {"median": statistics.median(values), "max": max(values)} if values else None


def is_good(result):
    """Exactly once, or for the control: the faults could be seen."""
    if result["guarantee"] == AT_LEAST_ONCE:
        return not result["lost"] and result["doubled"] > 0
    wrong = result["lost"] or result["doubled"] or result["out_of_order"]
    return not (wrong or result["left_open"] or result["found_open"])


def ports_of(version):
    """Where its brokers find their ports: brokers of a run beside this one, against another version,
    may be killed and started again, and must find theirs free.
    """
    ports = usual_ports()
    share = len(ports) // (len(VERSIONS) + 1)
    index = VERSIONS.index(version) if version in VERSIONS else len(VERSIONS)
    first = ports.start + index * share
    return f"{first}-{first + share - 1}"


def main(words=None):
    parser = parser_of(__doc__)
    parser.add_argument("--versions", nargs="*", default=list(VERSIONS))
    parser.add_argument("--guarantees", nargs="*", default=[EXACTLY_ONCE, AT_LEAST_ONCE])
    parser.add_argument("--micro-batches", type=int, default=MICRO_BATCHES)
    parser.add_argument("--only", default="", help="faults whose description has this text")
    arguments = parser.parse_args(words)
    is_whole = arguments.micro_batches >= MICRO_BATCHES and not arguments.only
    if arguments.plan:
        faults = [f for f in (*WITH_SPECULATION, *IN_ONE_PROCESS) if arguments.only in f.what]
        runs = [f"{g}, Kafka {v}" for v in arguments.versions for g in arguments.guarantees]
        return show(f"{run}: {fault.what}" for run in runs for fault in faults)
    are_ports_given = PORTS_VARIABLE in os.environ
    all_good = True
    for version in arguments.versions:
        if not are_ports_given:
            os.environ[PORTS_VARIABLE] = ports_of(version)
        with linked_brokers(version) as brokers:
            for guarantee in arguments.guarantees:
                if guarantee == AT_LEAST_ONCE and version != VERSIONS[0]:
                    continue  # the control does not depend on how transactions work
                with tempfile.TemporaryDirectory() as folder:
                    result = run(
                        brokers, guarantee, arguments.micro_batches, arguments.only, Path(folder)
                    )
                print(json.dumps({k: v for k, v in result.items() if k != "events"}), flush=True)
                all_good &= is_good(result)
                if is_whole:
                    write_exactly_once([result])
    return 0 if all_good else 1
