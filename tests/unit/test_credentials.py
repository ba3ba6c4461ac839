"""Where names and passwords come from: JAAS text or plain options, in clear or by reference."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.security.credentials import login_options, quoted, resolve_user
from spark_kafka_sink.security.login import LoginManager, check, new_login

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
                [
                    "ScramLoginModule is that of SCRAM-SHA-256 and SCRAM-SHA-512",
                    "kafka.sasl.mechanism is PLAIN",
                    "plain.PlainLoginModule",
                ],
            ),
            (
                sasl("PLAIN", ALICE, "com.example.MyLoginModule"),
                ["com.example.MyLoginModule is not known"],
            ),
            (
                sasl("PLAIN", ALICE, "S3CRET"),
                [
                    "kafka.sasl.jaas.config: its first word is not the class of a login module: "
                    "look for a typing error. That of kafka.sasl.mechanism=PLAIN is org.apache",
                ],
            ),
            (
                sasl("PLAIN", 'username="alice"'),
                ["'password' in kafka.sasl.jaas.config is missing"],
            ),
            (
                sasl("PLAIN", 'password="S3CRET"'),
                ["'username' in kafka.sasl.jaas.config is missing"],
            ),
            (
                sasl("PLAIN", 'username="" password="S3CRET"'),
                ["'username' in kafka.sasl.jaas.config is empty"],
            ),
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
