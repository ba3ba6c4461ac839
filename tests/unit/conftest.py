"""Fixtures that several files of unit tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.base import text
from tests.security.issuer import Issuer
from tests.unit.security.token_endpoints import SECRET, forget_proxies


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests() -> None:
    """A password that another test left behind, such as ``password``, hides no word of messages."""
    text._ALIVE.clear()


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_proxies(monkeypatch)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer of tokens that knows the client ``app``."""
    with Issuer({"app": SECRET}) as running:
        yield running
