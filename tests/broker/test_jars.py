import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.localkafka import LocalKafkaError, fetch_jars
from spark_kafka_sink.localkafka.jars import CACHE_VARIABLE, IVY_SETTINGS_VARIABLE, cache_folder
from tests.patience import PATIENCE_S

POOL = "org.apache.commons:commons-pool2:2.12.1"
SLF4J = "org.slf4j:slf4j-simple:1.7.36"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def names(jars):
    return [jar.name for jar in jars]


def test_sparks_own_kafka_sink_without_dependencies(cache):
    jars = fetch_jars(
        [
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.1",
            POOL,
        ],
        "jvm-sink",
        transitive=False,
    )
    assert names(jars) == [
        "commons-pool2-2.12.1.jar",
        "kafka-clients-3.9.1.jar",
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    ]


def test_is_fetched_once_and_replaced_when_modules_change(cache, monkeypatch):
    (stale,) = [cache / ".part-killed"]
    stale.mkdir(parents=True)
    first = fetch_jars([POOL], "some", transitive=False)
    assert names(first) == ["commons-pool2-2.12.1.jar"]
    assert not stale.exists()
    second = fetch_jars([SLF4J], "some")
    assert names(second) == ["slf4j-api-1.7.36.jar", "slf4j-simple-1.7.36.jar"]
    # No Java, no pyspark: what is there needs neither.
    monkeypatch.setenv("PATH", "")
    assert fetch_jars([SLF4J], "some") == second


def test_two_processes_at_once(cache):
    code = f"from spark_kafka_sink.localkafka import fetch_jars; fetch_jars([{SLF4J!r}], 'both')"
    fetching = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(PATIENCE_S) for process in fetching] == [0, 0]
    found = sorted(path.name for path in cache.iterdir())
    assert found == [".lock", "both"]
    jars = sorted((cache / "both").glob("*.jar"))
    assert names(jars) == ["slf4j-api-1.7.36.jar", "slf4j-simple-1.7.36.jar"]


def test_module_that_does_not_exist(cache):
    with pytest.raises(LocalKafkaError) as raised:
        fetch_jars(["org.apache.commons:commons-pool2:0.0.0-none"], "none")
    assert "Ivy could not fetch org.apache.commons:commons-pool2:0.0.0-none" in str(raised.value)
    assert IVY_SETTINGS_VARIABLE in str(raised.value)
    assert "not found" in str(raised.value)
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_own_ivy_settings(cache, tmp_path, monkeypatch):
    """A mirror on the disk: whatever the settings say is where jars come from."""
    folder = tmp_path / "mirror/org/example/thing/1.0"
    folder.mkdir(parents=True)
    (folder / "thing-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        "<artifactId>thing</artifactId><version>1.0</version></project>"
    )
    (folder / "thing-1.0.jar").write_bytes(b"PK\x05\x06" + bytes(18))
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        f'<ivysettings><settings defaultResolver="mirror"/><caches defaultCacheDir="{tmp_path}/ivy"'
        f'/><resolvers><ibiblio name="mirror" m2compatible="true" root="file://{tmp_path}/mirror/"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv(IVY_SETTINGS_VARIABLE, str(settings))
    assert names(fetch_jars(["org.example:thing:1.0"], "thing")) == ["thing-1.0.jar"]


class TestErrors:
    def test_coordinates(self):
        with pytest.raises(LocalKafkaError, match="'a:b' is not group:artifact:version"):
            fetch_jars(["a:b"], "wrong")

    def test_no_pyspark(self, cache, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(LocalKafkaError, match="pyspark is not installed"):
            fetch_jars([POOL], "some")

    def test_no_java(self, cache, monkeypatch):
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        with pytest.raises(LocalKafkaError, match="no java on the PATH"):
            fetch_jars([POOL], "some")

    def test_cache_that_cannot_be_written(self, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
        with pytest.raises(LocalKafkaError, match=f"cannot be written .* set {CACHE_VARIABLE}"):
            fetch_jars([POOL], "some")


def test_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pykafka-sink"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache/pykafka-sink"
    monkeypatch.setenv(CACHE_VARIABLE, "~/elsewhere")
    assert cache_folder() == Path.home() / "elsewhere"
