"""What a line tells of why its batch was slow, in words."""

import copy
import json
import os
import random
import re
import tracemalloc
from pathlib import Path

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.metrics import reading
from spark_kafka_sink.metrics.line import OTHER, largest_part, shares
from spark_kafka_sink.metrics.reading import LineTail, PinnedFile, read_line
from spark_kafka_sink.tools import report_advice
from spark_kafka_sink.tools.report_advice import line_findings
from spark_kafka_sink.tools.report_lines import LineAggregate, collect, parse, read_pieces
from spark_kafka_sink.tools.report_page import FollowedReport, render
from spark_kafka_sink.tools.terminal import Screen
from tests.tables import each_row
from tests.unit.report_lines import (
    CODEC_BOUND,
    EVEN,
    HEALTHY,
    INTERRUPTED,
    SKEWED_KEY,
    SLOW_BROKER,
    THROTTLED,
    TINY_BATCHES,
    line,
    node,
    task,
    times,
)
from tests.unit.test_report import numbered, text

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "report.md"


WHY = (
    (SLOW_BROKER, "slow-broker", r"broker 2 .* 899 ms, the others .* ms", "broker 2: disk"),
    (
        *(THROTTLED, "throttled"),
        r"up to 60 ms because of a quota, 4\.8 s for all tasks together \(broker 1 4\.8 s\)",
        "pykafka-sink quota",
    ),
    (SKEWED_KEY, "skewed-partitions", r"orders-0 got 94 % of .*: 5\.6 times", "longer key"),
    (TINY_BATCHES, "tiny-batches", r"1\.0 records and 50 B in the mean", "kafka.batch.size"),
    (CODEC_BOUND, "codec", r"for 70 % of their time, to 50 %", "lz4 instead of zstd"),
)


@each_row(("slow", "kind", "text", "advised"), WHY, ids=lambda value: str(value)[:40])
def test_why_was_this_batch_slow(slow, kind, text, advised):
    (first,) = line_findings(slow)
    assert first.kind == kind
    assert re.search(text, first.text)
    assert advised in first.advice
    assert not first.is_trouble


def kinds(found):
    return [finding.kind for finding in found]


def of(*tasks, **more):
    return kinds(line_findings(line(*tasks, **more)))


def test_other_limits():
    assert line_findings(HEALTHY) == line_findings({}) == []
    waited_for_by_nobody = {1: node(5), 2: node(900), 3: node(5)}
    assert of(task(0, EVEN, nodes=waited_for_by_nobody)) == []
    assert of(task(0, EVEN, **times(1000, input_wait=800))) == ["spark"]
    assert of(task(0, EVEN, **times(1000, encode=800))) == ["encoding"]
    assert of(task(0, EVEN, **times(2_000, load=500))) == ["loading"]
    assert of(task(0, EVEN, **times(1000, metadata_wait=500))) == ["metadata"]
    assert of(task(0, EVEN), commit_ms=900, transactions=1) == ["committing"]
    assert of(task(0, EVEN, batch_splits=3)) == ["split"]
    assert of(task(0, EVEN), failed_attempts=2) == ["failed-attempts"]
    assert of(task(0, EVEN), planning_ms=2500.0, planning_started_at_ms=1) == ["planning"]
    assert of(task(0, EVEN), planning_ms=300.0, planning_started_at_ms=1) == []


SHORT = [task(number, [500], **times(400, encode=300)) for number in range(9)]


LONG = times(9000, encode=3000)
SLOW_NODES = {1: node(800), 2: node(900), 3: node(700)}


def brokers_limit(**parts):
    return [task(0, EVEN, nodes=SLOW_NODES, **times(3000, **parts))]


OF_MANY = [task(number, [10] * 12, batches=12, batch_size_max=900) for number in range(50)]
UNPACKED = [task(0, EVEN, compressed_bytes=1_190_000, **times(1000, compress=600))]


@pytest.mark.parametrize(
    ("tasks", "kind", "advised"),
    [
        (brokers_limit(buffer_wait=2000), "brokers-are-the-limit", "more tasks do not"),
        (brokers_limit(ack_wait=2000), "brokers-are-the-limit", "Fewer, longer tasks"),
        (OF_MANY, "tiny-batches", "coalesce"),
        ([*SHORT, task(9, [50_000], **LONG)], "skewed-tasks", "repartition"),
        ([*SHORT, task(9, [500], **LONG)], "skewed-tasks", "its host"),
        (UNPACKED, "codec", "kafka.compression.type=none"),
    ],
)
def test_what_is_advised(tasks, kind, advised):
    (found,) = line_findings(line(*tasks))
    assert found.kind == kind
    assert advised in found.advice


def test_settings_are_named_and_waiting_of_no_time_is_not():
    given = {"kafka.batch.size": "200", "kafka.linger.ms": "0"}
    for settings, advised in (
        ({}, "kafka.batch.size (default 131072) or kafka.linger.ms is"),
        (given, "kafka.batch.size (now 200, default 131072) or kafka.linger.ms (now 0)"),
    ):
        assert advised in line_findings({**TINY_BATCHES, "settings": settings})[0].advice
    nodes = {1: node(5), 2: node(60), 3: node(5)}
    for waited_ms, found in ((50, []), (500, ["slow-broker"])):
        waiting = times(1.2 * waited_ms, ack_wait=waited_ms)
        assert of(*(task(n, EVEN, nodes=nodes, **waiting) for n in range(20))) == found


def test_what_is_left_of_a_pause_of_the_batch_before():
    waiting = times(6000, ack_wait=5800)
    left = task(0, EVEN, throttle_left_ms=5500, **waiting)
    found = line_findings(line(left, task(1, EVEN, throttle_left_ms=5500, **waiting)))
    assert kinds(found) == ["throttled"]
    assert "pauses that brokers had asked for before" in found[0].text
    assert "11.0 s" in found[0].text


def test_rows_that_waited_for_brokers():
    made = line(task(0, EVEN, **times(31_000, ack_wait=30_000)), elapsed_ms=31_000)
    assert "brokers-are-the-limit" in kinds(line_findings(made))
    waited = {"longest_wait_ms": 30_100, "longest_wait_cause": "no answer from broker 3"}
    found, *others = line_findings({**made, **waited})
    assert (found.kind, found.title) == ("waited", "rows waited: no answer from broker 3")
    assert "for 30.1 s: no answer" in found.text
    assert found.weight > 0.9
    assert "brokers-are-the-limit" not in kinds(others)


def test_the_limit_that_is_set():
    made = line(task(0, EVEN, limit_wait_ms=5500, **times(6000, ack_wait=5800)))
    (found,) = line_findings({**made, "settings": {"max.bytes.per.second.per.task": "1000000"}})
    assert found.kind == "limited"
    assert "5.5 s, 92 % of their time" in found.text
    assert "max.bytes.per.second.per.task is 1000000." in found.advice
    # Batches that a limit holds are waited for as acknowledgements; brokers have paused nothing.
    assert "quota" not in found.text + found.advice
    assert largest_part(made)[0] == "waiting for the task limit"
    made["metrics"]["limit_wait_ms"] = 500
    assert kinds(line_findings(made)) == ["brokers-are-the-limit"]


def test_waits_for_limits_and_quotas_are_parts_of_their_own():
    waiting = {"task_ms": 1000, "buffer_wait_ms": 200, "ack_wait_ms": 600}
    found = shares(
        {**waiting, "limit_wait_ms": 300, "throttle_time_ms": 60, "throttle_left_ms": 40}
    )
    assert found["limit_wait_ms"] == pytest.approx(0.3)
    assert found["quota_wait_ms"] == pytest.approx(0.1)
    assert found["buffer_wait_ms"] == pytest.approx(0.1)
    assert found["ack_wait_ms"] == pytest.approx(0.3)
    assert found[OTHER] == pytest.approx(0.2)
    found = shares({"task_ms": 100, "encode_ms": 40})
    assert (found["encode_ms"], found[OTHER]) == pytest.approx((0.4, 0.6))
    beside = shares({"task_ms": 100, "encode_ms": 40, "compress_ms": 160})
    assert beside["compress_ms"] == pytest.approx(0.8)
    assert sum(shares({}).values()) == 0
    assert largest_part(CODEC_BOUND)[0] == "compressing"
    assert largest_part({**CODEC_BOUND, "commit_ms": 60_000})[0] == "committing"
    # Several brokers may pause at once, and a task may encode while the limit holds batches.
    found = shares({**waiting, "limit_wait_ms": 700, "throttle_time_ms": 5000})
    assert found["limit_wait_ms"] == pytest.approx(0.7)
    assert found["quota_wait_ms"] == pytest.approx(0.1)
    assert found["ack_wait_ms"] == found["buffer_wait_ms"] == 0
    assert shares({"task_ms": 1000, "limit_wait_ms": 500})["limit_wait_ms"] == 0


def test_what_cost_most_time_is_the_main_cause():
    some, waiting = {"too-large": 3}, times(3000, buffer_wait=2000)
    assert of(task(0, EVEN, **waiting), dead_letters=some) == [
        *("brokers-are-the-limit", "dead-letters")
    ]
    short = task(0, EVEN, throttle_time_ms=5, throttle_time_max_ms=5, **waiting)
    assert of(short) == ["brokers-are-the-limit"]
    longer = task(0, EVEN, throttle_time_ms=400, throttle_time_max_ms=5, **waiting)
    assert of(longer) == ["brokers-are-the-limit", "throttled"]
    # Shares of task time count as much as tasks took of the batch.
    driver = {"planning_ms": 7000.0, "planning_started_at_ms": 1, "commit_ms": 2500}
    found = line_findings(line(task(0, EVEN, **waiting), **driver))
    assert kinds(found) == ["planning", "committing", "brokers-are-the-limit"]
    assert sum(finding.weight for finding in found) == pytest.approx(1.0, abs=0.1)
    # Trouble that takes no time comes last, and an abort first.
    again = task(0, EVEN, record_retries=500, **waiting)
    assert of(again) == ["brokers-are-the-limit", "retried"]
    assert of(again, event="abort", note="x") == ["aborted", "brokers-are-the-limit", "retried"]
    assert of(task(0, EVEN, record_errors=2)) == ["records-refused"]


def test_dead_letters():
    some = {"too-large": 30, "null-key": 200, "partitioner": 0}
    (found,) = line_findings(line(task(0, EVEN), dead_letters=some))
    assert found.kind == "dead-letters"
    assert found.text == "230 rows could not be written, 2 % of all: 200 null-key, 30 too-large."
    assert "dead-letters show" in found.advice
    assert line_findings(line(task(0, EVEN), dead_letters={"too-large": 0})) == []
    # Those that brokers have refused are among them.
    assert len(line_findings(line(task(0, EVEN, record_errors=2), dead_letters=some))) == 1


def test_why_a_batch_was_aborted():
    found = line_findings(line(task(0, EVEN), event="abort", note="n", error="E: x"))[0]
    assert found.text == "n. E: x"
    assert "stopped" not in found.advice
    # Spark tells a data source no reason: it may be a stop.
    found = line_findings(line(task(0, EVEN), event="abort", note="n"))[0]
    assert found.advice.startswith("If you stopped the query, its next start writes")


@pytest.mark.parametrize("error", INTERRUPTED)
def test_a_batch_that_the_user_has_stopped_is_no_failure(error):
    found = line_findings(line(task(0, EVEN), event="abort", note="n", error=error))[0]
    assert (found.kind, found.advice) == ("stopped", "")
    assert found.text == "The query or job was stopped while it wrote. n"


def retried(**errors):
    nodes = {number: node(5) for number in (1, 2)}
    for error, records in errors.items():
        nodes[2].record_retry(error, records)
    return task(0, EVEN, record_retries=sum(errors.values()), nodes=nodes)


def test_why_records_were_sent_again():
    (found,) = line_findings(line(retried(NOT_LEADER_OR_FOLLOWER=20, REQUEST_TIMED_OUT=1_000)))
    reasons = "1,000 for REQUEST_TIMED_OUT, 20 for NOT_LEADER_OR_FOLLOWER"
    expected = f"1,020 records were sent again, 1,020 of them to broker 2: {reasons}. "
    assert found.text.startswith(expected)
    # A broker that still completes the transaction before answers the next one's first batch so.
    assert of(retried(CONCURRENT_TRANSACTIONS=20)) == []
    (found,) = line_findings(line(retried(CONCURRENT_TRANSACTIONS=20, NETWORK_EXCEPTION=1)))
    assert found.text.startswith("1 records were sent again, 1 of them to broker 2: 1 for NETWORK")


def test_the_document_has_every_kind():
    folder = Path(report_advice.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    made = set(re.findall(r'Finding\(\s*"([a-z-]+)"', code))
    told = set(re.findall(r"^\| `([a-z-]+)` \|", DOCUMENT.read_text("utf-8"), re.MULTILINE))
    assert made == told


GOOD = numbered(HEALTHY, 1)


def having(**fields):
    return json.dumps({**GOOD, **fields}).encode()


def having_latency(**histogram):
    return having(request_latency={**GOOD["request_latency"], "histogram": histogram})


def with_raw(name, value):
    """A line whose field ``name`` has this text of JSON, whatever it is."""
    return having(**{name: "@"}).replace(b'"@"', value)


PARTITION = dict.fromkeys(
    ("first_offset", "last_offset", "records", "compressed_bytes", "uncompressed_bytes"), 1
)
MALFORMED = {
    "not JSON": b"25/01/01 ERROR no JSON",
    "not an object": b'["pykafka-sink"]',
    "a number": b"17",
    "truncated": having()[:-200],
    "joined with the next": having()[:300] + having(),
    "NaN in a figure": with_raw("planning_ms", b"NaN"),
    "infinite": with_raw("planning_ms", b"1e999"),
    "NaN by name": with_raw("nodes", b'{"1": {"requests": NaN}}'),
    "Infinity by name": with_raw("topics", b'{"t": {"records": -Infinity}}'),
    "a number of 5000 digits": with_raw("batch_id", b"9" * 5000),
    "a number of 400 digits by name": with_raw("topics", b'{"t": {"records": %s}}' % (b"9" * 400)),
    "nested objects": with_raw("note", b'{"a":' * 200_000 + b"1" + b"}" * 200_000),
    "nested arrays, not closed": with_raw("settings", b"[" * 1_000_000),
    "nested by name": with_raw("partitions", b'{"t":' * 100_000 + b"1" + b"}" * 100_000),
    "huge": with_raw("note", b'"%s"' % (b"x" * 3_000_000)),
    "invalid UTF-8": with_raw("query_id", b'"\xff\xfe"'),
    "invalid UTF-8 by name": with_raw("partitions", b'{"\xc3\x28": {}}'),
    "UTF-16": having().decode().encode("utf-16"),
    "NUL": b"\x00" * 1000,
    "a lone surrogate": with_raw("error", rb'"\ud800"'),
    "a lone surrogate by name": with_raw("settings", rb'{"\udfff": "1"}'),
    **{
        f"{name} is {value!r}"[:60]: having(**{name: value})
        for name, value in (
            *(("time_ms", "now"), ("time_ms", 2**62), ("time_ms", -1), ("batch_id", True)),
            *(("metrics", [1]), ("metrics", None), ("metrics", {"records": "7"})),
            *(("partitions", [1]), ("partitions", {"t": 7}), ("partitions", {"t": {"0": 7}})),
            *(("partitions", {"t": {"0": {}}}), ("partitions", {"t": {"x": PARTITION}})),
            ("partitions", {"t": {"0": {**PARTITION, "records": "1"}}}),
            *(("nodes", {"1": []}), ("nodes", {"one": GOOD["nodes"]["1"]})),
            *(("settings", "x"), ("settings", {"kafka.linger.ms": ["5"]})),
            *(("slowest_tasks", {}), ("slowest_tasks", ["x"]), ("slowest_tasks", [{"task": 1}])),
            ("slowest_tasks", [{**GOOD["slowest_tasks"][0], "started_at_ms": 2**62}]),
            *(("sink", "other"), ("event", None), ("event", "\x1b[2J")),
        )
    },
    "a histogram is a text": having(request_latency={**GOOD["request_latency"], "histogram": "x"}),
    "buckets of texts": having_latency(scale=3, counts={"a": "b"}),
    "a scale that overflows": having_latency(scale=-5000, counts={"1": 1}),
    "a bucket that overflows": having_latency(scale=3, counts={"9" * 12: 1}),
    "a broker's bucket that overflows": having(
        nodes={
            "1": {**GOOD["nodes"]["1"], "request_latency": {"histogram": {"counts": {"9" * 9: 1}}}}
        }
    ),
}
HARMLESS = ("huge", "a scale that overflows")
"""What is read all the same: a field may have any length, and nothing is computed of a scale."""


@pytest.mark.parametrize("name", ["query_id", "error", "of nobody"])
def test_bytes_that_are_no_text_reach_no_column(name):
    """They may be behind the part of a line that is parsed."""
    good = having()
    found = parse([good, with_raw(name, b'"\xe9"')], None)
    assert ([row.text for row in found.rows], found.left_out) == ([good], 1)


@pytest.mark.parametrize("kind", MALFORMED)
def test_one_is_left_out_and_counted(tmp_path, capsys, kind):
    path, page = tmp_path / "lines.txt", tmp_path / "page.html"
    first, last = text(numbered(SLOW_BROKER, 1)), text(numbered(HEALTHY, 2))
    path.write_bytes(first + MALFORMED[kind].replace(b"\n", b"") + b"\n" + last)
    is_read = kind in HARMLESS
    assert main(["report", str(path), "--output", str(page)]) == 0
    said = capsys.readouterr().err
    assert ("1 text left out: no line of this sink" in said) != is_read
    shown = page.read_text(encoding="utf-8")
    assert f"Made of {2 + is_read} lines" in shown
    assert ("1 text left out" in shown) != is_read
    assert main(["top", str(path), "--once"]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert f"{2 + is_read} batches" in screen
    assert ("1 text left out" in screen) != is_read
    followed = FollowedReport(str(path), None)
    assert b"2 lines" in followed.page() or is_read
    assert len(LineTail(str(path), from_end=False).read()) == 2 + is_read


def test_names_of_others_are_any():
    """A topic may be called as a field is."""
    named = having(
        settings={"x_at_ms": "y"}, topics={"time_ms": next(iter(GOOD["topics"].values()))}
    )
    assert read_line(named) is not None
    assert read_line(having(partitions={"t": {"9" * 5000: PARTITION}})) is None


@pytest.mark.parametrize("sampling_interval", [1, 7])
def test_many_among_good_ones(sampling_interval):
    """Of large files not every line is read with its partitions: what counts is not read twice."""
    lines = []
    for number in range(300):
        lines.append(text(numbered(HEALTHY, number)).rstrip())
        if number % 50 == 7:
            lines.append(having(partitions={"t": 7}, time_ms=1_700_000_000_000 + number))
    found = LineAggregate(None, sampling_interval)
    found.add(lines)
    assert (found.lines, found.left_out) == (300, 6)
    assert render(found)
    assert len(found.latest()) == 100


def test_a_line_longer_than_any_is_left_out_in_little_memory(tmp_path, monkeypatch):
    """A sparse file of any size takes no space on disk."""
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 100_000)
    path = tmp_path / "lines.jsonl"
    with path.open("wb") as file:
        file.write(having() + b"\n" + b'{"sink": "x"')
        file.seek(64 * 1024 * 1024)
        file.write(b"\n" + having() + b"\n")
    followed = LineTail(str(path), from_end=False)
    tracemalloc.start()
    try:
        (pieces,) = read_pieces([str(path)])
        texts = followed.read_texts().splitlines()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 * 1024 * 1024
    for found in (pieces, texts):
        aggregate = LineAggregate()
        aggregate.add(found)
        assert (aggregate.lines, aggregate.left_out) == (2, 1)
    with path.open("ab") as file:
        file.write(b"x" * 200_000)
    assert followed.read_texts() == b""
    assert len(next(read_pieces([str(path)]))) == 4
    with path.open("ab") as file:
        file.write(b"\n" + having() + b"\n")
    assert len(followed.read()) == 1


def test_what_is_no_regular_file_is_skipped(tmp_path):
    """To open a pipe for reading would wait for a writer without end."""
    (tmp_path / "a.jsonl").write_bytes(having() + b"\n")
    for name in ("b.jsonl", "a.jsonl.1"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "c.jsonl").mkdir()
    for path in (tmp_path, tmp_path / "a.jsonl"):
        assert collect(str(path), None).lines == 1
    with pytest.raises(ConfigError, match="no metrics in"):
        collect(str(tmp_path / "b.jsonl"), None)
    assert len(LineTail(str(tmp_path / "a.jsonl"), from_end=False).read()) == 1
    for path in (tmp_path / "b.jsonl", tmp_path, Path(os.devnull)):
        assert LineTail(str(path), from_end=False).read() == []
        with pytest.raises(FileNotFoundError, match="no regular file"):
            PinnedFile(str(path))


VALUES = (
    *(None, True, "", "x", "\x1b[2J", "-1", [], {}, [[]], {"": {}}, [None], {"0": None}),
    *(0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e-300, 1e300, -1e300),
)


def mutated(rng):
    """A good line in which one to three values, names or entries are others."""
    line = copy.deepcopy(rng.choice([HEALTHY, SLOW_BROKER, THROTTLED]))
    for _ in range(rng.randint(1, 3)):
        at = line
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = rng.choice(keys)
            if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.8:
                at = at[key]
                continue
            break
        what = rng.random()
        if what < 0.7 or isinstance(at, list):
            at[key] = rng.choice(VALUES)
        elif what < 0.85:
            del at[key]
        else:
            at[str(rng.choice(VALUES))] = at.pop(key)
        if not line:
            break
    return line


@pytest.mark.parametrize("seed", range(25))
def test_whatever_a_line_holds_is_shown_or_left_out(seed, tmp_path):
    rng, path = random.Random(seed), tmp_path / "lines.txt"
    lines = [numbered(HEALTHY, 1), *(mutated(rng) for _ in range(3)), numbered(HEALTHY, 2)]
    path.write_bytes(text(*lines))
    usable = sum(read_line(json.dumps(line).encode()) is not None for line in lines)
    found = LineAggregate()
    found.add(path.read_bytes().splitlines())
    assert found.lines + found.left_out == len(lines)
    assert found.lines <= usable
    assert render(found).encode()
    Screen(str(path), None).render(100)
