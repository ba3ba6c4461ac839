"""The login of AWS_MSK_IAM: a token for each AWS region, made by AWS's signer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from spark_kafka_sink.base.backoff import RandomSource
from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.config.security_config import SaslConfig
from spark_kafka_sink.protocol.sasl import Conversation
from spark_kafka_sink.security.credentials import login_options
from spark_kafka_sink.security.mechanisms.aws_msk_iam import (
    aws_user,
    no_region,
    region_of,
    region_of_environment,
    signed_token,
)
from spark_kafka_sink.security.mechanisms.oauthbearer import OAuthBearerConversation
from spark_kafka_sink.security.oauth.keeper import Surroundings, TokenKeeper
from spark_kafka_sink.security.oauth.retry import Waiting, with_retries
from spark_kafka_sink.security.oauth.token import Token

_TRIES = 3
"""After so many, a machine without credentials has none. As ``awsMaxRetries`` of Java's library."""


class AwsLogin:
    """AWS_MSK_IAM, which is OAUTHBEARER on the wire. ``on_close``: ends the pauses of a fetch.

    A token is for the brokers of one region, which the broker's name tells, else the environment.
    """

    mechanism = "OAUTHBEARER"

    def __init__(
        self,
        config: SaslConfig,
        waiting: Waiting,
        rng: RandomSource,
        on_close: Callable[[], None],
    ) -> None:
        self._config = config
        self._waiting = waiting
        self._on_close = on_close
        self._surroundings = Surroundings(waiting.clock, rng)
        self._lock = threading.Lock()
        self._keepers: dict[str, TokenKeeper] = {}

    def prepare(self, timeout_ms: int, hosts: Sequence[str] = ()) -> None:
        """A token for each region of ``hosts``; without any, for the environment's."""
        regions = {region_of(host) for host in hosts} or {None}
        for region in sorted({known or region_of_environment() or "" for known in regions}):
            # An unknown region shows when the broker's name is known.
            if region:
                self._keeper(region).prepare(timeout_ms)

    def converse(self, host: str) -> Conversation:
        region = region_of(host) or region_of_environment()
        if region is None:
            raise no_region(host)
        return OAuthBearerConversation(self._keeper(region).token(), {})

    def identity(self) -> None:
        """Nothing that is replaced from outside."""

    def close(self) -> None:
        with self._lock:
            keepers = list(self._keepers.values())
        for keeper in keepers:
            keeper.close()
        self._on_close()

    def _keeper(self, region: str) -> TokenKeeper:
        def fetch(timeout_ms: int) -> Token:
            return self._fetch(region, timeout_ms)

        with self._lock:
            keeper = self._keepers.get(region)
            if keeper is None:
                keeper = TokenKeeper(fetch, self._config.login, self._surroundings)
                self._keepers[region] = keeper
            return keeper

    def _fetch(self, region: str, timeout_ms: int) -> Token:
        try:
            user = aws_user(login_options(self._config))
        except ConfigError as error:
            raise AuthenticationError(str(error)) from None
        tries = 0

        def attempt(_: int) -> Token:
            nonlocal tries
            tries += 1
            return signed_token(user, region, is_last=tries >= _TRIES)

        return with_retries(attempt, self._config.login, self._waiting, timeout_ms)
