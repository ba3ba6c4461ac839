"""``--command-config``: Kafka's properties files for clients; errors name file and line."""

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.cli import main
from spark_kafka_sink.config.sink_options import read_command_config

SERVERS = "b:9092"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "client.properties"


def read(file, text):
    file.write_text(text, encoding="utf-8")
    return read_command_config(str(file), SERVERS, {"client.id": "tool"})


def refusal(file, text):
    with pytest.raises(ConfigError) as raised:
        read(file, text)
    message = str(raised.value)
    assert "marked-secret" not in message
    assert raised.value.__cause__ is None
    return message


def test_a_file_for_kafkas_tools(file):
    found = read(
        file,
        "# of the cluster\n"
        "bootstrap.servers=other:1\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="alice" password="a\\\\\\"b";\n'
        "ssl.truststore.location=/etc/kafka/trust.p12\n"
        "ssl.truststore.password=${env:TRUST}\n"
        "request.timeout.ms=5000\n",
    )
    assert found.notes == ()
    producer = found.producer
    assert producer.bootstrap_servers == (("b", 9092),)
    assert (producer.client_id, producer.request_timeout_ms) == ("tool", 5000)
    assert producer.security.sasl is not None
    assert producer.security.sasl.jaas_config == Secret(
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="a\\"b";'
    )
    assert producer.security.ssl is not None
    assert producer.security.ssl.truststore.password == Secret("${env:TRUST}")


def test_what_other_tools_need_is_told(file):
    found = read(file, "group.id=g\nssl.provider=x\nkey.serializer=y\nssl.protocol=TLSv1.2\n")
    assert found.notes == (
        f"{file}, line 1: group.id has no effect here",
        f"{file}, line 2: ssl.provider has no effect here",
        f"{file}, line 3: key.serializer has no effect here",
        f"{file}: option ssl.protocol has no effect with security.protocol=PLAINTEXT, which does "
        "not encrypt: set security.protocol to SSL",
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "# a\nsecurity.protocol=TLS",
            2,
            "Invalid value TLS for configuration security.protocol: must be one of PLAINTEXT, SSL, "
            "SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.password=marked-secret",
            3,
            "sasl.username and sasl.password belong together: sasl.username is missing",
        ),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=f\n"
            "ssl.truststore.password=marked-secret",
            4,
            "SSL trust store password cannot be specified for PEM format: leave "
            "ssl.truststore.password out",
        ),
        (
            "security.protocol=SSL\n\nssl.key.password=${vault:marked-secret}",
            3,
            "Invalid value [hidden] for configuration ssl.key.password: it holds a reference of a "
            "kind that is not known here: write ${env:NAME}, ${file:/path:key} or "
            "${dir:/path:file}",
        ),
        ("kafka.security.protocol=SSL", 1, "write security.protocol, without kafka."),
        (
            "\nsecurity.protcol=SSL",
            2,
            "there is no 'security.protcol'. Did you mean 'security.protocol'?",
        ),
        (
            "ssl.ca.location=/etc/ca.pem",
            1,
            "Kafka option 'ssl.ca.location' is librdkafka's, and this sink has the options of "
            "Kafka's Java client. Instead: ssl.truststore.location, which takes PEM files, too.",
        ),
        ("\n\na=marked-secret\\u0", 3, "\\u without four hexadecimal digits after it"),
        ("ssl.engine.factory.class=a.B", 1, "Invalid value a.B for configuration ssl.engine"),
        ("config.providers=x", 1, "config.providers names 'x', but config.providers.x.class is"),
    ],
)
def test_errors_name_file_and_line(file, text, line, message):
    assert refusal(file, text).startswith(f"{file}, line {line}: {message}")


def test_a_file_that_is_not_there(file, capsys):
    command = ["transactions", "list", "--bootstrap-server", SERVERS]
    assert main([*command, "--command-config", str(file)]) == 1
    assert capsys.readouterr().err == (
        f"pykafka-sink: --command-config: cannot read {file}: No such file or directory\n"
    )


def test_notes_are_on_stderr(file, capsys):
    file.write_text("group.id=g\n")
    command = ["transactions", "list", "--bootstrap-server", "localhost:1", "--timeout", "100"]
    assert main([*command, "--command-config", str(file)]) == 1
    shown = capsys.readouterr()
    assert f"pykafka-sink: {file}, line 1: group.id has no effect here\n" in shown.err
    assert "localhost:1" in shown.err
    assert shown.out == ""
