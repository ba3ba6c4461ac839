"""Fixtures that several files of unit tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.issuer import Issuer
from tests.unit.security.token_logins import SECRET, forget_proxies


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_proxies(monkeypatch)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer of tokens that knows the client ``app``."""
    with Issuer({"app": SECRET}) as running:
        yield running
