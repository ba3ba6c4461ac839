"""The latest batches in a terminal."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.cli import main
from spark_kafka_sink.tools.command import confirmation
from tests.unit.report_lines import HEALTHY, SLOW_BROKER
from tests.unit.test_report import numbered, text


@pytest.fixture(autouse=True)
def a_wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def test_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.jsonl"
    lines = [numbered(HEALTHY, number) for number in range(30)]
    lines[29] = numbered(SLOW_BROKER, 29)
    path.write_bytes(text(*lines))
    assert main(["top", str(path), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "30 batches, the last at 2023-11-14 22:13:49 UTC" in shown
    row = next(row for row in shown.splitlines() if row.lstrip().startswith("29 "))
    assert row.split("waiting for buffer memory")[1].strip() == "broker 2 is slow"
    assert "Look at broker 2" in shown
    assert "broker 3" in shown
    assert "█" in shown


def test_one_main_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(text(numbered(SLOW_BROKER, 29, dead_letters={"too-large": 2})))
    assert main(["top", str(path), "--once"]) == 0
    shown = capsys.readouterr().out
    (row,) = [row for row in shown.splitlines() if row.lstrip().startswith("29 ")]
    assert row.rstrip().endswith("broker 2 is slow (+1)")
    assert "broker 2 is slow: broker 2 answered" in shown
    assert "also: rows became dead letters" in shown


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_narrow_terminals(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    """No line is longer than the screen, and what matters is there: which batch, and why."""
    monkeypatch.setenv("COLUMNS", str(columns))
    path = tmp_path / "m.jsonl"
    path.write_bytes(text(numbered(HEALTHY, 1), numbered(SLOW_BROKER, 16)))
    assert main(["top", str(path), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    (row,) = [line for line in lines if line.lstrip().startswith("16 ")]
    assert "4.0 s" in row
    assert "broker 2 is slow" in row


def test_one_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(text(numbered(HEALTHY, 1, query_name="a"), numbered(HEALTHY, 2)))
    assert main(["top", str(path), "--once", "--query", "a"]) == 0
    assert "1 batch," in capsys.readouterr().out


def test_batches_of_several_queries_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.jsonl"
    lines = [
        numbered(HEALTHY, 7, query_name="orders"),
        numbered(HEALTHY, 8, query_id="0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"),
        numbered(HEALTHY, 9, query_name="clicks-of-all-countries-by-minute"),
    ]
    path.write_bytes(text(*lines))
    assert main(["top", str(path), "--once"]) == 0
    rows = [row.split()[:2] for row in capsys.readouterr().out.splitlines()[1:5]]
    assert rows == [
        ["batch", "query"],
        ["9", "clicks-of-all-count…"],
        ["8", "0b1c2d3e"],
        ["7", "orders"],
    ]
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["top", str(path), "--once"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 40
    assert " clicks-… " in shown
    path.write_bytes(text(*lines[:1]))
    assert main(["top", str(path), "--once"]) == 0
    assert "query" not in capsys.readouterr().out


def test_nothing_to_show_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As report says it: who looks once is told that there is nothing, and not to wait."""
    path = tmp_path / "m.jsonl"
    assert main(["top", str(path), "--once"]) == 1
    assert f"no line of metrics in {path}" in capsys.readouterr().err
    path.write_bytes(text(numbered(HEALTHY, 1)))
    assert main(["top", str(path), "--once", "--query", "a"]) == 1
    assert f"no line of metrics of the query a in {path}" in capsys.readouterr().err


def test_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["top", str(tmp_path)]) == 1
    assert "not a folder" in capsys.readouterr().err
    for command in (["top"], ["top", "--once"], ["report", "--follow"]):
        assert main([*command, "s3://bucket/metrics"]) == 1
        assert "a file of this machine that grows" in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "spark_kafka_sink.tools.terminal", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["top", str(tmp_path / "m.jsonl"), "--once"]) == 1
    assert "pip install 'pykafka-sink[cli]'" in capsys.readouterr().err


BLOW = "\x1b[2J\x9b31m[bold]q\u202e"


def test_names_of_queries_are_no_commands_for_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.jsonl"
    lines = [numbered(SLOW_BROKER, 1, query_name=BLOW), numbered(SLOW_BROKER, 2, query_name="b")]
    path.write_bytes(text(*lines))
    assert main(["top", str(path), "--once"]) == 0
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
    assert r"\x1b[2J\x9b31m[b" in shown


def test_what_is_confirmed_and_what_has_failed_is_shown_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = argparse.Namespace(yes=False)
    monkeypatch.setattr(sys, "stdin", Yes())
    confirmation(arguments, ConfigError)(f"two lines\n{BLOW}")
    shown = capsys.readouterr().err
    assert shown.startswith("two lines\n\\x1b[2J")
    assert all(line.isprintable() for line in shown.splitlines())
    assert main(["top", f"file://{BLOW}"]) == 1
    assert capsys.readouterr().err.rstrip("\n").isprintable()


class Yes(io.StringIO):
    def isatty(self) -> bool:
        return True

    def readline(self, size: int = -1) -> str:
        return "yes\n"
