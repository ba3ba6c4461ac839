"""What all connections of a process share: by which configuration, until when, and not with a fork."""

import os

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, CredentialsUnavailableError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import (
    SaslConfig,
    SecurityConfig,
    SslConfig,
    StoreConfig,
)
from spark_kafka_sink.security import security
from spark_kafka_sink.security.login import LoginManager
from spark_kafka_sink.security.security import Security


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


PLAIN = SaslConfig("PLAIN", username="alice", password=Secret("a"))


def test_a_fork_while_another_thread_looks_for_a_login_has_its_own_lock():
    pool = LoginManager()
    with pool._lock:
        pool.forget()
        assert not pool._lock.locked()


def test_a_pool_that_is_closed_closes_each_login_and_keeps_none():
    closed = []

    class Login:
        mechanism = "PLAIN"

        def close(self):
            closed.append(self)

    pool = LoginManager(lambda _: Login())
    login = pool.login_of(PLAIN)
    pool.close()
    assert closed == [login]
    assert pool.login_of(PLAIN) is not login


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
