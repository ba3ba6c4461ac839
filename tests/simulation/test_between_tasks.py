"""What a pooled producer remembers between two tasks, and until when: the table in docs/design.md.

Each case has a first task, a change of the cluster, and a second task, whose plan knows of the change.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import KafkaSinkError, TopicError
from spark_kafka_sink.base.model import ZERO_UUID, ColumnPositions, PlannedTopic, TopicsPlan
from tests.simulation.cluster import KAFKA_2_1, KAFKA_4_3
from tests.simulation.harness import keyed, partition_of, simulate

ROWS = keyed(100)
AT_ONCE_MS = 1_000
# Produce by names, as before Kafka 4.1.
BY_NAME = {**KAFKA_4_3, 0: (0, 12)}
AN_HOUR_MS = 3_600_000


def second_task(simulation, *topics, change):
    """Another task, after ``change``; how many requests for metadata its rows cost."""
    simulation.begin_task(*topics)
    simulation.write_rows(ROWS)
    change(simulation.cluster)
    simulation.run_for(1_000)
    asked = simulation.cluster.metadata_requests
    simulation.begin_task(*topics)
    with simulation.within(AT_ONCE_MS):
        simulation.write_rows(ROWS)
    return simulation.cluster.metadata_requests - asked


def misplaced(simulation, partitions, topic="t"):
    """Records that are not where the keys of a topic with so many partitions belong."""
    return [
        record
        for partition, records in simulation.cluster.records(topic).items()
        for record in records
        if partition_of(record.key, partitions) != partition
    ]


# --- partition counts, topic ids, slots, epochs -------------------------------------------------


def test_a_planned_topic_that_has_not_changed_costs_no_request():
    assert second_task(simulate(), "t", change=lambda cluster: None) == 0


def test_a_topic_that_has_got_partitions_before_the_task_is_asked_for_once():
    simulation = simulate(partitions=3)
    simulation.begin_task("t")
    simulation.write_rows(ROWS)
    first = len(misplaced(simulation, 6))
    assert second_task(simulation, "t", change=lambda c: c.add_partitions("t", 3)) == 1
    # The first task and the second each had 100 rows before.
    assert len(misplaced(simulation, 6)) == 2 * first
    assert len(simulation.all_values()) == 300


@pytest.mark.parametrize("api_versions", [KAFKA_4_3, BY_NAME], ids=["by id", "by name"])
@pytest.mark.parametrize("partitions", [1, 3, 6])
def test_a_topic_that_was_recreated_before_the_task_is_written(partitions, api_versions):
    """Its leader epochs begin again, and sequence numbers do."""
    simulation = simulate(partitions=3)
    simulation.cluster.api_versions.update(api_versions)
    simulation.cluster.move_leader("t", 0, 2)
    change = lambda cluster: cluster.empty_topic("t", partitions)  # noqa: E731
    assert second_task(simulation, "t", change=change) == 1
    assert len(simulation.all_values()) == len(ROWS)
    assert misplaced(simulation, partitions) == []
    for partition in range(partitions):
        assert simulation.log(partition).batches[0].header.base_sequence == 0


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
def test_a_topic_that_was_recreated_after_the_plan_fails_the_task(is_known):
    """Other tasks may have written to the former one. A producer that is new finds it out as well."""
    simulation = simulate()
    plan = simulation.plan("t")
    if is_known:
        simulation.producer.begin_task(["t"], plan)
        simulation.write_rows(ROWS)
    simulation.cluster.empty_topic("t")
    simulation.producer.begin_task(["t"], plan)
    with simulation.within(10_000), pytest.raises(KafkaSinkError) as caught:
        simulation.write_rows(ROWS)
    assert caught.value.code == "TOPIC-005"
    assert simulation.all_values() == []


def test_all_tasks_of_a_plan_place_keys_alike_when_partitions_are_added_after_it():
    """One has the producer of before, the other a new one. A named partition is used nevertheless."""
    simulation = simulate(partitions=3)
    plan = simulation.plan("t")
    simulation.producer.begin_task(["t"], plan)
    simulation.write_rows(ROWS)
    simulation.cluster.add_partitions("t", 3)
    simulation.run_for(1_000)
    simulation.producer = simulation._create_producer()
    simulation.producer.begin_task(["t"], plan)
    simulation.write_rows(ROWS)
    assert misplaced(simulation, 3) == []
    simulation.write(5, b"named")
    assert simulation.values()[5] == [b"named"]


def append_some_to(simulation, partition, topics=("t",)):
    """Rows with keys, of which every tenth names a partition, for these topics in turn."""
    count = len(ROWS) * len(topics)
    rows = pa.record_batch(
        {
            "topic": [topics[i % len(topics)] for i in range(count)],
            "key": [ROWS[i // len(topics)][0] for i in range(count)],
            "value": [b"named" if i % 10 == 0 else b"hashed" for i in range(count)],
            "partition": pa.array(
                [partition if i % 10 == 0 else None for i in range(count)], pa.int32()
            ),
        }
    )
    positions = ColumnPositions(value=2, key=1, partition=3, topic=0)
    simulation.producer.append(rows, positions)
    simulation.flush()


def hashed_elsewhere(simulation, partitions, topic="t"):
    return [r for r in misplaced(simulation, partitions, topic) if r.value != b"named"]


@pytest.mark.parametrize("topics", [("t",), ("other", "t")], ids=["one topic", "two topics"])
def test_a_row_that_names_an_added_partition_moves_no_key(topics):
    """Neither in its Arrow batch nor later, also in the next task of the plan."""
    simulation = simulate(partitions=3)
    simulation.cluster.create_topic("other", 2)
    plan = simulation.plan(*topics)
    simulation.producer.begin_task(topics, plan)
    simulation.write_rows(ROWS)
    simulation.cluster.add_partitions("t", 3)
    simulation.cluster.add_partitions("other", 4)
    simulation.run_for(1_000)
    for _ in range(2):
        append_some_to(simulation, 5, topics)
        simulation.write_rows(ROWS)
        simulation.producer.begin_task(topics, plan)
    simulation.write_rows(ROWS)
    assert hashed_elsewhere(simulation, 3) == []
    assert hashed_elsewhere(simulation, 2, "other") == []
    named = [r.value for r in simulation.cluster.records(topics[0])[5]]
    assert named == [b"named"] * 2 * (len(ROWS) * len(topics) // 10)


def grown_from_3_to_6(**options):
    """A task has written ``ROWS`` when its topic gets three more partitions."""
    simulation = simulate(partitions=3, **options)
    simulation.begin_task("t")
    simulation.write_rows(ROWS)
    simulation.cluster.add_partitions("t", 3)
    simulation.run_for(1_000)
    return simulation


def test_a_row_that_names_no_partition_of_the_topic_moves_no_key():
    simulation = grown_from_3_to_6()
    with pytest.raises(TopicError, match="which has 6 partition"):
        append_some_to(simulation, 6)
    simulation.write_rows(ROWS)
    assert misplaced(simulation, 3) == []


@pytest.mark.parametrize("partitioner", ["round-robin", f"{__name__}:last_partition"])
def test_rows_that_name_no_partition_go_to_planned_ones_with_any_partitioner(partitioner):
    simulation = grown_from_3_to_6(partitioner=partitioner)
    append_some_to(simulation, 5)
    simulation.write_rows([(None, b"a")] * 10)
    assert set(simulation.values()[5]) == {b"named"}
    assert simulation.values()[3] == simulation.values()[4] == []


def last_partition(keys, values, partitions_count):
    """A user's partitioner."""
    return pa.array([partitions_count - 1] * len(values), pa.int32())


def simulate_without_ids(partitions):
    """Brokers of before Kafka 2.8, and a task that has written ``ROWS``."""
    simulation = simulate(partitions=partitions)
    simulation.cluster.api_versions.clear()
    simulation.cluster.api_versions.update(KAFKA_2_1)
    begin_without_ids(simulation, partitions)
    simulation.write_rows(ROWS)
    return simulation


def begin_without_ids(simulation, partitions):
    plan = TopicsPlan(f"{simulation.clock.ms}", {"t": PlannedTopic(ZERO_UUID, partitions)})
    simulation.producer.begin_task(["t"], plan)


def test_a_broker_that_lags_moves_no_key_of_a_topic_without_an_id():
    simulation = simulate_without_ids(partitions=6)
    outdated = []

    def as_before(response):
        if len(outdated) < 3:
            outdated.append(response)
            response.topics[0].partitions[3:] = []

    simulation.edit_metadata(as_before)
    simulation.refresh_metadata()
    simulation.run_for(50)
    simulation.write_rows(ROWS)
    assert misplaced(simulation, 6) == []
    assert len(outdated) == 3


def test_a_smaller_topic_without_an_id_has_no_partition_of_the_former_one():
    simulation = simulate_without_ids(partitions=6)
    simulation.cluster.empty_topic("t", 3)
    simulation.run_for(1_000)
    begin_without_ids(simulation, 3)
    with simulation.within(AT_ONCE_MS), pytest.raises(TopicError, match="which has 3 partition"):
        simulation.append_to(5, [b"a"])


@pytest.mark.parametrize("led", range(3))
def test_rows_without_key_go_where_there_is_a_leader_now(led):
    """The task before has chosen a partition for such rows, but all its rows named one."""
    simulation = simulate(partitions=3)
    simulation.begin_task("t")
    simulation.write(led, b"a")

    def lose_leaders(response):
        for partition in response.topics[0].partitions:
            if partition.partition_index != led:
                partition.leader_id = -1

    simulation.edit_metadata(lose_leaders)
    simulation.refresh_metadata()
    simulation.run_for(1_000)
    simulation.begin_task("t")
    with simulation.within(AT_ONCE_MS):
        simulation.write_rows([(None, b"a")])
    assert simulation.values()[led] == [b"a"] * 2


@pytest.mark.parametrize("is_recreated", [True, False], ids=["recreated", "more partitions"])
def test_a_broker_that_has_not_heard_of_what_is_planned_is_asked_again(is_recreated):
    simulation = simulate(partitions=3)
    cluster, outdated = simulation.cluster, []

    def as_before(response):
        if len(outdated) < 3:
            outdated.append(response)
            response.topics[0].partitions[3:] = []
            response.topics[0].topic_id = former_id

    former_id = cluster.topics["t"].topic_id
    if is_recreated:
        cluster.empty_topic("t", 6)
    else:
        cluster.add_partitions("t", 3)
        simulation.run_for(1_000)
    simulation.edit_metadata(as_before)
    simulation.begin_task("t")
    simulation.write_rows(ROWS)
    assert len(outdated) == 3
    assert misplaced(simulation, 6) == []


@pytest.mark.parametrize("partitioner", ["default", "round-robin"])
def test_a_topic_without_partitions_in_an_answer_is_asked_for_again(partitioner):
    simulation = simulate(partitioner=partitioner)
    seen = []

    def without(response):
        seen.append(response)
        if len(seen) < 3:
            response.topics[0].partitions = []

    simulation.edit_metadata(without)
    simulation.write_rows([(None, b"a")] * 10)
    assert len(seen) == 3
    assert simulation.all_values() == [b"a"] * 10


def test_a_partition_that_is_listed_twice_is_one():
    simulation = simulate(partitions=2)
    simulation.edit_metadata(lambda r: r.topics[0].partitions.append(r.topics[0].partitions[0]))
    simulation.write_rows(ROWS)
    assert misplaced(simulation, 2) == []
    with pytest.raises(TopicError, match="which has 2 partition"):
        simulation.append_to(2, [b"a"])


# --- topics of a column -------------------------------------------------------------------------


def append_by_column(simulation, topic="t"):
    rows = pa.record_batch(
        {"topic": [topic] * len(ROWS), "key": [k for k, _ in ROWS], "value": [v for _, v in ROWS]}
    )
    simulation.producer.append(rows, ColumnPositions(value=2, key=1, topic=0))
    simulation.flush()


def test_a_topic_of_a_column_is_asked_for_once_per_plan():
    """No plan knows its name. A second task of the same plan knows what the first one has found."""
    simulation = simulate(partitions=3)
    plan = simulation.plan()
    for _ in range(2):
        simulation.producer.begin_task([], plan)
        append_by_column(simulation)
    assert simulation.cluster.metadata_requests == 1
    simulation.cluster.empty_topic("t", 6)
    simulation.begin_task()
    append_by_column(simulation)
    assert simulation.cluster.metadata_requests == 2
    assert len(simulation.all_values()) == len(ROWS)
    assert misplaced(simulation, 6) == []


# --- slow nodes ---------------------------------------------------------------------------------


def slow_once(**options):
    """A producer that has found the leader of partition 1 slow, and is in the same task."""
    simulation = simulate(
        partitions=3,
        batch_size="2000",
        partitioner_availability_timeout_ms="50",
        partitioner_adaptive_partitioning_enable="false",
        **options,
    )
    simulation.begin_task("t")
    simulation.write_rows(ROWS)
    simulation.cluster.brokers[2].is_paused = True
    for _ in range(20):
        simulation.append([(None, b"x" * 100)] * 50)
        simulation.run_for(20)
    assert simulation.producer.accumulator.slow_nodes == {2}
    return simulation


def grown(simulation):
    """How many more rows without key each partition has got."""
    before = {partition: len(values) for partition, values in simulation.values().items()}
    for _ in range(10):
        simulation.append([(None, b"x" * 100)] * 50)
        simulation.run_for(100)
    simulation.flush()
    return {p: len(values) - before[p] for p, values in simulation.values().items()}


def test_a_node_is_slow_for_as_long_as_rows_wait_for_it():
    """They go to another leader, so that nothing shows that the node accepts requests again."""
    simulation = slow_once()
    simulation.cluster.move_leader("t", 1, 3)
    simulation.refresh_metadata()
    simulation.run_for(2_000)
    simulation.cluster.brokers[2].resume()
    simulation.flush()
    simulation.cluster.move_leader("t", 1, 2)
    simulation.run_for(2_000)
    simulation.refresh_metadata()
    simulation.run_for(2_000)
    assert simulation.producer.accumulator.slow_nodes == frozenset()
    assert all(grown(simulation).values())


def test_a_node_that_was_slow_for_a_task_is_not_for_the_next_one():
    simulation = slow_once()
    simulation.cluster.brokers[2].resume()
    simulation.flush()
    simulation.producer.accumulator.update_node_latency(2, False, 0)
    simulation.producer.accumulator.update_node_latency(2, False, 1_000)
    assert simulation.producer.accumulator.slow_nodes == {2}
    simulation.begin_task("t")
    assert all(grown(simulation).values())


# --- caps ---------------------------------------------------------------------------------------


def batches_of_task(simulation):
    simulation.begin_task("t")
    simulation.write_rows([(None, b"x" * 1_000)] * 500)
    return simulation.producer.metrics.batches


@pytest.mark.parametrize("hours", [0, 1])
def test_batches_are_small_after_a_rejection_for_metadata_max_age(hours):
    """Then max.message.bytes may have been raised; if not, the next rejection tells."""
    simulation = simulate(partitions=1)
    usual = batches_of_task(simulation)
    topic = simulation.cluster.topics["t"]
    before, topic.max_message_bytes = topic.max_message_bytes, 5_000
    batches_of_task(simulation)
    assert simulation.producer.metrics.batch_splits > 0
    topic.max_message_bytes = before
    simulation.run_for(hours * AN_HOUR_MS)
    after = batches_of_task(simulation)
    assert (after > 10 * usual) if hours == 0 else (after == usual)
