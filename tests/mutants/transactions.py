"""Exactly-once: second checks, keys of what is kept, forgetting, and limits."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CUT_OFF = ("unit/test_coordinators.py",)
_GUARDS = ("simulation/test_commit_protocol.py",)
_PROTOCOL = ("simulation/test_commit_protocol.py",)
_LOST = ("simulation/test_decision_log.py",)
_LOG = ("simulation/test_decision_log.py", "simulation/test_commit_protocol.py")
_CALLS = ("unit/test_writes.py",)
_OPERATED = ("simulation/test_operations.py",)
_TOKEN = ("unit/test_transaction_manager.py",)
_MODEL = ("unit/test_sessions.py",)
_REPLAY = ("simulation/test_replay.py",)
_SESSIONS = ("unit/test_sessions.py",)
_TASK = ("unit/test_tasks.py",)
_WRITES = ("simulation/test_replay.py",)

PLANTED = (
    "simulation/test_queries.py::test_a_planted_bug_is_caught",
    "simulation/test_queries.py::test_the_planted_bug_does_harm",
)

_CLAIMS = (
    Mutant("transactions/client.py", "has_all and outdated <= found.keys()", "has_all", _CUT_OFF),
    Mutant(
        "transactions/client.py",
        "has_all and outdated <= found.keys()",
        "outdated <= found.keys()",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "{s.transactional_id for s in found if _is_conclusive(s)}",
        "{s.transactional_id for s in found}",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "has_all = has_all and conclusive.issuperset(transactional_ids)",
        "has_all = has_all and (not found or conclusive.issuperset(transactional_ids))",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "nodes.setdefault(broker.node_id, broker)",
        "pass",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "if state is not None and _may_be_committed(",
        "if False and _may_be_committed(",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "return is_same or transaction",
        "return is_same or True or transaction",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "                if silent:\n                    warn(",
        "                if False:\n                    warn(",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/session.py",
        "kept = _sessions.setdefault(key, protocol)",
        "kept = _sessions[key] = protocol",
        _SESSIONS,
    ),
    Mutant(
        "transactions/client.py",
        "if is_open(transaction, found.setdefault(state.transactional_id, state)):",
        "if True:",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "if is_open(transaction, found.setdefault(state.transactional_id, state)):",
        "if found.setdefault(state.transactional_id, state) is None:",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "holder.producer_id != producer.producer_id or holder > producer",
        "holder > producer",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "return False if producer in holders else None",
        "return False",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "states += [state for state in found if not state.error_code]",
        "states += found",
        _CUT_OFF,
    ),
    Mutant("transactions/client.py", "            is_complete = False\n", "", _CUT_OFF),
    Mutant(
        "transactions/fencing.py",
        "if fenced or not client.admin.pause(attempts, deadline_ms):",
        "if not client.admin.pause(attempts, deadline_ms):",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/fencing.py",
        "            if is_fenced(client.admin, transactional_id, producer, deadline_ms):\n"
        "                raise\n",
        "",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "            self._coordinators.forget(t.transactional_id for t in unknown)\n",
        "",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "raise _aborted(state)",
        "break",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/client.py",
        "return [t for t in listed if is_task_id(prefix, t.transactional_id)]",
        "return listed",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "is_complete = is_complete and (attempts > 0 or not silent)",
        "is_complete = True",
        _CUT_OFF,
    ),
    Mutant(
        "transactions/client.py",
        "if state is None or state.transaction_state not in ENDING:\n                return state",
        "if True:\n                return state",
        _CUT_OFF,
    ),
)

_COMMIT_PROTOCOL = (
    Mutant(
        "transactions/commit_protocol.py",
        "decision = check(before, accepts_later)",
        "decision = check(None, accepts_later) if before is None else before.claimed_by(driver, job_id is None)",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "        if decision is not None:\n            check(decision, accepts)\n",
        "        if decision is not None:\n",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "driver.driver_id:\n            check(decision, accepts)\n",
        "driver.driver_id:\n",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "                self._check_may_follow(claimed, unit, write, _taken_from(before, driver))\n",
        "                pass\n",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "if decision == before and decision.phase is not Phase.DECIDED:",
        "if decision == before:",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "if decision is not None and decision.owner.driver_id == driver.driver_id:\n"
        "                if write is None:",
        "if decision is not None:\n                if write is None:",
        _GUARDS,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "if is_owner and self._is_recorded(replace(decision, write=write), unit):",
        "if self._is_recorded(replace(decision, write=write), unit):",
        _GUARDS,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "if decision is None or not is_ours or decision.phase is Phase.DECIDED:",
        "if decision is None or not is_ours:",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "if decision is None or not is_ours or decision.phase is Phase.DECIDED:",
        "if decision is None or decision.phase is Phase.DECIDED:",
        _GUARDS,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "        if planned is None:\n            return self._take_driver_id(",
        "        if True:\n            return self._take_driver_id(",
        _REPLAY,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "        self._token_after_commit = {plan.token: token}\n",
        "",
        _REPLAY,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "ids = sorted(t.transactional_id for t in listed if only in (None, t.transactional_id))",
        "ids = sorted(t.transactional_id for t in listed)",
        ("simulation/test_operations.py",),
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "                token = self.log.write(repeated, token, deadline_ms)\n",
        "                pass\n",
        _REPLAY,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "decision.phase is Phase.DONE and decision.records:\n            self._drop",
        "decision.phase is Phase.DONE:\n            self._drop",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "timeout_ms = max(2, min(_DRIVER_TIMEOUT_MS, config.transaction_timeout_ms))",
        "timeout_ms = _DRIVER_TIMEOUT_MS",
        _PROTOCOL,
    ),
)

_LOG_ROWS = (
    Mutant(
        "transactions/decision_log.py",
        "if stored is None or stored.log != self._partition.topic_id(deadline_ms).hex:",
        "if stored is None:",
        _LOST,
    ),
    Mutant(
        "transactions/decision_log.py",
        "latest = _parse_mark(value) or latest",
        "latest = _parse_mark(value)",
        _LOST,
    ),
    Mutant(
        "transactions/decision_log.py",
        "if stored is not None and batch.marker.is_commit:",
        "if stored is not None:",
        _LOG,
    ),
    Mutant(
        "transactions/decision_log.py",
        'codec="zstd" if value is not None and len(value) > _MIN_BYTES_TO_COMPRESS else "none",',
        'codec="none",',
        _GUARDS,
    ),
    Mutant(
        "transactions/decision_log.py",
        "is_implicit = min(token.transaction_version, now) >= IMPLICIT_PARTITIONS_VERSION",
        "is_implicit = token.transaction_version >= IMPLICIT_PARTITIONS_VERSION",
        _GUARDS,
    ),
    Mutant(
        "transactions/decision_log.py",
        "sequence = token.next_sequence + 1 if ended == producer else 0",
        "sequence = 0",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/decision_log.py",
        "        if decision is None:\n            self.write_mark(PrefixMark(is_released=True), deadline_ms)\n",
        "",
        ("simulation/test_operations.py", *_LOST),
    ),
    Mutant(
        "transactions/decision_log.py",
        'if error.name in ("NONE", "DUPLICATE_SEQUENCE_NUMBER"):',
        'if error.name == "NONE":',
        _GUARDS,
    ),
    Mutant(
        "transactions/decision_log.py", "_FIRST_WINDOW = 50", "_FIRST_WINDOW = 1 << 40", _GUARDS
    ),
)

_RECORDS = (
    Mutant(
        "transactions/commit_protocol.py",
        "if age_ms > timeout_ms * (1 - _MIN_TIME_LEFT):",
        "if age_ms > timeout_ms:",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "if state.transaction_state != ONGOING:",
        "if True:",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/commit_protocol.py",
        "is_unknown = decision.unit.job_id is not None and decision.write is None",
        "is_unknown = decision.unit.job_id is not None",
        _WRITES,
    ),
    Mutant(
        "transactions/model.py",
        "        self._discarded.add(transactional_id)\n",
        "        pass\n",
        _MODEL,
    ),
    Mutant(
        "transactions/model.py",
        "plan = (token.producer_id, token.producer_epoch)",
        "plan = (token.producer_id, 0)",
        _MODEL,
    ),
    Mutant(
        "transactions/model.py",
        "(*superseded, self.owner.driver_id)[-_MAX_REMEMBERED:]",
        "(*superseded, self.owner.driver_id)",
        _MODEL,
    ),
    Mutant(
        "transactions/model.py",
        "(*superseded, self.owner.driver_id)[-_MAX_REMEMBERED:]",
        "(*superseded, self.owner.driver_id)[:_MAX_REMEMBERED]",
        _MODEL,
    ),
    Mutant(
        "transactions/model.py",
        "others = (w for w in written if w.write_id != write_id)",
        "others = written",
        _MODEL,
    ),
    Mutant(
        "transactions/fencing.py",
        "if found is None and len(decision.written) >= _MAX_WRITE_IDS:",
        "if False:",
        _WRITES,
    ),
    Mutant(
        "transactions/ownership.py",
        "return owner.checkpoint == driver.checkpoint",
        "return True",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/fencing.py",
        "if unit.batch_id < before.batch_id:",
        "if unit.batch_id < before.batch_id - 1:",
        _PROTOCOL,
    ),
)

_SESSION = (
    Mutant(
        "transactions/session.py",
        'raise ConfigError(_NO_CHECKPOINT, code="TXN-014")',
        "pass",
        _PROTOCOL,
    ),
    Mutant(
        "transactions/session.py",
        "        _in_use[key] += 1\n",
        "        _in_use[key] = 1\n",
        _SESSIONS,
    ),
    Mutant(
        "transactions/session.py",
        "return earlier + rest[: max(0, len(rest) - _MAX_UNUSED)]",
        "return earlier",
        _SESSIONS,
    ),
    Mutant(
        "transactions/session.py",
        "return earlier + rest[: max(0, len(rest) - _MAX_UNUSED)]",
        "return rest[: max(0, len(rest) - _MAX_UNUSED)]",
        _SESSIONS,
    ),
    Mutant(
        "transactions/session.py",
        "            _prepared_at_ms.pop(unused, None)\n",
        "",
        _SESSIONS,
    ),
    Mutant(
        "transactions/session.py",
        "now_ms - prepared_at_ms < max_age_ms",
        "True",
        _SESSIONS,
    ),
    Mutant(
        "transactions/session.py",
        "        driver = driver._replace(checkpoint=None, query_id=None)\n",
        "        pass\n",
        _SESSIONS,
    ),
    Mutant("transactions/session.py", "    _sessions.clear()\n", "", _SESSIONS),
    Mutant("transactions/session.py", "    _prepared_at_ms.clear()\n", "", _SESSIONS),
    Mutant(
        "transactions/session.py",
        "    _this_process.update(driver_environment())\n",
        "",
        ("unit/test_writes.py",),
    ),
    Mutant(
        "spark/task.py", "        TRANSACTIONAL_IDS.discard(self._transactional_id)\n", "", _TASK
    ),
    Mutant(
        "spark/task.py",
        "isinstance(error, SupersededError))",
        "False)",
        _TASK,
    ),
    Mutant(
        "spark/commit.py",
        "if plan is None or tokens != {plan.token}:",
        "if plan is None:",
        ("unit/test_commit.py",),
    ),
    Mutant(
        "spark/writer.py",
        "if transactions is not None and transactions.is_repeated:",
        "if False:",
        _TASK,
    ),
    Mutant(
        "spark/writer.py",
        "abort_unit(options, None if plan is None else plan.token)",
        "abort_unit(options, None)",
        ("unit/test_writes.py",),
    ),
    Mutant(
        "spark/source.py",
        '"_plans": False}',
        '"_plans": True}',
        ("unit/test_commit.py",),
    ),
)

_OPERATORS = (
    Mutant(
        "transactions/operations.py",
        "        if found != seen:\n",
        "        if False:\n",
        _OPERATED,
    ),
    Mutant(
        "transactions/operations.py",
        "        decision, token = self._protocol.fence_and_read()\n"
        "        self._reject_decided(decision)\n",
        "        decision, token = self._protocol.fence_and_read()\n",
        _OPERATED,
    ),
    Mutant(
        "transactions/operations.py",
        "if found != record.stored:",
        "if False:",
        ("simulation/test_decision_log.py",),
    ),
    Mutant(
        "transactions/operations.py",
        "timeout_ms = _TIMEOUT_MS if longest_ms is None else min(_TIMEOUT_MS, longest_ms)",
        "timeout_ms = _TIMEOUT_MS",
        _OPERATED,
    ),
    Mutant(
        "transactions/operations.py",
        "self._operator(checkpoint or seen.owner.checkpoint, seen.owner_query_id)",
        "self._operator(checkpoint, seen.owner_query_id)",
        _OPERATED,
    ),
)

_LATE_ATTEMPTS = (
    Mutant(
        "producer/transaction_manager.py",
        "return held_by == self._token.producer and state.transaction_state == _UNUSED",
        "return held_by == self._token.producer",
        _TOKEN,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "return held_by == self._token.producer and state.transaction_state == _UNUSED",
        "return state.transaction_state == _UNUSED",
        _TOKEN,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "state.producer_id == token.producer_id and state.producer_epoch < token.producer_epoch",
        "state.producer_epoch < token.producer_epoch",
        _TOKEN,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "elif error is _NONE and self._is_older(state):",
        "elif False:",
        _TOKEN,
    ),
    Mutant(
        "spark/frames.py",
        "for running in self._running if running is not identity",
        "for running in self._running if running.scope != identity.scope",
        _CALLS,
    ),
    Mutant(
        "spark/frames.py",
        "if identity.write_id is None and identity.scope in self._finished:",
        "if False:",
        _CALLS,
    ),
    Mutant(
        "spark/frames.py", "return self.place, self.write_id", "return self.place, None", _CALLS
    ),
    Mutant(
        "spark/frames.py",
        "if None not in (self.execution_id, other.execution_id):",
        "if True:",
        _CALLS,
    ),
    Mutant(
        "transactions/fencing.py",
        "if None not in (query_id, write.query_id) and query_id != write.query_id:",
        "if query_id != write.query_id:",
        ("simulation/test_ownership.py",),
    ),
    Mutant(
        "spark/frames.py",
        "    if identity.number > earlier.number:\n        return\n",
        "",
        _CALLS,
    ),
)

MUTANTS = (
    *_CLAIMS,
    *_COMMIT_PROTOCOL,
    *_LOG_ROWS,
    *_RECORDS,
    *_SESSION,
    *_OPERATORS,
    *_LATE_ATTEMPTS,
)
