"""Where lines go: files that are rotated, folders elsewhere, and a reader that follows."""

import json
import os
import resource
import threading

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_keys import BACKUPS, MetricsOutputs
from spark_kafka_sink.metrics.background import short_reason
from spark_kafka_sink.metrics.outputs import check_path, local_path, write_outputs
from spark_kafka_sink.metrics.reading import LineTail
from tests.patience import PATIENCE_S


def line(number):
    return {"sink": "pykafka-sink", "event": "commit", "batch_id": number, "time_ms": 10**12}


def numbers_in(path):
    return [json.loads(text)["batch_id"] for text in path.read_text().splitlines()]


def put(outputs, *numbers):
    for number in numbers:
        write_outputs(outputs, line(number))


def rotated_after(lines, folder):
    size = len(json.dumps(line(10))) + 1
    return MetricsOutputs(str(folder / "m"), max_bytes=lines * size)


def test_rotation(tmp_path):
    """A file grows for ever unless it is told not to."""
    path, unlimited = tmp_path / "m", tmp_path / "unlimited"
    outputs = rotated_after(2, tmp_path)
    put(MetricsOutputs(str(unlimited)), *range(20))
    assert numbers_in(unlimited) == list(range(20))
    unlimited.unlink()
    put(outputs, 11, 12, 13)
    assert (numbers_in(path), numbers_in(tmp_path / "m.1")) == ([13], [11, 12])
    put(outputs, *range(14, 26))
    rotated = [f"m.{number}" for number in range(1, BACKUPS + 1)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", *rotated]
    assert numbers_in(path) == [25]
    kept = [numbers_in(tmp_path / name) for name in rotated]
    assert kept == [[n, n + 1] for n in range(23, 14, -2)]


def test_a_folder_of_another_file_system(tmp_path):
    """pyarrow's own local one, by a URI that it takes for one: as with an object store."""
    import pyarrow.fs

    system = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    outputs = MetricsOutputs("mem://bucket/metrics/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "spark_kafka_sink.metrics.outputs._file_system", lambda uri: (system, "metrics/")
        )
        (tmp_path / "metrics").mkdir()
        put(outputs, 1, 2, 2)
    files = sorted((tmp_path / "metrics").iterdir())
    assert [numbers_in(file) for file in files] == [[1], [2], [2]]
    assert files[0].name.startswith("001000000000000-job-1-")


def test_which_paths_are_local():
    for path in ("/var/log/m.jsonl", "m.jsonl"):
        assert local_path(path) == path
    assert local_path("file:///var/log/a%20b") == "/var/log/a b"
    assert local_path("file:/var/log/m") == "/var/log/m"
    assert local_path("s3://bucket/m") is local_path("hdfs://name:8020/m") is None


def test_a_uri_that_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match="metrics.path: nosuch://x: .*pyarrow.fs knows"):
        check_path("nosuch://x")


def test_what_cannot_be_written_is_told_once_and_not_raised(tmp_path, caplog):
    caplog.set_level("INFO")
    path = tmp_path / "missing" / "m"
    outputs = MetricsOutputs(str(path))
    put(outputs, 1, 2)
    begins = f"metrics.path: cannot append to {path}: "
    (problem,) = caplog.messages
    assert problem.startswith(f"{begins}No such file or directory. Batches go on, and what is not")
    assert problem.endswith("the log tells when it is written again [PKS-METRICS-002]")
    path.mkdir(parents=True)
    put(outputs, 3)
    assert caplog.messages[1].startswith(f"{begins}Is a directory. ")
    path.rmdir()
    put(outputs, 4, 5)
    assert numbers_in(path) == [4, 5]
    told = f"metrics.path: {path} is written again; those of 3 batch(es) are missing"
    assert caplog.messages[2:] == [told]
    put(MetricsOutputs("nosuch://x"), 1)
    assert caplog.messages[3].startswith("metrics.path: cannot append to nosuch://x: ")


@pytest.mark.parametrize("has_reader", [False, True])
def test_a_pipe_in_a_shared_folder_does_not_stop_a_query(has_reader, tmp_path, caplog):
    """Without a reader, its opening waits; with one that does not read, so does the writing."""
    path = tmp_path / "m"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if has_reader else None
    # So that the test fails instead of hanging where a pipe is waited for.
    rescue = threading.Timer(PATIENCE_S, os.open, (path, os.O_RDONLY | os.O_NONBLOCK))
    rescue.start()
    try:
        put(MetricsOutputs(str(path), max_bytes=10), 1)
        put(MetricsOutputs(str(path)), 2)
        with pytest.raises(ConfigError, match=f"cannot append to {path} .*no regular file"):
            check_path(str(path))
    finally:
        rescue.cancel()
    assert reader is None or os.read(reader, 10) == b""
    (problem,) = caplog.messages
    assert problem.startswith(f"metrics.path: cannot append to {path}: it is no regular file")


def test_a_line_that_a_full_disk_cuts_off_is_told(tmp_path, caplog):
    """The system takes a part and raises nothing. A limit of files' sizes does the same."""
    path = tmp_path / "m"
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        put(MetricsOutputs(str(path)), 1)
        os._exit(0 if "written in part" in caplog.text else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert path.stat().st_size == 10


def test_of_a_long_error_its_first_line_is_told():
    assert short_reason(OSError(2, "No such file", "m")) == "No such file"
    assert short_reason(OSError("AWS Error\n" + 16_000 * "x")) == "AWS Error"
    assert short_reason(ValueError(16_000 * "x")) == 500 * "x" + "…"
    assert short_reason(KeyError("a")) == "KeyError('a')"
    assert short_reason(ValueError()) == "ValueError()"


def read(followed):
    return [found["batch_id"] for found in followed.read()]


@pytest.mark.parametrize("is_there", [True, False])
def test_several_rotations_between_two_reads_and_before_the_first(tmp_path, is_there):
    path, outputs = tmp_path / "m", rotated_after(2, tmp_path)
    if is_there:
        put(outputs, 7)
    followed = LineTail(str(path), from_end=True)
    put(outputs, *range(10, 20))
    assert read(followed) == list(range(10, 20))
    put(outputs, *range(20, 28))
    assert read(followed) == list(range(20, 28))
    assert read(followed) == []


def test_what_is_kept_of_too_many_rotations_is_read_and_the_log_says_so(tmp_path, caplog):
    path, outputs = tmp_path / "m", rotated_after(2, tmp_path)
    followed = LineTail(str(path), from_end=True)
    put(outputs, 10, 11, 12)
    assert read(followed) == [10, 11, 12]
    put(outputs, *range(13, 30))
    assert read(followed) == [13, *range(18, 30)]
    (record,) = caplog.records
    assert "lines may be missing here. Raise metrics.path.max.bytes, " in record.message
    put(outputs, 30)
    assert read(followed) == [30]
    assert len(caplog.records) == 1


def test_files_before_one_that_was_removed_are_not_read_again(tmp_path, caplog):
    path, outputs = tmp_path / "m", rotated_after(1, tmp_path)
    followed = LineTail(str(path), from_end=False)
    put(outputs, 10, 11, 12)
    earlier = path.stat().st_mtime_ns - 10**9
    for rotated in (tmp_path / "m.1", tmp_path / "m.2"):
        os.utime(rotated, ns=(earlier, earlier))
    assert read(followed) == [10, 11, 12]
    path.unlink()
    assert read(followed) == []
    put(outputs, 13)
    assert read(followed) == [13]
    assert caplog.records == []


def test_a_rotation_that_is_under_way(tmp_path):
    """Each name in turn has no file meanwhile."""
    path = tmp_path / "m"
    outputs = MetricsOutputs(str(path), max_bytes=1)
    followed = LineTail(str(path), from_end=False)
    put(outputs, 10)
    assert read(followed) == [10]
    put(outputs, 11, 12)
    for name, later in (("m.2", "m.3"), ("m.1", "m.2")):
        (tmp_path / name).rename(tmp_path / later)
        between = LineTail(str(path), from_end=False)
        assert len(between.older()) == 2
    assert read(followed) == [11, 12]
    path.rename(tmp_path / "m.1")
    assert read(followed) == []
    put(outputs, 13)
    assert read(followed) == [13]


def test_only_whole_lines_of_the_sink_are_taken(tmp_path):
    path = tmp_path / "m"
    path.write_text("earlier\n")
    followed = LineTail(str(path), from_end=True)
    text = json.dumps(line(1))
    with path.open("a") as file:
        file.write('{"another": 1}\nnot json\n[1]\n' + text[:20])
    assert read(followed) == []
    with path.open("a") as file:
        file.write(text[20:] + "\n")
    assert read(followed) == [1]
    broken = ({"time_ms": None}, {"time_ms": "now"}, {"event": None}, {"metrics": None})
    with path.open("a") as file:
        file.writelines(json.dumps({**line(2), **other}) + "\n" for other in broken)
        file.write(json.dumps(line(3)) + "\n")
    assert read(followed) == [3]


def test_a_file_that_was_emptied_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "m"
    followed = LineTail(str(path), from_end=False)
    put(MetricsOutputs(str(path)), 1, 2)
    assert read(followed) == [1, 2]
    path.write_text(json.dumps(line(3)) + "\n")
    assert read(followed) == [3]
