"""What Spark's own Kafka source finds in topics, as a reader of committed records.

``python -m evidence.week.spark_reading WORKLOADS`` prints a JSON document: rows by workload, and rows
without copies of those that write exactly once. WORKLOADS is a JSON document, too.
"""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def read_by_spark(servers, workloads):
    """Run this module in a process of its own; return what it prints, or why it did not."""
    asked = {w.name: {"topics": w.topics, "once": w.is_exactly_once} for w in workloads}
    document = json.dumps({"servers": servers, "workloads": asked})
    command = [sys.executable, "-m", "evidence.week.spark_reading", document]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        return {name: {"error": done.stderr[-1000:]} for name in asked}
    return json.loads(done.stdout.splitlines()[-1])


def main(document):
    from tests.spark.session import spark_session

    asked = json.loads(document)
    found = {}
    with spark_session() as spark:
        for name, one in asked["workloads"].items():
            rows = (
                spark.read.format("kafka")
                .option("kafka.bootstrap.servers", asked["servers"])
                .option("kafka.isolation.level", "read_committed")
                .option("subscribe", ",".join(one["topics"]))
                .load()
            )
            counted = ["count(*) as rows"]
            if one["once"]:
                counted.append("count(distinct value) as once")
            [counts] = rows.selectExpr(*counted).collect()
            found[name] = counts.asDict()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
