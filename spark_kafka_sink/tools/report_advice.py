"""Findings about lines of metrics: what is slow or wrong, and what to do about it.

The rules are those of docs/tuning.md, a function for each. A line may also be the sum of many lines
(``report_lines.py``). A rule reads only the line.

For many batches, the findings of each batch explain the time, weighted by the batch's time. Sums
over all batches would hide causes: the overall mean size hides a micro-batch of tiny batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from spark_kafka_sink.base.kafka_metrics import quantile_ms
from spark_kafka_sink.metrics.line import (
    OTHER,
    QUOTA_WAIT,
    batch_duration_ms,
    count,
    duration,
    percent,
    shares,
    size,
    was_stopped,
)


def left_out(texts: int) -> str:
    """Return a message about texts in a file of metrics that are not readable as lines."""
    if texts == 1:
        return "1 text left out: no line of this sink"
    return f"{count(texts)} texts left out: no lines of this sink"


# --- input and output of rules -------------------------------------------------------------------

Line = Mapping[str, Any]

WAITING = 0.2
"""Least share of task time in waiting for brokers that is reported."""
LEAST_WAITING_MS = 100.0
"""Least ms of the mean task. Each waits some ms for its last acknowledgement, however fast."""


class Finding(NamedTuple):
    """One fact about a batch that its user should know.

    kind: for programs and tests; docs/report.md lists all kinds
    title: a few words; text: with the figures; advice: what to do, "" for nothing
    weight: explained share of the batch's time, at most 1; trouble that takes no time has 0
    is_trouble: something went wrong, beyond slowness
    """

    kind: str
    title: str
    text: str
    advice: str
    weight: float
    is_trouble: bool = False


class Facts(NamedTuple):
    """A line, and values that several rules need.

    waiting: share of task time that tasks waited for brokers, without quotas
    """

    line: Line
    metrics: Mapping[str, Any]
    shares: Mapping[str, float]
    waiting: float

    @classmethod
    def of(cls, line: Line) -> Facts:
        """Return the facts of one line."""
        metrics = line.get("metrics") or {}
        found = shares(metrics)
        return cls(line, metrics, found, found["buffer_wait_ms"] + found["ack_wait_ms"])

    def number(self, name: str) -> float:
        """Return one of ``metrics``; 0 if the line lacks it."""
        return float(self.metrics.get(name) or 0)

    def is_long(self, share: float) -> bool:
        """Return True if a wait is long enough to report: of task time, and of the mean task."""
        mean_ms = self.number("task_ms") / float(self.line.get("tasks") or 1)
        return share >= WAITING and share * mean_ms >= LEAST_WAITING_MS

    def of_batch(self, share: float) -> float:
        """Return a share of task time as a share of the batch's time, with planning and commit."""
        whole_ms = batch_duration_ms(self.line)
        return share * float(self.line.get("elapsed_ms") or 0) / whole_ms if whole_ms else share

    def setting(self, name: str) -> str | None:
        """Return the value of an option, None if the line lacks it."""
        value = (self.line.get("settings") or {}).get(name)
        return None if value is None else str(value)


# --- skew: brokers, partitions, tasks ------------------------------------------------------------

TIMES_SLOWER = 3.0
LEAST_SLOW_MS = 20.0
"""A broker that answers faster is not reported, however fast the others are."""
LEAST_ANSWERS = 5
TIMES_THE_MEAN = 2.5
MOST_OF_TWO = 0.8
"""Share for two partitions, because none can have 2.5 times their mean."""
LEAST_RECORDS = 1000
LEAST_TASK_MS = 1000.0


class Broker(NamedTuple):
    """A broker of ``nodes``. p50_ms, p95_ms, p99_ms: 0 without a histogram."""

    id: int
    answers: float
    outgoing_bytes: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    request_latency_max_ms: float
    throttle_time_ms: float
    record_retries: float
    connections_created: float

    @property
    def name(self) -> str:
        return broker_name(self.id)


def broker_name(broker_id: int) -> str:
    """Return a broker's name in texts; addresses of ``bootstrap.servers`` have negative ids."""
    return f"broker {broker_id}" if broker_id >= 0 else "a bootstrap address"


class Skew(NamedTuple):
    """Uneven load. where: largest; share: of all; times: the mean of ``number``; what: unit."""

    where: str
    share: float
    times: float
    number: int
    what: str = "records"
    rows_times: float = 0.0


def brokers(line: Line) -> list[Broker]:
    """Return the brokers that got produce requests, by id."""
    nodes = (line.get("nodes") or {}).items()
    return sorted(_broker(int(n), node) for n, node in nodes if node.get("produce_responses"))


def _broker(number: int, node: Mapping[str, Any]) -> Broker:
    counts = (node.get("request_latency") or {}).get("histogram", {}).get("counts", {})
    latencies = {int(index): int(times) for index, times in counts.items() if times}
    answers = float(node["produce_responses"])
    return Broker(
        number,
        answers,
        float(node.get("outgoing_bytes") or 0),
        float(node.get("request_latency_ms") or 0) / answers,
        *(quantile_ms(latencies, share) or 0.0 for share in (0.5, 0.95, 0.99)),
        *(float(node.get(name) or 0) for name in Broker._fields[7:]),
    )


def slow_broker(line: Line) -> tuple[Broker, float] | None:
    """Return a broker much slower than the others, and the others' median 95th percentile."""
    known = [broker for broker in brokers(line) if broker.answers >= LEAST_ANSWERS]
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda broker: broker.p95_ms)
    others_ms = median(broker.p95_ms for broker in known if broker is not slowest)
    is_slow = slowest.p95_ms >= max(TIMES_SLOWER * others_ms, LEAST_SLOW_MS)
    return (slowest, others_ms) if is_slow else None


def partition_skew(line: Line) -> Skew | None:
    """Return the partition with far more than its share of the records."""
    records = (line.get("metrics") or {}).get("records") or 0
    where, most, total, number = _most_of_partitions(line)
    if number < 2 or not total or records < LEAST_RECORDS:
        return None
    skew = Skew(where, most / total, most * number / total, number)
    is_much = skew.times >= TIMES_THE_MEAN or (number == 2 and skew.share >= MOST_OF_TWO)
    return skew if is_much else None


def _most_of_partitions(line: Line) -> tuple[str, float, float, int]:
    """Return name and records of the largest partition, records and number of all partitions."""
    by_topic = line.get("partitions") or {}
    counts = {
        f"{topic}-{number}": float(partition.get("records") or 0)
        for topic, partitions in by_topic.items()
        for number, partition in partitions.items()
    }
    if counts:
        where = max(counts, key=lambda name: counts[name])
        return where, counts[where], sum(counts.values()), len(counts)
    summary = line.get("partitions_summary")
    if not summary:
        return "", 0.0, 0.0, 0
    most = summary["most_records"]
    total = float((line.get("metrics") or {}).get("records") or 0)
    where = f"{most['topic']}-{most['partition']}"
    return where, float(most["records"]), total, int(summary["partitions"])


def task_skew(line: Line) -> Skew | None:
    """Return the task that takes far longer than the others, and most of the batch's time."""
    summary = line.get("tasks_summary")
    metrics = line.get("metrics") or {}
    if not summary or (summary.get("with_rows") or 0) < 2:
        return None
    number = int(summary["with_rows"])
    most_ms = float(summary["most_task_ms"]["task_ms"])
    total_ms = float(metrics.get("task_ms") or 0)
    elapsed_ms = float(line.get("elapsed_ms") or most_ms)
    if not total_ms or most_ms < max(LEAST_TASK_MS, elapsed_ms / 2):
        return None
    times = most_ms * number / total_ms
    if times < (TIMES_THE_MEAN if number > 2 else 2 * MOST_OF_TWO):
        return None
    task = summary["most_task_ms"]["task"]
    most_rows = summary["most_records"]
    records = float(metrics.get("records") or 0)
    is_same = most_rows["task"] == task and records
    rows_times = float(most_rows["records"]) * number / records if is_same else 0.0
    share = min(1 - total_ms / number / most_ms, 1.0)
    return Skew(f"task {task}", share, times, number, "task time", rows_times)


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


_COMPLETING = "CONCURRENT_TRANSACTIONS"


def _retried(facts: Facts) -> Iterator[Finding]:
    again = facts.number("record_retries")
    errors: Counter[str] = Counter()
    by_broker: Counter[int] = Counter()
    for number, node in (facts.line.get("nodes") or {}).items():
        of_node = Counter(node.get("record_retries_by_error") or {})
        # The broker still completes the producer's transaction before: no trouble, and soon over.
        completing = of_node.pop(_COMPLETING, 0)
        errors.update(of_node)
        by_broker[int(number)] = int(node.get("record_retries") or 0) - completing
        again -= completing
    if again <= 0:
        return
    where = ""
    if by_broker:
        (broker_id, most), *_ = by_broker.most_common(1)
        where = f", {count(most)} of them to {broker_name(broker_id)}" if most else ""
    causes = ", ".join(f"{count(n)} for {error}" for error, n in errors.most_common())
    text = (
        f"{count(again)} records were sent again{where}{f': {causes}' if causes else ''}. Brokers "
        "recognise what they have already, unless kafka.enable.idempotence is false."
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


def _waited(facts: Facts) -> Iterator[Finding]:
    wait_ms = float(facts.line.get("longest_wait_ms") or 0)
    if not wait_ms:
        return
    cause = facts.line.get("longest_wait_cause")
    text = f"Rows waited for brokers for {duration(wait_ms)}: {cause}."
    advice = (
        "The executors' log says since when, for which topics, and what to do: search for "
        "PKS-DELIVERY-011"
    )
    weight = min(wait_ms / (batch_duration_ms(facts.line) or wait_ms), 1.0)
    yield Finding("waited", f"rows waited: {cause}", text, advice, weight)


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
    *(_aborted, _refused, _retried, _failed_attempts, _dead_letters, _split, _waited, _commit),
    _planning,
)
_TASK_RULES: Sequence[Callable[[Facts], Iterator[Finding]]] = (
    *(_throttled, _limited, _slow_broker, _skewed_partitions, _skewed_tasks, _tiny_batches),
    *(_brokers_are_the_limit, _codec, _input, _own_work),
)
"""Rules whose findings have a weight that is a share of task time."""
_CAUSES_OF_WAITING = {
    *("waited", "throttled", "limited", "slow-broker", "skewed-partitions", "tiny-batches"),
}
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
