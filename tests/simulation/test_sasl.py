"""Authenticated connections of a simulated producer: renewed, over, refused, hung, cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.simulation.bugs import Bug, assert_does_harm, scenarios_of
from tests.simulation.sasl_bugs import SASL_BUGS
from tests.simulation.sasl_scenarios import SCENARIOS


@pytest.mark.parametrize(
    "scenario", SCENARIOS, ids=lambda s: " ".join([s[0].__name__, *map(str, s[1:])])
)
def test_what_is_to_happen_happens(scenario: tuple[Callable[..., None], Any]) -> None:
    play, *arguments = scenario
    play(*arguments)


@pytest.mark.parametrize(("bug", "scenario"), scenarios_of(SASL_BUGS))
def test_the_planted_bug_does_harm(bug: Bug, scenario: partial[None]) -> None:
    assert_does_harm(bug, scenario)
