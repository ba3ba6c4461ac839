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

Kafka 2.1 and newer; exactly-once 3.0 and newer. These are Apache Kafka's brokers as they are on Maven
Central; up to 3.0 they ran with ZooKeeper, then without.

- codecs: keys, values, headers, timestamps and partitions, null and empty ones too, were read back
  by confluent-kafka as they were written, and the broker's log has them in that codec;
- idempotence: sequences in the broker's log; acks of 0 and 1 without it; a producer that the broker
  has forgotten, as Kafka before 2.4 does when retention has deleted its records;
- restart: the broker was killed with SIGKILL and started again in the middle of a task: all records
  once and in order;
- topic creation: `topic.creation.enable`. Before Kafka 2.4 with numbers of partitions and replicas,
  as those brokers have no defaults for it;
- transactions: exactly-once's own, committed, aborted, and finished by the next driver after the
  broker was killed;
- operators' commands: `pykafka-sink transactions`.

[kfake](reliability.md#brokers-that-share-no-code-with-kafkas), brokers that share no code with Apache
Kafka, were written to with the requests of each Kafka from 2.1 to 4.2.

Brokers before Kafka 2.4 have no error of their own for a record without key in a compacted topic: it
is tried again until `kafka.delivery.timeout.ms`, and the message then says what it may be.
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
