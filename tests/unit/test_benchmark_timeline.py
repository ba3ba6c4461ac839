"""What the timeline of a task's threads adds up."""

from importlib import import_module

import pytest

pytest.importorskip("benchmarks.sinks", reason="benchmarks need Spark 4.1", exc_type=ImportError)

from benchmarks.timed_sink import _CALLS
from benchmarks.timeline import Span, both_wait_us, own_us


def test_a_call_within_a_call_is_counted_once():
    spans = [
        Span("task", "append", 0, 100),
        Span("task", "kernel", 10, 30),
        Span("task", "finish a batch", 40, 90),
        Span("task", "compress", 50, 80),
        Span("task", "append", 100, 110),
        Span("sender", "kernel", 0, 5),
    ]
    assert own_us(spans) == {
        ("task", "append"): pytest.approx(40),
        ("task", "kernel"): pytest.approx(20),
        ("task", "finish a batch"): pytest.approx(20),
        ("task", "compress"): pytest.approx(30),
        ("sender", "kernel"): pytest.approx(5),
    }


def test_idle_is_when_both_threads_wait():
    spans = [
        Span("task", "wait for Spark", 0, 10),
        Span("sender", "wait for the network", 5, 30),
        Span("task", "append", 10, 20),
        Span("task", "wait for acknowledgements", 20, 28),
    ]
    assert both_wait_us(spans) == pytest.approx(5 + 8)


def test_every_timed_function_exists():
    """The names are texts, which no type checker follows when a module moves."""
    for module, kind, method in _CALLS:
        assert callable(getattr(getattr(import_module(module), kind), method)), (module, kind)
