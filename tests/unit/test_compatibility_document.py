"""docs/compatibility.md is what the results say, and the results are kept whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.brokers_versions.zookeeper_kafka import TOO_OLD_FOR_TRANSACTIONS, VERSIONS
from tests.compatibility import results, table
from tests.compatibility.results import BROKER, FAILED, NO, PASSED, Result

A_RESULT = Result(
    spark="4.0.2",
    python="3.12.1",
    kafka="4.3.0",
    what="batch",
    where="local",
    outcome=PASSED,
    command="make test-versions",
    date="2026-01-01",
)


def row_of(document: str, start: str) -> list[str]:
    (line,) = (line for line in document.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_document_is_up_to_date():
    text = table.DOCUMENT.read_text(encoding="utf-8")
    assert text == table.render(results.read()), "run python -m tests.compatibility.table"
    text = table.EVERY_RUN_DOCUMENT.read_text(encoding="utf-8")
    assert text == table.render_every_run(results.read()), "run python -m tests.compatibility.table"


def test_everything_was_run_on_every_broker_that_is_promised():
    """What is refused there was seen to be refused."""
    for kafka in VERSIONS:
        run = {r.what: r for r in results.read() if (r.where, r.kafka) == (BROKER, kafka)}
        assert run.keys() == set(table.BROKER_WHAT), kafka
        no = {"transactions", "operators' commands"} if kafka in TOO_OLD_FOR_TRANSACTIONS else set()
        for what, result in run.items():
            assert result.outcome == (NO if what in no else PASSED), result


@pytest.mark.parametrize("where", ["local", "standalone client", "connect"])
@pytest.mark.parametrize("spark", table.SPARKS)
def test_everything_was_run_with_every_spark_in_the_places_that_all_have(spark, where):
    """What is refused there was seen to be refused."""
    run = [r for r in results.read() if (table.minor(r.spark), r.where) == (spark, where)]
    for what in results.WHAT:
        no = (spark, what) == ("3.5", "stream")
        assert {r.outcome for r in run if r.what == what} == {NO if no else PASSED}, what


class TestResults:
    def test_of_the_same_key_are_replaced(self, tmp_path):
        path = tmp_path / "results.json"
        other = A_RESULT._replace(python="3.13.0")
        results.add(A_RESULT, other, path=path)
        results.add(A_RESULT._replace(outcome=FAILED, date="2026-01-02"), path=path)
        read = results.read(path)
        assert [(r.python, r.outcome) for r in read] == [("3.12.1", FAILED), ("3.13.0", PASSED)]

    def test_of_processes_at_once_are_all_kept(self, tmp_path):
        path = tmp_path / "results.json"
        adding = (
            "import sys; from pathlib import Path; from tests.compatibility import results\n"
            "first = results.Result(**{**results.json.loads(sys.argv[2]), 'python': sys.argv[3]})\n"
            "for n in range(20): results.add(first._replace(kafka=f'4.0.{n}'), path=Path(sys.argv[1]))"
        )
        fields = results.json.dumps(A_RESULT._asdict())
        command = [sys.executable, "-c", adding, str(path), fields]
        processes = [subprocess.Popen([*command, f"3.{n}.0"]) for n in range(3)]
        assert [process.wait() for process in processes] == [0, 0, 0]
        assert len(results.read(path)) == 60

    @pytest.mark.parametrize(
        "wrong",
        [
            {"what": "batches"},
            {"where": "cluster"},
            {"outcome": "ok"},
            {"outcome": NO},
            {"reason": "because"},
            {"kafka": ""},
        ],
    )
    def test_that_the_document_has_no_place_for_are_refused(self, tmp_path, wrong):
        with pytest.raises(ValueError):
            results.add(A_RESULT._replace(**wrong), path=tmp_path / "results.json")

    def test_come_from_what_was_run(self, tmp_path, monkeypatch):
        added = []
        monkeypatch.setattr(results, "add", added.append)
        what = {"what": "batch", "where": "local", "kafka": "4.3.0", "command": "make"}
        with results.of(**what, spark="4.3.0"):
            pass
        with pytest.raises(OSError), results.of(**what, spark="4.2.0", python="3.9.1"):
            raise OSError
        with results.of(**what, spark="4.2.0", python="3.9.1"):
            "another test of the same"
        with results.of(**what, spark="3.5.0", no="Spark refuses it"):
            "what is refused"
        outcomes = [(r.spark, r.python, r.outcome) for r in added[:-1]]
        assert added[-1][:1] + added[-1][5:6] + added[-1][8:] == ("3.5.0", NO, "Spark refuses it")
        this = ".".join(str(part) for part in sys.version_info[:3])
        assert outcomes == [("4.3.0", this, PASSED), ("4.2.0", "3.9.1", FAILED)]


class TestTable:
    def test_says_what_was_tested_with_what(self):
        run = [A_RESULT, A_RESULT._replace(python="3.9.7"), A_RESULT._replace(what="stream")]
        row = row_of(table.render_every_run(run), "| 4.0 | local |")
        assert row == [
            "4.0",
            "local",
            "tested",
            "tested (Python 3.12)",
            "not tested",
            "not tested",
            "not tested",
            "Spark 4.0.2, Python 3.9, 3.12, Kafka 4.3.0",
            "`make test-versions`",
        ]

    def test_says_no_and_why(self):
        no = A_RESULT._replace(outcome=NO, reason="Spark refuses it.")
        failed = A_RESULT._replace(what="stream", outcome=FAILED)
        row = row_of(table.render_every_run([no, failed]), "| 4.0 | local |")
        assert row[2:4] == [
            "no: Spark refuses it.",
            "no: failed with Spark 4.0.2, Python 3.12, Kafka 4.3.0",
        ]

    def test_of_brokers_has_a_row_for_each(self):
        run = [
            A_RESULT._replace(spark="", where=BROKER, what=what, kafka=kafka)
            for what in table.BROKER_WHAT
            for kafka in ("2.1.1", "4.3.0")
        ]
        for kafka in ("2.1.1", "4.3.0"):
            row = row_of(table.render_every_run(run), f"| {kafka} |")
            assert set(row[1:-2]) == {"tested"}

    def test_does_not_keep_a_reason_for_what_works(self, monkeypatch):
        monkeypatch.setitem(table.IN_SPARK, ("4.0", "local", "batch"), "never")
        with pytest.raises(AssertionError, match="refused.py says that it cannot"):
            table.render_every_run([A_RESULT])

    def test_of_runtimes_says_what_was_tested_with_their_spark(self):
        run = [A_RESULT._replace(spark="4.1.4", what=what) for what in ("stream", "batch")]
        assert "| batch, stream |" in table.render(run)

    def test_for_users_names_versions_places_and_what_is_not_there(self):
        no = A_RESULT._replace(what="stream", outcome=NO, reason="Spark refuses it.")
        row = row_of(table.render([A_RESULT, A_RESULT._replace(where="connect"), no]), "| 4.0.2 |")
        assert row == ["4.0.2", "3.12", "4.3.0", "local, connect", "stream"]

    def test_for_users_names_the_kafka_of_places_beside_local_mode(self):
        run = [A_RESULT._replace(kafka="3.9.1"), A_RESULT._replace(where="connect")]
        assert "but local mode were tested with Kafka 4.3.0 only." in table.render(run)

    def test_for_users_has_a_row_for_each_broker(self):
        run = [
            A_RESULT._replace(spark="", where=BROKER, what=what, kafka="4.3.0")
            for what in table.BROKER_WHAT
        ]
        assert row_of(table.render(run), "| 4.3.0 |") == ["4.3.0", "tested", "tested"]
        assert row_of(table.render(run[:1]), "| 4.3.0 |") == ["4.3.0", "codec none", "no"]
