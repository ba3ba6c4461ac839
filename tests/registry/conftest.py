"""What holds for all tests with a registry."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def connections_are_closed() -> Iterator[None]:
    """Confluent's client leaves that to the garbage collection, which warns of it."""
    yield
    gc.collect()
