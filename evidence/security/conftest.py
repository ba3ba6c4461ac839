"""The fixtures of the tests with secured brokers."""

from tests.security.conftest import (  # noqa: F401
    authority,
    issuer,
    new_topic,
    secured,
    spark,
    world,
)
