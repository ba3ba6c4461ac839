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
processes of their own; "standalone" is a master and two workers, "yarn" Hadoop's MiniYARNCluster,
with the driver outside ("client") or in the cluster ("cluster"); "connect" is a client of a Spark
Connect server on a standalone cluster. On Spark 3.5 all is written by the functions of
[spark-versions.md](spark-versions.md).
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
  once and in order. 2.1 and 2.8 also in pairs, each broker leading in turn after clean shutdowns and
  kills;
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
    """A managed Spark: what its documentation says of versions. ``python`` empty: nothing."""

    name: str
    spark: str
    python: str
    source: str


class Runtimes(NamedTuple):
    """The last section."""

    text: str
    rows: tuple[Runtime, ...]


_GLUE = "https://docs.aws.amazon.com/glue/latest/dg"
_EMR = "https://docs.amazonaws.cn/en_us/emr/latest/ReleaseGuide"
_DATABRICKS = "https://docs.databricks.com/aws/en/release-notes/runtime/"
_FABRIC = "https://learn.microsoft.com/fabric/data-engineering"

RUNTIMES = Runtimes(
    """\
## Managed Spark

Which Spark these runtimes have is what their documentation says; nothing was run on them. Beside it
stands what was tested with that version of Apache Spark, and what to write with:
`format("pykafka-sink")` from Spark 4.0 on, the functions of [spark-versions.md](spark-versions.md) on 3.5.
""",
    (
        Runtime("AWS Glue 6.0", "4.1.1", "3.13", f"{_GLUE}/migrating-version-60.html"),
        Runtime("AWS Glue 5.1", "3.5.6", "3.11", f"{_GLUE}/release-notes.html"),
        Runtime(
            "Amazon EMR emr-spark-8.0.0",
            "4.0.2",
            "3.11 to 3.13",
            f"{_EMR}/emr-spark800-release.html",
        ),
        Runtime("Amazon EMR 7.13", "3.5.6", "", f"{_EMR}/Spark-release-history.html"),
        Runtime("Databricks Runtime 18.0", "4.1.0", "", _DATABRICKS),
        Runtime("Databricks Runtime 17.3 LTS", "4.0.0", "", _DATABRICKS),
        Runtime("Databricks Runtime 16.4 LTS", "3.5.2", "", _DATABRICKS),
        Runtime(
            "Fabric Runtime 2.0", "4.1", "3.13", f"{_FABRIC}/troubleshoot-spark-sql-schema-errors"
        ),
        Runtime("Fabric Runtime 1.3", "3.5", "3.11", f"{_FABRIC}/runtime-1-3"),
    ),
)

SERVICES = """\
## Managed Kafka

Nothing was run on these; what their documentation says, and what follows from it:

- **Amazon MSK** runs [Apache Kafka's own versions](https://docs.aws.amazon.com/msk/latest/developerguide/supported-kafka-versions.html),
  by that page 3.7 to 4.0 for new clusters: brokers as those in the table above.
- **Azure Event Hubs** is another implementation, behind Kafka's protocol.
  [It takes no compression but gzip](https://learn.microsoft.com/azure/event-hubs/apache-kafka-troubleshooting-guide),
  and answers others with UNSUPPORTED_FOR_MESSAGE_FORMAT. A produce request that its quota would delay for
  longer than `kafka.request.timeout.ms` is answered with POLICY_VIOLATION, which fails the task: ask
  for more throughput, or raise the option. [Transactions](https://learn.microsoft.com/azure/event-hubs/apache-kafka-transactions)
  are a preview, in the tiers Premium and Dedicated. The sink looks for what exactly-once needs
  before it writes, and refuses without it; if idempotence is refused, there is
  `kafka.enable.idempotence=false`. Its login: [security.md](security.md#azure-event-hubs).
"""
