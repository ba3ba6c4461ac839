"""The producer: second checks, keys of what is kept, forgetting, and limits."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PLANTED = (
    "simulation/test_seeds.py::test_a_planted_bug_is_caught",
    "simulation/test_seeds.py::test_the_planted_bug_does_harm",
)

_SENDER = (
    Mutant(
        "producer/sender.py",
        "        if self._accumulator.failure is not None:\n"
        "            return\n"
        "        self._note_in_flight",
        "        self._note_in_flight",
        ("simulation/test_changed_clusters.py",),
    ),
    Mutant(
        "producer/sender.py",
        "            if problem is not None and problem.is_fatal:\n"
        "                self.fail(DeliveryError(problem.message))\n"
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
        ("simulation/test_measured.py",),
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
        "            if self.failure is not None:\n"
        "                return  # whoever appends will be told\n",
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
        "            if self.failure is None:\n                self.failure = failure",
        "            self.failure = failure",
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
        ("unit/test_sequence_gaps.py",),
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
        ("unit/test_sequence_gaps.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "if self.gap == NO_SEQUENCE or any(batch.is_sent for batch in self.in_flight):",
        "if self.gap == NO_SEQUENCE:",
        ("unit/test_sequence_gaps.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "in_flight[in_flight.index(batch) :])",
        "in_flight[in_flight.index(batch) :][:1])",
        ("unit/test_sequence_gaps.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "        if batch.may_be_appended and sequences.is_behind_gap(batch):\n"
        "            return False  # what may still come late must keep its numbers\n",
        "",
        ("unit/test_sequence_gaps.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "if log_start_offset != NO_OFFSET and not batch.is_renumbered:",
        "if log_start_offset != NO_OFFSET:",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "if log_start_offset != NO_OFFSET and not batch.is_renumbered:",
        "if not batch.is_renumbered:",
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
        "            sequences.acked_out_of_turn = 0\n",
        "            pass\n",
        ("unit/test_sequences.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "sequences.acked_out_of_turn += 1",
        "sequences.acked_out_of_turn = 0",
        ("simulation/test_changed_clusters.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "return not self.is_overtaken(batch)",
        "return True",
        ("simulation/test_changed_clusters.py",),
    ),
    Mutant(
        "producer/sequences.py",
        "        if any(batch.is_probe for batch in self._sequences(topic_partition).in_flight):\n"
        "            return False\n",
        "",
        ("simulation/test_too_large.py",),
    ),
)

_METADATA = (
    Mutant(
        "producer/metadata.py",
        "            self._last_seen.pop(topic, None)\n",
        "            pass\n",
        ("unit/test_metadata_requests.py",),
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
        ("simulation/test_waiting_for_memory.py",),
    ),
)

_QUOTA_WAITS = (
    Mutant(
        "producer/quota_waits.py",
        "                self._led_since_ms[topic_partition] = now_ms\n",
        "                pass\n",
        ("unit/test_quota_waits.py",),
    ),
    Mutant(
        "producer/quota_waits.py",
        "self._between(batch.sent_to, batch.drained_at_ms, now_ms)",
        "self._between(batch.sent_to, batch.created_at_ms, now_ms)",
        ("unit/test_quota_waits.py",),
    ),
    Mutant(
        "producer/quota_waits.py",
        "node, batch.drained_at_ms, now_ms)",
        "node, batch.created_at_ms, now_ms)",
        ("unit/test_quota_waits.py",),
    ),
)

_BROKER_PAUSES = (
    Mutant(
        "network/broker_pauses.py",
        "            until_ms = max(until_ms, before_ms)\n",
        "",
        ("unit/test_quota_waits.py",),
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
)
