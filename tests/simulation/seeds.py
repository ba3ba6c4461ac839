"""One simulated life of a producer, all of it chosen by a seed, and what must hold of it.

python -m tests.simulation.seeds 4711          # replay one seed, with its story
python -m tests.simulation.seeds 0 20000       # a range, on all cores
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import random
import sys
import traceback
from collections import Counter
from dataclasses import dataclass, field

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    BufferExhaustedError,
    DeliveryError,
    KafkaSinkError,
)
from spark_kafka_sink.producer.telemetry import CLOSE_TIMEOUT_MS
from tests import twin
from tests.simulation.faults import (
    OPTIONS,
    FaultPlan,
    FaultRanges,
    RefusingBrokers,
    Routing,
    is_routed,
)
from tests.simulation.harness import Simulation, partition_of
from tests.simulation.sasl import PLAIN, SCRAM, USERS, Sasl, options_of

REPLAY = "python -m tests.simulation.seeds {seed}"
_MOST_POLLS = 60_000
_MOST_REFUSALS = 8
_MAX_IDLE_MS = 5_000


class InvariantError(AssertionError):
    """An invariant does not hold."""


@dataclass
class Settings:
    """What a seed chooses."""

    options: dict[str, str]
    partitions: int
    replicas: int
    min_insync: int
    max_message_bytes: int
    appends: int
    ranges: FaultRanges
    sasl: Sasl | None = None
    refusing: RefusingBrokers | None = None
    recreates: bool = False
    is_routed: bool = False

    @property
    def is_idempotent(self):
        return self.options["acks"] == "all" and self.options["enable_idempotence"] == "true"

    @property
    def keeps_order(self):
        in_flight = self.options["max_in_flight_requests_per_connection"]
        return self.is_idempotent or in_flight == "1"

    @property
    def must_succeed(self):
        """Faults end long before any timeout; unclean elections lose only what was there.

        What may have been appended before brokers refuse it, nobody can put right. A misrouted
        connection loses answers, too.
        """
        ranges = self.ranges
        has_faults = ranges.events or ranges.network_level or ranges.changes
        is_calm = not (has_faults or self.sasl or self.is_routed)
        return "delivery_timeout_ms" not in self.options and (self.refusing is None or is_calm)

    @property
    def producer_options(self):
        """With those of security."""
        return self.options if self.sasl is None else {**self.options, **options_of(self.sasl)}


def choose_sasl(rng):
    """Whether and how brokers are secured. Drawn apart, so that other lives stay what they were."""
    if rng.random() < 0.6:
        return None
    mechanism = rng.choice((PLAIN, PLAIN, SCRAM))
    # SCRAM costs milliseconds of computing each time.
    lifetimes_ms = (0, 1_200, 2_500, 6_000) if mechanism == PLAIN else (0, 15_000)
    return Sasl(mechanism, dict(USERS), rng.choice(lifetimes_ms))


def choose_changes(settings, rng):
    """What people change of the topic meanwhile. Drawn apart, too."""
    if rng.random() < 0.5:
        settings.ranges.changes = rng.choice((1, 4, 8))
    if rng.random() < 0.2:
        settings.recreates = True
        settings.options["metadata_max_idle_ms"] = str(_MAX_IDLE_MS)


def choose_lapses(settings, rng):
    """Whether brokers forget producers. Drawn apart, too."""
    if settings.ranges.events:
        settings.ranges.lapses = rng.choice((0, 0, 1, 3))


@dataclass
class Life:
    """What happened since the topic was created, the last time.

    acknowledged: (partition, base offset, values) of each batch
    keys: of the values whose key decides where they go, and among how many partitions at least
    planned_partitions: of the topic, when the task was planned; partitions are added only
    """

    seed: int
    settings: Settings
    simulation: Simulation
    plan: FaultPlan
    routing: Routing | None = None
    appended: list[bytes] = field(default_factory=list)
    acknowledged: list[tuple[int, int, list[bytes]]] = field(default_factory=list)
    keys: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    planned_partitions: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    failure: Exception | None = None
    started_ms: int = 0
    trace: str = ""


def choose_settings(rng):
    """Everything that a run can differ in."""
    idempotent = rng.random() < 0.7
    options = {
        "acks": "all" if idempotent else rng.choice(("all", "1", "0")),
        "enable_idempotence": "true" if idempotent else "false",
        "batch_size": str(rng.choice((200, 1000, 5000))),
        "linger_ms": str(rng.choice((0, 5, 100))),
        "buffer_memory": str(rng.choice((65536, 262144))),
        "compression_type": rng.choice(("none", "none", "lz4", "zstd", "snappy", "gzip")),
        "max_in_flight_requests_per_connection": str(
            rng.choice((1, 2, 5) if idempotent else (1, 1, 1, 5))
        ),
        "max_request_size": str(rng.choice((6000, 50_000))),
        "metadata_max_age_ms": str(rng.choice((500, 2000, 300_000))),
        "connections_max_idle_ms": str(rng.choice((3000, 540_000))),
        "retry_backoff_ms": str(rng.choice((0, 100))),
    }
    if rng.random() < 0.3:
        options.update(request_timeout_ms="2000", delivery_timeout_ms=str(rng.choice((3000, 9000))))
    replicas = rng.choice((1, 2, 3))
    ranges = FaultRanges(
        horizon_ms=rng.choice((2000, 20_000)),
        events=rng.choice((0, 4, 10)),
        allow_unclean=rng.random() < 0.25,
        network_level=rng.choice((0.0, 0.02, 0.1)),
    )
    return Settings(
        options=options,
        partitions=rng.randint(1, 5),
        replicas=replicas,
        min_insync=rng.randint(1, max(1, replicas - 1)),
        max_message_bytes=rng.choice((2500, 1 << 20, 1 << 20)),
        appends=rng.randint(1, 14),
        ranges=ranges,
    )


def live(seed):
    """Run the life of ``seed``. Raises InvariantError when something does not hold."""
    rng = random.Random(seed)
    settings = choose_settings(rng)
    settings.sasl = choose_sasl(random.Random(f"sasl of {seed}"))
    settings.refusing = RefusingBrokers.choose(random.Random(f"refusals of {seed}"))
    choose_changes(settings, random.Random(f"people of {seed}"))
    choose_lapses(settings, random.Random(f"lapses of {seed}"))
    routes = random.Random(f"routes of {seed}")
    if settings.sasl is None and is_routed(routes):
        settings.is_routed = True
        settings.options.update(OPTIONS)
    limit = random.Random(f"limit of {seed}").choice((None, None, None, 20_000, 200_000))
    simulation = Simulation(rng.getrandbits(32), 3, limit, **settings.producer_options)
    if settings.sasl is not None:
        simulation.cluster.enable_sasl(settings.sasl)
    maybe_ask_for_metrics(simulation, random.Random(f"telemetry of {seed}"))
    topic = simulation.cluster.create_topic(
        "t", settings.partitions, settings.replicas, settings.min_insync
    )
    topic.max_message_bytes = settings.max_message_bytes
    if settings.refusing is not None:
        simulation.cluster.on_validate = settings.refusing.validator(simulation.clock)
    plan = FaultPlan(simulation, random.Random(rng.random()), settings.ranges)
    life = Life(seed, settings, simulation, plan, started_ms=simulation.clock.ms)
    _watch(life)
    if settings.is_routed:
        life.routing = Routing(simulation, routes)
        life.routing.begin(settings.partitions, settings.ranges.horizon_ms)
    plan.begin()
    try:
        for number in range(rng.randint(1, 3)):
            if number and settings.recreates:
                _recreate(life, random.Random(f"{number} topics of {seed}"))
            simulation.begin_task("t")
            life.planned_partitions = len(topic.partitions)
            _task(life, rng)
    except KafkaSinkError as error:
        life.failure = error
    check(life)
    if (leave_ms := push_final_telemetry(simulation)) > CLOSE_TIMEOUT_MS:
        raise InvariantError(f"the last push took {leave_ms} ms")
    return life


def maybe_ask_for_metrics(simulation, rng):
    """In three lives of ten, brokers want metrics, and answer pushes in all ways that there are."""
    if rng.random() < 0.3:
        simulation.cluster.enable_telemetry().behave_badly(rng)


def push_final_telemetry(simulation):
    """What closing does; returns how many milliseconds that took."""
    telemetry, started_ms = simulation.producer.telemetry, simulation.clock.ms
    telemetry.finish()
    return simulation.clock.ms - started_ms


def _recreate(life, rng):
    """The topic, perhaps of no interest meanwhile, is created anew, perhaps smaller or larger."""
    check(life)
    simulation, cluster = life.simulation, life.simulation.cluster
    pause_ms = rng.choice((0, _MAX_IDLE_MS))
    if life.settings.options["acks"] == "0":  # a flush ends while requests are on their way
        pause_ms = _MAX_IDLE_MS
    simulation.run_for(pause_ms)
    cluster.empty_topic("t", rng.randint(1, len(cluster.topics["t"].partitions) + 2))
    life.started_ms = simulation.clock.ms
    for noted in (life.appended, life.acknowledged, life.keys, life.epochs):
        noted.clear()
    if life.settings.refusing is not None:
        life.settings.refusing.values.clear()


def _known_to_all(cluster):
    """How many partitions of the topic all brokers know: the first that is asked decides on others."""
    views = (broker.view for broker in cluster.brokers.values())
    return min(sum(name == "t" for name, _ in view) for view in views)


def _task(life, rng):
    """Some appends, with pauses, then a flush."""
    simulation, refusing = life.simulation, life.settings.refusing
    if refusing is not None:
        simulation.producer.rejections.tolerate("dead")
    for _ in range(life.settings.appends):
        size = rng.choice((1, 10, 60))
        values = [
            b"%06d" % (len(life.appended) + n) + rng.randbytes(rng.randint(0, 60))
            for n in range(size)
        ]
        life.appended += values
        if rng.random() < 0.3:
            simulation.append_to(rng.randrange(_known_to_all(simulation.cluster)), values)
        else:
            keys = [rng.choice((None, b"", b"a", b"bcd")) for _ in values]
            fewest = life.planned_partitions
            life.keys.update((v, (k, fewest)) for k, v in zip(keys, values) if k is not None)
            simulation.append(list(zip(keys, values)))
        if rng.random() < 0.5:
            simulation.run_for(rng.choice((1, 20, 500)))
    try:
        simulation.flush()
    finally:
        if refusing is not None:
            taken = simulation.producer.rejections.take_rejected()
            refusing.values += [r.record.value for r in taken if r.record.value is not None]


def _watch(life):
    """Note acknowledgements, see that leader epochs never go back, and digest what happens."""
    producer, simulation = life.simulation.producer, life.simulation
    acknowledge, run_once = producer.sender._acknowledge, producer.sender.run_once
    complete = producer.sender._retry_or_fail
    epochs = life.epochs
    digest = hashlib.sha256()

    def noting_acknowledge(batch, base_offset):
        data = b"".join(bytes(b) for b in batch.buffers)
        values = [record.value for record in twin.decode_batch(data).records]
        life.acknowledged.append((batch.topic_partition.partition, base_offset, values))
        digest.update(f"{simulation.clock.ms} {batch.topic_partition} {base_offset}".encode())
        acknowledge(batch, base_offset)

    def watching_complete(batch, node, error, detail, *more):
        is_omitted = batch.topic_partition in simulation.cluster.omitted
        if detail is not None and "does not mention" in detail and not is_omitted:
            raise InvariantError(f"{batch.topic_partition}: an answered batch is sent again")
        complete(batch, node, error, detail, *more)

    def watching_run_once(now_ms):
        run_once(now_ms)
        digest.update(f"{simulation.clock.ms};".encode())
        life.trace = digest.hexdigest()
        if simulation.network.polls > _MOST_POLLS:
            raise InvariantError(f"more than {_MOST_POLLS} polls: the sender does not wait")
        paused_ms = simulation.cluster.paused_ms + _limit_ms(producer)
        _check_ages(producer, simulation.clock.ms, paused_ms)
        known = producer._metadata.snapshot.topics.get("t")
        for index, partition in enumerate(known.partitions if known else ()):
            if partition.leader_epoch < epochs.get(index, -1):
                raise InvariantError(f"the leader epoch of t-{index} went back")
            epochs[index] = partition.leader_epoch

    producer.sender._retry_or_fail = watching_complete
    producer.sender._acknowledge = noting_acknowledge
    producer.sender.run_once = watching_run_once


def _check_ages(producer, now_ms, paused_ms):
    """Whatever the sender waits for: no batch becomes older than it may."""
    oldest = producer.accumulator.oldest_incomplete()
    if producer.accumulator.failure is None and oldest is not None:
        age_ms = now_ms - oldest.created_at_ms
        # All pauses that any broker has asked for, and all that the limit may have held.
        if age_ms > producer._config.delivery_timeout_ms + paused_ms:
            raise InvariantError(f"{oldest.topic_partition}: a batch has waited for {age_ms} ms")


def _limit_ms(producer):
    """How long the limit may have held batches: until all their attempts, and the queue, are due."""
    bytes_per_second = producer._config.max_bytes_per_second
    if bytes_per_second is None:
        return 0
    metrics = producer.metrics
    most_bytes = metrics.batches_sent * metrics.batch_size_max + producer.accumulator.queued_bytes
    return most_bytes * 1000 // bytes_per_second


# --- what must hold -----------------------------------------------------------------------------


def check(life):
    """Raise InvariantError for the first invariant that does not hold."""
    settings, simulation = life.settings, life.simulation
    logs = simulation.cluster.records("t")
    tainted = {i for i, p in enumerate(simulation.cluster.topics["t"].partitions) if p.is_tainted}
    _check_failure(life)
    _check_refusals(life)
    if life.routing is not None and life.routing.astray_count:
        raise InvariantError(f"{life.routing.astray_count} records are in another cluster")
    if settings.is_idempotent:
        forgetful = _forgetful(simulation)
        _check_no_duplicates(logs, forgetful, settings.refusing)
        _check_sequences(simulation, forgetful)
    if settings.keeps_order:
        _check_order(life, logs, tainted)
    if settings.options["acks"] == "all":
        _check_acknowledged(life, logs, tainted)
    _check_keys(life, logs)
    if life.failure is None:
        _check_complete(life)
    patience_ms = settings.ranges.horizon_ms + 130_000 + 60_000 + 20_000
    if simulation.clock.ms - life.started_ms > patience_ms:
        raise InvariantError(f"it took {simulation.clock.ms - life.started_ms} ms")


def _check_failure(life):
    if life.failure is None:
        return
    if life.plan.refuses and isinstance(life.failure, AuthenticationError):
        return
    if not isinstance(life.failure, (DeliveryError, BufferExhaustedError)):
        raise InvariantError(f"unexpected failure: {life.failure!r}")
    if "may be in the topic already" in str(life.failure) and _may_be_in_doubt(life):
        return
    if "OUT_OF_ORDER" in str(life.failure) and _forgetful(life.simulation):
        return
    if life.settings.must_succeed:
        raise InvariantError(f"failed although every fault had ended: {life.failure}")


def _may_be_in_doubt(life):
    """Whether a broker could fail to know what it has appended."""
    cluster = life.simulation.cluster
    forgets = cluster.rejects_unknown_producers or cluster.restarts
    is_tainted = any(partition.is_tainted for partition in cluster.partitions())
    ranges = life.settings.ranges
    return ranges.changes or ranges.lapses or forgets or is_tainted


def _forgetful(simulation):
    """The partitions whose leader has taken any sequence: numbers are repeated, or left out."""
    partitions = simulation.cluster.topics["t"].partitions
    return {index for index, p in enumerate(partitions) if p.takes_any_sequence}


def _check_refusals(life):
    """Whoever is refused does not try again. Answers may get lost, and there are three brokers."""
    sasl = life.settings.sasl
    if sasl is not None and sasl.refusals > _MOST_REFUSALS:
        raise InvariantError(f"refused {sasl.refusals} times, and still trying")


def _check_no_duplicates(logs, forgetful, refusing):
    """Neither in the logs, nor there and given back to the task."""
    counts = Counter(
        value
        for index, records in logs.items()
        for value in (
            {r.value for r in records} if index in forgetful else [r.value for r in records]
        )
    )
    counts.update([] if refusing is None else refusing.values)
    doubled = [value for value, count in counts.items() if count > 1]
    if doubled:
        raise InvariantError(f"{len(doubled)} records doubled, the first is {doubled[0][:6]!r}")


def _check_sequences(simulation, forgetful):
    """Per producer id and epoch, sequences in a log follow each other without a gap."""
    for index, partition in enumerate(simulation.cluster.topics["t"].partitions):
        if index in forgetful:
            continue
        expected = {}
        for batch in partition.log.batches:
            header = batch.header
            identity = (header.producer_id, header.producer_epoch)
            if header.base_sequence != expected.get(identity, header.base_sequence):
                raise InvariantError(f"t-{index}: sequence {header.base_sequence} after a gap")
            expected[identity] = (header.base_sequence + header.records_count) % 2**31


def _check_order(life, logs, tainted):
    forgetful = _forgetful(life.simulation)
    for partition, records in logs.items():
        if partition in tainted:
            continue
        numbers = [int(record.value[:6]) for record in records if record.value]
        if not life.settings.is_idempotent or partition in forgetful:
            numbers = list(dict.fromkeys(numbers))  # at least once: a repetition is no disorder
        if numbers != sorted(numbers):
            raise InvariantError(f"t-{partition}: records out of order")


def _check_keys(life, logs):
    """Keys go where murmur2 puts them among as many partitions as their task's plan had, or more."""
    for partition, records in logs.items():
        for record in records:
            key, fewest = life.keys.get(record.value or b"", (None, 0))
            counts = range(fewest, len(logs) + 1)
            if key is not None and partition not in {partition_of(key, n) for n in counts}:
                raise InvariantError(f"t-{partition}: a record of the key {key!r}, of {counts}")


def _check_acknowledged(life, logs, tainted):
    """What was acknowledged is where the broker said that it is."""
    for partition, base_offset, values in life.acknowledged:
        if partition in tainted:
            continue
        there = [r.value for r in logs[partition]]
        if base_offset >= 0 and there[base_offset : base_offset + len(values)] != values:
            raise InvariantError(f"t-{partition}: acknowledged at {base_offset}, but not there")
        if not set(values) <= set(there):
            raise InvariantError(f"t-{partition}: acknowledged and lost")


def _check_complete(life):
    """A flush without error: everything acknowledged, and all memory given back."""
    acknowledged = Counter(value for _, _, values in life.acknowledged for value in values)
    refusing = life.settings.refusing
    if refusing is not None:
        acknowledged.update(refusing.values)
        if not all(map(refusing.refuses, refusing.values)):
            raise InvariantError("a record was given back that no broker has refused")
    if acknowledged != Counter(life.appended):
        raise InvariantError("flushed without error, but not everything was settled once")
    pool = life.simulation.producer.pool
    if pool.free_count != pool.pages_count:
        raise InvariantError(f"{pool.pages_count - pool.free_count} pages not given back")


# --- running ------------------------------------------------------------------------------------


def try_seed(seed):
    """What is broken in the life of ``seed``, with how to replay it; None if all is well."""
    try:
        live(seed)
    except Exception:
        return f"seed {seed} failed. Replay: {REPLAY.format(seed=seed)}\n{traceback.format_exc()}"
    return None


def run_range(first, last):
    """All failures of seeds ``first … last-1``, on all cores."""
    with multiprocessing.get_context("fork").Pool() as pool:
        results = pool.imap_unordered(try_seed, range(first, last), chunksize=20)
        return [failure for failure in results if failure is not None]


def main(arguments):
    """Replay one seed, or run a range; 1 if anything is broken."""
    logging.disable()
    numbers = [int(argument) for argument in arguments]
    if len(numbers) == 2:
        failures = run_range(*numbers)
        print("\n".join(failures[:5]))
        print(f"{numbers[1] - numbers[0]} seeds, {len(failures)} broken")
        return 1 if failures else 0
    failure = try_seed(numbers[0])
    life_settings = choose_settings(random.Random(numbers[0]))
    life_settings.sasl = choose_sasl(random.Random(f"sasl of {numbers[0]}"))
    choose_changes(life_settings, random.Random(f"people of {numbers[0]}"))
    choose_lapses(life_settings, random.Random(f"lapses of {numbers[0]}"))
    print(life_settings)
    if failure is not None:
        print(failure)
        return 1
    life = live(numbers[0])
    print("\n".join(life.plan.log))
    print(f"{len(life.appended)} records, failure: {life.failure}, trace {life.trace[:16]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
