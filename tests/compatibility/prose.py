"""The sentences of docs/compatibility.md."""

from __future__ import annotations

from typing import NamedTuple

HEAD = """\
# What it runs with

Generated from the results of test runs by `python -m tests.compatibility.table`; do not edit.

"tested" means: the command at the end of the row was run, with the versions beside it, and every
record was read back by another client. What does not work is a "no", with the reason. "not tested"
is what nobody has run yet.
"""

SPARK = """\
## Spark

Where the sink runs: "local" is `local[…]`; "local-cluster" is Spark's own, with executors in
processes of their own; "standalone" is a master and two workers, with the driver outside
("client") or in the cluster ("cluster"); "connect" is a client of a Spark Connect server.
"""

BROKERS = """\
## Kafka brokers

Apache Kafka's brokers as they are on Maven Central, each started and written to.
"""


class Runtime(NamedTuple):
    """A managed Spark: what its documentation says of versions."""

    name: str
    spark: str
    python: str
    source: str
    note: str = ""


class Runtimes(NamedTuple):
    """The last section."""

    text: str
    rows: tuple[Runtime, ...]


RUNTIMES = Runtimes(
    """\
## Managed Spark

Which Spark these runtimes have is what their documentation says; nothing was run on them. What was
tested with that version of Apache Spark stands beside it.
""",
    (
        Runtime(
            "Databricks Runtime 18",
            "4.1.0",
            "3.12",
            "https://docs.databricks.com/aws/en/release-notes/runtime/18.0",
        ),
    ),
)
