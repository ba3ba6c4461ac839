"""Every case on real brokers by our producer; what was written is read back by another client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.security.cases import CASES, World
from tests.security.writing import VALUES, values_in, write


@pytest.mark.parametrize("case", CASES)
def test_written_and_read_back(world: World, new_topic: Callable[..., str], case: str) -> None:
    topic = new_topic()
    write(CASES[case](world), topic)
    assert values_in(world.kafka, topic) == sorted(VALUES)
