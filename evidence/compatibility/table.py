"""The tables of docs/compatibility.md, from results.json.

python -m evidence pages
"""

from __future__ import annotations

from evidence.compatibility.results import BROKER, PASSED, WHAT, WHERE, read, version
from evidence.harness.pages import DOCS, table

NOT_IN_3_5 = (
    "Spark 3.5 has no data sources in Python that write: foreachBatch with "
    "`spark_kafka_sink.batch_writer` writes streams"
)
"""Of streams, wherever Spark 3.5 runs; tests see that Spark refuses them."""
SPARKS = ("3.5", "4.0", "4.1", "4.2", "4.3")
_SINCE_3_0 = ("transactions", "operators' commands")
BROKER_WHAT = (
    *(f"codec {name}" for name in ("none", "gzip", "snappy", "lz4", "zstd")),
    *("idempotence", "restart", "topic creation", *_SINCE_3_0),
)
"""What is run against every broker."""


def minor(text):
    """Of "4.0.2" its "4.0"."""
    return ".".join(text.split(".")[:2])


def _parted():
    results = read()
    in_spark = [result for result in results if result.where != BROKER]
    return in_spark, [result for result in results if result.where == BROKER]


def tables():
    """Of the page for users."""
    in_spark, of_brokers = _parted()
    return {"sparks": _spark_summary(in_spark), "brokers": _broker_summary(of_brokers)}


PAGES = {
    DOCS / "compatibility.md": tables,
}


def _spark_summary(results):
    rows = []
    for spark in SPARKS:
        of_spark = [r for r in results if minor(r.spark) == spark]
        passed = [r for r in of_spark if r.outcome == PASSED]
        where = [where for where in WHERE if any(r.where == where for r in passed)]
        missing = sorted(
            {r.what for r in of_spark if r.outcome != PASSED},
            key=WHAT.index,
        )
        versions = [_sorted(_all(field, passed)) for field in ("spark", "python", "kafka")]
        cells = [", ".join(found) for found in versions]
        rows.append([*cells, ", ".join(where), ", ".join(missing) or "–"])
    return table(["Spark", "Python", "Kafka", "tested in", "not there"], rows)


def _broker_summary(results):
    rows = []
    for kafka in _sorted({r.kafka for r in results}):
        of_kafka = {r.what: r.outcome for r in results if r.kafka == kafka}
        once = of_kafka.get("transactions") == PASSED
        others = {what for what, outcome in of_kafka.items() if outcome == PASSED}
        others -= {*_SINCE_3_0}
        is_whole = others == set(BROKER_WHAT) - {*_SINCE_3_0}
        all_else = "tested" if is_whole else ", ".join(sorted(others)) or "not tested"
        rows.append([kafka, all_else, "tested" if once else "no"])
    return table(["Kafka", "at-least-once", "exactly-once"], rows)


def _all(field, results):
    versions = {str(getattr(result, field)) for result in results} - {""}
    return {minor(text) for text in versions} if field == "python" else versions


def _sorted(versions):
    return sorted(versions, key=version)
