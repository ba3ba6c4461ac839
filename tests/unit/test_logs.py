"""Where the sink's log goes, how much of it, and in which form."""

import json
import logging
import sys

import pytest

from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.spark import commit, worker
from spark_kafka_sink.spark.commit import report_commit
from spark_kafka_sink.spark.worker import set_up

NOWHERE = MetricsOutputs()


@pytest.fixture(autouse=True)
def text(monkeypatch):
    monkeypatch.setattr(worker, "_is_json", False)


@pytest.fixture
def bare_logger(monkeypatch):
    """The sink's loggers in an application that has not set up logging: pytest has."""
    logger, module = logging.Logger("spark_kafka_sink"), logging.Logger(commit.__name__)
    module.parent = logger
    monkeypatch.setattr(worker, "logger", logger)
    monkeypatch.setattr(commit, "logger", module)
    # There, loggers that keep what is enabled are told of changed levels.
    monkeypatch.setitem(logging.Logger.manager.loggerDict, "bare", logger)
    monkeypatch.setitem(logging.Logger.manager.loggerDict, "bare.module", module)
    return logger


def options(**given):
    named = {name.replace("_", "."): value for name, value in given.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": "a:1", **named})


class TestWhere:
    def test_lines_go_to_standard_error(self, bare_logger, capsys):
        report_commit([], 5, True, NOWHERE)
        report_commit([], 6, True, NOWHERE)
        first, second = capsys.readouterr().err.splitlines()
        assert " INFO spark_kafka_sink.spark.commit: batch 5: 0 records" in first
        assert " INFO spark_kafka_sink.spark.commit: batch 6: 0 records" in second
        assert len(bare_logger.handlers) == 1

    def test_logging_that_is_set_up_later_has_each_line_once_and_its_own_level(
        self, bare_logger, capsys
    ):
        bare_logger.parent = application = logging.Logger("application")
        report_commit([], 5, True, NOWHERE)
        application.addHandler(logging.StreamHandler(sys.stderr))
        bare_logger.info("written by another module")
        report_commit([], 6, True, NOWHERE)
        application.setLevel(logging.WARNING)
        report_commit([], 7, True, NOWHERE)
        first, second, third = capsys.readouterr().err.splitlines()
        assert " INFO spark_kafka_sink.spark.commit: batch 5: " in first
        assert second == "written by another module"
        assert third.startswith("batch 6: ")
        assert bare_logger.handlers == []


class TestHowMuch:
    def test_a_level_that_the_application_has_set_stays(self, bare_logger, capsys):
        bare_logger.setLevel(logging.WARNING)
        set_up(options())
        report_commit([], 5, True, NOWHERE)
        bare_logger.addHandler(logging.StreamHandler(sys.stderr))
        report_commit([], 6, True, NOWHERE)
        assert capsys.readouterr().err == ""
        assert bare_logger.level == logging.WARNING

    def test_the_option_decides(self, bare_logger, capsys):
        set_up(options(log_level="warning"))
        report_commit([], 5, True, NOWHERE)
        assert capsys.readouterr().err == ""
        set_up(options(log_level="Info"))
        report_commit([], 6, True, NOWHERE)
        assert " batch 6: " in capsys.readouterr().err


class TestForm:
    def test_json(self, bare_logger, capsys):
        set_up(options(log_format="json"))
        report_commit([], 5, True, NOWHERE)
        bare_logger.warning("of %s", "something")
        try:
            raise ValueError("größe")
        except ValueError:
            bare_logger.error("failed", exc_info=True)
        text = capsys.readouterr().err
        assert "ValueError: größe" in text, "letters are not escaped"
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["level"] for line in lines] == ["INFO", "WARNING", "ERROR"]
        assert lines[0]["metrics"]["batch_id"] == 5
        assert "message" not in lines[0]
        assert lines[0]["logger"] == "spark_kafka_sink.spark.commit"
        assert lines[1]["message"] == "of something"
        assert lines[2]["exception"].endswith("ValueError: größe")
        assert all(line["time"].endswith("Z") for line in lines)

    def test_the_applications_own_form_counts(self, bare_logger, capsys):
        bare_logger.addHandler(logging.StreamHandler(sys.stderr))
        bare_logger.setLevel(logging.INFO)
        set_up(options(log_format="json"))
        report_commit([], 5, True, NOWHERE)
        assert json.loads(capsys.readouterr().err)["batch_id"] == 5
