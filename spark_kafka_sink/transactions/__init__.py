"""Exactly-once delivery: the driver's side of transactions. See docs/exactly-once-protocol.md.

- ``session``: the functions that Spark's processes call: plan, commit or abort a unit
- ``commit_protocol``: the decision, its completion after a restart of the driver, replays
- ``fencing``: checks of the prefix, its owner and the order of units
- ``decision_log``: the topic of the decisions
- ``client``: requests to the coordinators of transactions
- ``model``: the types that tasks and driver share
- ``inspection``, ``operations``: what operators read and change
- ``crash_points``: the steps at which tests kill the process
"""
