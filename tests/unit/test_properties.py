"""Properties files, read as Java reads them."""

import shutil
import subprocess
from random import Random

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import ConfigError, sentence
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.config_def import Property, parse_properties, read_properties
from spark_kafka_sink.config.sink_options import read_command_config
from tests.tables import each_row


def parsed(text):
    return {name: value for name, value, _ in parse_properties(text, "f")}


@each_row(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        (" \t\fa \t= \tb \t", {"a": "b \t"}),
        ("a = = b", {"a": "= b"}),
        ("a==b", {"a": "=b"}),
        ("a : = b", {"a": "= b"}),
        ("# a=b\n! c=d\n  # e=f\n\n \t\ng=h", {"g": "h"}),
        ("a=b#c", {"a": "b#c"}),
        ("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n  c\\\r\n\td", {"a": "bcd"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b\\=\\:c=d", {"a b=:c": "d"}),
        ("a=\\t\\n\\r\\f\\\\\\\"\\x", {"a": '\t\n\r\f\\"x'}),
        ("a=\\u00e9\\u20AC", {"a": "é€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("\\\n# c\na=b", {"a": "b"}),
        ("\\\n# c", {}),
        ("a=\\ud83d", {"a": "\ufffd"}),
        ("a=1\na=2", {"a": "2"}),
        ("sasl.jaas.config=x.Y required \\\n  a=\"b\" ;", {"sasl.jaas.config": 'x.Y required a="b" ;'}),
        ("key=\ncert=x", {"key": "", "cert": "x"}),
        ("a=\u00fc\u2028b", {"a": "\u00fc\u2028b"}),
    ],
)  # fmt: skip
def test_texts(text, expected):
    assert parsed(text) == expected


def test_lines_are_those_where_a_property_begins():
    assert parse_properties("# c\na=1\\\n2\nb=3", "f") == [
        Property("a", "12", 2),
        Property("b", "3", 4),
    ]


@pytest.mark.parametrize("text", ["\na=marked-secret\\u12", "#\na=\\uD8zzmarked-secret"])
def test_a_broken_escape_names_the_line_and_shows_nothing(text):
    with pytest.raises(ConfigError) as raised:
        parse_properties(text, "/run/client.properties")
    assert sentence(raised.value) == (
        "/run/client.properties, line 2: \\u without four hexadecimal digits after it; a backslash is "
        "written \\\\"
    )


def test_files_are_in_utf_8(tmp_path):
    path = tmp_path / "client.properties"
    path.write_bytes("\ufeffa=ü".encode())
    assert read_properties(str(path)) == [Property("a", "ü", 1)]
    path.write_bytes(b"a=b\nc=marked-secret\xfc")
    with pytest.raises(ConfigError) as raised:
        read_properties(str(path))
    assert sentence(raised.value) == f"{path}, line 2: not in UTF-8"
    assert raised.value.__cause__ is None


JAVA = """
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;

public class Load {
    public static void main(String[] paths) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String path : paths) {
            Properties loaded = new Properties();
            try (Reader reader = new InputStreamReader(
                    new FileInputStream(path), StandardCharsets.UTF_8)) {
                loaded.load(reader);
            }
            StringBuilder line = new StringBuilder();
            for (String name : new TreeSet<>(loaded.stringPropertyNames()))
                line.append(hex(name)).append('=').append(hex(loaded.getProperty(name))).append(' ');
            out.println(line.toString().trim());
        }
        out.flush();
    }
    static String hex(String text) {
        StringBuilder hex = new StringBuilder();
        for (byte b : text.getBytes(StandardCharsets.UTF_8)) hex.append(String.format("%02x", b));
        return hex.toString();
    }
}
"""
CHARACTERS = 'ab=: \t\\#!\n\r\fü"n'


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_java_reads_the_same(tmp_path):
    (tmp_path / "Load.java").write_text(JAVA)
    rng = Random(13)
    # With an end of its own: after a backslash at the very end, Java finds a property of no name.
    lines = ("".join(rng.choices(CHARACTERS, k=rng.randrange(40))) for _ in range(1000))
    texts = [f"{line}\nz=1\n" for line in lines]
    files = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.properties"
        path.write_bytes(text.encode())
        files.append(str(path))
    done = subprocess.run(
        ["java", str(tmp_path / "Load.java"), *files], capture_output=True, text=True, check=True
    )
    expected = [dict(sorted(parsed(text).items())) for text in texts]
    found = [
        {
            bytes.fromhex(name).decode(): bytes.fromhex(value).decode()
            for name, _, value in (pair.partition("=") for pair in line.split(" ") if pair)
        }
        for line in done.stdout.split("\n")[: len(texts)]
    ]
    assert found == expected


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
    assert producer.security.sasl.jaas_config == Secret(
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="a\\"b";'
    )
    assert producer.security.ssl.truststore.password == Secret("${env:TRUST}")


def test_what_other_tools_need_is_told(file):
    found = read(file, "group.id=g\nssl.provider=SunJSSE\nkey.serializer=y\nssl.protocol=TLSv1.2\n")
    assert found.notes == (
        f"{file}, line 1: group.id has no effect here",
        f"{file}, line 2: ssl.provider has no effect here",
        f"{file}, line 3: key.serializer has no effect here",
        f"{file}: option ssl.protocol has no effect with security.protocol=PLAINTEXT, which does "
        "not encrypt: set security.protocol to SSL [PKS-TLS-001]",
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
        f"pykafka-sink: --command-config: cannot read {file}: No such file or directory "
        "[PKS-OPTION-013]\n"
    )


def test_notes_are_on_stderr(file, capsys):
    file.write_text("group.id=g\n")
    command = ["transactions", "list", "--bootstrap-server", "localhost:1", "--timeout", "100"]
    assert main([*command, "--command-config", str(file)]) == 1
    shown = capsys.readouterr()
    assert (
        f"pykafka-sink: {file}, line 1: group.id has no effect here [PKS-OPTION-018]\n" in shown.err
    )
    assert "localhost:1" in shown.err
    assert shown.out == ""
