"""What a job shows while it runs, and how it ends: a stream followed, an action watched."""

import io
import signal
import threading
from types import SimpleNamespace

import pytest

from spark_kafka_sink.jobs.progress import ProgressLine, Totals, progress_output
from spark_kafka_sink.jobs.shutdown import GracefulStop
from spark_kafka_sink.jobs.streams import Follower
from spark_kafka_sink.jobs.watched import CancellableAction
from tests.patience import PATIENCE_S
from tests.simulation.time import SimClock


class Terminal(io.StringIO):
    def isatty(self):
        return True


def progress(batch_id, rows, duration_ms=1_000):
    """A StreamingQueryProgress, as far as it is read."""
    return {
        "batchId": batch_id,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": duration_ms},
    }


# --- totals ---------------------------------------------------------------------------------------


def test_totals():
    totals = Totals()
    assert totals.describe() == "0 rows | 0 rows/s | 0 batches"
    totals.add(progress(0, 1_000, 500))
    assert totals.describe() == "1,000 rows | 2,000 rows/s | 1 batch"
    totals.add(progress(1, 335_776, 2_000))
    totals.files = (5, 12)
    assert totals.describe() == "336,776 rows | 167,888 rows/s | 2 batches | 7 of 12 files left"


def test_a_micro_batch_without_rows_does_not_count():
    totals = Totals()
    totals.add(progress(0, 0))
    totals.add({"batchId": 1, "numInputRows": None})
    totals.add({"batchId": 2})
    assert totals == Totals()


@pytest.mark.parametrize("duration", [None, {}, {"triggerExecution": 0}])
def test_rows_without_a_duration_have_no_rate(duration):
    totals = Totals()
    totals.add({"numInputRows": 10, "durationMs": duration})
    assert (totals.rows, totals.batches, totals.rows_per_second) == (10, 1, 0.0)


def test_more_files_taken_in_than_there_are():
    """Some were deleted, or moved to an archive, after they were read."""
    assert Totals(files=(12, 5)).describe().endswith("0 of 5 files left")


def kafka_progress(*sources):
    names = ("description", "endOffset", "latestOffset")
    return progress(0, 10) | {"sources": [dict(zip(names, s)) for s in sources]}


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        ([], None),
        ([("FileStreamSource[file:/in]", '{"logOffset":0}', None)], None),
        ([("KafkaV2[Subscribe[a]]", '{"a":{"0":5,"1":7}}', '{"a":{"0":9,"1":7}}')], 4),
        # A partition that was added since, and one that lost records meanwhile.
        ([("KafkaV2[Subscribe[a]]", '{"a":{"0":5}}', '{"a":{"0":2,"1":3}}')], 3),
        (
            [
                ("KafkaV2[Subscribe[a]]", '{"a":{"0":1}}', '{"a":{"0":2}}'),
                ("KafkaV2[Subscribe[b]]", '{"b":{"0":1}}', '{"b":{"0":12}}'),
            ],
            12,
        ),
        ([("KafkaV2[Subscribe[a]]", '{"a":{"0":5}}', None)], None),
        ([("KafkaV2[Subscribe[a]]", '{"a":{"0":5}}', "null")], None),
    ],
)
def test_the_lag_of_a_stream_from_kafka(sources, lag):
    totals = Totals()
    totals.add(kafka_progress(*sources))
    assert totals.lag == lag
    assert totals.describe().endswith("1 batch" if lag is None else f"| lag {lag}")


# --- the line -------------------------------------------------------------------------------------


def test_on_a_terminal_the_line_replaces_itself():
    clock, out = SimClock(), Terminal()
    line = ProgressLine(clock, out)
    for text in ("one", "one", "two"):
        line.show(text)
    line.finish("done")
    assert out.getvalue() == "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Kdone\n"


def test_in_a_log_a_line_every_five_seconds_if_it_has_changed():
    clock, out = SimClock(), io.StringIO()
    line = ProgressLine(clock, out)
    for text, ms in (("one", 0), ("two", 4_999), ("three", 1), ("three", 9_000), ("four", 0)):
        clock.ms += ms
        line.show(text)
    line.finish("done")
    assert out.getvalue() == "one\nthree\nfour\ndone\n"


class JavaSystem:
    """``spark.sparkContext._jvm.java.lang.System`` of a driver with or without a terminal."""

    def __init__(self, console):
        self.sparkContext = self._jvm = self.java = self.lang = self.System = self
        self._console = console

    def console(self):
        return self._console


def test_progress_goes_to_standard_error(monkeypatch):
    log, terminal = io.StringIO(), Terminal()
    monkeypatch.setattr("sys.stderr", log)
    assert progress_output(JavaSystem(None)) is log
    monkeypatch.setattr("sys.stderr", terminal)
    assert progress_output(JavaSystem(None)) is terminal


def test_no_terminal_after_all(monkeypatch):
    """The JVM reports a terminal that cannot be opened."""

    def cannot_open(*_, **__):
        raise OSError("no such device")

    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    monkeypatch.setattr("builtins.open", cannot_open)
    assert progress_output(JavaSystem(object())) is log


# --- following a stream ---------------------------------------------------------------------------


class Stream:
    """A query, the files it reads and the wish to stop it, all driven by the follower's own waits.

    Each wait runs the next step of the script; after the last one the query has ended by itself.
    """

    def __init__(self, clock, *script):
        self.clock = clock
        self.script = list(script)
        self.isActive = True
        self.is_requested = False
        self.was_stopped = False
        self.recentProgress = []
        self.status = {"isTriggerActive": True}
        self.files = (0, 3)
        self.files_counted = 0

    def wait(self, timeout_s):
        self.pause(timeout_s)
        return self.is_requested

    def pause(self, timeout_s):
        self.clock.ms += int(timeout_s * 1000)
        if self.script:
            self.script.pop(0)(self)
        elif not self.is_requested:
            self.isActive = False

    def count(self):
        self.files_counted += 1
        return self.files

    def stop(self):
        self.was_stopped = True
        self.isActive = False


def ended(batch_id, rows):
    """Step: a micro-batch has ended."""

    def step(stream):
        stream.recentProgress.append(progress(batch_id, rows))
        stream.files = (batch_id + 1, 3)

    return step


def stop_requested(stream):
    stream.is_requested = True


def idle(stream):
    stream.status = {"isTriggerActive": False}


def nothing(stream):
    """Step: a quarter of a second goes by."""


def follow(*script, lag=None):
    clock, out = SimClock(), Terminal()
    stream = Stream(clock, *script)
    query = stream
    follower = Follower(query, query if lag is None else lag, query, clock, out)
    follower.follow()
    return stream, follower, out.getvalue()


def test_a_stream_that_ends_by_itself():
    stream, follower, shown = follow(ended(0, 10), nothing, ended(1, 0), ended(2, 5))
    assert not stream.was_stopped
    assert (follower.totals.rows, follower.totals.batches) == (15, 2)
    assert shown.endswith("15 rows | 5 rows/s | 2 batches | 0 of 3 files left\n")


def test_a_micro_batch_is_counted_once():
    _, follower, _ = follow(ended(0, 10), nothing, nothing, nothing)
    assert (follower.totals.rows, follower.totals.batches) == (10, 1)


def test_micro_batches_that_ended_between_two_looks():
    def two(stream):
        ended(0, 1)(stream)
        ended(1, 2)(stream)

    assert follow(two)[1].totals.rows == 3


def test_files_are_counted_with_every_batch_and_every_two_seconds():
    stream, _, _ = follow(*[nothing] * 17)
    # At the first look, after two and four seconds, and at the end.
    assert stream.files_counted == 4


def test_a_stream_without_files():
    clock, out = SimClock(), Terminal()
    stream = Stream(clock, ended(0, 10))
    Follower(stream, None, stream, clock, out).follow()
    assert stream.files_counted == 0
    assert out.getvalue().endswith("10 rows | 10 rows/s | 1 batch\n")


def test_a_request_to_stop_waits_for_the_end_of_the_micro_batch():
    stream, follower, shown = follow(stop_requested, nothing, nothing, ended(0, 7))
    assert stream.was_stopped
    assert stream.script == []
    assert follower.totals.rows == 7
    assert "| stopping" in shown
    assert shown.endswith("7 rows | 7 rows/s | 1 batch | 2 of 3 files left\n")


def test_an_idle_stream_is_stopped_at_once():
    stream, _, _ = follow(idle, stop_requested, ended(0, 7))
    assert stream.was_stopped
    assert len(stream.script) == 1


def test_a_micro_batch_without_end_is_given_up_after_twenty_seconds():
    stream, _, _ = follow(stop_requested, *[nothing] * 200)
    assert stream.was_stopped
    # The request took one step; 20 seconds are 80 more.
    assert 200 - len(stream.script) == 80


# --- watching an action ---------------------------------------------------------------------------


class Store:
    """The way from a session to its status store, which has one stage."""

    def __init__(self):
        self.cancelled = threading.Event()
        stage = SimpleNamespace(
            inputRecords=lambda: 1_500, numCompleteTasks=lambda: 3, numTasks=lambda: 8
        )
        stages = SimpleNamespace(size=lambda: 1, apply=lambda index: stage)
        store = SimpleNamespace(stageList=lambda *_: stages)
        self.sparkContext = SimpleNamespace(
            _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store)),
            _gateway=SimpleNamespace(
                jvm=SimpleNamespace(double=float), new_array=lambda kind, length: []
            ),
            cancelAllJobs=self.cancelled.set,
        )


def watched(monkeypatch, stop):
    out = io.StringIO()
    store, clock = Store(), SimClock()
    monkeypatch.setattr("spark_kafka_sink.jobs.watched.progress_output", lambda spark: out)
    action = CancellableAction(store, stop, clock)
    clock.ms += 3_000
    return action, store, out


def test_a_watched_action_is_described_at_its_end(monkeypatch):
    action, store, out = watched(monkeypatch, Stream(SimClock()))
    done = []
    action.run(lambda: done.append(1))
    assert done == [1]
    assert not action.was_cancelled
    assert not store.cancelled.is_set()
    assert out.getvalue() == "1,500 rows read | 500 rows/s | 5 of 8 tasks left\n"


def test_what_an_action_raises_is_raised(monkeypatch):
    action, _, out = watched(monkeypatch, Stream(SimClock()))

    def fail():
        raise RuntimeError("the write failed")

    with pytest.raises(RuntimeError, match="the write failed"):
        action.run(fail)
    assert out.getvalue().endswith("tasks left\n")


def broken(*arguments):
    raise TypeError("'JavaPackage' object is not callable")


def test_progress_that_fails_does_not_replace_the_result(monkeypatch, capsys):
    """Spark's status store is private: another version may not have it."""
    action, store, out = watched(monkeypatch, Stream(SimClock()))
    store.sparkContext._jsc = SimpleNamespace(sc=broken)
    done = []
    action.run(lambda: done.append(1))
    assert done == [1]
    assert out.getvalue() == ""
    assert capsys.readouterr().err == (
        "progress cannot be shown: TypeError(\"'JavaPackage' object is not callable\")\n"
    )


def test_progress_that_fails_does_not_replace_the_error(monkeypatch):
    action, store, _ = watched(monkeypatch, Stream(SimClock()))
    store.sparkContext._jsc = SimpleNamespace(sc=broken)

    def fail():
        raise RuntimeError("the write failed")

    with pytest.raises(RuntimeError, match="the write failed"):
        action.run(fail)


def test_the_watcher_survives_progress_that_fails(monkeypatch):
    stop = Stream(SimClock())
    action, store, _ = watched(monkeypatch, stop)

    def fail_and_ask():
        stop.is_requested = True
        broken()

    store.sparkContext._jsc = SimpleNamespace(sc=fail_and_ask)
    action.run(lambda: None if store.cancelled.wait(60) else pytest.fail("not cancelled"))
    assert action.was_cancelled


def test_a_cancellation_that_fails_is_tried_again(monkeypatch):
    stop = Stream(SimClock())
    stop.is_requested = True
    action, store, _ = watched(monkeypatch, stop)
    attempts = iter([broken, store.cancelled.set])
    store.sparkContext.cancelAllJobs = lambda: next(attempts)()
    action.run(lambda: None if store.cancelled.wait(60) else pytest.fail("not cancelled"))
    assert action.was_cancelled


def test_a_lag_that_cannot_be_counted_does_not_end_a_stream():
    class BrokenLag:
        def count(self):
            return broken()

    stream, _, shown = follow(ended(0, 7), idle, stop_requested, lag=BrokenLag())
    assert stream.was_stopped
    assert shown.endswith("7 rows | 7 rows/s | 1 batch\n")


def test_a_request_to_stop_cancels_the_jobs(monkeypatch):
    stop = Stream(SimClock())
    stop.is_requested = True
    action, store, _ = watched(monkeypatch, stop)
    action.run(lambda: None if store.cancelled.wait(PATIENCE_S) else pytest.fail("not cancelled"))
    assert action.was_cancelled


def test_signals_are_as_before_if_the_jvm_cannot_be_prepared():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    try:
        with pytest.raises(AttributeError), GracefulStop(SimpleNamespace()):
            pass  # Spark Connect has no sparkContext
        assert [signal.getsignal(number) for number in numbers] == before
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)
