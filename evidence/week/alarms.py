"""Whether each alarm has a cause in the schedule, and each fault that must be noticed its alarm.

An alarm is a warning of a log, a write or task that failed, a finding of the page about one batch, or
a while in which Prometheus found no figures. Findings about speed alone depend on the load of the
machine, and are only counted.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

BEFORE_S, AFTER_S = 1.0, 45.0
"""A fault explains alarms from before its begin, which is rounded, until after its recovery."""
METADATA_MAX_AGE_S = 300.0
"""``kafka.metadata.max.age.ms``: for so long a worker may know the leader before an election."""
_MOVED = re.compile(r": [0-9,]+ for NOT_LEADER_OR_FOLLOWER\. ")
"""In the text of `retried`: no record was sent again for another error."""


class Alarm(NamedTuple):
    """A warning or an error.

    at, since: it was read at ``at``, and was raised after ``since``, in seconds of the epoch
    where: log, task (an attempt that failed), failure (a write that ended), page (a finding), scrape
    code: as ``TXN-027``, a finding's kind, or empty; workload: if it is known
    """

    at: float
    since: float
    where: str
    code: str
    text: str
    workload: str = ""


ELECTION = "leaders elected"
"""An event that is not in the schedule: brokers did it by themselves."""
BROKERS = {
    *("broker killed", "broker paused", "brokers rolled", "upgrade", "leaders moved"),
    *("partitions added", "topic recreated", "isr shrunk", "certificates", "password"),
    *("network cut", "network hangs", "network slow", "quota"),
}
DRIVER = {"driver", "registry away", "registry changes"}
SPARK = {"python worker", "executor", "node", "disk full", "clock", *DRIVER}
LOGIN = {"password", "issuer away", "certificates", "clock"}
ALL = BROKERS | SPARK | LOGIN

CAUSES = {
    "CONNECT": BROKERS | LOGIN,
    "BROKER": BROKERS | LOGIN,
    # A corrupt batch, a sequence with a gap, an unknown producer id: brokers see a defect.
    "BROKER-002": set(),
    "BROKER-045": set(),
    "BROKER-059": set(),
    "TOPIC-001": BROKERS | LOGIN,
    "TOPIC-003": BROKERS | LOGIN,
    "TOPIC-004": BROKERS | LOGIN,
    "TOPIC-005": BROKERS | LOGIN,
    "DELIVERY-001": BROKERS | LOGIN,
    "DELIVERY-002": BROKERS | LOGIN,
    # A write that was aborted, for whatever reason.
    "DELIVERY-006": ALL,
    "DELIVERY-007": ALL,
    "TXN-004": ALL,
    "TXN-005": {"upgrade"},
    "TXN-006": ALL,
    "TXN-015": ALL,
    "TXN-019": ALL,
    "TXN-025": ALL,
    "TXN-026": ALL,
    "TXN-027": ALL,
    "AUTH-009": {"password"},
    "AUTH-010": {"password"},
    "AUTH-011": {"issuer away", "clock"},
    "AUTH-012": {"issuer away", "clock"},
    "AUTH-016": {"issuer away", "clock"},
    "TLS": BROKERS,
    "REGISTRY-007": {"registry away"},
    "REGISTRY-018": {"registry away"},
    "METRICS-002": {"disk full"},
    "METRICS-007": {"disk full"},
    "METRICS-010": BROKERS | LOGIN,
}
"""Faults that can cause an alarm, by its code or the area of its code.

No fault of the schedule may cause the others: data at risk, a defect of the sink, or a wrong option.
"""
ALWAYS = {("log", "DEADLETTER-007"), ("page", "dead-letters"), ("page", "limited")}
"""Alarms that the workloads themselves cause."""
PAGE = {
    "aborted": ALL,
    "stopped": ALL,
    "retried": BROKERS | LOGIN | {ELECTION},
    "failed-attempts": ALL,
    "throttled": {"quota"},
    "records-refused": {"topic recreated", "clock"},
}
"""Faults that can cause a finding about trouble."""
SCRAPE = DRIVER | {"clock", "disk full"}
MUST = {
    "registry away": lambda alarm: alarm.code.startswith("REGISTRY"),
    "issuer away": lambda alarm: alarm.code.startswith("AUTH"),
    "disk full": lambda alarm: (
        alarm.code.startswith("METRICS") or "no space left" in alarm.text.lower()
    ),
    "quota": lambda alarm: alarm.code == "throttled",
    "isr shrunk": lambda alarm: alarm.code == "retried",
}
"""The alarm that a fault must raise."""


def faults_at(events, since, until):
    """The faults whose traces may be seen between two moments."""
    return {
        event["fault"]
        for event in events
        if event["at"] - BEFORE_S <= until
        and since <= event["at"] + event["lasted_s"] + event["recovered_s"] + AFTER_S
    }


def causes_of(alarm):
    """Return which faults can cause an alarm; None if the workloads do."""
    if (alarm.where, alarm.code) in ALWAYS:
        is_right = alarm.code != "limited" or alarm.workload in ("", "backfill")
        return None if is_right else set()
    if alarm.where == "page":
        return PAGE.get(alarm.code)
    if alarm.where == "scrape":
        return SCRAPE
    if not alarm.code:
        return ALL  # Spark's own error: a lost executor, no space left
    return CAUSES.get(alarm.code, CAUSES.get(alarm.code.split("-")[0], set()))


def judge(alarms, events, elections=()):
    """Count alarms; those without a cause are listed, and faults that raised none."""
    events = [event for event in events if "skipped" not in event]
    seen = [*events, *elections]
    seen_by_moved = [*seen, *({**e, "recovered_s": METADATA_MAX_AGE_S} for e in elections)]
    unexplained, counts = [], Counter()
    for alarm in alarms:
        counts[f"{alarm.where} {alarm.code or 'without a code'}"] += 1
        causes = causes_of(alarm)
        possible = seen_by_moved if _MOVED.search(alarm.text) else seen
        if causes is not None and not causes & faults_at(possible, alarm.since, alarm.at):
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
    return [alarm for alarm in alarms if faults_at([event], alarm.since, alarm.at)]
