"""Where the file is that an option names."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.security.references import find_file

OPTION = "kafka.ssl.truststore.location"


@pytest.fixture
def working(tmp_path, monkeypatch):
    folder = tmp_path / "working"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def file(folder, name):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    return path


def with_spark_files(monkeypatch, name, root):
    """As in a Python process that Spark has started; ``root`` may be an error."""

    def get_root_directory():
        if isinstance(root, Exception):
            raise root
        return str(root)

    module = ModuleType(name)
    module.SparkFiles = SimpleNamespace(getRootDirectory=get_root_directory)
    for loaded in ("pyspark.core.files", "pyspark.files"):
        monkeypatch.delitem(sys.modules, loaded, raising=False)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}", "FILE:{}"])
def test_a_path_or_url(form, tmp_path):
    path = file(tmp_path, "ca.pem")
    assert find_file(form.format(path), OPTION) == path


def test_a_url_may_have_escapes(tmp_path):
    path = file(tmp_path, "my ca ü.pem")
    assert find_file(f"file:{tmp_path}/my%20ca%20%C3%BC.pem", OPTION) == path


def test_a_relative_path_is_of_the_working_directory(working):
    path = file(working, "ca.pem")
    assert find_file("ca.pem", OPTION) == path
    assert find_file("./ca.pem", OPTION) == path


def test_a_name_with_a_colon_is_a_name_if_it_is_there(working):
    assert find_file(file(working, "a:b").name, OPTION) == working / "a:b"


@pytest.mark.parametrize("name", ["pyspark.core.files", "pyspark.files"])
def test_a_shipped_file_is_found_where_spark_has_put_it(name, working, tmp_path, monkeypatch):
    with_spark_files(monkeypatch, name, tmp_path / "shipped")
    path = file(tmp_path / "shipped", "ca.pem")
    assert find_file("ca.pem", OPTION) == path
    nearer = file(working, "ca.pem")
    assert find_file("ca.pem", OPTION) == nearer


def test_without_spark_nothing_was_shipped(working, monkeypatch):
    with_spark_files(monkeypatch, "pyspark.core.files", AssertionError("no context"))
    with pytest.raises(ConfigError, match="finds no such file"):
        find_file("ca.pem", OPTION)


@pytest.mark.parametrize(
    ("location", "root", "looked"),
    [("ca.pem", "", "{working}/ca.pem"), ("/no/such/file", "/shipped", "/no/such/file")],
)
def test_a_place_is_told_once(location, root, looked, working, monkeypatch):
    with_spark_files(monkeypatch, "pyspark.core.files", root)
    with pytest.raises(ConfigError) as raised:
        find_file(location, OPTION)
    assert f"finds no such file: {looked.format(working=working)}. It" in str(raised.value)


def test_what_is_missing_is_told_with_all_places(working, tmp_path, monkeypatch):
    with_spark_files(monkeypatch, "pyspark.core.files", tmp_path / "shipped")
    with pytest.raises(ConfigError) as raised:
        find_file("ca.pem", OPTION)
    message = str(raised.value)
    assert message.startswith(f"{OPTION}=ca.pem: ")
    assert f"on host {os.uname().nodename} " in message
    assert f"{working / 'ca.pem'}, {tmp_path / 'shipped' / 'ca.pem'}" in message
    assert "--files" in message


@pytest.mark.parametrize(("in_task", "who"), [(True, "a Spark task"), (False, "this process")])
def test_whose_process_it_is_is_told(in_task, who, monkeypatch):
    module = ModuleType("pyspark.taskcontext")
    context = object() if in_task else None
    module.TaskContext = SimpleNamespace(get=lambda: context)
    monkeypatch.setitem(sys.modules, "pyspark.taskcontext", module)
    with pytest.raises(ConfigError, match=f"{who} on host"):
        find_file("/no/such/file", OPTION)


@pytest.mark.parametrize("location", ["hdfs:///ca.pem", "s3://bucket/ca.pem", "dbfs:/ca.pem"])
def test_other_file_systems_are_refused(location, working):
    with pytest.raises(ConfigError, match="from the local disk only"):
        find_file(location, OPTION)


def test_a_url_of_another_host_is_refused():
    with pytest.raises(ConfigError, match="the URL names another host"):
        find_file("file://elsewhere/ca.pem", OPTION)


def test_what_is_there_and_cannot_be_looked_at_is_left_to_who_opens_it(tmp_path):
    name = tmp_path / ("x" * 300)
    assert find_file(str(name), OPTION) == name


@pytest.mark.parametrize("location", ["no\0name", "file/of/a/file"])
def test_what_cannot_be_a_file_is_missing(location, working):
    file(working, "file")
    with pytest.raises(ConfigError, match="finds no such file"):
        find_file(location, OPTION)
