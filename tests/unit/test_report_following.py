"""The page that goes on updating while lines are appended to a file."""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.cli import main
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.metrics.outputs import write_outputs
from spark_kafka_sink.tools.report_page import FollowedReport, ReportServer
from tests.unit.report_lines import HEALTHY
from tests.unit.test_report import numbered, parsed, text


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ReportServer]:
    server = ReportServer(FollowedReport(str(tmp_path / "m.jsonl"), None), 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def got(server: ReportServer, path: str, host: str | None = None) -> str:
    headers = {} if host is None else {"Host": host}
    request = urllib.request.Request(server.address + path, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return str(answer.read().decode())


def test_a_page_that_goes_on_updating(served: ReportServer, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    assert got(served, "version") == "0"
    assert "There is no line yet" in got(served, "")
    path.write_bytes(text(numbered(HEALTHY, 1)))
    assert got(served, "version") == "1"
    assert 'data-version="1"' in got(served, "")
    path.rename(tmp_path / "m.jsonl.1")
    path.write_bytes(text(numbered(HEALTHY, 2)))
    assert got(served, "version") == "2"
    page = got(served, "")
    assert re.search(r'"first":\[1,2\]', page)
    parsed(page)


def test_rotated_files_are_read_first(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    (tmp_path / "m.jsonl.1").write_bytes(text(numbered(HEALTHY, 1)))
    path.write_bytes(text(numbered(HEALTHY, 2)))
    assert FollowedReport(str(path), None).version() == 2


def test_each_line_is_read_once_whenever_the_file_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    outputs = MetricsOutputs(str(path), max_bytes=1)

    def put(*numbers: int) -> None:
        for number in numbers:
            write_outputs(outputs, numbered(HEALTHY, number))

    put(1, 2, 3)
    report = FollowedReport(str(path), None)
    put(4, 5)
    assert report.version() == 5
    put(6, 7, 8)
    assert report.version() == 8
    assert re.search(r'"first":\[1,2,3,4,5,6,7,8\]', report.page().decode())


def test_other_sites_cannot_read_it(served: ReportServer) -> None:
    for path, host in (("", "example.org"), ("other", None)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            got(served, path, host)
        assert refused.value.code == 404
        refused.value.close()


def test_a_port_that_cannot_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "m.jsonl")
    assert main(["report", path, "--follow", "--port", "99999"]) == 1
    assert "--port 99999: must be between 0 and 65535" in capsys.readouterr().err
