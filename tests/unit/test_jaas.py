"""sasl.jaas.config is read as Java reads it, and no error shows a value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.security.credentials import parse_jaas, quoted

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {}),
        ('username="a" password="b"', {"username": "a", "password": "b"}),
        ("username=a password=b-c_d$e.f1", {"username": "a", "password": "b-c_d$e.f1"}),
        ("username='a b' password='\"'", {"username": "a b", "password": '"'}),
        (r'password="Sp\"ec,=i\\al ü;"', {"password": 'Sp"ec,=i\\al ü;'}),
        (r'password="\a\b\f\n\r\t\v\q"', {"password": "\a\b\f\n\r\t\vq"}),
        (r'password="\0\1017\477\8"', {"password": "\0A7'78"}),
        ("password=größe", {"password": "größe"}),
        ("password=€uro", {"password": "€uro"}),
        ('username = "a"\n\tpassword\n=\n"b"', {"username": "a", "password": "b"}),
        ('username="a" /* password="b" */ tokenauth=true', {"username": "a", "tokenauth": "true"}),
        ('username="a" // password="b" ;\n tokenauth=true', {"username": "a", "tokenauth": "true"}),
        # A single / begins a comment in Java's tokenizer.
        ('username="a" / password="b"\n tokenauth=true', {"username": "a", "tokenauth": "true"}),
        (
            "keyTab=\"/etc/x.keytab\" useKeyTab='true'",
            {"keyTab": "/etc/x.keytab", "useKeyTab": "true"},
        ),
        ('username="a" username="b"', {"username": "b"}),
        # An open quotation mark ends with its line.
        ('password="b\n', {"password": "b"}),
        ('ssl.truststore.location="/a"', {"ssl.truststore.location": "/a"}),
        ('"username"="a"', {"username": "a"}),
    ],
)
def test_options(options, expected):
    entry = parse_jaas(f"{PLAIN} required {options};")
    assert entry.module == PLAIN
    assert entry.options == expected


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "Sufficient", "optional", '"required"'])
def test_flags(flag):
    assert parse_jaas(f"{PLAIN} {flag} username=a;").options == {"username": "a"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("  /* nothing */ // more", "is empty"),
        (f"{PLAIN}", "does not name one of required, requisite, sufficient, optional"),
        (f'{PLAIN} username="S3CRET";', "does not name one of required"),
        (
            f'{PLAIN} required username="S3CRET"',
            "does not end with a semicolon: put ; at the end",
        ),
        (f'KafkaClient {{ {PLAIN} required password="S3CRET"; }};', "leave out KafkaClient {"),
        (f'{PLAIN} required password="S3CRET;', "a quotation mark is not closed on its line"),
        (f'{PLAIN} required password=S3CRET password="x', "does not end with a semicolon"),
        (
            f'{PLAIN} required password="x" S3CRET" ;',
            "has no name=value after the value of 'password'",
        ),
        (f"{PLAIN} required password=7S3CRET;", "has no value for 'password': a value that begins"),
        (f"{PLAIN} required password=;", "has no value for 'password'"),
        (f"{PLAIN} required password", "has no name=value after the flag"),
        (f"{PLAIN} required password=S3CRET;S3CRET required;", "holds 2 login modules"),
        (f"{PLAIN} required password=/S3CRET;", "has no value for 'password'"),
        (f"{PLAIN} required S3CRET=;", "has no value for an option"),
        (f"{PLAIN} required =S3CRET;", "has no name=value after the flag"),
        (f"{PLAIN} required password=S3CRET#x;", "has no name=value after the value of 'password'"),
        (f"{PLAIN} required -5=x;", "has no name=value"),
        (f"{PLAIN} required -=x;", "has no name=value"),
        ("{S3CRET} required;", "does not begin with the class of a login module"),
        ("7 required;", "does not begin with the class of a login module"),
    ],
)
def test_what_is_wrong_is_told_without_the_text(text, message):
    with pytest.raises(ConfigError) as raised:
        parse_jaas(text)
    told = str(raised.value)
    assert told.startswith("kafka.sasl.jaas.config ")
    assert message in told
    assert "S3CRET" not in told
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_the_representation_shows_no_value():
    entry = parse_jaas(f'{PLAIN} required username="N4ME" password="S3CRET" S3CRET2=a;')
    assert "S3CRET" not in repr(entry)
    assert "N4ME" not in repr(entry)
    assert "S3CRET" not in repr(parse_jaas("S3CRET required;"))


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_what_is_quoted_is_read_as_itself(value):
    text = f"{PLAIN} required username={quoted(value)} password={quoted(value)};"
    assert parse_jaas(text).options == {"username": value, "password": value}


@given(st.text(alphabet="ab1-._/*\"'\\;= \n\r{}$#") | st.text())
def test_any_text_is_read_or_refused(text):
    try:
        parse_jaas(f"{PLAIN} required {text}")
    except ConfigError:
        pass
