"""Spellings of a checkpoint's location, and the query's id in it. What Hadoop makes of the same texts:
tests/spark/test_checkpoint_spellings.py.
"""

import json
import os

import pytest

from spark_kafka_sink.transactions.checkpoints import has_commits_at, qualified, query_id_at
from tests.tables import each_row

ONE_FOLDER = [
    "/c/q",
    "file:/c/q",
    "file:///c/q",
    "file://localhost/c/q",
    "FILE:/c/q",
    "/c//q",
    "/c/./q",
    "/c/x/../q",
    "/c/q/",
]
IN_HDFS = ["hdfs://nn/c/q", "hdfs://nn:8020/c/q", "hdfs:///c/q", "HDFS://NN/c/q", "/c/q"]
WITH_SPACE = ["/c/a b", "/c/a%20b", "file:///c/a%20b"]


@pytest.mark.parametrize("spellings", [ONE_FOLDER, IN_HDFS, WITH_SPACE, ["s3a://b", "s3a://b/"]])
def test_spellings_of_one_folder(spellings):
    for one in spellings:
        for other in spellings:
            assert qualified(one).is_same(qualified(other)), (one, other)


@each_row(
    ("one", "other"),
    [
        ("/c/q", "/c/Q"),
        ("/c/q", "/c/q "),
        ("file:/c/q", "hdfs:///c/q"),
        ("hdfs://nn/c/q", "hdfs://other/c/q"),
        ("hdfs://nn:9000/c/q", "hdfs://nn:8020/c/q"),
        ("s3://b/c", "s3a://b/c"),
        ("abfss://one@a.net/c", "abfss://two@a.net/c"),
        ("/c/a/b", "/c/a%2Fb"),
        ("/c/%FF", "/c/%FE"),
        ("//c/q", "/c/q"),
        ("q", "/q"),
    ],
)
def test_other_folders(one, other):
    assert not qualified(one).is_same(qualified(other))


def test_what_one_spelling_leaves_open_is_kept_from_the_other():
    known, short = qualified("hdfs://nn/c/q"), qualified("/c/q")
    assert short.completed_by(known) == known.completed_by(short) == known
    assert str(known) == "hdfs://nn/c/q"
    assert str(qualified("file:///c/q")) == "file:/c/q"
    assert str(short) == "/c/q"


def test_a_relative_path_is_in_the_working_folder_of_this_machine_if_it_is_there(tmp_path):
    checkpoint(tmp_path / "q")
    assert qualified("./q", str(tmp_path)) == qualified(f"file:{tmp_path}/q")
    assert str(qualified("./other", str(tmp_path))) == "other"


def checkpoint(folder, query_id="query-1"):
    folder.mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": query_id}), encoding="utf-8")
    return folder


def test_the_query_id_of_a_checkpoint_on_this_machine(tmp_path):
    folder = checkpoint(tmp_path / "a b")
    for text in (str(folder), f"file:{folder}", f"file://{folder}".replace(" ", "%20")):
        assert query_id_at(qualified(text)) == "query-1"
    for text in (f"hdfs://nn{folder}", f"file://host{folder}", "a b", f"{folder}/none", "/x\0y"):
        assert query_id_at(qualified(text)) is None


def test_a_folder_with_a_percent_sign_in_its_name_comes_first(tmp_path):
    checkpoint(tmp_path / "a b", "with a space")
    checkpoint(tmp_path / "a%20b", "with a sign")
    assert query_id_at(qualified(f"{tmp_path}/a%20b")) == "with a sign"
    assert query_id_at(qualified(f"{tmp_path}/a b")) == "with a space"


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"id": 7}', '{"id": ""}', "[" * 50_000])
def test_what_is_no_metadata_tells_nothing(tmp_path, content):
    (tmp_path / "metadata").write_text(content, encoding="utf-8")
    assert query_id_at(qualified(str(tmp_path))) is None


def test_a_pipe_or_a_folder_in_the_place_of_metadata_does_not_stop_planning(tmp_path):
    (tmp_path / "q" / "metadata").mkdir(parents=True)
    os.mkfifo(tmp_path / "metadata")
    for folder in (tmp_path, tmp_path / "q"):
        assert query_id_at(qualified(str(folder))) is None


def test_finished_micro_batches_are_seen(tmp_path):
    at = qualified(f"file://{tmp_path}")
    assert not has_commits_at(at)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / ".0.crc").touch()
    assert not has_commits_at(at)
    (tmp_path / "commits" / "0").touch()
    assert has_commits_at(at)
