"""The tables of docs/compatibility.md and docs/internals/compatibility.md, from results.json.

python -m evidence pages
"""

from __future__ import annotations

from evidence.compatibility.results import BROKER, FAILED, NO, PASSED, WHAT, WHERE, read, version
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
"""What is run against every broker: the columns of its table."""


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


def tables_of_every_run():
    """Of the page for maintainers, with a row for each combination."""
    in_spark, of_brokers = _parted()
    return {"sparks": _spark_table(in_spark), "brokers": _broker_table(of_brokers)}


PAGES = {
    DOCS / "compatibility.md": tables,
    DOCS / "internals/compatibility.md": tables_of_every_run,
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


def _spark_table(results):
    rows = []
    for spark in SPARKS:
        for where in WHERE:
            cells = [_cell_of_spark(results, spark, where, what) for what in WHAT]
            here = [r for r in results if minor(r.spark) == spark and r.where == where]
            if here or any(cell != "not tested" for cell in cells):
                rows.append([spark, where, *cells, *_with_what(here)])
    return table(["Spark", "where", *WHAT, "versions", "command"], rows)


def _cell_of_spark(results, spark, where, what):
    here = [r for r in results if (minor(r.spark), r.where) == (spark, where)]
    return _cell([r for r in here if r.what == what], here)


def _cell(of_cell, of_row):
    """ "tested", with the versions if they are fewer than those of the row; or "no" and why."""
    failed = [r for r in of_cell if r.outcome == FAILED]
    if failed:
        return f"no: failed with {_versions(failed)}"
    seen = {r.reason for r in of_cell if r.outcome == NO}
    passed = [r for r in of_cell if r.outcome == PASSED]
    if not passed:
        return f"no: {' '.join(sorted(seen))}" if seen else "not tested"
    here = _versions(passed, of_row)
    return f"tested ({here})" if here else "tested"


def _versions(results, of_row=None):
    """Of Spark, Python and Kafka; with ``of_row``, only what is not the same there."""
    texts = []
    for field in ("spark", "python", "kafka"):
        mine, theirs = (_sorted(_all(field, some)) for some in (results, of_row or []))
        if mine and mine != theirs:
            texts.append(f"{field.capitalize()} {', '.join(mine)}")
    return ", ".join(texts)


def _all(field, results):
    versions = {str(getattr(result, field)) for result in results} - {""}
    return {minor(text) for text in versions} if field == "python" else versions


def _with_what(results):
    """The last two cells of a row: versions and commands."""
    commands = ", ".join(f"`{command}`" for command in sorted({r.command for r in results}))
    return [_versions(results), commands]


def _sorted(versions):
    return sorted(versions, key=version)


def _broker_table(results):
    rows = []
    for kafka in _sorted({r.kafka for r in results}):
        of_kafka = [r for r in results if r.kafka == kafka]
        cells = [_cell([r for r in of_kafka if r.what == what], of_kafka) for what in BROKER_WHAT]
        commands = ", ".join(f"`{command}`" for command in sorted({r.command for r in of_kafka}))
        pythons = ", ".join(_sorted(_all("python", of_kafka)))
        rows.append([kafka, *cells, pythons, commands])
    return table(["Kafka", *BROKER_WHAT, "Python", "command"], rows)
