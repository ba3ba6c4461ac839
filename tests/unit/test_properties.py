"""Properties files, read as Java reads them."""

import shutil
import subprocess
from random import Random
from urllib.parse import parse_qsl

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import Property, parse_properties, read_properties
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
    with pytest.raises(ConfigError, match=r"^/run/c.properties, line 2: .*OPTION-014") as raised:
        parse_properties(text, "/run/c.properties")
    assert "marked-secret" not in str(raised.value)


def test_files_are_in_utf_8(tmp_path):
    path = tmp_path / "client.properties"
    path.write_bytes("\ufeffa=ü".encode())
    assert read_properties(str(path)) == [Property("a", "ü", 1)]
    path.write_bytes(b"a=b\nc=marked-secret\xfc")
    with pytest.raises(ConfigError, match=r", line 2: .*UTF-8 \[PKS-OPTION-014") as raised:
        read_properties(str(path))
    assert raised.value.__cause__ is None, "it would show the text"


JAVA = """
import java.io.*;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.*;

public class Load {
    public static void main(String[] paths) throws Exception {
        for (String path : paths) {
            Properties loaded = new Properties();
            try (Reader file = new InputStreamReader(
                    new FileInputStream(path), StandardCharsets.UTF_8)) {
                loaded.load(file);
            }
            StringJoiner line = new StringJoiner("&");
            for (String name : loaded.stringPropertyNames())
                line.add(URLEncoder.encode(name, "UTF-8") + "="
                    + URLEncoder.encode(loaded.getProperty(name), "UTF-8"));
            System.out.println(line);
        }
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
    files = [tmp_path / f"{number}.properties" for number in range(len(texts))]
    for file, text in zip(files, texts):
        file.write_bytes(text.encode())
    command = ["java", str(tmp_path / "Load.java"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [dict(parse_qsl(line, keep_blank_values=True)) for line in done.stdout.splitlines()]
    assert found == [parsed(text) for text in texts]


def test_the_file_of_a_command(tmp_path, capsys):
    file = tmp_path / "client.properties"
    command = ["transactions", "list", "--bootstrap-server", "localhost:1", "--timeout", "100"]
    assert main([*command, "--command-config", str(file)]) == 1
    assert f"cannot read {file}: No such file or directory [PKS-OPT" in capsys.readouterr().err
    file.write_text("group.id=g\n")
    assert main([*command, "--command-config", str(file)]) == 1
    shown = capsys.readouterr()
    assert f"pykafka-sink: {file}, line 1: group.id has no effect here [PKS-OPT" in shown.err
    assert "localhost:1" in shown.err
    assert shown.out == ""
