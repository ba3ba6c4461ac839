"""Telemetry of producers (KIP-714): second checks, limits, forgetting, and states."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FIGURES = ("simulation/test_telemetry.py",)
_ENDS = ("simulation/test_telemetry_failures.py",)
_MISTAKES = ("simulation/test_telemetry_failures.py",)

PLANTED: tuple[str, ...] = ()

MUTANTS = (
    Mutant(
        "producer/telemetry.py",
        "            self._call_or_disable(self._figures.end_task)\n",
        "            pass\n",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry.py",
        "        self._task_began_at_ms = self._clock.timestamp_ms()\n        self._idle_until",
        "        self._idle_until",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry.py",
        "        if self._idle_until_ms is None:\n            self._idle_until_ms = self._clock",
        "        if True:\n            self._idle_until_ms = self._clock",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "            if idle_until_ms is not None:\n"
        "                return None\n"
        "            self._begin",
        "            self._begin",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "            and not self._must_subscribe(now_ms)\n",
        "",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "due_ms = self._due_ms if idle_until_ms is None else min(self._due_ms, idle_until_ms)",
        "due_ms = self._due_ms",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "            if self.state is not State.PUSH_IN_PROGRESS:\n"
        "                self._begin_terminating",
        "            if True:\n                self._begin_terminating",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "        self._is_enabled = False\n\n    def _may_begin",
        "\n    def _may_begin",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        " and not self._sources.accumulator.incomplete_count\n",
        " \n",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry.py",
        "return self.subscription is None and now_ms",
        "return now_ms",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "            self.subscription = self._figures = None\n",
        "            self.subscription = None\n",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "            self.subscription = self._figures = None\n",
        "            self._figures = None\n",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "            self._has_begun = False\n            self._due",
        "            self._due",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "return _RECHECK_MS if self._client.is_any_connected(nodes) else None",
        "return _RECHECK_MS",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "return _RECHECK_MS if self._client.is_any_connected(nodes) else None",
        "return None",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "if is_closing or not self._sources",
        "if not self._sources",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "            if self._figures is None:\n",
        "            if True:\n",
        _ENDS,
    ),
    Mutant(
        "producer/telemetry.py",
        "        if not is_awaited and not self._sources.accumulator.incomplete_count:\n            return None\n",
        "",
        _MISTAKES,
    ),
    Mutant(
        "producer/telemetry.py",
        "            if self._is_enabled:\n                self._client.poll",
        "            if True:\n                self._client.poll",
        _MISTAKES,
    ),
    Mutant(
        "producer/telemetry.py",
        "            self._pause(self._interval_ms, now_ms)\n            return\n        self._send",
        "            return\n        self._send",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry_figures.py",
        "if subscription.most_bytes is None or len",
        "if len",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry_figures.py",
        "for count in range(len(groups), 0, -1)",
        "for count in range(len(groups), -1, -1)",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry_figures.py",
        "MAXIMA_OF_NODES if self.group == NODE_GROUP else MAXIMA)",
        "MAXIMA)",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry_figures.py",
        "            if node.requests:\n",
        "            if True:\n",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry.py",
        "return node != self._node, in_flight, self",
        "return node != self._node, 0, self",
        _MISTAKES,
    ),
    Mutant(
        "producer/telemetry.py",
        "        self._node = None\n        self._paused",
        "        self._paused",
        _MISTAKES,
    ),
    Mutant(
        "producer/telemetry.py",
        "most_bytes if most_bytes > 0 else None",
        "most_bytes",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry.py",
        "interval_ms if interval_ms > 0 else DEFAULT_PUSH_INTERVAL_MS",
        "max(interval_ms, 10_000)",
        _FIGURES,
    ),
    Mutant(
        "producer/telemetry.py",
        "        if response.client_instance_id == NO_INSTANCE:\n            return None\n",
        "",
        _ENDS,
    ),
)
