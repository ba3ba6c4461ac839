"""Lets both producers do all work, and notes what they tell of it.

::

    python -m evidence java-metrics     # writes results.json, and docs/internals/java-metrics.md of it
"""

import json
import sys
from pathlib import Path

from evidence.harness.planning import parser_of, show
from evidence.java_metrics.producers import CLIENT_VERSION, JavaClasses, JavaProducer, OurProducer
from evidence.java_metrics.work import (
    ALL,
    JAVA_ONLY,
    PARTITIONS,
    QUOTA_BYTES_PER_S,
    WORKS,
    slow_kafka,
)
from tests.local_kafka import PatientKafka

RESULTS = Path(__file__).with_name("results.json")
THROTTLED = "throttled"


def measure(works):
    """By work, group and name: [here, Java]."""
    measured = {}
    with JavaClasses() as classes, slow_kafka(PatientKafka) as (kafka, link):
        for who in ("here", "java"):
            _limit(kafka, f"{THROTTLED}-{who}")
        for work in works:
            print(work.name, file=sys.stderr, flush=True)
            both = [_told(who, work, kafka, link, classes) for who in ("here", "java")]
            here, java = (told._asdict() for told in both)
            measured[work.name] = {
                group: {n: [here[group].get(n), java[group][n]] for n in sorted(java[group])}
                for group in java
            }
    return {"kafka": CLIENT_VERSION, "works": measured}


def _told(who, work, kafka, link, classes):
    topic = f"{work.name}-{who}"
    kafka.create_topic(topic, PARTITIONS)
    settings = {**ALL, **work.settings, "bootstrap.servers": link.address}
    if who == "java":
        settings |= JAVA_ONLY
    if work.name == THROTTLED:
        settings["client.id"] = f"{THROTTLED}-{who}"
    link.delay_ms = work.delay_ms
    make = (
        (lambda: JavaProducer(settings, topic, classes))
        if who == "java"
        else (lambda: OurProducer(settings, topic))
    )
    producer = make()
    try:
        work.do(producer, link)
        return producer.metrics()
    finally:
        link.delay_ms = 0
        producer.close()


def _limit(kafka, client_id):
    kafka.run_tool(
        "ConfigCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "--alter"),
        *("--add-config", f"producer_byte_rate={QUOTA_BYTES_PER_S}"),
        *("--entity-type", "clients", "--entity-name", client_id),
    )


def main(words=None):
    """Return 0. Without works, write what both producers tell of all of them."""
    parser = parser_of(__doc__)
    parser.add_argument("works", nargs="*", help=", ".join(work.name for work in WORKS))
    arguments = parser.parse_args(words)
    chosen = [work for work in WORKS if work.name in arguments.works or not arguments.works]
    if arguments.plan:
        return show(work.name for work in chosen)
    results = measure(chosen)
    if arguments.works:
        for name, groups in results["works"].items():
            for group, metrics in groups.items():
                for metric, (here, java) in metrics.items():
                    if here is not None and not metric.endswith("-rate"):
                        print(f"{name:12} {group:9} {metric:32} {here:16.4f} {java:16.4f}")
        return 0
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    from evidence.java_metrics.table import DOCUMENT, render

    DOCUMENT.write_text(render(results), encoding="utf-8")
    return 0
