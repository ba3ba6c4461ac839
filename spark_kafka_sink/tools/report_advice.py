"""Findings about lines of metrics: what is slow or wrong, and what to do about it.

The rules are those of docs/tuning.md, a function for each. A line may also be the sum of many lines
(``report_lines.py``). A rule reads only the line.

For many batches, the findings of each batch explain the time, weighted by the batch's time. Sums
over all batches would hide causes: the overall mean size hides a micro-batch of tiny batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from spark_kafka_sink.metrics.figures import (
    OTHER,
    QUOTA_WAIT,
    batch_duration_ms,
    count,
    duration,
    percent,
    size,
    was_stopped,
)
from spark_kafka_sink.tools.report_figures import (
    Facts,
    Finding,
    Line,
    brokers,
    partition_skew,
    slow_broker,
    task_skew,
)

# --- trouble, beyond slowness --------------------------------------------------------------------


def _aborted(facts: Facts) -> Iterator[Finding]:
    number = facts.line.get("aborted", facts.line.get("event") == "abort")
    if number and was_stopped(facts.line):
        text = (
            f"The query or job was stopped while it wrote. {facts.line.get('note') or ''}".rstrip()
        )
        yield Finding("stopped", "stopped", text, "", 1.0, True)
    elif number:
        title = f"{count(number)} batches were aborted" if number > 1 else "aborted"
        note = facts.line.get("note") or "Spark gave up. Batches that it wrote again have new lines"
        error = facts.line.get("error")
        text = f"{note}. {error}" if error else f"{note}."
        advice = (
            "If you stopped the query, its next start writes the batch again. If a task failed, "
            "its first error in the driver's log says why: `pykafka-sink docs troubleshooting`"
        )
        if error:
            advice = "`pykafka-sink docs troubleshooting` explains errors"
        yield Finding("aborted", title, text, advice, 1.0, True)


def _refused(facts: Facts) -> Iterator[Finding]:
    number = facts.number("record_errors")
    if number and not any((facts.line.get("dead_letters") or {}).values()):
        text = f"Brokers refused {count(number)} records for good."
        advice = "The task's error names the cause: `pykafka-sink docs troubleshooting`"
        yield Finding("records-refused", "records were refused", text, advice, 0.0, True)


def _retried(facts: Facts) -> Iterator[Finding]:
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


def _failed_attempts(facts: Facts) -> Iterator[Finding]:
    attempts = float(facts.line.get("failed_attempts") or 0)
    if attempts:
        text = f"Tasks were tried again {count(attempts)} times before they were successful."
        advice = "Spark's page of the stage has the errors; their time is not in this line"
        yield Finding("failed-attempts", "tasks failed first", text, advice, 0.0, True)


def _split(facts: Facts) -> Iterator[Finding]:
    splits = facts.number("batch_splits")
    if splits:
        text = f"{count(splits)} batches were too large for the topic and were sent in parts."
        advice = "kafka.batch.size below the topic's max.message.bytes avoids sending them twice"
        yield Finding("split", "batches were too large", text, advice, 0.0)


def _dead_letters(facts: Facts) -> Iterator[Finding]:
    counts = {cause: float(n) for cause, n in (facts.line.get("dead_letters") or {}).items() if n}
    if not counts:
        return
    number = sum(counts.values())
    share = number / max(float(facts.line.get("records_acknowledged") or 0), number)
    of_all = percent(share) if share >= 0.01 else "less than 1 %"
    most_first = sorted(counts, key=lambda cause: -counts[cause])
    by_cause = ", ".join(f"{count(counts[cause])} {cause}" for cause in most_first)
    text = f"{count(number)} rows could not be written, {of_all} of all: {by_cause}."
    advice = (
        "`pykafka-sink dead-letters show --topic …` tells why, with the rows; `replay` writes them "
        "again when they are mended. See `pykafka-sink docs dead-letters`"
    )
    title = "rows became dead letters"
    yield Finding("dead-letters", title, text, advice, 0.0, True)


# --- slowness ------------------------------------------------------------------------------------

THROTTLED = 0.05
COMPRESSING = 0.3
INPUT = 0.5
ENCODING = 0.5
STARTING = 0.2
COMMITTING = 0.3
PLANNING = 0.3
LEAST_PLANNING_MS = 1000.0
SMALL_BATCH_BYTES = 8 * 1024
FEW_BATCHES = 20
"""A line with fewer record batches is not reported, even if they are small."""
BARELY_COMPRESSED = 0.9


def line_findings(line: Line) -> list[Finding]:
    """Return the findings about a line, main cause first: the one that explains most time."""
    facts = Facts.of(line)
    found = [finding for rule in _BATCH_RULES for finding in rule(facts)]
    found += [
        finding._replace(weight=facts.of_batch(finding.weight))
        for rule in _TASK_RULES
        for finding in rule(facts)
    ]
    causes = [one.weight for one in found if one.kind in _CAUSES_OF_WAITING]
    most = max(causes, default=-1.0)
    found = [one for one in found if one.kind != "brokers-are-the-limit" or one.weight > most]
    return sorted(found, key=lambda finding: -finding.weight)


def _throttled(facts: Facts) -> Iterator[Finding]:
    pauses_ms, left_ms = facts.number("throttle_time_ms"), facts.number("throttle_left_ms")
    share = facts.shares[QUOTA_WAIT]
    if share < THROTTLED:
        return
    tasks_waited = f"tasks waited for that {percent(share)} of their time."
    if pauses_ms:
        asked = [broker for broker in brokers(facts.line) if broker.throttle_time_ms]
        by = ", ".join(f"{broker.name} {duration(broker.throttle_time_ms)}" for broker in asked)
        longest = duration(facts.number("throttle_time_max_ms"))
        text = (
            f"Brokers asked for pauses of up to {longest} because of a quota, "
            f"{duration(pauses_ms)} for all tasks together{by and f' ({by})'}; {tasks_waited}"
        )
    else:
        text = (
            "Tasks began in pauses that brokers had asked for before, because of a quota: "
            f"{duration(left_ms)} of all tasks together; {tasks_waited}"
        )
    advice = (
        "`pykafka-sink quota` shows what the client is granted. Raise the quota of its user or "
        "kafka.client.id, compress more, or take less per micro-batch (maxOffsetsPerTrigger, "
        "maxFilesPerTrigger). More tasks do not help: they share the quota"
    )
    title = "throttled by a quota of the brokers"
    yield Finding("throttled", title, text, advice, share)


def _limited(facts: Facts) -> Iterator[Finding]:
    share = facts.shares["limit_wait_ms"]
    waited_ms = share * facts.number("task_ms")
    if not facts.is_long(share):
        return
    name = "max.bytes.per.second.per.task"
    limit = facts.setting(name)
    text = (
        f"Tasks waited {duration(waited_ms)}, {percent(share)} of their time, until the limit let "
        f"them send."
    )
    which = name if limit is None else f"{name} is {limit}"
    advice = f"It does what was asked for: {which}. A higher limit is the only thing that helps"
    yield Finding("limited", "the limit that you have set", text, advice, share)


def _slow_broker(facts: Facts) -> Iterator[Finding]:
    found = slow_broker(facts.line)
    if found is None or not facts.is_long(facts.waiting):
        return
    slow, others_ms = found
    half_bytes = sum(broker.outgoing_bytes for broker in brokers(facts.line)) / 2
    if partition_skew(facts.line) is not None and slow.outgoing_bytes >= half_bytes:
        return  # the broker is slow because it leads the largest partition
    text = (
        f"{slow.name} answered 95 of 100 requests within {duration(slow.p95_ms)}, the others "
        f"within {duration(others_ms)}; tasks waited for brokers {percent(facts.waiting)} of "
        "their time."
    )
    advice = (
        f"Look at {slow.name}: disk, network, garbage collection, its followers. Rows without a "
        "key keep off a slow broker (kafka.partitioner.adaptive.partitioning.enable); rows with "
        "one cannot. More tasks do not help"
    )
    yield Finding("slow-broker", f"{slow.name} is slow", text, advice, facts.waiting)


def _skewed_partitions(facts: Facts) -> Iterator[Finding]:
    skew = partition_skew(facts.line)
    if skew is None:
        return
    text = (
        f"{skew.where} got {percent(skew.share)} of all {skew.what}: {skew.times:.1f} times the "
        f"mean of {count(skew.number)} partitions. One broker leads it, and it bounds the rate; "
        f"tasks waited for brokers {percent(facts.waiting)} of their time."
    )
    advice = (
        "A key that many rows have, or a partitioner of your own, decides it: give such rows a "
        "longer key (key + number), no key, or a partition of their own "
        "(kafka.partitioner). More partitions do not help: a key has one"
    )
    title = f"most rows go to one partition: {skew.where}"
    yield Finding("skewed-partitions", title, text, advice, max(facts.waiting, 0.01))


def _skewed_tasks(facts: Facts) -> Iterator[Finding]:
    skew = task_skew(facts.line)
    if skew is None:
        return
    text = f"{skew.where} took {skew.times:.1f} times the mean of {count(skew.number)} tasks; "
    if skew.rows_times >= 2:
        text += f"it had {skew.rows_times:.1f} times the mean of their rows."
        advice = "Rows are uneven before the sink: repartition(n), or repartition by another column"
    else:
        text += "it had no more rows than others."
        advice = "See its host under slowest tasks: a slow machine, or a source that was slow there"
    yield Finding("skewed-tasks", "one task is longer than the others", text, advice, skew.share)


def _brokers_are_the_limit(facts: Facts) -> Iterator[Finding]:
    if not facts.is_long(facts.waiting):
        return
    buffer_wait, ack_wait = facts.shares["buffer_wait_ms"], facts.shares["ack_wait_ms"]
    text = (
        f"Tasks waited {percent(buffer_wait)} of their time for buffer memory, and "
        f"{percent(ack_wait)} for acknowledgements at their end."
    )
    if buffer_wait >= ack_wait:
        title = "brokers are the limit"
        advice = (
            "Brokers or network are slower than Spark: more brokers or partitions, or a codec "
            "(kafka.compression.type=lz4), help; more tasks do not"
        )
    else:
        title = "tasks end with waiting for replicas"
        advice = (
            "Fewer, longer tasks or longer micro-batches wait less often; look also at the "
            "followers' lag, which kafka.acks=all waits for"
        )
    yield Finding("brokers-are-the-limit", title, text, advice, facts.waiting)


def _tiny_batches(facts: Facts) -> Iterator[Finding]:
    batches, sent = facts.number("batches"), facts.number("compressed_bytes")
    mean = sent / max(batches, 1)
    # Batches at the ends of tasks make the mean small, which is no fault.
    is_one_large = facts.number("batch_size_max") > 8 * max(mean, 1) and (
        mean > SMALL_BATCH_BYTES / 4
    )
    if batches < FEW_BATCHES or mean >= SMALL_BATCH_BYTES or is_one_large:
        return
    text = (
        f"A record batch has {facts.number('records') / batches:.1f} records and {size(mean)} in "
        f"the mean, the largest {size(facts.number('batch_size_max'))}: {count(batches)} batches "
        f"in {count(facts.number('requests'))} requests. Each costs brokers about the same, "
        "however small."
    )
    tasks = float((facts.line.get("tasks_summary") or {}).get("with_rows") or 0)
    summary, by_topic = facts.line.get("partitions_summary"), facts.line.get("partitions") or {}
    written = float((summary or {}).get("partitions") or sum(map(len, by_topic.values())) or 1)
    if tasks and batches <= 1.5 * tasks * written:
        advice = (
            f"{count(tasks)} tasks with rows each wrote to up to {count(written)} partitions: "
            "fewer tasks (coalesce) or longer micro-batches put more rows into a batch"
        )
    else:
        now = {name: facts.setting(f"kafka.{name}") for name in ("batch.size", "linger.ms")}
        size_now = f"now {now['batch.size']}, " if now["batch.size"] else ""
        linger_now = f" (now {now['linger.ms']})" if now["linger.ms"] else ""
        advice = (
            f"kafka.batch.size ({size_now}default 131072) or kafka.linger.ms{linger_now} is too "
            "small: leave them out"
        )
    own = facts.shares["encode_ms"] + facts.shares[OTHER]
    weight = max(min(facts.waiting + own, 1.0), 0.01)
    yield Finding("tiny-batches", "record batches are tiny", text, advice, weight)


def _codec(facts: Facts) -> Iterator[Finding]:
    share = facts.shares["compress_ms"]
    if share < COMPRESSING:
        return
    before, after = facts.number("uncompressed_bytes"), facts.number("compressed_bytes")
    rate = after / before if before else 1.0
    text = f"Tasks compressed for {percent(share)} of their time, to {percent(rate)} of the size."
    if rate > BARELY_COMPRESSED:
        advice = "It gains next to nothing: kafka.compression.type=none, or lz4"
    else:
        advice = (
            "lz4 instead of zstd, zstd instead of gzip, a lower kafka.compression.*.level, or more "
            "task slots"
        )
    yield Finding("codec", "the codec is the limit", text, advice, share)


def _input(facts: Facts) -> Iterator[Finding]:
    share = facts.shares["input_wait_ms"]
    if share >= INPUT:
        text = f"Tasks waited {percent(share)} of their time for rows from Spark."
        advice = (
            "Nothing to gain in the sink: the source, the transformations, and the hand-over to "
            "Python are the limit. More tasks help where there are slots"
        )
        yield Finding("spark", "Spark is the limit", text, advice, share)


def _own_work(facts: Facts) -> Iterator[Finding]:
    share = facts.shares["encode_ms"]
    if share >= ENCODING:
        text = f"Tasks wrote rows as records for {percent(share)} of their time."
        advice = "It is CPU: more task slots, if there is CPU for them"
        yield Finding("encoding", "encoding is the limit", text, advice, share)
    share = facts.shares["load_ms"]
    if share >= STARTING:
        text = f"Python workers that were new loaded the sink, {percent(share)} of task time."
        advice = (
            "Once for each worker, which Spark ends when it was idle for a minute: "
            "spark.python.daemon.module=spark_kafka_sink.spark.daemon loads it before it forks them"
        )
        yield Finding("loading", "workers were new", text, advice, share)
    share = facts.shares["metadata_wait_ms"]
    if share >= STARTING:
        text = f"Tasks waited {percent(share)} of their time for metadata."
        advice = "The cluster is slow to tell its leaders: elections, or brokers that are away"
        yield Finding("metadata", "metadata came late", text, advice, share)


def _commit(facts: Facts) -> Iterator[Finding]:
    commit_ms = float(facts.line.get("commit_ms") or 0)
    begin = facts.shares["transaction_begin_ms"]
    whole_ms = commit_ms + float(facts.line.get("elapsed_ms") or 0)
    share = commit_ms / whole_ms if whole_ms else 0.0
    if share < COMMITTING and begin < STARTING:
        return
    text = (
        f"Committing took {duration(commit_ms)}, {percent(share)} of the time; beginning "
        f"transactions {percent(begin)} of the tasks'. "
        f"{count(float(facts.line.get('transactions') or 0))} transactions were committed."
    )
    advice = "Fewer tasks mean fewer transactions; longer micro-batches, fewer commits"
    weight = max(commit_ms / (batch_duration_ms(facts.line) or 1), facts.of_batch(begin))
    yield Finding("committing", "transactions cost most", text, advice, weight)


def _planning(facts: Facts) -> Iterator[Finding]:
    planning_ms, whole_ms = float(facts.line.get("planning_ms") or 0), batch_duration_ms(facts.line)
    if planning_ms < LEAST_PLANNING_MS or planning_ms < PLANNING * whole_ms:
        return
    text = (
        f"The driver checked and planned for {duration(planning_ms)}, "
        f"{percent(planning_ms / whole_ms)} of the time, before the first task."
    )
    advice = "Brokers are slow to answer the driver, or away: `pykafka-sink check` tells which"
    yield Finding("planning", "planning took long", text, advice, planning_ms / whole_ms)


_BATCH_RULES: Sequence[Callable[[Facts], Iterator[Finding]]] = (
    *(_aborted, _refused, _retried, _failed_attempts, _dead_letters, _split, _commit, _planning),
)
_TASK_RULES: Sequence[Callable[[Facts], Iterator[Finding]]] = (
    *(_throttled, _limited, _slow_broker, _skewed_partitions, _skewed_tasks, _tiny_batches),
    *(_brokers_are_the_limit, _codec, _input, _own_work),
)
"""Rules whose findings have a weight that is a share of task time."""
_CAUSES_OF_WAITING = {"throttled", "limited", "slow-broker", "skewed-partitions", "tiny-batches"}
"""``brokers-are-the-limit`` is omitted beside one of these that explains as much time."""


# --- causes of the time of many batches ----------------------------------------------------------

_LEAST_SHARE = 0.05
_MOST_CAUSES = 4


class Causes:
    """Causes in the lines so far. lines: number of lines"""

    def __init__(self) -> None:
        self.lines = 0
        self._whole_ms = 0.0
        self._found: dict[str, list[Any]] = {}

    def add(self, line: Mapping[str, Any]) -> None:
        """Add the findings of another line."""
        self.lines += 1
        ms = batch_duration_ms(line)
        self._whole_ms += ms
        for finding in line_findings(line):
            explained_ms = finding.weight * ms
            known = self._found.setdefault(finding.kind, [0.0, 0, -1.0, finding, ""])
            known[0] += explained_ms
            known[1] += 1
            if explained_ms > known[2]:
                known[2:] = explained_ms, finding, batch_name(line)

    def share(self, kind: str) -> float:
        """Return the share of the time of all batches that findings of this kind explain."""
        return float(self._found[kind][0]) / (self._whole_ms or 1.0) if kind in self._found else 0.0

    def slow(self) -> list[Finding]:
        """Return the causes with most time, without trouble, which is counted elsewhere.

        Each has the figures of the batch where it explains most.
        """
        causes = [
            finding if self.lines == 1 else self._among_all(finding)
            for finding in (known[3] for known in self._found.values())
            if not finding.is_trouble and self.share(finding.kind) >= _LEAST_SHARE
        ]
        return sorted(causes, key=lambda cause: -cause.weight)[:_MOST_CAUSES]

    def _among_all(self, finding: Finding) -> Finding:
        share, (_, batches, _, _, batch) = self.share(finding.kind), self._found[finding.kind]
        where = (
            f"It explains {percent(share)} of the time of all batches, in {count(batches)} "
            f"of {count(self.lines)}. As in {batch}: "
        )
        return finding._replace(text=where + finding.text, weight=share)


def overall_findings(total: Mapping[str, Any], causes: Causes) -> list[Finding]:
    """Return the findings about many batches, main cause first. total: the sum of all batches"""
    counted = [
        found._replace(weight=causes.share(found.kind))
        for found in line_findings(total)
        if found.is_trouble or not found.weight
    ]
    return sorted([*counted, *causes.slow()], key=lambda finding: -finding.weight)


def batch_name(line: Mapping[str, Any]) -> str:
    """Return the batch's name for people."""
    number = line.get("batch_id")
    return "a job" if number is None else f"batch {number}"
