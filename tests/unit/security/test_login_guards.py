"""Second checks of logins: after references are resolved, of sizes, of what is kept, at the end."""

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import OAuthConfig, SaslConfig
from spark_kafka_sink.security import references
from spark_kafka_sink.security.credentials import login_options, unresolved_entry
from spark_kafka_sink.security.oauth import TokenRetrieval
from spark_kafka_sink.security.oauth_endpoint import Tls
from spark_kafka_sink.security.oauth_tokens import RetryTimer
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.unit.token_logins import Pauses, jwt, login_for


def test_a_module_that_a_reference_completes_is_checked_when_it_is_known(monkeypatch):
    monkeypatch.setenv("TEST_MODULE", "org.apache.kafka.common.security.plain.PlainLoginModule")
    text = '${env:TEST_MODULE} required username="u" password="p";'
    assert login_options(SaslConfig("PLAIN", jaas_config=Secret(text)))["username"] == "u"
    with pytest.raises(AuthenticationError, match="is that of PLAIN"):
        login_options(SaslConfig("SCRAM-SHA-256", jaas_config=Secret(text)))


def test_a_text_that_looks_like_the_mark_of_a_reference_stays_as_it_is():
    entry = unresolved_entry('M required username="\ue0000\ue000" password="${env:X}";')
    assert entry is not None
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
    assert thread is not None
    assert thread.is_alive()
    login.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
