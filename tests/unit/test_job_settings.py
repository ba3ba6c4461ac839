"""Settings of the jobs: properties file under spark-submit --conf under the command line."""

from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.jobs.settings import JobArguments, JobSettings

CONF = Path(__file__).resolve().parents[2] / "conf"


def arguments():
    declared = JobArguments("A job.")
    for name in ("input", "max_files", "key"):
        declared.add(name, "help")
    return declared


def parse(*command_line, conf=None):
    return arguments().parse(command_line, (conf or {}).items())


def refusal(*command_line, conf=None):
    with pytest.raises(ConfigError) as raised:
        parse(*command_line, conf=conf)
    return str(raised.value)


def test_nothing_given():
    settings = parse()
    assert settings == JobSettings({"input": None, "max_files": None, "key": None}, {}, {})
    assert settings.get("input") is None
    assert settings.get("input", "default") == "default"


def test_the_properties_file():
    settings = parse(
        conf={
            "spark.master": "local[2]",
            "spark.pykafka.topic": "flights",
            "spark.pykafka.kafka.linger.ms": "50",
            "spark.pykafka.job.input": "/data",
            "spark.pykafka.job.max.files": "2",
            "spark.pykafka.job.reader.nullValue": "NA",
        }
    )
    assert settings.sink_options == {"topic": "flights", "kafka.linger.ms": "50"}
    assert settings.reader_options == {"nullValue": "NA"}
    assert settings.require("input") == "/data"
    assert settings.get("max_files") == "2"


@pytest.mark.parametrize("name", ["--bootstrap-servers", "--bootstrap-server"])
def test_the_command_line(name):
    settings = parse(
        name,
        "a:1,b:2",
        "--topic",
        "t",
        "--max-files",
        "3",
        "--option",
        "kafka.linger.ms = 7",
        "--option",
        "metrics.path=/a=b",
        "--reader-option",
        "header=true",
        "--reader-option",
        "sep=,",
    )
    assert settings.sink_options == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "topic": "t",
        "kafka.linger.ms": "7",
        "metrics.path": "/a=b",
    }
    assert settings.reader_options == {"header": "true", "sep": ","}
    assert settings.get("max_files") == "3"


def test_the_command_line_overrides_the_properties_file():
    conf = {
        "spark.pykafka.topic": "from-conf",
        "spark.pykafka.kafka.acks": "1",
        "spark.pykafka.kafka.linger.ms": "50",
        "spark.pykafka.job.input": "/conf",
        "spark.pykafka.job.key": "dest",
        "spark.pykafka.job.reader.header": "false",
    }
    settings = parse(
        "--topic",
        "t",
        "--option",
        "kafka.acks=all",
        "--input",
        "/cli",
        "--reader-option",
        "header=true",
        conf=conf,
    )
    assert settings.sink_options == {"topic": "t", "kafka.acks": "all", "kafka.linger.ms": "50"}
    assert settings.reader_options == {"header": "true"}
    assert (settings.get("input"), settings.get("key")) == ("/cli", "dest")


def test_the_short_forms_override_the_long_ones():
    settings = parse("--topic", "short", "--option", "topic=long")
    assert settings.sink_options == {"topic": "short"}


def test_an_empty_value_is_a_value():
    assert parse("--key", "", conf={"spark.pykafka.job.key": "dest"}).get("key", "x") == ""


def test_a_missing_argument_names_both_ways():
    with pytest.raises(ConfigError) as raised:
        parse().require("max_files")
    assert str(raised.value) == (
        "--max-files is missing: give it on the command line, or as spark.pykafka.job.max.files "
        "in the properties file"
    )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "spark.pykafka.job.inptu",
            "spark.pykafka.job.inptu: this job has no such argument. It has: input, max.files, key",
        ),
        (
            "spark.pykafka.topc",
            "spark.pykafka.topc: option 'topc' is not one of this sink's. Did you mean 'topic'?",
        ),
        (
            "spark.pykafka.linger.ms",
            "spark.pykafka.linger.ms: option 'linger.ms' is not one of this sink's. "
            "Did you mean 'kafka.linger.ms'?",
        ),
        ("spark.pykafka.zzzzzzz", "spark.pykafka.zzzzzzz: the sink has no option 'zzzzzzz'"),
    ],
)
def test_typing_errors_in_the_properties_file(key, message):
    assert refusal(conf={key: "1"}) == message


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "delivery.guarante",
            "option 'delivery.guarante' is not one of this sink's. "
            "Did you mean 'delivery.guarantee'?",
        ),
        (
            "kafka.batchsize",
            "Kafka option 'kafka.batchsize' is not a producer option of this sink. "
            "Did you mean 'kafka.batch.size'?",
        ),
        ("zzzzzzz", "the sink has no option 'zzzzzzz'"),
    ],
)
def test_typing_errors_on_the_command_line(option, message):
    assert refusal("--option", f"{option}=1") == f"--option {option}: {message}"


def test_names_in_the_properties_file_are_not_case_sensitive():
    settings = parse(conf={"spark.pykafka.Metrics.Path": "x", "spark.pykafka.KAFKA.acks": "1"})
    assert settings.sink_options == {"Metrics.Path": "x", "KAFKA.acks": "1"}


@pytest.mark.parametrize("option", ["--option", "--reader-option"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [("kafka.acks", "kafka.acks"), ("", ""), ("=1", "…"), ("sasl.password: x", "sasl.password…")],
)
def test_what_is_not_a_pair(option, text, shown):
    assert refusal(option, text) == f"'{shown}' is not NAME=VALUE"


@pytest.mark.parametrize(
    "command_line", [["--no-such-argument", "1"], ["stray"], ["--input"]], ids=str
)
def test_wrong_usage_ends_with_status_2(command_line, capsys):
    with pytest.raises(SystemExit) as raised:
        parse(*command_line)
    assert raised.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_help_names_every_argument(capsys):
    with pytest.raises(SystemExit) as raised:
        parse("--help")
    assert raised.value.code == 0
    text = capsys.readouterr().out
    for name in ("--input", "--max-files", "--key", "--option NAME=VALUE", "--topic"):
        assert name in text


KEY = {"spark.pykafka.kafka.ssl.keystore.key": "marked-hush"}


def warnings(caplog, *line, **conf):
    caplog.clear()
    parse(*line, conf={name.replace("__", "."): value for name, value in conf.items()})
    assert "marked-hush" not in caplog.text
    return caplog.messages


def test_a_secret_that_spark_shows_is_told(caplog):
    """By the session's own expression: the environment page has all of Spark's configuration."""
    (warning,) = warnings(caplog, **KEY)
    assert warning.startswith("spark.pykafka.kafka.ssl.keystore.key: a secret in clear text, which")
    assert "the default of spark.redaction.regex" in warning
    assert warnings(caplog, **KEY, spark__redaction__regex="(?i)keystore[.]key") == []
    password = {"spark.pykafka.kafka.sasl.password": "marked-hush"}
    assert warnings(caplog, **password) == []
    (warning,) = warnings(caplog, **password, spark__redaction__regex="(?i)token")
    assert warning.startswith("spark.pykafka.kafka.sasl.password: a secret in clear text, which")
    assert "the default of" not in warning
    assert warnings(caplog, **{"spark.pykafka.kafka.ssl.keystore.key": "${env:KEY}"}) == []


def test_a_secret_on_the_command_line_is_told(caplog):
    assert warnings(caplog, "--option", "kafka.sasl.password=marked-hush") == [
        "--option kafka.sasl.password: a secret in clear text on the command line, which every user "
        "of the machine can see. Write a reference, ${file:/path:key}, ${env:NAME} or "
        "${dir:/path:file}, instead"
    ]
    assert warnings(caplog, "--option", "kafka.sasl.password=${env:P}") == []


def properties(path):
    """As spark-submit reads them: a key, white space, the rest of the line."""
    pairs = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition(" ")
            pairs[name] = value.strip()
    return pairs


@pytest.mark.parametrize("path", sorted(CONF.glob("*.conf")), ids=lambda path: path.name)
def test_the_files_in_conf_are_understood(path):
    """Whoever starts from one of them must not be told of an unknown option."""
    declared = arguments()
    for name in ("format", "schema", "trigger", "checkpoint", "max_offsets"):
        declared.add(name, "help")
    settings = declared.parse([], properties(path).items())
    assert settings.sink_options
    options = SinkOptions.parse({"kafka.bootstrap.servers": "b:1", **settings.sink_options})
    assert options.notes == ()
