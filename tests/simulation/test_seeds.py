"""Seeds of whole lives: none may break an invariant. What catches the planted bugs: some of them, or
scenarios.
"""

from __future__ import annotations

import pytest

from tests.simulation import seeds
from tests.simulation.bugs import PRODUCER_BUGS, SASL_BUGS, assert_does_harm, scenarios_of
from tests.simulation.producer_scenarios import SCENARIOS
from tests.tables import each_row

# Minutes of CPU, on a machine of any load.
pytestmark = pytest.mark.timeout(1800)

SEEDS_AMONG_FAST_TESTS = range(15)
SEEDS, MORE_SEEDS = range(15, 150), range(150, 300)
"""``make simulate`` has twenty thousand: what a test needs is that a change which breaks much is noticed."""
MOST_SEEDS_FOR_A_BUG = 2000
FIRST_SEED = {
    "misrouted connection kept": 59,
    "metadata of any cluster accepted": 59,
    "several in flight before the first acknowledgement": 102,
    "epoch bumped without renumbering": 114,
    "topic ids looked up when the answer comes": 146,
    "numbered anew although perhaps appended": 21,
    "requests never time out": 2,
    "gap after refused records": 9,
    "refused although perhaps appended": 314,
}
"""Tried before all others, because few find the bug, or others take long to. Where a change of the
simulator has made it another, that test takes seconds again.
"""


def test_some_seeds_break_no_invariant():
    _assert_none_breaks_an_invariant(SEEDS_AMONG_FAST_TESTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.long)], ids=["some", "more"]
)
def test_no_seed_breaks_an_invariant(numbers):
    _assert_none_breaks_an_invariant(numbers)


def _assert_none_breaks_an_invariant(numbers):
    # In this process: others run tests beside it.
    failures = [failure for failure in map(seeds.try_seed, numbers) if failure is not None]
    assert not failures, "\n".join(failures[:3])


@pytest.mark.parametrize("seed", [3, 77, 4711])
def test_the_same_seed_gives_the_same_trace(seed):
    assert seeds.live(seed).trace == seeds.live(seed).trace


# Its lives end at their last poll: half a minute with any seed.
_LONG = {"gap after refused records"}


def _marked(name):
    return pytest.param(name, marks=[pytest.mark.long] if name in _LONG else [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug", [_marked(name) for name, bug in PRODUCER_BUGS.items() if not bug.scenarios]
)
def test_a_planted_bug_is_caught(bug):
    with PRODUCER_BUGS[bug].planted():
        for seed in (FIRST_SEED.get(bug, 0), *range(MOST_SEEDS_FOR_A_BUG)):
            if seeds.try_seed(seed) is not None:
                return
    pytest.fail(f"{MOST_SEEDS_FOR_A_BUG} seeds do not find: {bug}")


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "scenario"), scenarios_of({**PRODUCER_BUGS, **SASL_BUGS}))
def test_the_planted_bug_does_harm(bug, scenario):
    assert_does_harm(bug, scenario)


@each_row("scenario", SCENARIOS, ids=lambda s: " ".join([s[0].__name__, *map(str, s[1:])]))
def test_what_is_to_happen_to_authenticated_connections_happens(scenario):
    play, *arguments = scenario
    play(*arguments)
