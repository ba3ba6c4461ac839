"""Properties files, read as Java reads them."""

import shutil
import subprocess
from random import Random

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.config_def import Property, parse_properties, read_properties


def parsed(text):
    return {name: value for name, value, _ in parse_properties(text, "f")}


@pytest.mark.parametrize(
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
    assert str(raised.value) == (
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
    assert str(raised.value) == f"{path}, line 2: not in UTF-8"
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
