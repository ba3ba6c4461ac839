"""The file for node_exporter: it goes on in other processes, and nobody waits for it."""

from __future__ import annotations

from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.metrics_outputs import MetricsOutputs
from spark_kafka_sink.metrics import background, textfile
from spark_kafka_sink.metrics.exposition import Exposition
from spark_kafka_sink.metrics.outputs import check_outputs, put_out
from tests.patience import PATIENCE_S
from tests.prometheus import Samples
from tests.unit.report_lines import HEALTHY, SKEWED_KEY, SLOW_BROKER
from tests.unit.test_metrics_names import a_line, of_a_job
from tests.unit.test_metrics_prometheus import SENT, exposed, of_query


def test_a_file_goes_on_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "sink.prom"
    outputs = MetricsOutputs(prometheus_path=str(path))
    for _ in range(3):
        check_outputs(outputs)
        assert list(put_out(outputs, of_a_job(a_line()))) == []
        textfile._known.clear()
    read = Samples(path.read_text())
    assert read(SENT) == 3 * 2200
    assert read("pykafka_sink_request_latency_seconds_bucket", le="0.004") == 12
    assert read("pykafka_sink_request_latency_seconds_sum") == pytest.approx(0.24)
    assert read.names == exposed(of_a_job(a_line())).names
    assert [p.name for p in tmp_path.iterdir()] == ["sink.prom"]


def _add_lines(path: str, count: int, ready: Any) -> None:
    ready.wait()
    for _ in range(count):
        textfile.add_to_textfile(path, a_line())


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """As the one that has committed a batch may write while the next one's does."""
    path = tmp_path / "sink.prom"
    processes = get_context("fork")
    ready = processes.Barrier(3)
    started = [processes.Process(target=_add_lines, args=(str(path), 40, ready)) for _ in range(3)]
    for process in started:
        process.start()
    for process in started:
        process.join()
        assert process.exitcode == 0
    assert Samples(path.read_text())(SENT) == 3 * 40 * 2200


def test_a_micro_batch_does_not_wait_for_the_file(tmp_path: Path) -> None:
    """Whoever has the lock."""
    path = tmp_path / "sink.prom"
    with textfile._alone(str(path)):
        assert list(put_out(MetricsOutputs(prometheus_path=str(path)), of_query(a_line()))) == []
        assert not path.exists()
    assert background._senders[str(path)].wait(PATIENCE_S)
    assert Samples(path.read_text())(SENT) == 2200


def test_going_on_has_each_series_once_and_the_sums_of_one_process() -> None:
    """Labels are sorted in the text, and not in the lines: of tasks' parts, brokers and topics."""
    lines = [of_query(line, query_name="orders") for line in (SLOW_BROKER, SKEWED_KEY, HEALTHY)]
    alone = Exposition()
    text = ""
    for line in lines:
        alone.add(line)
        going_on = Exposition()
        going_on.go_on_from(text)
        going_on.add(line)
        text = going_on.text()
    told = [sample.rpartition(" ")[0] for sample in text.splitlines() if sample[0] != "#"]
    assert len(told) == len(set(told)) > 120
    expected = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for sample in Samples(alone.text()).samples
        if not _is_of_one_batch(sample)
    }
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for sample in Samples(text).samples
    }
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert any(dict(key[1:]).get("node_id") for key in expected)


def _is_of_one_batch(sample: Any) -> bool:
    return not sample.name.endswith(("_total", "_bucket", "_count", "_sum"))


def test_a_file_of_this_process_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "sink.prom"
    textfile.add_to_textfile(str(path), a_line())
    known = textfile._known[str(path)][1]
    textfile.add_to_textfile(str(path), a_line())
    assert textfile._known[str(path)][1] is known
    path.unlink()
    textfile.add_to_textfile(str(path), a_line())
    assert Samples(path.read_text())(SENT) == 2200


def test_a_file_that_is_something_else_is_refused_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "other"
    path.write_text("{ what } is = this\n")
    outputs = MetricsOutputs(prometheus_path=str(path))
    with pytest.raises(ConfigError, match="is not a file in Prometheus' format"):
        check_outputs(outputs)
    assert list(put_out(outputs, of_a_job(a_line()))) == []
    assert f"metrics.prometheus.path: cannot write {path}: " in caplog.text
    assert path.read_text() == "{ what } is = this\n"
    missing = MetricsOutputs(prometheus_path=str(tmp_path / "missing" / "sink.prom"))
    with pytest.raises(ConfigError, match="cannot write to .*missing on the driver"):
        check_outputs(missing)
