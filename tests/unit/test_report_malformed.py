"""Files of metrics with texts that are no lines: each is left out and counted, the others are read."""

from __future__ import annotations

import copy
import json
import os
import random
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.cli import main
from spark_kafka_sink.metrics import reading
from spark_kafka_sink.metrics.reading import LineTail, PinnedFile, read_line
from spark_kafka_sink.tools.report_lines import LineAggregate, collect, parse, read_pieces
from spark_kafka_sink.tools.report_page import FollowedReport, render
from tests.unit.report_lines import HEALTHY, SLOW_BROKER, THROTTLED
from tests.unit.test_report import numbered, text

GOOD = numbered(HEALTHY, 1)


def having(**fields: Any) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


def with_raw(name: str, value: bytes) -> bytes:
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
    "a string for a number": having(time_ms="now"),
    "a time beyond all years": having(time_ms=2**62),
    "a time before all": having(time_ms=-1),
    "a boolean for a number": having(batch_id=True),
    "metrics is a list": having(metrics=[1]),
    "metrics is null": having(metrics=None),
    "a counter is a string": having(metrics={"records": "7"}),
    "partitions is a list": having(partitions=[1]),
    "a topic is a number": having(partitions={"t": 7}),
    "a partition is a number": having(partitions={"t": {"0": 7}}),
    "a partition without records": having(partitions={"t": {"0": {}}}),
    "a partition's records are a text": having(
        partitions={"t": {"0": {**PARTITION, "records": "1"}}}
    ),
    "a partition that is no number": having(partitions={"t": {"x": PARTITION}}),
    "a broker is a list": having(nodes={"1": []}),
    "a broker without a number": having(nodes={"one": GOOD["nodes"]["1"]}),
    "a histogram is a text": having(request_latency={**GOOD["request_latency"], "histogram": "x"}),
    "buckets of texts": having(
        request_latency={**GOOD["request_latency"], "histogram": {"scale": 3, "counts": {"a": "b"}}}
    ),
    "a scale that overflows": having(
        request_latency={
            **GOOD["request_latency"],
            "histogram": {"scale": -5000, "counts": {"1": 1}},
        }
    ),
    "a bucket that overflows": having(
        request_latency={
            **GOOD["request_latency"],
            "histogram": {"scale": 3, "counts": {"9" * 12: 1}},
        }
    ),
    "a broker's bucket that overflows": having(
        nodes={
            "1": {**GOOD["nodes"]["1"], "request_latency": {"histogram": {"counts": {"9" * 9: 1}}}}
        }
    ),
    "a task's start beyond all years": having(
        slowest_tasks=[{**GOOD["slowest_tasks"][0], "started_at_ms": 2**62}]
    ),
    "settings is a text": having(settings="x"),
    "a setting is a list": having(settings={"kafka.linger.ms": ["5"]}),
    "slowest tasks is an object": having(slowest_tasks={}),
    "a slow task is a text": having(slowest_tasks=["x"]),
    "a slow task without times": having(slowest_tasks=[{"task": 1}]),
    "of another sink": having(sink="other"),
    "no event": having(event=None),
    "an unknown event": having(event="\x1b[2J"),
}
HARMLESS = ("huge", "a scale that overflows")
"""What is read all the same: a field may have any length, and nothing is computed of a scale."""


@pytest.mark.parametrize("name", ["query_id", "error", "of nobody"])
def test_bytes_that_are_no_text_reach_no_column(name: str) -> None:
    """They may be behind the part of a line that is parsed."""
    good = having()
    found = parse([good, with_raw(name, b'"\xe9"')], None)
    assert ([row.text for row in found.rows], found.left_out) == ([good], 1)


@pytest.mark.parametrize("kind", MALFORMED)
def test_one_is_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
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


def test_names_of_others_are_any() -> None:
    """A topic may be called as a field is."""
    named = having(
        settings={"x_at_ms": "y"}, topics={"time_ms": next(iter(GOOD["topics"].values()))}
    )
    assert read_line(named) is not None
    assert read_line(having(partitions={"t": {"9" * 5000: PARTITION}})) is None


@pytest.mark.parametrize("sampling_interval", [1, 7])
def test_many_among_good_ones(sampling_interval: int) -> None:
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


def test_a_line_longer_than_any_is_left_out_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_what_is_no_regular_file_is_skipped(tmp_path: Path) -> None:
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


VALUES: tuple[Any, ...] = (
    *(None, True, "", "x", "\x1b[2J", "-1", [], {}, [[]], {"": {}}, [None], {"0": None}),
    *(0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e-300, 1e300, -1e300),
)


def mutated(rng: random.Random) -> dict[str, Any]:
    """A good line in which one to three values, names or entries are others."""
    line = copy.deepcopy(rng.choice([HEALTHY, SLOW_BROKER, THROTTLED]))
    for _ in range(rng.randint(1, 3)):
        at: Any = line
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


def check_mutated(seed: int, path: Path) -> None:
    rng = random.Random(seed)
    lines = [numbered(HEALTHY, 1), *(mutated(rng) for _ in range(3)), numbered(HEALTHY, 2)]
    path.write_bytes(text(*lines))
    usable = sum(read_line(json.dumps(line).encode()) is not None for line in lines)
    found = LineAggregate()
    found.add(path.read_bytes().splitlines())
    assert found.lines + found.left_out == len(lines)
    assert found.lines <= usable
    assert render(found).encode()
    from spark_kafka_sink.tools.terminal import Screen

    Screen(str(path), None).render(100)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_line_holds_is_shown_or_left_out(seed: int, tmp_path: Path) -> None:
    check_mutated(seed, tmp_path / "lines.txt")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for number in range(int(sys.argv[1]), int(sys.argv[2])):
            try:
                check_mutated(number, Path(folder, "lines.txt"))
            except Exception as error:
                print(number, repr(error)[:300])
                import traceback

                print(traceback.format_exc().splitlines()[-5:])
