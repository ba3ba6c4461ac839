"""Reading lines, adding them up, and the page, as far as that needs no browser."""

import json
import re
import threading
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_keys import MetricsOutputs
from spark_kafka_sink.metrics.line import (
    CAUSES_OF_DEAD_LETTERS,
    NAMES,
    count,
    duration,
    moment,
    percent,
    size,
)
from spark_kafka_sink.metrics.outputs import write_outputs
from spark_kafka_sink.record.dead_letters import CAUSES
from spark_kafka_sink.spark.commit import BatchSummary
from spark_kafka_sink.tools import report_lines
from spark_kafka_sink.tools.report_advice import line_findings, overall_findings
from spark_kafka_sink.tools.report_lines import LineAggregate, collect, files_of, parse
from spark_kafka_sink.tools.report_page import (
    MOST_POINTS,
    FollowedReport,
    ReportServer,
    points,
    render,
)
from tests.unit.report_lines import (
    EVEN,
    HEALTHY,
    SKEWED_KEY,
    SLOW_BROKER,
    THROTTLED,
    TINY_BATCHES,
    line,
    task,
    times,
    with_fields,
)

ABORTED = line(task(0, EVEN), event="abort", batch_id=3)


def text(*lines):
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def numbered(example, number, **more):
    time_ms = 1_700_000_000_000 + 1000 * number
    return with_fields(example, **{"batch_id": number, "time_ms": time_ms, **more})


def aggregate(*pieces, query=None, sampling_interval=1):
    found = LineAggregate(query, sampling_interval)
    for piece in pieces:
        found.add(piece.splitlines())
    return found


def words(html):
    """Without the marks of what stays in one line."""
    return re.sub("</?span[^>]*>", "", html)


class TestReading:
    def test_rotated_files_come_first(self, tmp_path):
        path = tmp_path / "m.jsonl"
        for name in ("m.jsonl", "m.jsonl.2", "m.jsonl.10", "m.jsonl.1", "m.jsonl.gz", "other"):
            (tmp_path / name).write_bytes(b"")
        names = [Path(name).name for name in files_of(str(path))]
        assert names == ["m.jsonl.10", "m.jsonl.2", "m.jsonl.1", "m.jsonl"]
        (tmp_path / "each").mkdir()
        for number in range(3):
            (tmp_path / f"each/{number}-orders.json").write_bytes(text(numbered(HEALTHY, number)))
        assert collect(str(tmp_path / "each"), None).lines == 3

    def test_what_is_by_name_has_no_columns(self):
        """It is left away before lines are parsed, if they are as the sink writes them."""
        told = {"commit_ms": 3, "settings": {"kafka.acks": "all"}, "query_name": "q"}
        summary = BatchSummary.merge([task(0, EVEN), task(1, EVEN)])
        summary.planned = (1, 2.5)
        lines = [
            summary.line(event, 7, client_id="c", dead_letters={"null-key": 1}, **told)
            for event in ("commit", "abort")
        ]
        others = [dict(sorted(each.items())) for each in lines]
        pieces = [parse(text(*some).splitlines(), None) for some in (lines, others)]
        assert repr(pieces[0].values.tolist()) == repr(pieces[1].values.tolist())

    def test_one_query_of_several(self, tmp_path):
        path = tmp_path / "m.jsonl"
        names = (("a", "x", 1), ("b", "y", 1), ("a", "x", 2))
        lines = (numbered(HEALTHY, n, query_name=name, query_id=q) for name, q, n in names)
        path.write_bytes(text(*lines))
        assert collect(str(path), "a").lines == collect(str(path), "x").lines == 2
        both = collect(str(path), None)
        assert both.queries == {("x", "a"): 2, ("y", "b"): 1}
        assert points(both.columns())["query"] == [0, 1, 0]
        assert '"queries":{"0":"a","1":"b"}' in render(both)
        assert '"queries":{}' in render(collect(str(path), "a"))
        with pytest.raises(ConfigError, match="no line of metrics of the query c"):
            collect(str(path), "c")
        with pytest.raises(ConfigError, match=r"metrics\.path"):
            collect(str(tmp_path / "nothing.jsonl"), None)

    def test_of_large_files_some_lines_are_read_whole(self, tmp_path, monkeypatch):
        path = tmp_path / "m.jsonl"
        path.write_bytes(text(*(numbered(HEALTHY, number) for number in range(30))))
        whole = collect(str(path), None).total()
        monkeypatch.setattr(report_lines, "WHOLE_BYTES", path.stat().st_size // 10 + 1)
        some = collect(str(path), None)
        assert some.sampling_interval == 10
        assert some.total()["metrics"] == whole["metrics"]
        assert some.total()["nodes"]["1"]["requests"] * 10 == whole["nodes"]["1"]["requests"]
        assert "every 10th line" in render(some)


class TestAddingUp:
    def test_a_sum_has_the_shape_of_a_line(self):
        total = aggregate(text(SLOW_BROKER, SLOW_BROKER), text(SLOW_BROKER)).total()
        for name, value in SLOW_BROKER["metrics"].items():
            is_most = "_max" in name
            assert total["metrics"][name] == pytest.approx(value if is_most else 3 * value)
        counts = SLOW_BROKER["nodes"]["2"]["request_latency"]["histogram"]["counts"]
        summed = total["nodes"]["2"]["request_latency"]["histogram"]["counts"]
        assert summed == {bucket: 3 * number for bucket, number in counts.items()}
        assert [finding.kind for finding in line_findings(total)] == ["slow-broker"]
        # Partitions of different lines.
        total = aggregate(text(line(task(0, [5000, 0, 0])), line(task(0, [0, 0, 7000])))).total()
        records = {n: part["records"] for n, part in total["partitions"]["orders"].items()}
        assert records == {"0": 5000, "2": 7000}
        # As of an abort without any task's message.
        bare = aggregate(text(line(event="abort")))
        assert points(bare.columns())["records_per_s"] == [None]
        assert "do not tell of partitions" in render(bare)
        assert points(aggregate().columns()) == {}

    def test_the_slowest_and_the_latest_are_kept_whole(self):
        lines = [numbered(HEALTHY, n, elapsed_ms=(n * 7919) % 1000) for n in range(1000)]
        found = aggregate(*(text(*lines[at : at + 90]) for at in range(0, 1000, 90)))
        assert [ms for ms, _ in found.slowest()] == [*range(999, 979, -1)]
        assert [each["batch_id"] for each in found.latest()] == [*range(999, 899, -1)]
        assert found.latest()[0] == lines[-1]

    def test_points_keep_the_extremes(self):
        lines = [numbered(HEALTHY, n, elapsed_ms=1000) for n in range(1000)]
        lines[634]["elapsed_ms"] = 77_000
        lines[277] = numbered(ABORTED, 277)
        found = points(aggregate(text(*lines)).columns())
        assert {len(values) for values in found.values()} == {MOST_POINTS}
        assert max(found["slowest_s"]) == 77
        assert sum(found["aborted"]) == 1
        at = found["slowest_s"].index(77)
        assert found["first"][at] <= 634 <= found["last"][at]
        assert min(found["least_records_per_s"]) == pytest.approx(48_000 / 77, rel=1e-3)

    def test_parts_make_up_the_time_of_a_batch(self):
        found = points(aggregate(text(with_fields(SLOW_BROKER, commit_ms=500))).columns())
        parts = [values[0] for name, values in found.items() if name.startswith("part_")]
        assert sum(parts) == pytest.approx(found["seconds"][0]) == 4.5
        planned = aggregate(text(with_fields(HEALTHY, planning_ms=4000.0, elapsed_ms=1000)))
        assert points(planned.columns())["seconds"] == [5]
        assert "<td>planning</td>" in render(planned)
        waiting = times(12_500, encode=300, buffer_wait=4_000, ack_wait=8_000)
        limited = aggregate(text(line(task(0, EVEN, limit_wait_ms=12_000, **waiting))))
        seconds = points(limited.columns())
        assert seconds[f"part_{NAMES.index('waiting for the task limit')}"] == [12.0]
        assert seconds[f"part_{NAMES.index('waiting for acknowledgements')}"] == [0]
        assert "<summary>the limit that you have set</summary>" in render(limited)
        style = Path(report_lines.__file__).parent / "assets" / "page.css"
        light = style.read_text(encoding="utf-8").partition("@media")[0]
        colours = dict(re.findall(r"--c(\d+):(#\w+)", light))
        assert list(map(int, colours)) == list(range(len(NAMES)))
        assert len({*colours.values()}) == len(NAMES)

    def test_dead_letters(self):
        some = [numbered(HEALTHY, n, dead_letters={"too-large": n, "null-key": 1}) for n in (0, 4)]
        found = aggregate(text(*some, HEALTHY))
        assert found.total()["dead_letters"] == {"too-large": 4, "null-key": 2}
        assert points(found.columns())["dead"] == [1, 5, 0]
        assert "<dt>dead letters</dt><dd>6</dd>" in render(found)
        assert "dead letters</dt>" not in render(aggregate(text(HEALTHY)))
        assert CAUSES_OF_DEAD_LETTERS == CAUSES

    def test_settings_and_what_has_changed(self):
        def with_size(number, size, **more):
            return numbered(HEALTHY, number, settings={"kafka.batch.size": size, **more})

        lines = [with_size(n, "131072") for n in range(4)] + [with_size(4, "200", acks="1")]
        # Another query, with settings of its own.
        lines.insert(2, with_size(2, "5000"))
        lines[2]["query_id"] = "other"
        found = aggregate(text(HEALTHY, *lines))
        assert [tuple(change)[2:] for change in found.changes] == [
            ("kafka.batch.size", "131072", "200"),
            ("acks", None, "1"),
        ]
        assert {change.batch_id for change in found.changes} == {4}
        page = render(found)
        row = next(row for row in page.split("<tr>") if "<td>131072</td><td>200</td>" in row)
        assert "kafka.batch.size" in row
        assert 'id="changes"' not in render(aggregate(text(HEALTHY)))

    def test_a_long_line_and_many(self):
        """The steps of the heat map are bounded."""
        wide = text(line(task(0, [10] * 10_000)))
        assert len(wide) > 1024 * 1024
        assert aggregate(wide + text(HEALTHY)).lines == 2
        lines = [numbered(HEALTHY, number) for number in range(400)]
        found = aggregate(*(text(*lines[at : at + 7]) for at in range(0, 400, 7)))
        assert len(found.steps) <= 120
        assert sum(step.lines for step in found.steps) == 400
        assert sum(step.counts["orders", "3"] for step in found.steps) == 8000 * 400


class _Page(HTMLParser):
    """Balance of elements, and their attributes."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.ids = []
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(page):
    found = _Page()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


class TestPage:
    def test_it_needs_nothing_from_elsewhere(self):
        page = render(aggregate(text(HEALTHY, SLOW_BROKER, THROTTLED, SKEWED_KEY)))
        assert "http:" not in page
        assert "https:" not in page
        assert "Leon Sorokin" in page
        found = parsed(page)
        assert not [tag for tag, _ in found.found if tag in ("link", "img", "iframe")]
        assert not [tag for tag, given in found.found if "src" in given or "href" in given]
        assert len(found.ids) == len(set(found.ids)) > 20
        # Skew, as the heat map shows it.
        row = next(
            row
            for row in render(aggregate(text(SKEWED_KEY))).split("<tr>")
            if ">orders-0</th>" in row
        )
        assert ">94.1 %</td>" in row
        assert "--heat:1.00" in row

    def test_names_are_shown_as_they_are(self):
        evil = "</script><script>alert(1)</script>"
        found = aggregate(text({**HEALTHY, "query_name": evil, "client_id": evil}, ABORTED))
        assert evil not in render(found)
        parsed(render(found))

    def test_no_name_moves_a_cursor_turns_the_text_or_stops_the_page(self, tmp_path, capsys):
        """Topics, hosts and queries of a file that somebody else wrote."""
        evil = "\x1b[2J\x07\u202egpj.exe\u2066\u200b\x9b\x00"
        names = dict.fromkeys(("query_id", "query_name", "client_id"), evil)
        (written,) = text({**HEALTHY, **names, "settings": {evil: evil}}).splitlines()
        assert b'"orders"' in written
        path = tmp_path / "m.jsonl"
        path.write_bytes(written.replace(b"orders", json.dumps(evil)[1:-1].encode()))
        assert main(["report", str(path), "--output", "-"]) == 0
        page = capsys.readouterr().out
        assert page.replace("\n", "").isprintable()
        for place in ("<title>", "<th scope='row'>", '<th scope="row">', "<td>"):
            assert re.search(re.escape(place) + r"[^<]*\\x1b\[2J\\x07\\u202egpj", page), place

    def test_a_batch_has_one_main_cause_and_the_others_are_folded(self):
        letters = {"dead_letters": {"too-large": 2}}
        lines = [numbered(HEALTHY, number) for number in range(40)]
        lines[17] = numbered(SLOW_BROKER, 17, **letters)
        page = render(aggregate(text(*lines)))
        tasks = page.split('id="tasks"')[1].split("<tbody>")[1].split("<tr>")[1:5]
        assert all(">17</th>" in row for row in tasks)
        row = next(row for row in page.split("<tr>") if ">17</th>" in row)
        main, others = row.split("<details class='others'>")
        assert "waiting for buffer memory" in row
        assert "<summary>broker 2 is slow</summary>" in main
        assert "Look at broker 2: disk" in main
        assert "dead-letters" not in main
        assert others.startswith("<summary>Also: rows became dead letters</summary>")
        assert "data-kind='dead-letters'" in others

    def test_batches_that_stand_out_come_first(self):
        lines = [numbered(HEALTHY, number) for number in range(40)]
        lines[17] = numbered(SLOW_BROKER, 17)
        page = render(aggregate(text(*lines)))
        said = page.split("id='outliers'")[1].split("</ul>")[0]
        assert "<b>batch 17</b>, 2023-11-14 22:13:37 UTC: 4.0 s, 4 times the median." in words(said)
        assert "<summary>broker 2 is slow</summary>" in said
        assert said.count("<b>batch") == 1
        assert "id='outliers'" not in render(aggregate(text(*lines[:17])))

    def test_what_explains_most_of_the_time_is_said_first(self):
        """Added up, small record batches among large ones are of a size that no rule minds."""
        lines = [numbered(HEALTHY, number) for number in range(22)]
        lines[17] = numbered(TINY_BATCHES, 17, elapsed_ms=20_000)
        found = aggregate(text(*lines, ABORTED))
        assert [each.kind for each in overall_findings(found.total(), found.causes)] == [
            "tiny-batches",
            "aborted",
        ]
        page = render(found)
        said, others = page.split("<ul class='advice'>")[1:3]
        assert "Also: aborted" in said
        assert "data-kind='aborted'" in others
        assert "It explains 44 % of the time of all batches, in 1 of 23. As in batch 17:" in words(
            said
        )
        alone = aggregate(text(lines[17]))
        assert overall_findings(alone.total(), alone.causes) == line_findings(lines[17])

    def test_the_command(self, tmp_path, capsys):
        path = tmp_path / "m.jsonl"
        path.write_bytes(text(HEALTHY))
        output = tmp_path / "page.html"
        assert main(["report", str(path), "--output", str(output)]) == 0
        assert capsys.readouterr().out == f"{output}\n"
        assert output.read_text("utf-8") == render(aggregate(text(HEALTHY)))
        assert main(["report", str(path), "--output", "-"]) == 0
        assert capsys.readouterr().out == output.read_text("utf-8")
        assert main(["report", str(tmp_path / "none.jsonl")]) == 1
        assert main(["report", str(path), "--output", str(tmp_path / "no" / "p.html")]) == 1
        assert main(["report", str(tmp_path), "--follow"]) == 1
        assert main(["report", str(path), "--follow", "--port", "99999"]) == 1
        assert "--port 99999: must be between 0 and 65535" in capsys.readouterr().err


def test_figures():
    assert (size(100), size(1536), size(5 * 1024**3)) == ("100 B", "1.5 KiB", "5.0 GiB")
    assert (duration(5), duration(2500), duration(600_000)) == ("5 ms", "2.5 s", "10.0 min")
    assert (duration(36e6), count(1234567), percent(0.456)) == ("10.0 h", "1,234,567", "46 %")
    assert moment(1_700_000_000_000) == "2023-11-14 22:13:20"


@pytest.fixture
def served(tmp_path):
    server = ReportServer(FollowedReport(str(tmp_path / "m.jsonl"), None), 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def got(server, path, host=None):
    headers = {} if host is None else {"Host": host}
    request = urllib.request.Request(server.address + path, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return str(answer.read().decode())


def test_a_page_that_goes_on_updating(served, tmp_path):
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


def test_each_line_is_read_once_whenever_the_file_is_rotated(tmp_path):
    path = tmp_path / "m.jsonl"
    outputs = MetricsOutputs(str(path), max_bytes=1)

    def put(*numbers):
        for number in numbers:
            write_outputs(outputs, numbered(HEALTHY, number))

    put(1, 2, 3)
    report = FollowedReport(str(path), None)
    put(4, 5)
    assert report.version() == 5
    put(6, 7, 8)
    assert report.version() == 8
    assert re.search(r'"first":\[1,2,3,4,5,6,7,8\]', report.page().decode())


def test_other_sites_cannot_read_it(served):
    for path, host in (("", "example.org"), ("other", None)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            got(served, path, host)
        assert refused.value.code == 404
        refused.value.close()
