"""When a token is renewed: times only, without a thread and without asking anybody.

    after      | next is
    -----------+---------------------------------------------------------------------------
    obtained   | window.factor (and up to window.jitter more) of its life; not within
               | min.period of now, nor within buffer of its end, if there is room for both
    failed     | retry.backoff.max.ms later; the old token stays in use until it expires
    not used   | nothing: nobody has begun a conversation since the last attempt
    used       | as before; now, if it was not asked for lack of use
    wanted     | now, unless an attempt has just failed

Times are milliseconds since 1970-01-01 UTC, since that is what tokens hold.

Source: ``ExpiringCredentialRefreshingLogin`` of Kafka, which renews forever, and repeats a failed
login after 10 s.
"""

from __future__ import annotations

from spark_kafka_sink.base.backoff import RandomSource
from spark_kafka_sink.config.security_config import LoginConfig
from spark_kafka_sink.security.oauth.token import Token


class RefreshSchedule:
    """The next time at which a token is asked for."""

    def __init__(self, config: LoginConfig, rng: RandomSource) -> None:
        self._config = config
        self._rng = rng
        self._next_ms: int | None = None
        self._failed_at_ms: int | None = None
        self._is_used = False

    @property
    def next_ms(self) -> int | None:
        """When to ask; None while nobody needs a token."""
        return self._next_ms

    def obtained(self, token: Token, now_ms: int) -> None:
        """A token has come."""
        self._failed_at_ms = None
        self._is_used = False
        self._next_ms = self._refresh_at(token, now_ms)

    def failed(self, now_ms: int) -> None:
        """An attempt has failed."""
        self._failed_at_ms = now_ms
        self._next_ms = now_ms + self._config.retry_backoff_max_ms

    def used(self, now_ms: int) -> None:
        """A conversation has begun with the token; if it was not renewed for lack of use, it is."""
        self._is_used = True
        if self._next_ms is None:
            self._next_ms = now_ms

    def wanted(self, now_ms: int) -> None:
        """A conversation cannot begin, for there is no token."""
        self._is_used = True
        after_failure = None
        if self._failed_at_ms is not None:
            after_failure = self._failed_at_ms + self._config.retry_backoff_max_ms
        self._next_ms = now_ms if after_failure is None else max(now_ms, after_failure)

    def is_due(self, now_ms: int) -> bool:
        """Whether to ask now. Each use is good for one attempt, whatever becomes of it: without
        another one since then, it is given up instead.
        """
        if self._next_ms is None or now_ms < self._next_ms:
            return False
        was_used, self._is_used = self._is_used, False
        if not was_used:
            self._next_ms = None
            self._failed_at_ms = None
        return was_used

    def _refresh_at(self, token: Token, now_ms: int) -> int:
        config, expires_ms = self._config, token.expires_at_ms
        part = config.refresh_window_factor + config.refresh_window_jitter * self._rng.random()
        least_ms = now_ms + 1000 * config.refresh_min_period_seconds
        most_ms = expires_ms - 1000 * config.refresh_buffer_seconds
        if least_ms > most_ms:
            return now_ms + int(max(expires_ms - now_ms, 0) * part)
        starts_ms = now_ms if token.issued_at_ms is None else token.issued_at_ms
        proposed_ms = starts_ms + int((expires_ms - starts_ms) * part)
        return max(min(proposed_ms, most_ms), least_ms)
