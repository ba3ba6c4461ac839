"""Topics that change between two jobs of one session, whose workers and planners remember the first."""

import pytest

from tests.broker.producing import Topics
from tests.patience import PATIENCE_S, eventually
from tests.reading import read_topic
from tests.spark.test_exactly_once import exactly_once
from tests.spark.test_streaming import read_files, start, write_file
from tests.twin import partition_for_key

pytestmark = pytest.mark.timeout(1800)

KEYS = 200
GUARANTEES = {"at-least-once": {}, "exactly-once": exactly_once("changed")}


@pytest.fixture
def topics(kafka):
    return Topics(kafka.bootstrap_servers)


def keyed(spark, tasks):
    """Each key once in each task."""
    rows = spark.range(0, KEYS * tasks, 1, tasks)
    return rows.selectExpr(f"cast(id % {KEYS} as string) as key", "cast('v' as string) as value")


def misplaced(kafka, topic, partitions):
    """Records that are not where the keys of a topic with so many partitions belong."""
    records = read_topic(kafka.bootstrap_servers, topic)
    assert records
    return [r for r in records if r.partition != partition_for_key(r.key, partitions)]


def recreate(kafka, topics, topic, partitions):
    topics.delete(topic)
    kafka.create_topic(topic, partitions)
    assert eventually(lambda: len(topics.replicas(topic)) == partitions)


def test_the_keys_of_a_job_are_in_one_partition_each_when_partitions_were_added_before_it(
    spark, kafka, new_topic, write, topics
):
    """One of its tasks has the producer of the first job, the other a new one."""
    topic = new_topic(3)
    write(keyed(spark, 1), topic)
    topics.grow(topic, 6)
    assert eventually(lambda: len(topics.replicas(topic)) == 6)
    before = {(r.partition, r.offset) for r in read_topic(kafka.bootstrap_servers, topic)}
    write(keyed(spark, 2), topic)
    records = read_topic(kafka.bootstrap_servers, topic)
    of_second = [r for r in records if (r.partition, r.offset) not in before]
    assert len(of_second) == 2 * KEYS
    assert [r for r in of_second if r.partition != partition_for_key(r.key, 6)] == []


# Fewer partitions with one guarantee, more with the other; the other two pairs are evidence.
@pytest.mark.parametrize(
    ("partitions", "guarantee"),
    [
        (2, "exactly-once"),
        (6, "at-least-once"),
        pytest.param(2, "at-least-once", marks=pytest.mark.long),
        pytest.param(6, "exactly-once", marks=pytest.mark.long),
    ],
)
def test_a_job_writes_to_a_topic_that_was_recreated_before_it(
    spark, kafka, new_topic, write, topics, guarantee, partitions
):
    topic = new_topic(3)
    write(keyed(spark, 2), topic, **GUARANTEES[guarantee])
    recreate(kafka, topics, topic, partitions)
    write(keyed(spark, 2), topic, **GUARANTEES[guarantee])
    assert len(read_topic(kafka.bootstrap_servers, topic)) == 2 * KEYS
    assert misplaced(kafka, topic, partitions) == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_query_writes_to_a_topic_that_was_recreated_before_its_start(
    spark, kafka, new_topic, topics, tmp_path, guarantee
):
    topic, folder = new_topic(3), tmp_path / "in"
    options = GUARANTEES[guarantee]
    if options:
        options = exactly_once(f"changed-{topic}")
    folder.mkdir()
    for number in range(2):
        write_file(folder, number)
        frame = read_files(spark, folder).repartition(2)
        query = start(frame, kafka, topic, tmp_path / "checkpoint", **options)
        assert query.awaitTermination(PATIENCE_S)
        if number == 0:
            recreate(kafka, topics, topic, 6)
    assert misplaced(kafka, topic, 6) == []
