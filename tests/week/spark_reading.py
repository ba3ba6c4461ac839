"""What Spark's own Kafka source finds in topics, as a reader of committed records.

``python -m tests.week.spark_reading SERVERS TOPIC…`` prints a JSON document: rows, and rows without
copies, by topic.
"""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def read_by_spark(servers, topics):
    """Run this module in a process of its own; return what it prints."""
    command = [sys.executable, "-m", "tests.week.spark_reading", servers, *topics]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def main(servers, topics):
    from tests.spark.session import spark_session

    found = {}
    with spark_session() as spark:
        for topic in topics:
            rows = (
                spark.read.format("kafka")
                .option("kafka.bootstrap.servers", servers)
                .option("kafka.isolation.level", "read_committed")
                .option("subscribe", topic)
                .load()
            )
            [counts] = rows.selectExpr(
                "count(*) as rows", "count(distinct value) as once"
            ).collect()
            found[topic] = counts.asDict()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
