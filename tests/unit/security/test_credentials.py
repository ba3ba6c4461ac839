"""Where names and passwords come from: JAAS text or plain options, in clear or by reference."""

import logging
import os
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    BootstrapError,
    ConfigError,
    CredentialsUnavailableError,
)
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.security_config import (
    OAuthConfig,
    SaslConfig,
    SecurityConfig,
    SslConfig,
    StoreConfig,
)
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.producer.producer import ThreadedProducer
from spark_kafka_sink.security import references, security
from spark_kafka_sink.security.credentials import (
    login_options,
    parse_jaas,
    quoted,
    resolve_user,
    unresolved_entry,
)
from spark_kafka_sink.security.login import LoginManager, check, new_login
from spark_kafka_sink.security.oauth import TokenRetrieval
from spark_kafka_sink.security.oauth_endpoint import Tls
from spark_kafka_sink.security.oauth_tokens import RetryTimer
from spark_kafka_sink.security.security import Security
from spark_kafka_sink.spark.preflight import check_cluster
from spark_kafka_sink.transactions import session
from tests.patience import AN_HOUR_MS, PATIENCE_MS, PATIENCE_S
from tests.unit.scripted_endpoint import Scripted, scripted
from tests.unit.security.token_logins import Pauses, jwt, login_for

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def sasl(mechanism="PLAIN", options="", module=""):
    text = f"{module or MODULES[mechanism]} required {options};"
    return SaslConfig(mechanism, jaas_config=Secret(text))


ALICE = 'username="alice" password="S3CRET"'


class TestJaas:
    @pytest.mark.parametrize("mechanism", MODULES)
    @pytest.mark.parametrize("shaded", ["", "kafkashaded."])
    def test_name_and_password(self, mechanism, shaded):
        config = sasl(mechanism, ALICE, shaded + MODULES[mechanism])
        check(config)
        user = resolve_user(config)
        assert (user.username, user.password.reveal(), user.is_token) == ("alice", "S3CRET", False)
        assert "S3CRET" not in repr(user)

    @pytest.mark.parametrize(
        ("value", "is_token"), [("true", True), ("TRUE", True), ("false", False)]
    )
    def test_a_delegation_token(self, value, is_token):
        assert (
            resolve_user(sasl("SCRAM-SHA-256", f"{ALICE} tokenauth={value}")).is_token is is_token
        )

    @pytest.mark.parametrize(
        ("config", "messages"),
        [
            (
                sasl("PLAIN", ALICE, MODULES["SCRAM-SHA-256"]),
                ["ScramLoginModule is that of", "PLAIN"],
            ),
            (
                sasl("PLAIN", ALICE, "com.example.MyLoginModule"),
                ["com.example.MyLoginModule is not"],
            ),
            (sasl("PLAIN", ALICE, "S3CRET"), ["its first word is not", "=PLAIN is org.apache"]),
            (
                sasl("PLAIN", 'username="alice"'),
                ["'password' in kafka.sasl.jaas.config is missing"],
            ),
            (
                sasl("PLAIN", 'password="S3CRET"'),
                ["'username' in kafka.sasl.jaas.config is missing"],
            ),
            (sasl("PLAIN", 'username="" password="S3CRET"'), ["'username' in", "is empty"]),
            (replace(sasl("PLAIN", ALICE), username="alice"), ["say the same"]),
            (replace(sasl("PLAIN", ALICE), password=Secret("S3CRET")), ["say the same"]),
            (SaslConfig("PLAIN"), ["needs kafka.sasl.username and kafka.sasl.password, or"]),
            (SaslConfig("PLAIN", username="alice"), ["kafka.sasl.password is missing"]),
            (
                SaslConfig("PLAIN", username="", password=Secret("S3CRET")),
                ["kafka.sasl.username is empty"],
            ),
            (
                SaslConfig("SCRAM-SHA-1"),
                ["kafka.sasl.mechanism=SCRAM-SHA-1 is not known", "GSSAPI"],
            ),
            (sasl("PLAIN", 'username="alice" password="S3CRET'), ["quotation mark is not closed"]),
        ],
    )
    def test_what_is_known_beforehand(self, config, messages):
        with pytest.raises(ConfigError) as raised:
            check(config)
        for message in messages:
            assert message in str(raised.value)
        assert "S3CRET" not in str(raised.value)


class TestPlainOptions:
    @pytest.mark.parametrize("mechanism", MODULES)
    def test_name_and_password(self, mechanism):
        config = SaslConfig(mechanism, username="alice", password=Secret("S3CRET"))
        check(config)
        assert resolve_user(config).password == Secret("S3CRET")
        assert not resolve_user(config).is_token


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


class TestReferences:
    def test_in_the_plain_options(self):
        config = SaslConfig("PLAIN", username="${env:U}", password=Secret("${env:P}"))
        user = resolve_user(config, Store(U="alice", P="S3CRET"))
        assert (user.username, user.password.reveal()) == ("alice", "S3CRET")

    @pytest.mark.parametrize("password", ['"${env:P}"', "${env:P}", "'${env:P}'"])
    def test_in_a_value_of_the_jaas_text(self, password):
        config = sasl("PLAIN", f"username=alice password={password}")
        check(config)
        assert resolve_user(config, Store(P='a"b\\c;')).password.reveal() == 'a"b\\c;'

    def test_as_a_part_of_a_value(self):
        config = sasl("PLAIN", 'username="${env:U}@${env:D}" password="x"')
        assert (
            resolve_user(config, Store(U="alice", D="example.org")).username == "alice@example.org"
        )

    def test_for_the_whole_jaas_text(self):
        config = SaslConfig("PLAIN", jaas_config=Secret(" ${env:JAAS} "))
        check(config)
        text = f'{MODULES["PLAIN"]} required username="alice" password="${{env:no}}";'
        # What it stands for is not resolved once more: a password may look like a reference.
        assert resolve_user(config, lambda _text, _option: text).password.reveal() == "${env:no}"

    def test_they_are_resolved_for_each_conversation(self):
        config = SaslConfig("PLAIN", username="alice", password=Secret("${env:P}"))
        store = Store(P="old")
        assert resolve_user(config, store).password.reveal() == "old"
        store.values["${env:P}"] = "new"
        assert resolve_user(config, store).password.reveal() == "new"

    @pytest.mark.parametrize(
        ("config", "store", "message"),
        [
            (SaslConfig("PLAIN", username="a", password=Secret("${env:P}")), Store(), "is not set"),
            (
                SaslConfig("PLAIN", username="a", password=Secret("${env:P}")),
                Store(P=""),
                "is empty",
            ),
            (sasl("PLAIN", "username=a password=${env:P}"), Store(), "is not set"),
            (sasl("PLAIN", "username=a password=${env:P}"), Store(P=""), "is empty"),
            (
                SaslConfig("PLAIN", jaas_config=Secret("${env:J}")),
                Store(J="S3CRET"),
                "one of required",
            ),
            (
                SaslConfig("PLAIN", jaas_config=Secret("${env:J}")),
                Store(J=f"{MODULES['SCRAM-SHA-256']} required {ALICE};"),
                "kafka.sasl.mechanism is PLAIN",
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


class TestLogins:
    def test_a_login_begins_conversations(self):
        config = SaslConfig("PLAIN", username="alice", password=Secret("S3CRET"))
        login = new_login(config)
        login.login(1)
        assert login.mechanism == "PLAIN"
        assert login.create_sasl_client("broker-1").initial_response() == b"\0alice\0S3CRET"
        login.close()

    def test_scram(self):
        login = new_login(sasl("SCRAM-SHA-512", ALICE))
        conversation = login.create_sasl_client("broker-1")
        assert conversation.mechanism == "SCRAM-SHA-512"
        assert conversation.initial_response().startswith(b"n,,n=alice,r=")
        assert (
            conversation.initial_response()
            != login.create_sasl_client("broker-1").initial_response()
        )

    def test_what_is_wrong_is_told_when_it_is_made(self):
        with pytest.raises(ConfigError, match="is missing"):
            new_login(SaslConfig("PLAIN", username="alice"))

    def test_it_is_shared_by_all_with_the_same_configuration(self):
        pool = LoginManager()
        first = SaslConfig("PLAIN", username="alice", password=Secret("a"))
        same = SaslConfig("PLAIN", username="alice", password=Secret("a"))
        other = SaslConfig("PLAIN", username="alice", password=Secret("b"))
        assert pool.login_of(first) is pool.login_of(same)
        assert pool.login_of(first) is not pool.login_of(other)

    def test_a_forked_child_starts_with_none(self):
        pool = LoginManager()
        config = SaslConfig("PLAIN", username="alice", password=Secret("a"))
        login = pool.login_of(config)
        pool.forget()
        assert pool.login_of(config) is not login


PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


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
    entry = parse_jaas(f"{PLAIN_MODULE} required {options};")
    assert entry.module == PLAIN_MODULE
    assert entry.options == expected


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "Sufficient", "optional", '"required"'])
def test_flags(flag):
    assert parse_jaas(f"{PLAIN_MODULE} {flag} username=a;").options == {"username": "a"}


@pytest.mark.parametrize(
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
        (f"{PLAIN_MODULE} required password=;", "has no value for 'password'"),
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
    entry = parse_jaas(f'{PLAIN_MODULE} required username="N4ME" password="S3CRET" S3CRET2=a;')
    assert "S3CRET" not in repr(entry)
    assert "N4ME" not in repr(entry)
    assert "S3CRET" not in repr(parse_jaas("S3CRET required;"))


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_what_is_quoted_is_read_as_itself(value):
    text = f"{PLAIN_MODULE} required username={quoted(value)} password={quoted(value)};"
    assert parse_jaas(text).options == {"username": value, "password": value}


@given(st.text(alphabet="ab1-._/*\"'\\;= \n\r{}$#") | st.text())
def test_any_text_is_read_or_refused(text):
    try:
        parse_jaas(f"{PLAIN_MODULE} required {text}")
    except ConfigError:
        pass


def tls_of(ssl):
    return Security.of(SecurityConfig("SSL", ssl=ssl)).tls


def test_a_context_is_shared_by_all_with_the_same_configuration():
    one, other = (StoreConfig(location=name) for name in ("a.pem", "b.pem"))
    assert tls_of(SslConfig(truststore=one)) is tls_of(SslConfig(truststore=one))
    assert tls_of(SslConfig(truststore=one)) is not tls_of(SslConfig(truststore=other))
    assert tls_of(SslConfig(keystore=one)) is not tls_of(SslConfig(keystore=other))


def test_a_fork_while_another_thread_looks_for_a_context_has_its_own_lock():
    contexts = security._TlsContextCache()
    before = contexts.context_of(SslConfig())
    with contexts._lock:
        contexts.forget()
        assert not contexts._lock.locked()
        assert contexts.context_of(SslConfig()) is not before


def test_a_forked_process_makes_contexts_of_its_own():
    before = tls_of(SslConfig())
    child = os.fork()
    if child == 0:
        os._exit(0 if tls_of(SslConfig()) is not before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tls_of(SslConfig()) is before


ALICE_BY_PLAIN = SaslConfig("ALICE_BY_PLAIN", username="alice", password=Secret("a"))


def test_a_fork_while_another_thread_looks_for_a_login_has_its_own_lock():
    pool = LoginManager()
    with pool._lock:
        pool.forget()
        assert not pool._lock.locked()


def test_a_pool_that_is_closed_closes_each_login_and_keeps_none():
    closed = []

    class Login:
        mechanism = "ALICE_BY_PLAIN"

        def close(self):
            closed.append(self)

    pool = LoginManager(lambda _: Login())
    login = pool.login_of(ALICE_BY_PLAIN)
    pool.close()
    assert closed == [login]
    assert pool.login_of(ALICE_BY_PLAIN) is not login


@pytest.mark.parametrize("kind", [AuthenticationError, CredentialsUnavailableError])
def test_only_what_may_be_had_later_is_no_error_yet(kind):
    class Login:
        def login(self, timeout_ms, hosts):
            raise kind("told")

    secured = Security(login=Login())
    if kind is CredentialsUnavailableError:
        secured.prepare_if_possible(1, [])
    else:
        with pytest.raises(AuthenticationError, match="told"):
            secured.prepare_if_possible(1, [])
    with pytest.raises(kind, match="told"):
        secured.prepare(1, [])


def test_a_module_that_a_reference_completes_is_checked_when_it_is_known(monkeypatch):
    monkeypatch.setenv("TEST_MODULE", "org.apache.kafka.common.security.plain.PlainLoginModule")
    text = '${env:TEST_MODULE} required username="u" password="p";'
    assert login_options(SaslConfig("PLAIN", jaas_config=Secret(text)))["username"] == "u"
    with pytest.raises(AuthenticationError, match="is that of PLAIN"):
        login_options(SaslConfig("SCRAM-SHA-256", jaas_config=Secret(text)))


def test_a_text_that_looks_like_the_mark_of_a_reference_stays_as_it_is():
    entry = unresolved_entry('M required username="\ue0000\ue000" password="${env:X}";')
    assert entry.options == {"username": "\ue0000\ue000", "password": "${env:X}"}


def test_a_file_that_is_too_large_for_a_token_is_refused(tmp_path):
    path = tmp_path / "token"
    path.write_text("x" * references.MAX_FILE_BYTES)
    assert len(references.read_text(str(path), "option")) == references.MAX_FILE_BYTES
    path.write_text("x" * references.MAX_FILE_BYTES + " ")
    with pytest.raises(AuthenticationError, match="1000000 bytes at most"):
        references.read_text(str(path), "option")


def test_tls_of_a_token_endpoint_is_kept_until_its_options_are_others():
    made = []

    def make(config):
        made.append(config)
        return Tls(lambda: None, lambda *_: "")

    timer = RetryTimer(SystemClock(), Pauses())
    retrieval = TokenRetrieval(SaslConfig("OAUTHBEARER"), timer, make, lambda text, _: text)
    one, other = {"ssl.truststore.location": "/a"}, {"ssl.truststore.location": "/b"}
    first = retrieval._tls_of(one)
    assert retrieval._tls_of(one) is first
    assert retrieval._tls_of(other) is not first
    assert len(made) == 2


def token():
    return jwt()


def test_the_thread_of_a_login_ends_when_that_is_closed():
    oauth = OAuthConfig(token_provider=f"{__name__}:token")
    login = login_for(SaslConfig("OAUTHBEARER", oauth=oauth))
    login.login(PATIENCE_MS)
    thread = login._keeper._thread
    assert thread.is_alive()
    login.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


HOST = "127.0.0.1"


def is_away():
    raise RuntimeError("the issuer is away")


def gives_nothing(): ...


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


def test_a_producer_waits_for_them():
    producer = ThreadedProducer(ProducerConfig.parse(values_with("is_away", "producer")))
    try:
        assert producer.is_healthy
    finally:
        producer.close()


def test_an_admin_client_waits_for_them():
    config = ProducerConfig.parse(values_with("is_away", "admin"))
    with AdminClient.of(config) as admin, pytest.raises(BootstrapError):
        admin.metadata([], False, admin.deadline_in(0))


@pytest.mark.parametrize("make", [ThreadedProducer, AdminClient.of])
def test_what_is_no_token_is_told_at_once(make):
    with pytest.raises(AuthenticationError, match="returned nothing"):
        make(ProducerConfig.parse(values_with("gives_nothing", "nothing")))


def test_the_check_before_the_first_task_tells_a_new_query():
    with pytest.raises(CredentialsUnavailableError, match="the issuer is away") as raised:
        check_cluster(options_with("is_away", "new"), is_stream=False)
    assert "kafka.sasl.oauthbearer.token.provider" in str(raised.value)


def test_and_only_warns_of_a_stream_that_may_have_run_for_weeks(caplog, tmp_path):
    options = options_with("is_away", "stream", checkpointLocation=str(tmp_path))
    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        check_cluster(options, is_stream=True)
    assert "the issuer is away" in caplog.text
    assert "the tasks will wait" in caplog.text


EXACTLY_ONCE = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": "p"}


def test_the_abort_of_a_failed_task_hides_no_error():
    """Spark is told why the task failed, not that its transaction could not be aborted."""
    options = options_with("gives_nothing", "abort", **EXACTLY_ONCE)
    session.abort_task(options, "p.1", is_superseded=False)


@pytest.mark.usefixtures("no_proxy")
def test_nor_does_it_wait_longer_for_a_token_than_for_brokers(monkeypatch):
    monkeypatch.setattr(session, "_TASK_ABORT_TIMEOUT_MS", 50)
    is_over = threading.Event()
    with scripted(Scripted(waits=is_over)) as (url, received):
        options = SinkOptions.parse({"topic": "t", **EXACTLY_ONCE, **_endpoint(url)})
        session.abort_task(options, "p.1", is_superseded=False)
        is_over.set()
    assert len(received) <= 1


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
