"""What runs with exactly-once delivery are judged by must find what it looks for."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from evidence.chaos import table
from evidence.chaos.exactly_once import VERSIONS, is_good, ports_of, summary
from evidence.harness import crash
from evidence.harness.driver import Traps
from evidence.harness.scene import Ends, Lag, lag_of

GOOD = {
    "guarantee": "exactly-once",
    "lost": 0,
    "doubled": 0,
    "out_of_order": 0,
    "left_open": [],
    "found_open": [],
}


def seen(*steps):
    """(second, stable offset, end offset, committed micro-batches) of partition 0."""
    return [(Ends(at, {0: stable}, {0: high}), count) for at, stable, high, count in steps]


FIVE = seen((1, 5, 5, 0), (2, 5, 9, 0), (3, 5, 12, 0), (4, 9, 12, 1), (5, 12, 12, 2))


@pytest.mark.parametrize(
    ("steps", "at", "lag"),
    [
        # Until the stable offset has passed what was written.
        (FIVE, 1.5, Lag(2.5, 1)),
        (FIVE, 2.5, Lag(2.5, 2)),
        # Who has everything does not wait; who still waits is not forgotten.
        (seen((1, 5, 5, 0), (2, 9, 9, 0)), 1.5, Lag(0.5, 0)),
        (seen((1, 5, 9, 0), (2, 5, 12, 3)), 0.5, None),
        (seen((1, 5, 9, 0)), 1.5, None),
        (
            [
                (Ends(1, {0: 3, 1: 0}, {0: 3, 1: 4}), 0),
                (Ends(2, {0: 9, 1: 3}, {0: 9, 1: 9}), 1),
                (Ends(3, {0: 9, 1: 4}, {0: 9, 1: 9}), 2),
            ],
            *(0.5, Lag(2.5, 2)),
        ),
    ],
)
def test_how_long_readers_wait_for_every_partition(steps, at, lag):
    assert lag_of(steps, at) == lag


AT_LEAST_ONCE = {"guarantee": "at-least-once"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, True),
        *(({name: 1}, False) for name in ("lost", "doubled", "out_of_order")),
        *(({name: ["p.0123.0"]}, False) for name in ("left_open", "found_open")),
        # The control must show what the faults do.
        (AT_LEAST_ONCE, False),
        ({**AT_LEAST_ONCE, "doubled": 1}, True),
        ({**AT_LEAST_ONCE, "doubled": 1, "lost": 1}, False),
    ],
)
def test_the_verdict(more, expected):
    assert is_good({**GOOD, **more}) is expected


def test_what_was_found_open_is_summed_up():
    events = [
        {"kind": "driver", "lingering": [], "recovery_s": 8.0},
        {"kind": "worker", "lingering": ["p.0123.0"], "reader_lag_s": 1.0},
        {"kind": "driver", "recovery_s": 9.0},
    ]
    told = summary(events)
    assert told["faults"] == {"driver": 2, "worker": 1}
    assert (told["looked_for_open"], told["found_open"]) == (2, ["p.0123.0"])
    assert told["recovery_s"] == {"median": 8.5, "max": 9.0}


class TestRunsBesideEachOther:
    def test_find_their_ports_in_ranges_of_their_own(self):
        ranges = [ports_of(version).split("-") for version in (*VERSIONS, "9.9.9")]
        taken = [port for first, last in ranges for port in range(int(first), int(last) + 1)]
        assert len(taken) == len(set(taken)) > 1_000

    def test_keep_each_others_results(self, tmp_path, monkeypatch):
        (page, _) = table.PAGES
        for path in (page, table.EXACTLY_ONCE):
            (tmp_path / path.name).write_bytes(path.read_bytes())
        monkeypatch.setattr(table, "EXACTLY_ONCE", tmp_path / table.EXACTLY_ONCE.name)
        monkeypatch.setattr(table, "PAGES", {tmp_path / page.name: table.tables})
        [old] = [r for r in table.read(table.EXACTLY_ONCE) if r["guarantee"] == "at-least-once"]
        new = [{**old, "kafka": f"9.{n}.0", "guarantee": "exactly-once"} for n in range(8)]
        with ThreadPoolExecutor(len(new)) as threads:
            list(threads.map(table.write_exactly_once, ([result] for result in new)))
        kept = [r["kafka"] for r in table.read(table.EXACTLY_ONCE)]
        assert kept[:8] == [f"9.{n}.0" for n in reversed(range(8))]
        assert kept[-1] == old["kafka"]
        assert all(f"| 9.{n}.0 |" in (tmp_path / page.name).read_text("utf-8") for n in range(8))


@pytest.mark.parametrize(
    ("more", "fails"),
    [({}, [1]), ({"nth": 3}, [3]), ({"repeats": True}, [1, 2, 3, 4])],
    ids=["the first one only", "a later one", "until it is taken away"],
)
def test_traps(more, fails, tmp_path, monkeypatch):
    monkeypatch.setenv(crash.FOLDER, str(tmp_path))
    monkeypatch.setattr(crash, "_reached", {})
    traps = Traps(tmp_path)
    with pytest.raises(AssertionError, match="commit.begun"):
        traps.set(crash.Trap("commit.begun", crash.FAIL))
    name = traps.set(crash.Trap("commit.begin", crash.FAIL, **more))
    crash.hook("plan.begin")
    assert traps.sprung(name) is None
    for number in range(1, 5):
        is_caught = pytest.raises(RuntimeError, match="made to fail at commit.begin")
        with is_caught if number in fails else nullcontext():
            crash.hook("commit.begin")
    if more.get("repeats"):
        assert traps.sprung(name) is None
        traps.clear()
        crash.hook("commit.begin")
    else:
        assert traps.sprung(name)["pid"] == os.getpid()
