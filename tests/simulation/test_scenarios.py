"""What random lives reach rarely: the commit protocol gets through it, and with a planted bug it does not."""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation import scenarios
from tests.simulation.bugs import Bug, assert_does_harm, scenarios_of
from tests.simulation.query_bugs import BUGS


@pytest.mark.parametrize("version", [2, 1, 0], ids=["TV2", "TV1", "TV0"])
@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.late_writer,
        scenarios.late_sweep,
        scenarios.abort_after_the_decision,
        scenarios.lost_log,
        scenarios.deposed_leader,
        scenarios.other_rows_replayed,
        scenarios.older_driver,
        scenarios.refused_although_ended,
        scenarios.early_look,
    ],
)
def test_what_is_aborted_is_aborted_for_good_and_nothing_else_is(scenario, version):
    scenario(version)


@pytest.mark.parametrize("version", [2, 1, 0], ids=["TV2", "TV1", "TV0"])
@pytest.mark.parametrize("point", ["commit.decided", "commit.ending", "commit.ended"])
def test_what_is_committed_is_remembered_over_several_attempts(point, version):
    scenarios.repair_cut_off(version, point)


@pytest.mark.parametrize("version", [2, 1, 0], ids=["TV2", "TV1", "TV0"])
@pytest.mark.parametrize("error", ["INVALID_TXN_STATE", "PRODUCER_FENCED"])
def test_what_is_refused_while_it_is_open_is_asked_for_again(error, version):
    scenarios.refused_ends(version, error)


@pytest.mark.parametrize(("bug", "scenario"), scenarios_of(BUGS))
def test_the_planted_bug_does_harm(bug: Bug, scenario: partial[None]) -> None:
    assert_does_harm(bug, scenario)
