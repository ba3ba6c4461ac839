"""The tables of docs/internals/scale.md.

python -m tests.chaos.scale_table     # from the JSON files of spark_scale.py and fleet_storms.py
"""

from pathlib import Path

from tests.chaos import spark_scale
from tests.chaos.table import read, replaced
from tests.simulation import fleet_storms

DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "scale.md"


def jobs_table(costs):
    """One row per job."""
    lines = [
        "| job | rows | seconds | before the first task, ms | after the last task, ms "
        "| of it transactions, ms | commit message, bytes | largest worker, MiB "
        "| connections at once | connections made | metadata requests | produce requests "
        "| InitProducerId |",
        "| --- |" + " ---: |" * 12,
    ]
    for cost in costs:
        counted = cost["requests"]
        commit_ms = "" if cost["commit_ms"] is None else f"{cost['commit_ms']:,.0f}"
        lines.append(
            f"| {cost['job']} | {cost['records']:,} | {cost['seconds']:,} | {cost['before_ms']:,} "
            f"| {cost['after_ms']:,} | {commit_ms} | {cost['message_bytes']:,} "
            f"| {cost['worker_peak_mib']:.0f} | {cost['connections_peak']} "
            f"| {counted['connections']:,} | {counted['metadata']:,} | {counted['produce']:,} "
            f"| {counted['init_producer_id']:,} |"
        )
    return "\n".join(lines)


def storms_table(results):
    """One row per fleet and step."""
    lines = [
        "| producers | connections are | step | all acknowledged after, s | half after, s "
        "| connections made | most at one broker in 0.1 s | given up "
        "| longest wait for a broker's thread, s | metadata requests | most in 0.1 s | failed |",
        "| ---: | --- | --- |" + " ---: |" * 9,
    ]
    for result in results:
        for name, step in result["steps"].items():
            lines.append(
                f"| {result['producers']:,} | {result['connections are']} | {name} "
                f"| {step['last_ms'] / 1000:.1f} | {step['median_ms'] / 1000:.1f} "
                f"| {step['connections']:,} | {step['connections_peak']:,} | {step['given_up']:,} "
                f"| {step['longest_wait_of_a_broker_ms'] / 1000:.1f} "
                f"| {step['metadata_requests']:,} | {step['metadata_peak']:,} | {step['failed']} |"
            )
    return "\n".join(lines)


def render(text):
    """The document with its tables as they are now."""
    text = replaced(text, "jobs", jobs_table(read(spark_scale.RESULTS)))
    return replaced(text, "storms", storms_table(read(fleet_storms.RESULTS)))


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
