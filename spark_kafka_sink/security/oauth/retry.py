"""An attempt that is repeated while it may pass: with pauses that double, and for a limited time.

Source: ``Retry`` of Kafka. Unlike there, the last pause is not cut short: what would be tried again
after ``retry.backoff.max.ms`` is not, so that the error comes before that time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import CredentialsUnavailableError
from spark_kafka_sink.config.security_config import LoginConfig

T = TypeVar("T")


class Waiting(NamedTuple):
    """Time as a dependency.

    pause: waits for milliseconds; raises CredentialsUnavailableError when the login is closed
    """

    clock: Clock
    pause: Callable[[int], None]


def with_retries(
    attempt: Callable[[int], T], config: LoginConfig, waiting: Waiting, timeout_ms: int
) -> T:
    """What ``attempt`` returns. It is given the milliseconds that are left.

    Repeated after CredentialsUnavailableError only, whose last one is raised when time is up.
    """
    start_ms = waiting.clock.now_ms()
    limit_ms = start_ms + min(config.retry_backoff_max_ms, timeout_ms)
    attempts = 0
    while True:
        attempts += 1
        try:
            return attempt(start_ms + timeout_ms - waiting.clock.now_ms())
        except CredentialsUnavailableError as error:
            now_ms = waiting.clock.now_ms()
            pause_ms = max(config.retry_backoff_ms * 2 ** (attempts - 1), 1)
            if now_ms + pause_ms > limit_ms:
                times = "once" if attempts == 1 else f"{attempts} times in {now_ms - start_ms} ms"
                raise CredentialsUnavailableError(f"{error} (tried {times})") from None
            waiting.pause(pause_ms)
