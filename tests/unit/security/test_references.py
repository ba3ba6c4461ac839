"""References in options: how they are written, what they stand for, what is said when they fail."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.config_def import Reference, has_reference, references_in
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.security.references import find_file, resolve

OPTION = "kafka.sasl.password"


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("", []),
        ("plain", []),
        ("${env:A}", [Reference("env", None, "A")]),
        ("${file:/a/b:c.d}", [Reference("file", "/a/b", "c.d")]),
        ("${dir:/a:tls.key}", [Reference("dir", "/a", "tls.key")]),
        ("${file:/a:b:c}", [Reference("file", "/a", "b:c")]),
        ("x${env:A}y${env:B}z", [Reference("env", None, "A"), Reference("env", None, "B")]),
        # Not references: they stay as they are.
        ("${A}", []),
        ("${:a}", []),
        ("${ env:A}", []),
        ("${env:A", []),
        ("a$b{c:d}", []),
    ],
)
def test_how_references_are_written(text, references):
    assert references_in(text) == references
    assert has_reference(text) is bool(references)


@pytest.mark.parametrize(
    "text", ["${env:}", "${env:a:b}", "${file:a}", "${file:a:}", "${dir::a}", "${vault:a:b}"]
)
def test_references_that_are_wrong_are_told_without_showing_them(text):
    with pytest.raises(ConfigError) as raised:
        resolve(f"marked-secret {text}", OPTION)
    message = str(raised.value)
    assert message.startswith(f"{OPTION}: it holds a reference ")
    assert "${env:NAME}, ${file:/path:key} or ${dir:/path:file}" in message
    assert "marked-secret" not in message


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a properties file and a file of its own, and a variable."""
    (tmp_path / "kafka.properties").write_text("user=alice\npassword=a\\u00fc\\=\\\n  b\n")
    (tmp_path / "tls.key").write_text("-----BEGIN\nx\n-----END\n")
    monkeypatch.setenv("KAFKA_PASSWORD", "from ${env:HOME}")
    return tmp_path


def test_values(place):
    text = "as it is, ${also this}, ${ env:A} and $1"
    assert resolve(text, OPTION) == text
    again = "values are not resolved again"
    assert resolve("${env:KAFKA_PASSWORD}", OPTION) == "from ${env:HOME}", again
    assert resolve(f"${{file:{place}/kafka.properties:password}}", OPTION) == "aü=b"
    assert resolve(f"${{dir:{place}:tls.key}}", OPTION) == "-----BEGIN\nx\n-----END"
    several = f"a ${{file:{place}/kafka.properties:user}} b ${{env:KAFKA_PASSWORD}}"
    assert resolve(several, OPTION) == "a alice b from ${env:HOME}"


def test_values_are_read_anew_each_time(place):
    reference = f"${{dir:{place}:tls.key}}"
    before = resolve(reference, OPTION)
    (place / "tls.key").write_text("another")
    assert (before, resolve(reference, OPTION)) == ("-----BEGIN\nx\n-----END", "another")


def test_a_name_without_a_folder(place, monkeypatch):
    """As spark-submit --files ships it; see the locations of stores."""
    monkeypatch.chdir(place)
    assert resolve("${file:kafka.properties:user}", OPTION) == "alice"


def refused(text):
    with pytest.raises(ConfigError) as raised:
        resolve(f"marked-secret {text}", OPTION)
    message = str(raised.value)
    assert message.startswith(OPTION)
    assert "marked-secret" not in message
    assert raised.value.__cause__ is None
    return message


def test_what_is_missing_is_told_with_where_it_was_looked_for(place):
    message = refused("${env:NO_SUCH_VARIABLE}")
    assert "has no environment variable NO_SUCH_VARIABLE. The driver and each executor" in message
    assert "spark.executorEnv.NO_SUCH_VARIABLE" in message
    file = place / "kafka.properties"
    assert f"finds no key 'pasword' in {file}" in refused(f"${{file:{file}:pasword}}")
    message = refused(f"${{file:{place}/no:a}}")
    assert f"{OPTION}, in a reference: path={place}/no: this process on host " in message
    assert "finds no such file" in message
    message = refused(f"${{dir:{place}:no}}")
    assert f"cannot read {place}/no: No such file or directory" in message
    assert f"cannot read {place}: Is a directory" in refused(f"${{file:{place}:a}}")
    assert "is not the name of a file" in refused(f"${{dir:{place}:../tls.key}}")


def test_files_that_cannot_be_read_show_nothing(place):
    (place / "bad").write_bytes(b"password=marked-secret\xfc\n")
    assert f"{place}/bad, line 1: not in UTF-8" in refused(f"${{file:{place}/bad:password}}")
    assert f"{place}/bad is not in UTF-8" in refused(f"${{dir:{place}:bad}}")
    (place / "bad").write_text("password=marked-secret\\u1")
    assert f"{place}/bad, line 1: \\u without" in refused(f"${{file:{place}/bad:password}}")


PROVIDER = "org.apache.kafka.common.config.provider"
GIVEN = {"bootstrap.servers": "b:9092", "security.protocol": "SSL"}


def providers(**classes):
    named = {f"config.providers.{name}.class": f"{of}" for name, of in classes.items()}
    return {"config.providers": " , ".join(classes), **named}


def test_providers_of_java_by_their_names():
    config = ProducerConfig.parse(
        {
            **GIVEN,
            **providers(
                secrets=f"{PROVIDER}.FileConfigProvider",
                directory=f"kafkashaded.{PROVIDER}.DirectoryConfigProvider",
                env=f"{PROVIDER}.EnvVarConfigProvider",
            ),
            "ssl.truststore.location": "${env:TRUST}/${Secrets:/a:b}",
            "ssl.key.password": "${directory:/a:secrets:directory}",
        }
    ).security.ssl
    assert config.truststore.location == "${env:TRUST}/${file:/a:b}"
    assert config.keystore.key_password == Secret("${dir:/a:secrets:directory}")


def test_references_beside_those_of_a_provider_stay_as_they_are():
    classes = providers(secrets=f"{PROVIDER}.FileConfigProvider")
    location = {"ssl.truststore.location": "${env:TRUST}/${secrets:/a:b}"}
    config = ProducerConfig.parse({**GIVEN, **classes, **location}).security.ssl
    assert config.truststore.location == "${env:TRUST}/${file:/a:b}"


def test_other_providers_are_refused_by_name():
    strimzi = "io.strimzi.kafka.KubernetesSecretConfigProvider"
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.parse({**GIVEN, **providers(secrets=strimzi)})
    assert str(raised.value).startswith(
        f"Invalid value {strimzi} for configuration kafka.config.providers.secrets.class: names a "
        "Java class, and there is no JVM here"
    )
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.parse({**GIVEN, "config.providers": "a"})
    assert str(raised.value) == (
        "kafka.config.providers names 'a', but kafka.config.providers.a.class is missing"
    )


def test_providers_among_sparks_options():
    """Names of options come in lower case, values as they are."""
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "b:9092",
            "kafka.security.protocol": "SSL",
            "kafka.config.providers": "Mine",
            "kafka.config.providers.mine.class": f"{PROVIDER}.FileConfigProvider",
            "kafka.config.providers.mine.param.allowed.paths": "/run",
            "kafka.ssl.truststore.location": "${Mine:/run/a:b}",
        }
    )
    assert options.producer.security.ssl.truststore.location == "${file:/run/a:b}"
    assert options.notes == (
        "option 'kafka.config.providers.mine.param.allowed.paths' has no effect: references are "
        "read from wherever the process may read",
    )
    with pytest.raises(ConfigError, match=r"'kafka\.config\.providers\.mine\.clas' is not"):
        SinkOptions.parse({"kafka.config.providers.mine.clas": "x"})


LOCATION = "kafka.ssl.truststore.location"


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
    assert find_file(form.format(path), LOCATION) == path


def test_a_url_may_have_escapes(tmp_path):
    path = file(tmp_path, "my ca ü.pem")
    assert find_file(f"file:{tmp_path}/my%20ca%20%C3%BC.pem", LOCATION) == path


def test_a_relative_path_is_of_the_working_directory(working):
    path = file(working, "ca.pem")
    assert find_file("ca.pem", LOCATION) == path
    assert find_file("./ca.pem", LOCATION) == path


def test_a_name_with_a_colon_is_a_name_if_it_is_there(working):
    assert find_file(file(working, "a:b").name, LOCATION) == working / "a:b"


@pytest.mark.parametrize("name", ["pyspark.core.files", "pyspark.files"])
def test_a_shipped_file_is_found_where_spark_has_put_it(name, working, tmp_path, monkeypatch):
    with_spark_files(monkeypatch, name, tmp_path / "shipped")
    path = file(tmp_path / "shipped", "ca.pem")
    assert find_file("ca.pem", LOCATION) == path
    nearer = file(working, "ca.pem")
    assert find_file("ca.pem", LOCATION) == nearer


def test_without_spark_nothing_was_shipped(working, monkeypatch):
    with_spark_files(monkeypatch, "pyspark.core.files", AssertionError("no context"))
    with pytest.raises(ConfigError, match="finds no such file"):
        find_file("ca.pem", LOCATION)


@pytest.mark.parametrize(
    ("location", "root", "looked"),
    [("ca.pem", "", "{working}/ca.pem"), ("/no/such/file", "/shipped", "/no/such/file")],
)
def test_a_place_is_told_once(location, root, looked, working, monkeypatch):
    with_spark_files(monkeypatch, "pyspark.core.files", root)
    with pytest.raises(ConfigError) as raised:
        find_file(location, LOCATION)
    assert f"finds no such file: {looked.format(working=working)}. It" in str(raised.value)


def test_what_is_missing_is_told_with_all_places(working, tmp_path, monkeypatch):
    with_spark_files(monkeypatch, "pyspark.core.files", tmp_path / "shipped")
    with pytest.raises(ConfigError) as raised:
        find_file("ca.pem", LOCATION)
    message = str(raised.value)
    assert message.startswith(f"{LOCATION}=ca.pem: ")
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
        find_file("/no/such/file", LOCATION)


@pytest.mark.parametrize("location", ["hdfs:///ca.pem", "s3://bucket/ca.pem", "dbfs:/ca.pem"])
def test_other_file_systems_are_refused(location, working):
    with pytest.raises(ConfigError, match="from the local disk only"):
        find_file(location, LOCATION)


def test_a_url_of_another_host_is_refused():
    with pytest.raises(ConfigError, match="the URL names another host"):
        find_file("file://elsewhere/ca.pem", LOCATION)


def test_what_is_there_and_cannot_be_looked_at_is_left_to_who_opens_it(tmp_path):
    name = tmp_path / ("x" * 300)
    assert find_file(str(name), LOCATION) == name


@pytest.mark.parametrize("location", ["no\0name", "file/of/a/file"])
def test_what_cannot_be_a_file_is_missing(location, working):
    file(working, "file")
    with pytest.raises(ConfigError, match="finds no such file"):
        find_file(location, LOCATION)
