"""Spark's setting for Unix domain sockets: what sets it, and what advises it."""

import logging
from pathlib import Path

import pytest

from spark_kafka_sink.config.config_def import read_properties
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS
from spark_kafka_sink.jobs.session import defaults_of_jobs
from spark_kafka_sink.spark import preflight, versions
from spark_kafka_sink.spark.source import advise_on_sockets
from spark_kafka_sink.tools.check import _spark_settings

VARIABLE = "PYTHON_UNIX_DOMAIN_ENABLED"
CONF = Path(__file__).parents[2] / "conf"


@pytest.mark.parametrize("path", sorted(CONF.glob("*.conf")), ids=lambda path: path.name)
def test_every_file_in_conf_sets_it(path):
    assert (UNIX_SOCKETS, "true") in [(name, value) for name, value, _ in read_properties(path)]


@pytest.mark.parametrize(("given", "expected"), [(set(), "true"), ({UNIX_SOCKETS}, None)])
def test_jobs_set_it_unless_their_user_has(given, expected):
    assert defaults_of_jobs(given.__contains__).get(UNIX_SOCKETS) == expected


@pytest.mark.parametrize(
    ("spark", "variable", "lacks"),
    [
        ((4, 0), None, False),
        ((4, 1), None, True),
        ((4, 1), "false", True),
        ((4, 1), "true", False),
        ((4, 3), "True", False),
    ],
)
def test_the_log_advises_it_once(
    monkeypatch,
    caplog,
    spark,
    variable,
    lacks,
):
    monkeypatch.setattr(versions, "FOUND", spark)
    monkeypatch.setattr(preflight, "_noted", set())
    monkeypatch.delenv(VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(VARIABLE, variable)
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        advise_on_sockets()
        advise_on_sockets()
    assert [f"{UNIX_SOCKETS}=true" in text for text in caplog.messages] == [True] * lacks


@pytest.mark.parametrize(
    ("line", "findings"),
    [("", 1), (f"{UNIX_SOCKETS} true", 0), (f"{UNIX_SOCKETS} false", 0)],
)
def test_check_advises_it_where_a_job_does_not_decide(tmp_path, line, findings):
    file = tmp_path / "job.conf"
    file.write_text(f"spark.pykafka.topic t\n{line}\n", encoding="utf-8")
    assert len(list(_spark_settings(str(file)))) == findings
    assert list(_spark_settings(None)) == []
