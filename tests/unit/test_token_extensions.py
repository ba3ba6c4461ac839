"""What a conversation reads anew while there is a token: the extensions of JAAS, and nothing else."""

import time

import pytest

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.security_config import OAuthConfig, SaslConfig
from tests.unit.token_logins import MODULE, jwt, login_for


def test_with_a_token_other_references_are_not_read_again(tmp_path):
    path, secret = tmp_path / "token.jwt", tmp_path / "secret"
    path.write_text(jwt(exp=time.time() + 300))
    secret.write_text("S3CRET")
    jaas = f'clientSecret="${{dir:{tmp_path}:secret}}" extension_x="${{env:TEST_EXTENSION}}"'
    config = SaslConfig(
        "OAUTHBEARER",
        jaas_config=Secret(f"{MODULE} required {jaas};"),
        oauth=OAuthConfig(token_endpoint_url=f"file://{path}"),
    )
    login = login_for(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_EXTENSION", "y")
        login.login(1_000)
        secret.unlink()
        assert (
            login.create_sasl_client("b")
            .initial_response()
            .decode()
            .endswith("S1GNATURE\x01x=y\x01\x01")
        )
    with pytest.raises(AuthenticationError, match="TEST_EXTENSION"):
        login.create_sasl_client("b")
    login.close()


def test_extensions_of_a_jaas_text_that_is_one_reference(tmp_path, monkeypatch):
    path = tmp_path / "token.jwt"
    path.write_text(jwt(exp=time.time() + 300))
    config = SaslConfig(
        "OAUTHBEARER",
        jaas_config=Secret("${env:TEST_JAAS}"),
        oauth=OAuthConfig(token_endpoint_url=f"file://{path}"),
    )
    monkeypatch.setenv("TEST_JAAS", f"{MODULE} required extension_x=y;")
    login = login_for(config)
    login.login(1_000)
    assert (
        login.create_sasl_client("b")
        .initial_response()
        .decode()
        .endswith("S1GNATURE\x01x=y\x01\x01")
    )
    login.close()
