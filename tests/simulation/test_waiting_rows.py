"""What the log says while rows wait for brokers: once after 5 s, each minute, and when it is over."""

from __future__ import annotations

import logging
import re
from functools import partial

import pytest

from spark_kafka_sink.base.errors import DeliveryError, TransactionError, error_named
from spark_kafka_sink.protocol.messages.topics import ProduceRequest
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsRequest,
)
from tests.simulation.harness import Transactional, connected, simulate

LOGGED_AFTER_MS = 5_000
# A look each second, and the rest of the attempt that is under way.
AT_THE_LATEST_MS = 7_000
LOGGER = "spark_kafka_sink.producer.waits"
CODE = "[PKS-DELIVERY-011]"


@pytest.fixture
def log(caplog):
    with caplog.at_level(logging.INFO, LOGGER):
        yield caplog


def of_level(log, level):
    return [r.getMessage() for r in log.records if r.name == LOGGER and r.levelno == level]


def warnings(log):
    return of_level(log, logging.WARNING)


def ends(log):
    return of_level(log, logging.INFO)


def warned_of(simulation, log, *during):
    """The only warning, after rows have waited; ``during``: a partition and its rows."""
    simulation.hand_over(*during or (0, b"during"))
    simulation.run_for(AT_THE_LATEST_MS)
    (line,) = warnings(log)
    return line


# --- outages: each begins, lasts, and ends --------------------------------------------------------


def refuse(error):
    """Leaders answer produce requests with ``error``."""

    def begin(simulation):
        simulation.cluster.on_produce = lambda *_: error
        return partial(setattr, simulation.cluster, "on_produce", None)

    return begin


def refuse_connections(simulation):
    """The leader is gone, and the controller has not noticed."""
    broker = simulation.cluster.brokers[1]
    broker.crash()
    simulation.network.cut_all(broker, "Connection reset by peer")
    return partial(simulation.cluster.restart, 1)


def elect_no_one(simulation):
    simulation.cluster.crash(1, 0)
    return partial(simulation.cluster.restart, 1)


def silence(simulation):
    """The leader takes requests, and answers none."""
    broker = simulation.cluster.brokers[1]
    broker.is_paused = True
    return broker.resume


def forget_the_name(simulation):
    """The leader's connection is lost, and no address is found for its name."""
    name = simulation.cluster.brokers[1].host
    simulation.network.names.unknown.add(name)
    simulation.cluster.cut_connections()
    return simulation.network.names.heal


OUTAGES = {
    "min.insync.replicas": (
        refuse("NOT_ENOUGH_REPLICAS"),
        r"NOT_ENOUGH_REPLICAS \(19\) from broker 1: fewer in-sync replicas than min",
    ),
    "after the append": (
        refuse("NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
        r"NOT_ENOUGH_REPLICAS_AFTER_APPEND \(20\) from broker 1: the in-sync replicas fell below",
    ),
    "a full disk": (
        refuse("KAFKA_STORAGE_ERROR"),
        r"KAFKA_STORAGE_ERROR \(56\) from broker 1: the broker lost a log directory",
    ),
    "no leader": (elect_no_one, r"no leader: no broker with an in-sync replica is up: start one"),
    "the leader is away": (
        refuse_connections,
        r"no connection to broker 1: Connection refused; look at this broker",
    ),
    "a silent broker": (silence, r"no answer from broker 1"),
    "a name without address": (forget_the_name, r"no connection to broker 1: "),
}
PATIENT = {"delivery_timeout_ms": "600000", "request_timeout_ms": "120000"}


@pytest.mark.parametrize(("begin", "words"), OUTAGES.values(), ids=OUTAGES)
def test_an_outage_has_a_name_after_5_s_and_each_minute_and_an_end(log, begin, words):
    simulation = connected(b"before", **PATIENT)
    end = begin(simulation)
    simulation.hand_over(0, b"during")
    simulation.run_for(LOGGED_AFTER_MS - 100)
    assert warnings(log) == []
    simulation.run_for(AT_THE_LATEST_MS - LOGGED_AFTER_MS)
    (line,) = warnings(log)
    assert re.match(rf"Rows for 1 partition of topic t have waited for [56] s: {words}", line), line
    assert line.endswith(f"They fail after kafka.delivery.timeout.ms = 600000 {CODE}")
    simulation.run_for(50_000)
    assert (len(warnings(log)), ends(log)) == (1, [])
    simulation.run_for(12_000)
    assert re.search("have waited for 6[5-9] s: ", warnings(log)[1])
    end()
    simulation.flush()
    simulation.step()
    simulation.run_for(1_000)
    assert len(warnings(log)) == 2
    (line,) = ends(log)
    seconds = re.match(r"Rows for 1 partition of topic t no longer wait, after (\d+) s: ", line)
    assert 68 <= int(seconds[1]) <= 75, line
    assert line.endswith(CODE)
    assert simulation.values()[0] == [b"before", b"during"]


def test_rows_that_fail_have_an_error_and_no_end(log):
    simulation = connected(b"before", delivery_timeout_ms="12000", request_timeout_ms="2000")
    refuse("NOT_ENOUGH_REPLICAS")(simulation)
    simulation.append_to(0, [b"never"])
    with pytest.raises(DeliveryError, match="NOT_ENOUGH_REPLICAS"):
        simulation.flush()
    simulation.step(3)
    assert (len(warnings(log)), ends(log)) == (1, [])


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        (elect_no_one, "t-0 has no leader. What to do: no broker with an in-sync replica is up"),
        (forget_the_name, " resolution. What to do: "),
        (silence, "What to do: "),
    ],
)
def test_rows_that_expire_have_advice(begin, words):
    simulation = connected(b"before", delivery_timeout_ms="12000", request_timeout_ms="2000")
    begin(simulation)
    text = simulation.refused(0, b"never")
    assert words in text
    assert "  " not in text
    assert text.endswith(". To wait longer, raise kafka.delivery.timeout.ms " + text.split()[-1])


# --- partitions with the same cause share a line ---------------------------------------------------


def test_partitions_and_topics_with_the_same_cause_share_a_line(log):
    simulation = simulate(partitions=6, **PATIENT)
    simulation.cluster.create_topic("u", 3)
    simulation.write_everywhere(b"x")
    end = refuse("NOT_ENOUGH_REPLICAS")(simulation)
    simulation.append_everywhere(b"y")
    simulation.append_to(0, [b"y"], topic="u")
    simulation.producer._appender.finish_open()
    simulation.run_for(30_000)
    (line,) = warnings(log)
    assert "Rows for 7 partitions of topics t, u have waited" in line
    assert "NOT_ENOUGH_REPLICAS (19) from brokers 1, 2, 3: " in line
    end()
    simulation.flush()
    simulation.run_for(1_000)
    assert len(ends(log)) == 1


def test_causes_that_take_turns_are_not_logged_at_each_turn(log):
    """Requests to a silent broker time out, and are sent again, each time over a new connection."""
    simulation = connected(b"before", delivery_timeout_ms="600000", request_timeout_ms="7000")
    silence(simulation)
    simulation.hand_over(0, b"during")
    simulation.run_for(60_000)
    assert len(warnings(log)) == len({line.split(": ")[1] for line in warnings(log)}) <= 3
    assert ends(log) == []


def test_a_wait_that_goes_on_for_another_cause_has_not_ended(log):
    simulation = connected(b"before", **PATIENT)
    end = refuse("NOT_ENOUGH_REPLICAS")(simulation)
    simulation.hand_over(0, b"during")
    simulation.run_for(10_000)
    end()
    end = refuse("KAFKA_STORAGE_ERROR")(simulation)
    simulation.run_for(10_000)
    first, second = warnings(log)
    assert re.search("waited for (9|10|11) s: NOT_ENOUGH", first) is None
    assert re.search("waited for 1[01] s: KAFKA_STORAGE_ERROR", second)
    assert ends(log) == []
    end()
    simulation.flush()
    simulation.step()
    (line,) = ends(log)
    assert "KAFKA_STORAGE_ERROR" in line


def slow_broker(simulation):
    """The leaders answer one produce request every 2 s."""
    free_at_ms = [0]

    def answer_in_turn(broker, request, reply, go_on):
        free_at_ms[0] = max(free_at_ms[0], simulation.clock.ms) + 2_000
        simulation.scheduler.after(free_at_ms[0] - simulation.clock.ms, go_on)

    simulation.cluster.intercept(ProduceRequest, answer_in_turn)


def test_an_end_is_told_while_rows_of_the_same_partition_are_sent_one_after_the_other(log):
    """When the leader answers again, it is slow: the other rows are old, but wait for nothing."""
    simulation = connected(b"before", batch_size="200", linger_ms="0", **PATIENT)
    slow_broker(simulation)
    end = silence(simulation)
    simulation.hand_over(0, *[b"%04d" % number * 30 for number in range(20)])
    simulation.run_for(10_000)
    assert len(warnings(log)) == 1
    end()
    simulation.run_for(12_000)
    assert 1 < len(simulation.values()[0]) < 15
    (line,) = ends(log)
    assert re.search(r"1 partition of topic t no longer wait, after 1[0-3] s: no answer", line)
    simulation.flush()
    assert len(log.messages) == 2


def test_partitions_that_are_served_again_are_told_while_others_wait_for_something_else(log):
    simulation = simulate(partitions=6, **PATIENT)
    simulation.write_everywhere(b"x")
    end = refuse("NOT_ENOUGH_REPLICAS")(simulation)
    simulation.append_everywhere(b"y")
    simulation.producer._appender.finish_open()
    simulation.run_for(10_000)
    end()
    simulation.cluster.crash(1, 0, 3)
    simulation.run_for(15_000)
    (line,) = ends(log)
    assert "Rows for 4 partitions of topic t no longer wait, after 1" in line
    assert ": no leader" in warnings(log)[-1]
    simulation.cluster.restart(1)
    simulation.flush()
    simulation.step()
    assert "Rows for 2 partitions of topic t no longer wait, after 2" in ends(log)[-1]


# --- limits ----------------------------------------------------------------------------------------


def test_a_long_pause_is_one_cause_with_one_line(log):
    """Of a pause that goes on for longer than a minute, the line says how long it still lasts."""
    simulation = connected(b"before", **PATIENT)
    simulation.cluster.throttle_time_ms = 100_000
    simulation.write(0, b"throttled")
    simulation.cluster.throttle_time_ms = 0
    simulation.write(0, b"after")
    first, second = warnings(log)
    pause = r"a pause for a quota from broker 1"
    assert re.search(rf"for [5-9] s: {pause}: 9\d s are left, and pykafka-sink quota shows", first)
    counted = r"Up to \d+ h of pauses do not count for kafka\.delivery\.timeout\.ms"
    assert re.search(rf"{counted} {re.escape(CODE)}$", first), first
    assert re.search(r"for 6[5-9] s: .*: 3\d s are left", second), second
    simulation.step()
    (line,) = ends(log)
    assert re.search(rf"no longer wait, after (99|100) s: {pause}", line)


def limited(**options):
    """3 KB at 100 bytes per second, in batches of one row."""
    simulation = connected(b"", bytes_per_second=100, batch_size="100", linger_ms="0", **options)
    simulation.append_to(0, [b"%04d" % number * 20 for number in range(20)])
    simulation.producer._appender.finish_open()
    return simulation


def test_the_limit_of_the_task(log):
    simulation = limited(**PATIENT)
    assert simulation.flush() > 20_000
    (line,) = warnings(log)
    assert "s: max.bytes.per.second.per.task = 100: the limit that you have set holds" in line


def test_a_leader_that_is_lost_while_the_limit_holds_rows_has_its_name(log):
    simulation = limited(**PATIENT)
    simulation.run_for(9_000)
    end = refuse_connections(simulation)
    simulation.run_for(8_000)
    _, line = warnings(log)
    assert re.search(r"have waited for [5-8] s: no connection to broker 1: ", line), line
    end()
    simulation.flush()


def test_a_pause_beside_the_limit_is_the_brokers(log):
    """The limit has held the rows for longer than the broker does now."""
    simulation = limited(**PATIENT)
    simulation.run_for(13_000)
    simulation.cluster.throttle_time_ms = 9_000
    simulation.run_for(10_000)
    assert "a pause for a quota from broker 1" in warnings(log)[-1]


def test_a_broker_that_is_silent_after_its_pause_has_its_name(log):
    simulation = connected(b"before", **PATIENT)
    simulation.cluster.throttle_time_ms = 60_000
    simulation.write(0, b"throttled")
    simulation.hand_over(0, b"after")
    simulation.run_for(58_000)
    silence(simulation)
    simulation.run_for(10_000)
    assert "a pause for a quota from broker 1" in warnings(log)[0]
    assert "no answer from broker 1. They fail" in warnings(log)[-1]


# --- transactions ----------------------------------------------------------------------------------


def test_a_transaction_that_cannot_begin(log):
    simulation = Transactional(**PATIENT)
    simulation.cluster.on_init_producer_id = lambda: "COORDINATOR_NOT_AVAILABLE"
    simulation.begin()
    line = warned_of(simulation, log)
    assert "no producer id: " in line
    assert "COORDINATOR_NOT_AVAILABLE (15): check that the partitions of __transaction_st" in line


def test_a_leader_without_its_partition_in_the_transaction_is_not_named(log):
    """A coordinator that adds no partition has given a producer id."""
    simulation = Transactional(transaction_version=1, **PATIENT)

    def refuse_to_add(broker, request, reply, go_on):
        code = error_named("CONCURRENT_TRANSACTIONS").code
        rest = [AddPartitionsToTxnTopicResult("t", [AddPartitionsToTxnPartitionResult(0, code)])]
        reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rest))

    simulation.cluster.intercept(AddPartitionsToTxnRequest, refuse_to_add)
    simulation.begin()
    why = r": not in the transaction yet: transaction .* did not add t-0: CONC"
    assert re.search(why, warned_of(simulation, log))


def test_a_lost_leader_has_its_name_also_while_the_token_is_checked(log):
    simulation = Transactional(**PATIENT)
    simulation.task("other", 0, b"before")
    simulation.begin(token=simulation.describe_token("CONCURRENT_TRANSACTIONS"))
    simulation.hand_over(1, b"before")
    simulation.run_for(1_000)
    elect_no_one(simulation)
    assert ": no leader" in warned_of(simulation, log)


def checked_task(**options):
    """A task at the end of its rows, of which the leader's broker also coordinates the token."""
    simulation = Transactional(**options)
    token = simulation.describe_token()
    simulation.begin(token=token)
    coordinator = simulation.transactions.coordinator_id(token.transactional_id)
    partitions = simulation.cluster.topics["t"].partitions
    (index,) = [n for n, partition in enumerate(partitions) if partition.leader_id == coordinator]
    simulation.append_to(index, [b"row"])
    return simulation, coordinator


@pytest.mark.parametrize("pause_s", [20, 300])
def test_a_quota_that_holds_the_check_after_all_rows_are_acknowledged(log, pause_s):
    """Its pauses do not count as late either."""
    simulation, coordinator = checked_task()
    simulation.cluster.throttle_time_ms = pause_s * 1000
    simulation.flush()
    simulation.step()
    first, *more = warnings(log)
    assert re.search(
        "^This task has sent all rows, and has waited for [5-6] s: the check of flights.driver: "
        f"a pause for a quota from broker {coordinator}: ",
        first,
    ), first
    assert len(more) == (pause_s - 5) // 60
    (line,) = ends(log)
    assert re.search(
        r"^This task has sent all rows, and no longer waits, after (19|20|299|300) s", line
    )


def test_a_broker_that_does_not_answer_the_check(log):
    simulation, coordinator = checked_task(**PATIENT)
    simulation.cluster.intercept(DescribeTransactionsRequest, lambda *_: None)
    with pytest.raises(TransactionError, match="TXN-004"):
        simulation.flush()
    assert f": the check of flights.driver: no answer from broker {coordinator}" in warnings(log)[0]


# --- a healthy run says nothing --------------------------------------------------------------------


def test_a_slow_broker_with_several_requests_in_flight_is_no_outage(log):
    """It answers each within 2 s of the one before, and so none within 5 s of its sending."""
    simulation = connected(b"first", batch_size="200", linger_ms="0", **PATIENT)
    slow_broker(simulation)
    assert simulation.write(0, *[b"%04d" % number * 30 for number in range(20)]) > 30_000
    metrics = simulation.producer.metrics
    assert (metrics.requests_in_flight_max, metrics.request_latency_max_ms > 9_000) == (5, True)
    assert log.messages == []


def test_short_errors_are_no_outage(log):
    simulation = connected(b"before", **PATIENT)
    for number in range(20):
        end = refuse("NOT_ENOUGH_REPLICAS")(simulation)
        simulation.hand_over(0, b"%d" % number)
        simulation.run_for(2_000)
        end()
        simulation.flush()
    assert log.messages == []


# --- the task's longest wait -----------------------------------------------------------------------


def test_a_task_knows_its_longest_wait(log):
    simulation = connected(b"before", **PATIENT)
    for error, for_ms in (("KAFKA_STORAGE_ERROR", 10_000), ("NOT_ENOUGH_REPLICAS", 20_000)):
        end = refuse(error)(simulation)
        simulation.hand_over(0, b"x")
        simulation.run_for(for_ms)
        end()
        simulation.flush()
    longest_ms, cause = simulation.producer.longest_wait
    assert 19_000 <= longest_ms <= 21_000
    assert cause == "NOT_ENOUGH_REPLICAS (19) from broker 1"
    simulation.begin_task("t")
    simulation.write(0, b"y")
    assert simulation.producer.longest_wait is None
