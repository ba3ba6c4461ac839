"""Names and passwords: JAAS text, options and references; logins, and who waits for them."""

import logging
import os
import sys
import threading
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    BootstrapError,
    ConfigError,
    CredentialsUnavailableError,
    KafkaSinkError,
)
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.config_def import Reference, has_reference, references_in
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.security_config import (
    AssertionConfig,
    OAuthConfig,
    SaslConfig,
    SecurityConfig,
    SslConfig,
    StoreConfig,
)
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.producer.producer import ThreadedProducer
from spark_kafka_sink.security import references, security
from spark_kafka_sink.security.credentials import (
    login_options,
    parse_jaas,
    quoted,
    resolve_user,
    unresolved_entry,
)
from spark_kafka_sink.security.oauth import TokenRetrieval
from spark_kafka_sink.security.oauth_tokens import RetryTimer
from spark_kafka_sink.security.references import find_file, resolve
from spark_kafka_sink.security.security import Security, check, new_login
from spark_kafka_sink.spark.preflight import check_cluster
from spark_kafka_sink.transactions import session
from tests.patience import AN_HOUR_MS, PATIENCE_MS, PATIENCE_S
from tests.tables import each_row
from tests.unit.security.token_endpoints import (
    HOST,
    Pauses,
    Scripted,
    first_message,
    jwt,
    login_for,
    scripted,
)

KAFKA = "org.apache.kafka.common.security"
PLAIN_MODULE, SCRAM_MODULE = f"{KAFKA}.plain.PlainLoginModule", f"{KAFKA}.scram.ScramLoginModule"
MODULES = {"PLAIN": PLAIN_MODULE, "SCRAM-SHA-256": SCRAM_MODULE, "SCRAM-SHA-512": SCRAM_MODULE}
ALICE = 'username="alice" password="S3CRET"'


def sasl(mechanism="PLAIN", options="", module=""):
    text = f"{module or MODULES[mechanism]} required {options};"
    return SaslConfig(mechanism, jaas_config=Secret(text))


def in_options(username="alice", password="S3CRET", mechanism="PLAIN"):
    return SaslConfig(mechanism, username=username, password=Secret(password))


def of_token(**options):
    return SaslConfig("OAUTHBEARER", oauth=OAuthConfig(**options))


# --- the text of JAAS ------------------------------------------------------------------------------


@each_row(
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
    entry = parse_jaas(f"{PLAIN_MODULE} required {options};")
    assert entry.module == PLAIN_MODULE
    assert entry.options == expected


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "Sufficient", "optional", '"required"'])
def test_flags(flag):
    assert parse_jaas(f"{PLAIN_MODULE} {flag} username=a;").options == {"username": "a"}


@each_row(
    ("text", "message"),
    [
        ("", "is empty"),
        ("  /* nothing */ // more", "is empty"),
        (f"{PLAIN_MODULE}", "does not name one of required, requisite, sufficient, optional"),
        (f'{PLAIN_MODULE} username="S3CRET";', "does not name one of required"),
        (f'{PLAIN_MODULE} required username="S3CRET"', "does not end with a semicolon: put ; at"),
        (
            f'KafkaClient {{ {PLAIN_MODULE} required password="S3CRET"; }};',
            "leave out KafkaClient {",
        ),
        (f'{PLAIN_MODULE} required password="S3CRET;', "a quotation mark is not closed on its"),
        (f'{PLAIN_MODULE} required password=S3CRET password="x', "does not end with a semicolon"),
        (f'{PLAIN_MODULE} required password="x" S3CRET" ;', "has no name=value after the value"),
        (f"{PLAIN_MODULE} required password=7S3CRET;", "has no value for 'password': a value"),
        (f"{PLAIN_MODULE} required password", "has no name=value after the flag"),
        (f"{PLAIN_MODULE} required password=S3CRET;S3CRET required;", "holds 2 login modules"),
        (f"{PLAIN_MODULE} required password=/S3CRET;", "has no value for 'password'"),
        (f"{PLAIN_MODULE} required S3CRET=;", "has no value for an option"),
        (f"{PLAIN_MODULE} required =S3CRET;", "has no name=value after the flag"),
        (
            f"{PLAIN_MODULE} required password=S3CRET#x;",
            "has no name=value after the value of 'password'",
        ),
        (f"{PLAIN_MODULE} required -5=x;", "has no name=value"),
        (f"{PLAIN_MODULE} required -=x;", "has no name=value"),
        ("{S3CRET} required;", "does not begin with the class of a login module"),
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


def test_what_looks_like_a_secret_or_a_mark_in_an_entry():
    entry = parse_jaas(f'{PLAIN_MODULE} required username="N4ME" password="S3CRET" S3CRET2=a;')
    shown = f"{entry!r} {parse_jaas('S3CRET required;')!r}"
    assert "S3CRET" not in shown
    assert "N4ME" not in shown
    # A text that looks like the mark of a reference stays as it is.
    entry = unresolved_entry('M required username="\ue0000\ue000" password="${env:X}";')
    assert entry.options == {"username": "\ue0000\ue000", "password": "${env:X}"}


@given(st.text())
def test_what_is_quoted_is_read_as_itself(value):
    text = f"{PLAIN_MODULE} required username={quoted(value)} password={quoted(value)};"
    assert parse_jaas(text).options == {"username": value, "password": value}


@given(st.text(alphabet="ab1-._/*\"'\\;= \n\r{}$#") | st.text())
def test_any_text_is_read_or_refused(text):
    try:
        parse_jaas(f"{PLAIN_MODULE} required {text}")
    except ConfigError:
        pass


# --- users -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MODULES)
def test_name_and_password(mechanism):
    module = MODULES[mechanism]
    for config in (
        in_options(mechanism=mechanism),
        sasl(mechanism, ALICE),
        sasl(mechanism, ALICE, f"kafkashaded.{module}"),
        sasl(mechanism, f"{ALICE} tokenauth=false"),
    ):
        check(config)
        user = resolve_user(config)
        assert (user.username, user.password.reveal(), user.is_token) == ("alice", "S3CRET", False)
        assert "S3CRET" not in repr(user)
    for value in ("true", "TRUE"):
        assert resolve_user(sasl(mechanism, f"{ALICE} tokenauth={value}")).is_token


@each_row(
    ("config", "message"),
    [
        (sasl("PLAIN", ALICE, SCRAM_MODULE), "ScramLoginModule is that of .*PLAIN"),
        (sasl("PLAIN", ALICE, "com.example.MyLoginModule"), "com.example.MyLoginModule is not"),
        (sasl("PLAIN", ALICE, "S3CRET"), "its first word is not .*=PLAIN is org.apache"),
        (sasl("PLAIN", 'username="alice"'), "'password' in kafka.sasl.jaas.config is missing"),
        (sasl("PLAIN", 'password="S3CRET"'), "'username' in kafka.sasl.jaas.config is missing"),
        (sasl("PLAIN", 'username="" password="S3CRET"'), "'username' in .*is empty"),
        (replace(sasl("PLAIN", ALICE), username="alice"), "exclude each other"),
        (replace(sasl("PLAIN", ALICE), password=Secret("S3CRET")), "exclude each other"),
        (SaslConfig("PLAIN"), "needs kafka.sasl.username and kafka.sasl.password, or"),
        (SaslConfig("PLAIN", username="alice"), "kafka.sasl.password is missing"),
        (in_options(username=""), "kafka.sasl.username is empty"),
        (SaslConfig("SCRAM-SHA-1"), "kafka.sasl.mechanism=SCRAM-SHA-1 is not known.*GSSAPI"),
        (sasl("PLAIN", 'username="alice" password="S3CRET'), "quotation mark is not closed"),
    ],
)
def test_what_is_known_beforehand(config, message):
    with pytest.raises(ConfigError, match=message) as raised:
        check(config)
    assert "S3CRET" not in str(raised.value)


class Store:
    """What references stand for, and how often they were asked for."""

    def __init__(self, **values):
        self.values = {f"${{env:{name}}}": value for name, value in values.items()}

    def __call__(self, text, option):
        for reference, value in self.values.items():
            text = text.replace(reference, value)
        if "${" in text:
            raise ConfigError(f"{option}: ${{env:…}} is not set")
        return text


BY_ENV = in_options("a", "${env:P}")
JAAS_BY_ENV = sasl("PLAIN", "username=a password=${env:P}")
TEXT_BY_ENV = SaslConfig("PLAIN", jaas_config=Secret(" ${env:J} "))


class TestReferences:
    def test_what_they_stand_for(self):
        user = resolve_user(in_options("${env:U}", "${env:P}"), Store(U="alice", P="S3CRET"))
        assert (user.username, user.password.reveal()) == ("alice", "S3CRET")
        for password in ('"${env:P}"', "${env:P}", "'${env:P}'"):
            config = sasl("PLAIN", f"username=alice password={password}")
            check(config)
            assert resolve_user(config, Store(P='a"b\\c;')).password.reveal() == 'a"b\\c;'
        config = sasl("PLAIN", 'username="${env:U}@${env:D}" password="x"')
        assert resolve_user(config, Store(U="alice", D="example.org")).username == (
            "alice@example.org"
        )

    def test_for_the_whole_jaas_text(self):
        check(TEXT_BY_ENV)
        text = f'{PLAIN_MODULE} required username="alice" password="${{env:no}}";'
        # What it stands for is not resolved once more: a password may look like a reference.
        user = resolve_user(TEXT_BY_ENV, lambda _text, _option: text)
        assert user.password.reveal() == "${env:no}"

    @pytest.mark.parametrize(
        ("config", "store", "message"),
        [
            (BY_ENV, Store(), "is not set"),
            (BY_ENV, Store(P=""), "is empty"),
            (JAAS_BY_ENV, Store(), "is not set"),
            (JAAS_BY_ENV, Store(P=""), "is empty"),
            (TEXT_BY_ENV, Store(J="S3CRET"), "one of required"),
            (TEXT_BY_ENV, Store(J=f"{SCRAM_MODULE} required {ALICE};"), "mechanism is PLAIN"),
            (
                sasl("SCRAM-SHA-256", ALICE, "${env:M}"),
                Store(M=PLAIN_MODULE),
                "is that of PLAIN",
            ),
        ],
    )
    def test_what_shows_only_when_they_are_resolved(self, config, store, message):
        check(config)
        with pytest.raises(AuthenticationError, match=message) as raised:
            resolve_user(config, store)
        assert "S3CRET" not in str(raised.value)
        assert raised.value.__cause__ is None

    @given(st.text(), st.text(alphabet="\ue000\ue0010123${env:P}"))
    def test_any_value_passes_unchanged(self, password, odd):
        store = Store(P=password)
        if "${" in password or "${env" in odd or "${" in odd:
            return
        config = sasl("PLAIN", f"username={quoted('x' + odd)} password=${{env:P}}")
        assert login_options(config, lambda text, _option: store.values.get(text, text)) == {
            "username": "x" + odd,
            "password": password,
        }


# --- references themselves -------------------------------------------------------------------------

OPTION, LOCATION = "kafka.sasl.password", "kafka.ssl.truststore.location"
FORMS = "${env:NAME}, ${file:/path:key} or ${dir:/path:file}"


def test_how_references_are_written():
    a, b = Reference("env", None, "A"), Reference("env", None, "B")
    assert references_in("x${env:A}y${env:B}z") == [a, b]
    assert references_in("${file:/a:b:c}") == [Reference("file", "/a", "b:c")]
    assert references_in("${dir:/a:tls.key}") == [Reference("dir", "/a", "tls.key")]
    for text in ("", "plain", "${A}", "${:a}", "${ env:A}", "${env:A", "a$b{c:d}"):
        assert not has_reference(text)


def refused(text):
    with pytest.raises(ConfigError) as raised:
        resolve(f"marked-secret {text}", OPTION)
    message = str(raised.value)
    assert message.startswith(OPTION)
    assert "marked-secret" not in message
    assert raised.value.__cause__ is None
    return message


@pytest.mark.parametrize(
    "text", ["${env:}", "${env:a:b}", "${file:a}", "${file:a:}", "${dir::a}", "${vault:a:b}"]
)
def test_references_that_are_wrong_are_told_without_showing_them(text):
    assert refused(text).startswith(f"{OPTION}: it holds a reference ")
    assert FORMS in refused(text)
    assert refused(text).endswith(" [PKS-OPTION-005]")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a properties file and a file of its own, and a variable."""
    (tmp_path / "kafka.properties").write_text("user=alice\npassword=a\\u00fc\\=\\\n  b\n")
    (tmp_path / "tls.key").write_text("-----BEGIN\nx\n-----END\n")
    monkeypatch.setenv("KAFKA_PASSWORD", "from ${env:HOME}")
    return tmp_path


def test_values_are_read_anew_each_time_and_not_resolved_again(place, monkeypatch):
    text = "as it is, ${also this}, ${ env:A} and $1"
    assert resolve(text, OPTION) == text
    assert resolve(f"${{file:{place}/kafka.properties:password}}", OPTION) == "aü=b"
    several = f"a ${{file:{place}/kafka.properties:user}} b ${{env:KAFKA_PASSWORD}}"
    assert resolve(several, OPTION) == "a alice b from ${env:HOME}"
    reference = f"${{dir:{place}:tls.key}}"
    assert resolve(reference, OPTION) == "-----BEGIN\nx\n-----END"
    (place / "tls.key").write_text("another")
    assert resolve(reference, OPTION) == "another"
    # A name without a folder, as spark-submit --files ships it.
    monkeypatch.chdir(place)
    assert resolve("${file:kafka.properties:user}", OPTION) == "alice"


def test_what_is_missing_is_told_with_where_it_was_looked_for(place):
    file, bad, cut = place / "kafka.properties", place / "bad", place / "cut"
    bad.write_bytes(b"password=marked-secret\xfc\n")
    cut.write_text("password=marked-secret\\u1")
    for text, *words in (
        ("${env:NO_SUCH}", "NO_SUCH. The driver", "spark.executorEnv.NO_SUCH", "AUTH-021"),
        (f"${{file:{file}:pasword}}", f"finds no key 'pasword' in {file}"),
        (f"${{file:{place}/no:a}}", f"path={place}/no: this process on ", "finds no such file"),
        (f"${{dir:{place}:no}}", f"{place}/no: No such file or directory [PKS-OPTION-021]"),
        (f"${{file:{place}:a}}", f"cannot read {place}: Is a directory"),
        (f"${{dir:{place}:../tls.key}}", "is not the name of a file", "OPTION-005"),
        (f"${{file:{bad}:password}}", f"{bad}, line 1: not in UTF-8"),
        (f"${{dir:{place}:bad}}", f"{bad} is not in UTF-8 [PKS-AUTH-020]"),
        (f"${{file:{cut}:password}}", f"{cut}, line 1: \\u without"),
    ):
        for expected in words:
            assert expected in refused(text)


def test_a_file_that_is_too_large_for_a_token_is_refused(tmp_path):
    path = tmp_path / "token"
    path.write_text("x" * references.MAX_FILE_BYTES)
    assert len(references.read_text(str(path), "option")) == references.MAX_FILE_BYTES
    path.write_text("x" * references.MAX_FILE_BYTES + " ")
    with pytest.raises(AuthenticationError, match="1000000 bytes at most"):
        references.read_text(str(path), "option")


PROVIDER = "org.apache.kafka.common.config.provider"
GIVEN = {"bootstrap.servers": "b:9092", "security.protocol": "SSL"}


def providers(**classes):
    named = {f"config.providers.{name}.class": f"{of}" for name, of in classes.items()}
    return {"config.providers": " , ".join(classes), **named}


def test_providers_of_java_by_their_names():
    """References beside those of a provider stay as they are."""
    classes = providers(
        secrets=f"{PROVIDER}.FileConfigProvider",
        directory=f"kafkashaded.{PROVIDER}.DirectoryConfigProvider",
        env=f"{PROVIDER}.EnvVarConfigProvider",
    )
    given = {
        "ssl.truststore.location": "${env:TRUST}/${Secrets:/a:b}",
        "ssl.key.password": "${directory:/a:secrets:directory}",
    }
    config = ProducerConfig.parse({**GIVEN, **classes, **given}).security.ssl
    assert config.truststore.location == "${env:TRUST}/${file:/a:b}"
    assert config.keystore.key_password == Secret("${dir:/a:secrets:directory}")


def test_other_providers_are_refused_by_name():
    strimzi = "io.strimzi.kafka.KubernetesSecretConfigProvider"
    for texts, told in (
        (providers(secrets=strimzi), f"{strimzi} .*providers.secrets.class: .*no JVM here"),
        (
            {"config.providers": "a"},
            r"names 'a', but kafka\.config\.providers\.a\.class is missing",
        ),
    ):
        with pytest.raises(ConfigError, match=told):
            ProducerConfig.parse({**GIVEN, **texts})


def restricted(**params):
    """Options of a provider "mine" of files, with parameters."""
    return {
        **providers(mine=f"{PROVIDER}.FileConfigProvider"),
        **{f"config.providers.mine.param.{name}": text for name, text in params.items()},
    }


def test_providers_among_sparks_options():
    """Names of options come in lower case, values as they are. The sink's own options count, too."""
    given = {
        "kafka.bootstrap.servers": "b:9092",
        "kafka.security.protocol": "SSL",
        "kafka.config.providers": "Mine",
        "kafka.config.providers.mine.class": f"{PROVIDER}.FileConfigProvider",
        "kafka.config.providers.mine.param.allowed.paths": "/run, /var/keys",
        "kafka.ssl.truststore.location": "${Mine:/run/a:b}",
        "metrics.otlp.enable": "true",
        "metrics.otlp.endpoint": "https://collector",
    }
    options = SinkOptions.parse({**given, "metrics.otlp.headers": "a=${Mine:/var/keys/x:y}"})
    assert options.producer.security.ssl.truststore.location == "${file:/run/a:b}"
    assert options.metrics.otlp.headers == Secret("a=${file:/var/keys/x:y}")
    assert options.notes == ()
    for hostile in ("${Mine:/etc/shadow:root}", "${file:/run/a:b}", "${env:HOME}"):
        with pytest.raises(ConfigError) as raised:
            SinkOptions.parse({**given, "metrics.otlp.headers": f"a={hostile}"})
        assert raised.value.code == "AUTH-030"
        assert str(raised.value).startswith("metrics.otlp.headers: ")
    with pytest.raises(ConfigError, match=r"'kafka\.config\.providers\.mine\.clas' is not"):
        SinkOptions.parse({"kafka.config.providers.mine.clas": "x"})


PATHS = restricted(**{"allowed.paths": "/run/secrets,/run/a.properties"})
OF_ENV = providers(env=f"{PROVIDER}.EnvVarConfigProvider")
PATTERN = "config.providers.env.param.allowlist.pattern"
VARIABLES = {**OF_ENV, PATTERN: "KAFKA_[A-Z]+"}
NOT_ALLOWED = "AUTH-030"


@each_row(
    ("restriction", "text", "found"),
    [
        (PATHS, "${mine:/etc/passwd:root}", NOT_ALLOWED),
        (PATHS, "${mine:/run/secrets/../../etc/passwd:root}", NOT_ALLOWED),
        (PATHS, "${mine:/run/secrets-of-others/a:b}", NOT_ALLOWED),
        (PATHS, "${mine:secrets/a:b}", NOT_ALLOWED),
        (PATHS, "${MINE:/etc/passwd:root}", NOT_ALLOWED),
        (PATHS, "clear ${mine:/run/secrets/a:b} ${mine:/etc/passwd:root}", NOT_ALLOWED),
        # Other names than those of config.providers would be a way around.
        (PATHS, "${file:/run/secrets/a:b}", NOT_ALLOWED),
        (PATHS, "${dir:/run/secrets:a}", NOT_ALLOWED),
        (PATHS, "${env:HOME}", NOT_ALLOWED),
        # As in Java: a link of the way back, such as link/.., is never followed.
        (PATHS, "${mine:/run/secrets/link/../a:b}", "${file:/run/secrets/a:b}"),
        (PATHS, "${mine:/run//secrets/./a:b}", "${file:/run/secrets/a:b}"),
        (PATHS, "${mine:/run/a.properties:b}", "${file:/run/a.properties:b}"),
        # The pattern must match the whole name, as in Java.
        (VARIABLES, "${env:KAFKA_KEY}", "${env:KAFKA_KEY}"),
        *(
            (VARIABLES, f"${{env:{name}}}", NOT_ALLOWED)
            for name in ("AWS_SECRET_ACCESS_KEY", "MY_KAFKA_KEY", "KAFKA_KEY2", "KAFKA_KEY\n")
        ),
    ],
)
def test_allowed_paths_and_variables_hold_for_each_reference(restriction, text, found):
    options = {**GIVEN, **restriction, "ssl.key.password": text}
    if found is not NOT_ALLOWED:
        config = ProducerConfig.parse(options)
        assert config.security.ssl.keystore.key_password == Secret(found)
        return
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.parse(options)
    assert raised.value.code == NOT_ALLOWED
    assert str(raised.value).startswith("kafka.ssl.key.password: ")
    assert "root" not in str(raised.value)
    assert "clear" not in str(raised.value)


@pytest.mark.parametrize("escaped", [r"$\{env:HOME}", r"\44{env:HOME}", r"$\{file:${env:A}}"])
def test_escapes_do_not_hide_a_reference_in_jaas(escaped):
    """In Java they are no reference; here they would be one that no restriction has seen."""
    text = f'{PLAIN_MODULE} required username="a" password="{escaped}";'
    with pytest.raises(ConfigError, match="with escapes") as raised:
        unresolved_entry(text)
    assert raised.value.code == "AUTH-006"


def test_a_session_does_not_get_the_login_of_another_session(tmp_path, monkeypatch):
    """With Spark Connect each session has files of its own, and the same worker may serve both."""
    sasl = SaslConfig("SCRAM-SHA-256", username="${file:login.properties:u}", password=Secret("x"))
    logins = []
    for tenant in ("a", "b", "a"):
        with_spark_files(monkeypatch, "pyspark.core.files", tmp_path / tenant)
        (tmp_path / tenant).mkdir(exist_ok=True)
        (tmp_path / tenant / "login.properties").write_text(f"u=user-of-{tenant}\n")
        logins.append(Security.of(SecurityConfig("SASL_PLAINTEXT", sasl=sasl)).login)
    assert logins[0] is logins[2] is not logins[1]
    assert resolve_user(sasl).username == "user-of-a"


JAAS = 'Module required useKeyTab=true keyTab="{}";'


@pytest.mark.parametrize(
    ("config", "depends"),
    [
        (SslConfig(), False),
        (SslConfig(truststore=StoreConfig(location="/ca.pem")), False),
        (SslConfig(truststore=StoreConfig(location="file:///ca.pem")), False),
        (SslConfig(truststore=StoreConfig(location="ca.pem")), True),
        (SslConfig(keystore=StoreConfig(location="file:ca.pem")), True),
        (SslConfig(keystore=StoreConfig(location="${env:PLACE}")), True),
        (SslConfig(keystore=StoreConfig(password=Secret("${env:P}"))), False),
        (SslConfig(keystore=StoreConfig(password=Secret("${file:/a:p}"))), False),
        (SslConfig(keystore=StoreConfig(password=Secret("${dir:a:p}"))), True),
        (in_options(), False),
        (in_options(username="${env:U}"), False),
        (in_options(password="${file:/a:p}${file:a:p}"), True),
        (SaslConfig("GSSAPI", jaas_config=Secret(JAAS.format("/client.keytab"))), False),
        (SaslConfig("GSSAPI", jaas_config=Secret(JAAS.format("client.keytab"))), True),
        (SaslConfig("GSSAPI", jaas_config=Secret(JAAS.format("${env:PLACE}"))), True),
        (SaslConfig("GSSAPI", jaas_config=Secret(JAAS.format("\\/client.keytab"))), True),
        (SaslConfig("PLAIN", jaas_config=Secret("${file:/jaas:text}")), True),
        (SaslConfig("PLAIN", jaas_config=Secret('M required username="a" password="b";')), False),
        (of_token(token_endpoint_url="https://idp/token"), False),
        (of_token(token_endpoint_url="file:/token"), False),
        (of_token(token_endpoint_url="file:token"), True),
        (of_token(assertion=AssertionConfig(private_key_file="/key.pem")), False),
        (of_token(assertion=AssertionConfig(private_key_file="key.pem")), True),
    ],
)
def test_only_relative_paths_are_other_files_in_another_folder(
    config, depends, tmp_path, monkeypatch
):
    kept = security._PerProcess(lambda _: object())
    first = kept.of(config)
    monkeypatch.chdir(tmp_path)
    assert (kept.of(config) is not first) == depends


def test_of_many_configurations_those_used_last_are_kept():
    made = []
    kept = security._PerProcess(made.append)
    configs = [in_options(username=str(number)) for number in range(security.MOST_KEPT + 1)]
    for config in (*configs[:-1], configs[0], configs[-1], configs[0]):
        kept.of(config)
    assert made == configs
    kept.of(configs[1])
    assert made == [*configs, configs[1]]


@pytest.mark.parametrize(
    ("given", "problem", "code"),
    [
        (restricted(**{"allowed.path": "/run"}), "no parameter 'allowed.path'", "OPTION-001"),
        (restricted(**{"allowlist.pattern": ".*"}), "'allowlist.pattern'", "OPTION-001"),
        (restricted(**{"allowed.paths": "run"}), "'run' is not absolute", "OPTION-003"),
        (restricted(**{"allowed.paths": " "}), "names no path", "OPTION-003"),
        ({**OF_ENV, PATTERN: r"\Qa\E"}, "regular expression", "OPTION-003"),
        # A set within a set has another meaning in Java.
        ({**OF_ENV, PATTERN: "[A-Z&&[^B]]+"}, "regular expression", "OPTION-003"),
        (
            {"config.providers.file.param.allowed.paths": "/run"},
            "kafka.config.providers does not name 'file'",
            "OPTION-008",
        ),
    ],
)
def test_a_restriction_that_cannot_hold_is_refused(given, problem, code):
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.parse({**GIVEN, **given})
    assert problem in str(raised.value)
    assert raised.value.code == code


# --- files -----------------------------------------------------------------------------------------


@pytest.fixture
def working(tmp_path, monkeypatch):
    """The working directory."""
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


def test_a_path_or_url_or_a_name_in_the_working_directory(working):
    path = file(working, "ca.pem")
    for form in ("{}", "file:{}", "file://{}", "file://localhost{}", "FILE:{}"):
        assert find_file(form.format(path), LOCATION) == path
    for name in ("ca.pem", "./ca.pem"):
        assert find_file(name, LOCATION) == path
    assert find_file(file(working, "a:b").name, LOCATION) == working / "a:b"
    escaped = file(working, "my ca ü.pem")
    assert find_file(f"file:{working}/my%20ca%20%C3%BC.pem", LOCATION) == escaped
    # What is there and cannot be looked at is left to whoever opens it.
    long = working / ("x" * 300)
    assert find_file(str(long), LOCATION) == long


@pytest.mark.parametrize("name", ["pyspark.core.files", "pyspark.files"])
def test_a_shipped_file_is_found_where_spark_has_put_it(name, working, tmp_path, monkeypatch):
    with_spark_files(monkeypatch, name, tmp_path / "shipped")
    path = file(tmp_path / "shipped", "ca.pem")
    assert find_file("ca.pem", LOCATION) == path
    nearer = file(working, "ca.pem")
    assert find_file("ca.pem", LOCATION) == nearer


def not_found(location):
    with pytest.raises(ConfigError) as raised:
        find_file(location, LOCATION)
    return str(raised.value)


@pytest.mark.parametrize(
    ("location", "root", "looked"),
    [
        ("ca.pem", AssertionError("no context"), "{working}/ca.pem. It"),
        ("ca.pem", "", "{working}/ca.pem. It"),
        ("/no/such/file", "/shipped", "/no/such/file. It"),
        ("ca.pem", "/shipped", "{working}/ca.pem, /shipped/ca.pem. "),
        ("no\0name", "", ""),
        ("file/of/a/file", "", ""),
    ],
)
def test_what_is_missing_is_told_with_each_place(location, root, looked, working, monkeypatch):
    file(working, "file")
    with_spark_files(monkeypatch, "pyspark.core.files", root)
    message = not_found(location)
    assert f"finds no such file: {looked.format(working=working)}" in message
    assert f" on host {os.uname().nodename} " in message
    assert message.startswith(f"{LOCATION}=")
    assert "--files" in message


@pytest.mark.parametrize(("in_task", "who"), [(True, "a Spark task"), (False, "this process")])
def test_whose_process_it_is_is_told(in_task, who, monkeypatch):
    module = ModuleType("pyspark.taskcontext")
    context = object() if in_task else None
    module.TaskContext = SimpleNamespace(get=lambda: context)
    monkeypatch.setitem(sys.modules, "pyspark.taskcontext", module)
    with pytest.raises(ConfigError, match=f"{who} on host"):
        find_file("/no/such/file", LOCATION)


def test_files_of_other_systems_and_hosts_are_refused():
    for location in ("hdfs:///ca.pem", "s3://bucket/ca.pem", "dbfs:/ca.pem"):
        assert "from the local disk only" in not_found(location)
    assert "on Databricks write /dbfs/FileStore/t.jks" in not_found("dbfs:/FileStore/t.jks")
    assert "the URL names another host" in not_found("file://elsewhere/ca.pem")


# --- logins and contexts ---------------------------------------------------------------------------


def test_a_login_begins_conversations():
    login = new_login(sasl("SCRAM-SHA-512", ALICE))
    conversation = login.create_sasl_client("broker-1")
    assert conversation.mechanism == "SCRAM-SHA-512"
    assert conversation.initial_response().startswith(b"n,,n=alice,r=")
    assert conversation.initial_response().decode() != first_message(login)


def login_of(password):
    config = SecurityConfig("SASL_PLAINTEXT", sasl=in_options(password=password))
    return Security.of(config).login


def tls_of(store, location):
    ssl = SslConfig(**{store: StoreConfig(location=location)})
    return Security.of(SecurityConfig("SSL", ssl=ssl)).tls


@pytest.mark.parametrize(
    ("find", "one", "other"),
    [
        (login_of, ["a"], ["b"]),
        (tls_of, ["truststore", "a.pem"], ["truststore", "b.pem"]),
        (tls_of, ["keystore", "a.pem"], ["keystore", "b.pem"]),
    ],
)
def test_what_is_made_is_shared_by_all_with_the_same_configuration(find, one, other):
    made = find(*one)
    assert find(*one) is made
    assert find(*other) is not made
    child = os.fork()
    if child == 0:
        os._exit(0 if find(*one) is not made else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert find(*one) is made
    kept = security._PerProcess(lambda _: object())
    with kept._lock:
        kept.forget()
        assert not kept._lock.locked(), "a fork while another thread looks for one"


def test_only_what_may_be_had_later_is_no_error_yet():
    away, refused = CredentialsUnavailableError("told"), AuthenticationError("told")
    secured = Security(login=SimpleNamespace(login=mock.Mock(side_effect=[away, away, refused])))
    secured.prepare_if_possible(1, [])
    for prepare in (secured.prepare, secured.prepare_if_possible):
        with pytest.raises(AuthenticationError, match="told"):
            prepare(1, [])


def test_tls_of_a_token_endpoint_is_kept_until_its_options_are_others():
    timer = RetryTimer(SystemClock(), Pauses())
    retrieval = TokenRetrieval(
        SaslConfig("OAUTHBEARER"), timer, lambda _: object(), lambda text, _: text
    )
    one, other = {"ssl.truststore.location": "/a"}, {"ssl.truststore.location": "/b"}
    first = retrieval._tls_of(one)
    assert retrieval._tls_of(one) is first
    assert retrieval._tls_of(other) is not first


# --- credentials that are not there yet ------------------------------------------------------------


def gives_token():
    return jwt()


def is_away():
    raise RuntimeError("the issuer is away")


def gives_nothing(): ...


def test_the_thread_of_a_login_ends_when_that_is_closed():
    oauth = OAuthConfig(token_provider=f"{__name__}:gives_token")
    login = login_for(SaslConfig("OAUTHBEARER", oauth=oauth))
    login.login(PATIENCE_MS)
    thread = login._keeper._thread
    assert thread.is_alive()
    login.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def values_with(provider, test):
    """``test``: makes a login of its own, which other tests have not asked before."""
    (port,) = free_ports(1, HOST)
    return {
        "bootstrap.servers": f"{HOST}:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": f"{__name__}:{provider}",
        "sasl.oauthbearer.scope": test,
    }


def options_with(provider, test, **more):
    values = {f"kafka.{name}": text for name, text in values_with(provider, test).items()}
    return SinkOptions.parse({**values, "topic": "t", **more})


def test_a_producer_and_an_admin_client_wait_for_them():
    producer = ThreadedProducer(ProducerConfig.parse(values_with("is_away", "producer")))
    try:
        assert producer.is_healthy
    finally:
        producer.close()
    config = ProducerConfig.parse(values_with("is_away", "admin"))
    with AdminClient.of(config) as admin, pytest.raises(BootstrapError):
        admin.metadata([], False, admin.deadline_in(0))
    for make in (ThreadedProducer, AdminClient.of):
        # What is no token is told at once.
        with pytest.raises(AuthenticationError, match="returned nothing"):
            make(ProducerConfig.parse(values_with("gives_nothing", "nothing")))


def test_the_check_before_the_first_task_tells_a_new_query_and_warns_a_stream(caplog, tmp_path):
    option = "kafka.sasl.oauthbearer.token.provider"
    with pytest.raises(CredentialsUnavailableError, match=f"{option}.*the issuer is away"):
        check_cluster(options_with("is_away", "new"), is_stream=False)
    # The stream may have run for weeks.
    options = options_with("is_away", "stream", checkpointLocation=str(tmp_path))
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        check_cluster(options, is_stream=True)
    assert "the issuer is away" in caplog.text
    assert "the tasks will wait" in caplog.text


EXACTLY_ONCE = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": "p"}


@pytest.mark.usefixtures("no_proxy")
def test_the_abort_of_a_failed_task_hides_no_error_and_does_not_wait_for_a_token(monkeypatch):
    """Spark is told why the task failed, not that its transaction could not be aborted."""
    options = options_with("gives_nothing", "abort", **EXACTLY_ONCE)
    session.abort_task(options, "p.1", is_superseded=False)
    monkeypatch.setattr(session, "_TASK_ABORT_TIMEOUT_MS", 50)
    is_over = threading.Event()
    with scripted(Scripted(waits=is_over)) as (url, received):
        options = SinkOptions.parse({"topic": "t", **EXACTLY_ONCE, **_endpoint(url)})
        session.abort_task(options, "p.1", is_superseded=False)
        is_over.set()
    assert len(received) <= 1


@pytest.mark.parametrize("is_superseded", [True, False])
def test_the_abort_of_a_superseded_task_may_take_longer(is_superseded, monkeypatch):
    """Nobody waits for that task, and its next plan may be far away."""
    client = mock.Mock(side_effect=KafkaSinkError("no broker answers"))
    monkeypatch.setattr(session.AdminClient, "of", client)
    given = {"topic": "t", "kafka.bootstrap.servers": "b:1", "kafka.max.block.ms": "77777"}
    session.abort_task(SinkOptions.parse({**given, **EXACTLY_ONCE}), "p.1", is_superseded)
    assert (77_777 in client.call_args.args) is is_superseded


def _endpoint(url):
    """One that nothing but the caller's patience ends the wait for."""
    oauth = "kafka.sasl.oauthbearer"
    return {
        "kafka.bootstrap.servers": f"{HOST}:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        f"{oauth}.token.endpoint.url": url,
        f"{oauth}.client.credentials.client.id": "app",
        f"{oauth}.client.credentials.client.secret": "S3CRET",
        "kafka.sasl.login.connect.timeout.ms": str(AN_HOUR_MS),
        "kafka.sasl.login.read.timeout.ms": str(AN_HOUR_MS),
        "kafka.max.block.ms": str(AN_HOUR_MS),
    }
