"""The thread that does what batches do not wait for."""

from __future__ import annotations

import os
from threading import Event

import pytest

from spark_kafka_sink.metrics import background as module
from spark_kafka_sink.metrics.background import BackgroundQueue, enqueue_line, flush_at_end
from tests.patience import PATIENCE_S
from tests.unit.simulated_time import SimulatedClock


def test_if_too_many_wait_the_oldest_are_lost():
    background = BackgroundQueue(most_waiting=2)
    done = []
    begun, may_go_on = Event(), Event()

    def first():
        begun.set()
        may_go_on.wait(PATIENCE_S)

    background.put(first)
    assert begun.wait(PATIENCE_S)
    for number in range(5):
        background.put(lambda number=number: done.append(number))
    assert not background.wait(0)
    may_go_on.set()
    assert background.wait(PATIENCE_S)
    assert (done, background.lost) == ([3, 4], 3)
    background.close()
    assert ends(background)


def test_a_pause_leaves_python_to_the_commit_and_ends_when_somebody_waits():
    background = BackgroundQueue(pause_s=100 * PATIENCE_S)
    done = []
    background.put(lambda: done.append(1))
    assert done == []
    assert background.wait(PATIENCE_S)
    assert background._awaited_by == 0, "the pause is for what comes after it again"
    background.put(lambda: done.append(2))
    background.close()
    assert ends(background)
    assert done == [1, 2]


# --- places ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_places():
    yield
    for sender in module._senders.values():
        sender.close()
    module._senders.clear()


def line(**more):
    return {"event": "commit", "time_ms": 0, **more}


def ends(queue):
    """Whether the queue's thread does."""
    queue._thread.join(PATIENCE_S)
    return not queue._thread.is_alive()


def answer_of_fork(answer):
    """Whether ``answer()`` holds in a fork of this process."""
    child = os.fork()
    if child == 0:
        os._exit(0 if answer() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_a_fork_does_not_wait_for_a_thread_that_it_has_not():
    with module._guard:
        assert answer_of_fork(lambda: module._guard.acquire(blocking=False))


def test_a_fork_sends_with_a_thread_of_its_own():
    """The sender of the process that it comes from takes lines there, and nobody sends them."""
    sent = []

    def send(place):
        return enqueue_line(place, lambda: lambda line, lost: sent.append(line), line(), PATIENCE_S)

    assert send("a").wait(PATIENCE_S)
    assert answer_of_fork(lambda: send("a").wait(PATIENCE_S) and len(sent) == 2)


def test_what_is_told_of_partitions_is_not_sent():
    """With ten thousand partitions it is a megabyte for each line that waits."""
    sent = []
    given = line(partitions={"t": {}}, topics={"t": {}})
    sender = enqueue_line("p", lambda: lambda line, lost: sent.append(line), given, PATIENCE_S)
    assert sender.wait(PATIENCE_S)
    assert sent == [line(topics={"t": {}})]


def test_a_failure_is_told_again_once_a_line_was_sent(caplog):
    fails = iter([True, True, False, True])

    def send(line, lost):
        if next(fails):
            raise ValueError("no gateway")

    for _ in range(4):
        assert enqueue_line("f", lambda: send, line(), PATIENCE_S).wait(PATIENCE_S)
    assert len(caplog.messages) == 2


def test_places_that_are_not_used_any_more_are_left():
    def send(place):
        return enqueue_line(place, lambda: lambda line, lost: None, line(), PATIENCE_S)

    senders = [send(place) for place in range(12)]
    assert list(module._senders.values()) == senders[-8:]
    assert send(4) is senders[4]
    assert send(0) is not senders[0]
    assert list(module._senders)[-2:] == [4, 0]
    for sender in senders[:4]:
        assert ends(sender)


@pytest.mark.parametrize(
    ("told", "is_last"),
    [(line(), True), (line(batch_id=0), False), ({**line(batch_id=0), "event": "abort"}, True)],
)
def test_only_what_nothing_comes_after_is_waited_for(told, is_last):
    waited = []

    class Sender(module.Sender):
        def wait(self, most_s=None):
            waited.append(True)
            return True

    sender = Sender(lambda: lambda line, lost: None, 0)
    flush_at_end([sender], told)
    assert waited == [True] * is_last
    sender.close()


@pytest.mark.parametrize(
    ("timeouts_s", "waits_s"),
    [([3, 3], [3, 1]), ([2, 3], [2, 1]), ([3, 1], [3, 0]), ([10_000, 10_000], [10, 8])],
)
def test_all_are_waited_for_at_the_same_time_and_not_for_ever(timeouts_s, waits_s):
    clock = SimulatedClock()
    waited = []

    class Sender(module.Sender):
        """Each takes two seconds."""

        def wait(self, most_s=None):
            clock.sleep(2000)
            waited.append(most_s)
            return True

    senders = [Sender(lambda: lambda line, lost: None, timeout_s) for timeout_s in timeouts_s]
    flush_at_end(senders, line(), clock)
    assert waited == waits_s
    for sender in senders:
        sender.close()
