"""The producer: second checks, keys of what is kept, forgetting, and limits."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PLANTED = (
    "simulation/test_seeds.py::test_a_planted_bug_is_caught",
    "simulation/test_seeds.py::test_the_planted_bug_does_harm",
)

_SENDER = (
    Mutant(
        "producer/partitioner.py",
        "len(available) > 1 and not are_slow",
        "len(available) > 1",
        ("golden/test_racks.py",),
    ),
    Mutant(
        "producer/sender.py",
        "        if self._accumulator.failure is not None:\n"
        "            return\n"
        "        self._set_in_flight",
        "        self._set_in_flight",
        ("simulation/test_changed_clusters.py",),
    ),
    Mutant(
        "producer/sender.py",
        "            if problem is not None and problem.is_fatal:\n"
        "                self.fail(DeliveryError(problem.message, code=problem.code))\n"
        "                return None\n",
        "",
        ("simulation/test_changed_clusters.py",),
    ),
    Mutant(
        "producer/sender.py",
        "batch = unanswered.pop(TopicPartition(name, partition.index), None)",
        "batch = sent.by_partition.get(TopicPartition(name, partition.index)); unanswered.pop(TopicPartition(name, partition.index), None)",
        ("simulation/test_changed_clusters.py",),
    ),
    Mutant(
        "producer/sender.py",
        "                    late[batch.topic_partition] = left_ms\n",
        "",
        ("simulation/test_throttling.py",),
    ),
    Mutant(
        "producer/sender.py",
        "                if not is_late:\n                    break",
        "                if True:\n                    break",
        ("simulation/test_throttling.py",),
    ),
    Mutant(
        "producer/sender.py",
        "batch.attempts <= self._config.retries",
        "batch.attempts < self._config.retries",
        ("simulation/test_producer.py",),
    ),
)

_ACCUMULATOR = (
    Mutant(
        "producer/accumulator.py",
        "            if batch not in self._incomplete:\n"
        "                return  # the producer has failed in the meantime\n",
        "",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/accumulator.py",
        "            if self._incomplete.pop(batch, _ABSENT) is _ABSENT:\n"
        "                return  # the producer has failed in the meantime\n",
        "            self._incomplete.pop(batch, None)\n",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/accumulator.py",
        "            if self._failure is not None:\n"
        "                return  # the next append raises the failure\n",
        "",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/accumulator.py",
        "if drained and size_bytes + queue[0].size_bytes > max_size_bytes:",
        "if False:",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/accumulator.py",
        "if wait_ms > 0 and not head.has_new_leader:",
        "if wait_ms > 0:",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/accumulator.py",
        "        if cluster is not self._cluster:",
        "        if self._cluster is None:",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/accumulator.py",
        "                    self._queues.move_to_end(topic_partition)\n",
        "                    pass\n",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/accumulator.py",
        "            if self._failure is None:\n                self._failure = failure",
        "            self._failure = failure",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/accumulator.py",
        "                head.topic_id = cluster.topic_id(topic_partition.topic)\n",
        "",
        ("simulation/test_changed_clusters.py",),
    ),
)

_SEQUENCES = (
    Mutant(
        "producer/sequences.py",
        "        if sequences.gap != NO_SEQUENCE:\n            return True\n",
        "",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "            if sequences.in_flight and sequences.producer != self.producer:\n"
        "                return True\n",
        "",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "return bool(sequences.in_flight) and remembered >= _MAX_IN_FLIGHT_PER_PARTITION",
        "return False",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "if self.last_acked_sequence == NO_SEQUENCE or is_before(self.last_acked_sequence, sequence):",
        "if True:",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "if self.gap == NO_SEQUENCE or is_before(sequence, self.gap):",
        "if True:",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "if self.gap == NO_SEQUENCE or any(batch.is_sent for batch in self.in_flight):",
        "if self.gap == NO_SEQUENCE:",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "in_flight[in_flight.index(batch) :])",
        "in_flight[in_flight.index(batch) :][:1])",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "        if batch.may_be_appended and sequences.is_behind_gap(batch):\n"
        "            return False  # an attempt that arrives late must keep its sequence\n",
        "",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "            if log_start_offset == NO_OFFSET:\n                return True\n",
        "",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "        if epoch == _MAX_EPOCH:\n"
        "            self.producer = NO_PRODUCER\n"
        "            return\n",
        "",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "            sequences.acked_out_of_order = 0\n",
        "            pass\n",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "sequences.acked_out_of_order += 1",
        "sequences.acked_out_of_order = 0",
        ("simulation/test_changed_clusters.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "return not self.is_later_batch_acked(batch)",
        "return True",
        ("simulation/test_changed_clusters.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "        if any(batch.may_be_appended for batch in in_flight):\n            return False\n",
        "",
        ("unit/test_sequences.py",),
    ),
)

_METADATA = (
    Mutant(
        "producer/metadata.py",
        "            self._last_seen.pop(topic, None)\n",
        "            pass\n",
        ("unit/test_metadata.py",),
    ),
)

_PRODUCER = (
    Mutant(
        "producer/producer.py",
        "            and not any(problem.is_fatal for problem in self._metadata.problems.values())\n",
        "",
        ("simulation/test_changed_clusters.py",),
    ),
)

_OPEN_BATCHES = (
    Mutant(
        "producer/open_batches.py",
        'np.argsort(-sizes, kind="stable")',
        'np.argsort(sizes, kind="stable")',
        ("simulation/test_sender.py",),
    ),
)

_QUOTA_WAITS = (
    Mutant(
        "producer/quotas.py",
        "                self._led_since_ms[topic_partition] = now_ms\n",
        "                pass\n",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/quotas.py",
        "self._between(batch.sent_to, batch.drained_at_ms, now_ms)",
        "self._between(batch.sent_to, batch.created_at_ms, now_ms)",
        ("unit/test_accumulator.py",),
    ),
    Mutant(
        "producer/quotas.py",
        "node, batch.drained_at_ms, now_ms)",
        "node, batch.created_at_ms, now_ms)",
        ("unit/test_accumulator.py",),
    ),
)

_BROKER_PAUSES = (
    Mutant(
        "network/client.py",
        "            until_ms = max(until_ms, before_ms)\n",
        "",
        ("unit/test_network_client.py",),
    ),
)

_IN_PRODUCER = ("unit/test_producer.py",)
_IN_ACCUMULATOR = ("unit/test_accumulator.py",)
_IN_METADATA = ("unit/test_metadata.py",)
_IN_MANAGER = ("unit/test_transaction_manager.py",)
_SIMULATED = ("simulation/test_producer.py",)

_GUARDS = (
    Mutant(
        "producer/appender.py", '            "buffer.memory": memory_bytes,\n', "", _IN_PRODUCER
    ),
    Mutant(
        "producer/appender.py",
        "return None if self._is_compressed else limits",
        "return limits",
        _IN_PRODUCER,
    ),
    Mutant(
        "producer/appender.py",
        "return is_absent or key.validity_address != 0",
        "return key.validity_address != 0",
        _IN_PRODUCER,
    ),
    Mutant(
        "producer/partitioner.py",
        "            return count == self.partitions_count",
        "            return count <= self.partitions_count",
        _IN_ACCUMULATOR,
    ),
    Mutant(
        "producer/partitioner.py",
        "            self._finish_slots([slot for slot in self._open_batches.open_slots() if slot in own])\n",
        "",
        _SIMULATED,
    ),
    Mutant(
        "producer/metadata.py",
        "            self._forget({topic})\n",
        "            pass\n",
        _IN_METADATA,
    ),
    Mutant("producer/metadata.py", "has_news or is_old else", "has_news else", _IN_METADATA),
    Mutant(
        "producer/metadata.py",
        "problems = {t: p for t, p in snapshot.problems.items() if t not in topics}",
        "problems = dict(snapshot.problems)",
        _IN_METADATA,
    ),
    Mutant(
        "producer/metadata.py",
        "topic = self._last_seen[topic_partition.topic] = topic._replace(partitions=partitions)",
        "topic = topic._replace(partitions=partitions)",
        _IN_METADATA,
    ),
    Mutant(
        "producer/metadata.py",
        "        self._failed_attempts = self._equivalent_responses = 0\n        self._retry_at_ms = None\n",
        "        self._retry_at_ms = None\n",
        _IN_METADATA,
    ),
    Mutant("producer/metadata.py", '== "REBOOTSTRAP_REQUIRED"', '== "NONE"', _IN_METADATA),
    Mutant(
        "producer/metadata.py", "elif not result.response.brokers:", "elif False:", _IN_METADATA
    ),
    Mutant(
        "producer/metadata.py",
        "            self._has_epochs = (\n"
        "                versions.latest_usable_version(MetadataRequest) >= _RELIABLE_EPOCHS_VERSION\n"
        "            )\n",
        "",
        _IN_METADATA,
    ),
    Mutant(
        "producer/metadata.py",
        "                self._failure = self._not_ready = None\n",
        "",
        _IN_METADATA,
    ),
    Mutant(
        "producer/metadata.py",
        "        self._metadata.rebootstrap()\n        reasons",
        "        reasons",
        _IN_METADATA,
    ),
    Mutant("producer/producer.py", " and t not in tried]", "]", _SIMULATED),
    Mutant(
        "producer/producer.py",
        "            wait.deadline_ms += self._clock.now_ms() - begun_ms\n",
        "",
        _SIMULATED,
    ),
    Mutant(
        "producer/producer.py",
        "                self._mark_used(wait.topics)\n                for",
        "                for",
        _SIMULATED,
    ),
    Mutant(
        "producer/producer.py",
        "if topic in problems and problems[topic].is_fatal:",
        "if False:",
        _SIMULATED,
    ),
    Mutant(
        "producer/producer.py",
        "if not unknown and (is_asked or not lacking):",
        "if is_asked or not lacking:",
        _SIMULATED,
    ),
    Mutant(
        "producer/producer.py",
        "needed_answer = self._metadata.requests_count + 1",
        "needed_answer = self._metadata.requests_count",
        _SIMULATED,
    ),
    Mutant(
        "producer/producer.py",
        "                ask = self._metadata.request_update\n",
        "",
        _SIMULATED,
    ),
    Mutant("producer/producer.py", "(is_asked or not lacking):", "is_asked:", _SIMULATED),
    Mutant(
        "producer/producer.py",
        "            self._is_transactional = False\n            self.sender",
        "            self.sender",
        ("simulation/test_transactions.py",),
    ),
    Mutant(
        "producer/producer.py",
        "            and self.accumulator.incomplete_count == 0\n",
        "",
        _SIMULATED,
    ),
    Mutant(
        "producer/producer.py",
        "self._thread.is_alive() and not self._is_closing",
        "self._thread.is_alive()",
        _IN_PRODUCER,
    ),
    Mutant(
        "producer/producer.py",
        "            self._close_at_ms = None\n        # Outside",
        "        # Outside",
        _IN_PRODUCER,
    ),
    Mutant(
        "producer/rejections.py",
        "not self._is_tolerant or error not in _RECORD_ERRORS",
        "not self._is_tolerant",
        ("simulation/test_dead_letters.py",),
    ),
    Mutant("producer/rejections.py", "        if 0 <= row < records_count\n", "", _IN_PRODUCER),
    Mutant(
        "producer/producer.py",
        "        self.evict()\n        waiting",
        "        waiting",
        _IN_PRODUCER,
    ),
    Mutant(
        "producer/producer.py",
        "os.register_at_fork(after_in_child=POOL.forget)\n",
        "",
        _IN_PRODUCER,
    ),
    Mutant("producer/producer.py", "if limit_ms >= 0 else None", "", _IN_PRODUCER),
    Mutant("producer/producer.py", "if 0 <= limit_ms <= now", "if limit_ms <= now", _IN_PRODUCER),
    Mutant(
        "producer/producer.py",
        "            if not waiting:\n                del self._idle[config]\n",
        "",
        _IN_PRODUCER,
    ),
    Mutant(
        "producer/producer.py",
        "            if not self._idle[config]:\n                del self._idle[config]\n",
        "",
        _IN_PRODUCER,
    ),
    Mutant(
        "producer/appender.py",
        "half if topic.cap_bytes is None else min(half, topic.cap_bytes)",
        "half",
        _SIMULATED,
    ),
    Mutant(
        "producer/appender.py",
        "self._max_open_ms = max(config.linger_ms, _MAX_OPEN_MS)",
        "self._max_open_ms = _MAX_OPEN_MS",
        _SIMULATED,
    ),
    Mutant(
        "producer/partitioner.py",
        "            if partition in available:\n                return partition",
        "            return partition",
        _IN_ACCUMULATOR,
    ),
    Mutant(
        "producer/partitioner.py",
        "        self._next[topic] = (first + count) % len(available)\n",
        "",
        _IN_ACCUMULATOR,
    ),
    Mutant(
        "producer/accumulator.py",
        "            self._waiting_since_ms.pop(node_id, None)\n",
        "",
        _IN_ACCUMULATOR,
    ),
    Mutant(
        "producer/accumulator.py",
        "        if self._timeout_ms == _NO_TIMEOUT:\n            return\n",
        "",
        _IN_ACCUMULATOR,
    ),
    Mutant("producer/quotas.py", "if self.held or tokens", "if tokens", _IN_ACCUMULATOR),
    Mutant(
        "producer/quotas.py",
        "            if self._sent_since_ms is None:\n                self",
        "            if True:\n                self",
        _IN_ACCUMULATOR,
    ),
    Mutant(
        "producer/quotas.py",
        "            self._led_since_ms = {p: ms for p, ms in self._led_since_ms.items() if ms > at_ms}\n",
        "",
        _IN_ACCUMULATOR,
    ),
    Mutant(
        "producer/quotas.py",
        "            self._past_pauses = _after(self._past_pauses, at_ms)\n",
        "",
        _IN_ACCUMULATOR,
    ),
    Mutant(
        "producer/quotas.py",
        "(from_ms, min(until_ms, queued_until_ms))",
        "(from_ms, until_ms)",
        _IN_ACCUMULATOR,
    ),
    Mutant(
        "producer/quotas.py", "        since_ms = max(since_ms, until_ms)\n", "", _IN_ACCUMULATOR
    ),
    Mutant(
        "producer/producer.py",
        "self._thread.is_alive() and not self._is_closing",
        "not self._is_closing",
        _IN_PRODUCER,
    ),
)

_SPLITTER = (
    Mutant(
        "producer/producer_batch.py",
        "if batch.size_bytes <= max_bytes or batch.records_count == 1:",
        "if batch.size_bytes <= max_bytes:",
        ("kernels/test_record_kernels.py",),
    ),
    Mutant(
        "producer/producer_batch.py",
        "batch.may_be_appended and not parts",
        "batch.may_be_appended",
        ("kernels/test_record_kernels.py",),
    ),
    Mutant(
        "producer/open_batches.py",
        "                self._pool.deallocate(spare)",
        "                pass",
        ("simulation/test_sender.py",),
    ),
)

_COORDINATORS = ("unit/test_coordinators.py",)

_TRANSACTIONS = (
    Mutant(
        "producer/transaction_manager.py",
        '        """Forget a former coordinator, and find the current one after a backoff."""\n        self._coordinator = None\n',
        '        """Forget a former coordinator, and find the current one after a backoff."""\n',
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "        if delay_ms is None or self._client.api_versions(coordinator) is not None:\n",
        "        if delay_ms is None:\n",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "        return self._retrier.pause_ms(now_ms)\n\n\nCONC",
        "        return None\n\n\nCONC",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "self._failures = self._conflicts = 0\n\n",
        "self._failures = 0\n\n",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "self._failures = self._conflicts = 0\n\n",
        "self._conflicts = 0\n\n",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py", "            self._conflicts += 1\n", "", _IN_MANAGER
    ),
    Mutant(
        "producer/transaction_manager.py",
        "        if len(response.transaction_states) != 1:",
        "        if not response.transaction_states:",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "        if len(response.transaction_states) != 1:",
        "        if len(response.transaction_states) > 1:",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "            self._accumulator.monitor.notify_all()",
        "            pass",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "        if pause_ms := self._retrier.pause_ms(now_ms):\n"
        "            return pause_ms\n        node = ",
        "        node = ",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "self._retrier.is_in_progress or not self._is_wanted()",
        "self._retrier.is_in_progress",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/monitor.py",
        "return not self.is_task_at_work and not self.is_task_waiting",
        "return not self.is_task_at_work",
        _IN_PRODUCER,
    ),
    Mutant(
        "producer/monitor.py",
        "return not self.is_task_at_work and not self.is_task_waiting",
        "return not self.is_task_waiting",
        _IN_PRODUCER,
    ),
    Mutant(
        "producer/appender.py",
        "            if self._clock.now_ms() >= until_ms:\n                return 0\n",
        "",
        _SIMULATED,
    ),
    Mutant(
        "producer/appender.py",
        "                if wait_ms > 0:\n                    return wait_ms\n",
        "",
        _SIMULATED,
    ),
    Mutant(
        "producer/appender.py",
        "            if self._clock.now_ms() >= until_ms:\n                return\n",
        "",
        _SIMULATED,
    ),
    Mutant(
        "producer/appender.py",
        "max(now_ms - started_ms, _MAX_SLICE_MS)",
        "_MAX_SLICE_MS",
        _SIMULATED,
    ),
    Mutant(
        "producer/appender.py",
        "max(now_ms - started_ms, _MAX_SLICE_MS)",
        "now_ms - started_ms",
        _SIMULATED,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "        if self._retrier.is_in_progress:\n            return None\n        partitions",
        "        partitions",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "if self.is_done or self._retrier.is_in_progress:",
        "if self.is_done:",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py", "if tp not in self.state.partitions]", "]", _IN_MANAGER
    ),
    Mutant(
        "producer/transaction_manager.py",
        "            if not identity.is_epoch_nearly_exhausted:",
        "            if True:",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "        if error.refresh_metadata:\n            self._metadata.request_update()\n",
        "",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "if self.state.has_producer_id or self._retrier.is_in_progress or not",
        "if self.state.has_producer_id or not",
        _IN_MANAGER,
    ),
    Mutant(
        "producer/transaction_manager.py",
        "if node is None or not self._client.ready(node, now_ms):\n"
        "            return HEAD_START_MS\n        request",
        "if node is None:\n            return HEAD_START_MS\n        request",
        _IN_MANAGER,
    ),
    Mutant(
        "network/coordinators.py",
        "                if verdict is Verdict.FIND_AGAIN:\n                    self.forget(question.ids)\n",
        "",
        _COORDINATORS,
    ),
    Mutant(
        "network/coordinators.py",
        "if self._nodes.get(i) not in (None, node)}",
        "if self._nodes.get(i) != node}",
        _COORDINATORS,
    ),
    Mutant(
        "network/coordinators.py",
        "min(deadline_ms, self._admin.deadline_in(_LOOK_MS))",
        "deadline_ms",
        _COORDINATORS,
    ),
)

MUTANTS = (
    *_SENDER,
    *_ACCUMULATOR,
    *_SEQUENCES,
    *_METADATA,
    *_PRODUCER,
    *_OPEN_BATCHES,
    *_QUOTA_WAITS,
    *_BROKER_PAUSES,
    *_GUARDS,
    *_SPLITTER,
    *_TRANSACTIONS,
    Mutant(
        "base/kafka_metrics.py",
        "        self.latencies = {}\n        self.record_retries_by_error = {}\n",
        "        self.latencies = {}\n",
        ("unit/test_metrics_line.py",),
    ),
)
