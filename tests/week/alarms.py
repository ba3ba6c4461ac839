"""Whether each alarm has a cause in the schedule, and each fault that must be noticed its alarm.

An alarm is a warning of a log, a write that failed, or a finding of the page about one batch.
Findings about speed alone depend on the load of the machine, and are only counted.
"""

from __future__ import annotations

from collections import Counter

from tests.week.workloads import WORKLOADS

BEFORE_S, AFTER_S = 5.0, 45.0

BROKERS = {
    *("broker killed", "broker paused", "brokers rolled", "upgrade", "leaders moved"),
    *("partitions added", "topic recreated", "isr shrunk", "certificates", "password"),
    *("network cut", "network hangs", "network slow", "quota"),
}
SPARK = {
    *("python worker", "executor", "node", "driver", "registry away", "registry changes"),
    *("disk full", "clock"),
}
LOGIN = {"password", "issuer away", "certificates", "clock"}
ALL = BROKERS | SPARK | LOGIN

CAUSES = {
    "CONNECT": BROKERS | LOGIN,
    "DELIVERY": BROKERS | LOGIN,
    "BROKER": BROKERS | LOGIN,
    "TOPIC": BROKERS | LOGIN,
    "TXN": ALL,
    "AUTH": LOGIN,
    "TLS": LOGIN | BROKERS,
    "REGISTRY": {"registry away", "registry changes", "driver", "clock"},
    "METRICS": {"disk full"},
    "SPARK": SPARK,
}
"""Faults that can cause an alarm, by the area of its code."""
NEVER = {
    *("TXN-016", "TXN-017", "TXN-018", "TXN-020", "TXN-024", "TXN-029"),
    *("DELIVERY-005", "METRICS-009"),
}
"""Codes that no fault of the schedule may cause: data at risk, or a defect of the sink."""
ALWAYS = {("log", "DEADLETTER-007"), ("page", "dead-letters"), ("page", "limited")}
"""Alarms that the workloads themselves cause."""
EXACTLY_ONCE = {name for name, workload in WORKLOADS.items() if workload.is_exactly_once}
PAGE = {
    "aborted": ALL,
    "stopped": ALL,
    "retried": BROKERS | LOGIN | {"clock"},
    "failed-attempts": ALL,
    "throttled": {"quota"},
    "records-refused": {"topic recreated", "clock"},
}
"""Faults that can cause a finding about trouble."""
MUST = {
    "registry away": lambda alarm: alarm.code.startswith("REGISTRY"),
    "issuer away": lambda alarm: alarm.code.startswith("AUTH"),
    "disk full": lambda alarm: (
        alarm.code.startswith("METRICS") or "no space left" in alarm.text.lower()
    ),
}
"""The alarm that a fault must raise."""


def faults_at(events, moment):
    """The faults whose traces may still be seen at a moment."""
    return {
        event["fault"]
        for event in events
        if event["at"] - BEFORE_S
        <= moment
        <= event["at"] + event["lasted_s"] + event["recovered_s"] + AFTER_S
    }


def causes_of(alarm):
    """Return which faults can cause an alarm; None if the workloads do."""
    if (alarm.where, alarm.code) in ALWAYS:
        is_right = alarm.code != "limited" or alarm.workload in ("", "backfill")
        return None if is_right else set()
    if alarm.code == "retried" and alarm.workload in EXACTLY_ONCE:
        # Brokers answer CONCURRENT_TRANSACTIONS while they complete the transaction before.
        return None
    if alarm.where == "page":
        return PAGE.get(alarm.code)
    if alarm.code in NEVER:
        return set()
    if not alarm.code:
        return ALL  # Spark's own error: a lost executor, no space left
    return CAUSES.get(alarm.code.split("-")[0], set())


def judge(alarms, events):
    """Count alarms; those without a cause are listed, and faults that raised none."""
    events = [event for event in events if "skipped" not in event]
    unexplained, counts = [], Counter()
    for alarm in alarms:
        counts[f"{alarm.where} {alarm.code or 'without a code'}"] += 1
        causes = causes_of(alarm)
        if causes is not None and not causes & faults_at(events, alarm.at):
            unexplained.append({**alarm._asdict(), "text": alarm.text[:500]})
    missing = [
        event
        for event in events
        if event["fault"] in MUST and not any(map(MUST[event["fault"]], _alarms_of(alarms, event)))
    ]
    return {
        "counts": dict(sorted(counts.items())),
        "unexplained": unexplained,
        "missing": missing,
    }


def _alarms_of(alarms, event):
    return [alarm for alarm in alarms if faults_at([event], alarm.at)]
