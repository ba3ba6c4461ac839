"""Rules of what went wrong, and not only slowly."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.report.figures import count, percent
from spark_kafka_sink.report.finding import Facts, Finding
from spark_kafka_sink.report.skew import brokers


def aborted(facts: Facts) -> Iterator[Finding]:
    """Spark has given the batch up."""
    number = facts.line.get("aborted", facts.line.get("event") == "abort")
    if number:
        title = f"{count(number)} batches were aborted" if number > 1 else "aborted"
        note = (
            facts.line.get("note") or "Spark gave up; what it wrote again since is in other lines"
        )
        error = facts.line.get("error")
        text = f"{note}. {error}" if error else f"{note}."
        advice = "The first error of a task, in the driver's log, says why: docs/troubleshooting.md"
        yield Finding("aborted", title, text, advice, 0.0, True)


def refused(facts: Facts) -> Iterator[Finding]:
    """Brokers refused records for good, and they are not dead letters."""
    number = facts.number("record_errors")
    if number and not any((facts.line.get("dead_letters") or {}).values()):
        text = f"Brokers refused {count(number)} records for good."
        advice = "The task's error names the cause: docs/troubleshooting.md"
        yield Finding("records-refused", "records were refused", text, advice, 0.0, True)


def retried(facts: Facts) -> Iterator[Finding]:
    """Records were sent again."""
    again = facts.number("record_retries")
    if not again:
        return
    most = max(brokers(facts.line), key=lambda broker: broker.record_retries, default=None)
    where = ""
    if most is not None and most.record_retries:
        where = f", {count(most.record_retries)} of them to {most.name}"
    text = (
        f"{count(again)} records were sent again{where}. Brokers recognise what they have already, "
        "unless kafka.enable.idempotence is false."
    )
    advice = (
        "A leader that moved, a broker that was restarted, or a request without an answer within "
        "kafka.request.timeout.ms: look at the brokers' logs of that time"
    )
    yield Finding("retried", "records were sent again", text, advice, 0.0, True)


def failed_attempts(facts: Facts) -> Iterator[Finding]:
    """Tasks were tried again."""
    attempts = float(facts.line.get("failed_attempts") or 0)
    if attempts:
        text = f"Tasks were tried again {count(attempts)} times before they were successful."
        advice = "Spark's page of the stage has the errors; their time is not in this line"
        yield Finding("failed-attempts", "tasks failed first", text, advice, 0.0, True)


def split(facts: Facts) -> Iterator[Finding]:
    """Batches were too large for their topic."""
    splits = facts.number("batch_splits")
    if splits:
        text = f"{count(splits)} batches were too large for the topic and were sent in parts."
        advice = "kafka.batch.size below the topic's max.message.bytes avoids sending them twice"
        yield Finding("split", "batches were too large", text, advice, 0.0)


def dead_letters(facts: Facts) -> Iterator[Finding]:
    """Rows could not be written, and went elsewhere."""
    counts = {cause: float(n) for cause, n in (facts.line.get("dead_letters") or {}).items() if n}
    if not counts:
        return
    number = sum(counts.values())
    of_all = number / max(float(facts.line.get("records_acknowledged") or 0), number)
    most_first = sorted(counts, key=lambda cause: -counts[cause])
    by_cause = ", ".join(f"{count(counts[cause])} {cause}" for cause in most_first)
    text = f"{count(number)} rows could not be written, {_share(of_all)} of all: {by_cause}."
    advice = (
        "`pykafka-sink dead-letters show --topic …` tells why, with the rows; `replay` writes them "
        "again when they are mended: docs/dead-letters.md"
    )
    title = "rows became dead letters"
    yield Finding("dead-letters", title, text, advice, 0.0, True)


def _share(share: float) -> str:
    return percent(share) if share >= 0.01 else "less than 1 %"
