"""Write docs/compatibility.md and docs/internals/compatibility.md from results.json.

python -m tests.compatibility.table
"""

from pathlib import Path

from tests.compatibility.prose import (
    BROKERS,
    BROKERS_NOTE,
    EVERY_RUN,
    HEAD,
    RUNTIMES,
    SERVICES,
    SPARK,
    SPARK_NOTE,
    SUMMARY_OF_BROKERS,
    SUMMARY_OF_SPARK,
)
from tests.compatibility.refused import IN_BROKERS, IN_SPARK
from tests.compatibility.results import (
    BROKER,
    FAILED,
    NO,
    PASSED,
    WHAT,
    WHERE,
    read,
    version,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
EVERY_RUN_DOCUMENT = DOCUMENT.parent / "internals" / "compatibility.md"

_WITH_DATA_SOURCES = (4, 0)
SPARKS = ("3.5", "4.0", "4.1", "4.2", "4.3")
BROKER_WHAT = (
    "codec none",
    "codec gzip",
    "codec snappy",
    "codec lz4",
    "codec zstd",
    "idempotence",
    "restart",
    "topic creation",
    "transactions",
    "operators' commands",
)
"""What is run against every broker: the columns of its table."""


def minor(text):
    """Of "4.0.2" its "4.0"."""
    return ".".join(text.split(".")[:2])


def render(results):
    """Return the page for users."""
    everything = list(results)
    in_spark = [result for result in everything if result.where != BROKER]
    of_brokers = [result for result in everything if result.where == BROKER]
    parts = [HEAD, SUMMARY_OF_SPARK, _spark_summary(in_spark), SPARK_NOTE]
    parts += [SUMMARY_OF_BROKERS, _broker_summary(of_brokers), BROKERS_NOTE]
    parts += [RUNTIMES.text, _runtimes_table(RUNTIMES.rows, in_spark)]
    parts.append(SERVICES)
    return "\n".join(part.strip() + "\n" for part in parts)


def render_every_run(results):
    """Return the page for maintainers, with a row for each combination."""
    everything = list(results)
    in_spark = [result for result in everything if result.where != BROKER]
    of_brokers = [result for result in everything if result.where == BROKER]
    parts = [EVERY_RUN, SPARK, _spark_table(in_spark), BROKERS, _broker_table(of_brokers)]
    return "\n".join(part.strip() + "\n" for part in parts)


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
    return _table(["Spark", "Python", "Kafka", "tested in", "not there"], rows)


def _broker_summary(results):
    rows = []
    for kafka in _sorted({r.kafka for r in results}):
        of_kafka = {r.what: r.outcome for r in results if r.kafka == kafka}
        once = of_kafka.get("transactions") == PASSED
        others = {what for what, outcome in of_kafka.items() if outcome == PASSED}
        others -= {"transactions", "operators' commands"}
        is_whole = others == set(BROKER_WHAT) - {"transactions", "operators' commands"}
        all_else = "tested" if is_whole else ", ".join(sorted(others)) or "not tested"
        rows.append([kafka, all_else, "tested" if once else "no"])
    return _table(["Kafka", "at-least-once", "exactly-once"], rows)


def _spark_table(results):
    rows = []
    for spark in SPARKS:
        for where in WHERE:
            cells = [_cell_of_spark(results, spark, where, what) for what in WHAT]
            here = [r for r in results if minor(r.spark) == spark and r.where == where]
            if here or any(cell != "not tested" for cell in cells):
                rows.append([spark, where, *cells, *_with_what(here)])
    return _table(["Spark", "where", *WHAT, "versions", "command"], rows)


def _cell_of_spark(results, spark, where, what):
    here = [r for r in results if (minor(r.spark), r.where) == (spark, where)]
    return _cell([r for r in here if r.what == what], here, IN_SPARK.get((spark, where, what)))


def _cell(of_cell, of_row, refused):
    """ "tested", with the versions if they are fewer than those of the row; or "no" and why."""
    failed = [r for r in of_cell if r.outcome == FAILED]
    if failed:
        return f"no: failed with {_versions(failed)}"
    seen = {r.reason for r in of_cell if r.outcome == NO}
    passed = [r for r in of_cell if r.outcome == PASSED]
    if not passed:
        return f"no: {refused or ' '.join(sorted(seen))}" if refused or seen else "not tested"
    assert not refused, f"{passed[0]} passed, and refused.py says that it cannot"
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
    for kafka in _sorted({r.kafka for r in results} | {kafka for kafka, _ in IN_BROKERS}):
        of_kafka = [r for r in results if r.kafka == kafka]
        cells = [
            _cell([r for r in of_kafka if r.what == what], of_kafka, IN_BROKERS.get((kafka, what)))
            for what in BROKER_WHAT
        ]
        commands = ", ".join(f"`{command}`" for command in sorted({r.command for r in of_kafka}))
        pythons = ", ".join(_sorted(_all("python", of_kafka)))
        rows.append([kafka, *cells, pythons, commands])
    return _table(["Kafka", *BROKER_WHAT, "Python", "command"], rows)


def _runtimes_table(runtimes, results):
    rows = []
    for runtime in runtimes:
        same = [r for r in results if minor(r.spark) == minor(runtime.spark)]
        passed = {r.what for r in same if r.outcome == PASSED}
        tested = ", ".join(what for what in WHAT if what in passed) or "nothing yet"
        name = f"[{runtime.name}]({runtime.source})"
        use = "the functions" if version(runtime.spark) < _WITH_DATA_SOURCES else "the format"
        rows.append([name, runtime.spark, runtime.python or "–", tested, use])
    return _table(["runtime", "Spark", "Python", "tested with this Spark", "write with"], rows)


def _table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    DOCUMENT.write_text(render(read()), encoding="utf-8")
    EVERY_RUN_DOCUMENT.write_text(render_every_run(read()), encoding="utf-8")
