"""Faults of brokers and of what operators do to them."""

import json
import time

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from evidence.harness.faults import FREEZE_S
from evidence.week.world import SECURED, USER
from spark_kafka_sink.base.machine import write_private
from spark_kafka_sink.localkafka import DEFAULT_VERSION
from spark_kafka_sink.localkafka.certificates import LOCAL_HOSTS
from tests.patience import PATIENCE_S, eventually

_BROKERS = (1, 2, 3)
_MOST_PARTITIONS = 12
_QUOTA_BYTES_PER_S = 10_000
"""Of each broker; the workloads write several times as much."""


def kill_broker(world, rng):
    """SIGKILL; the broker comes back after some seconds."""
    victim = rng.choice(_BROKERS)
    _kill(world, victim)
    time.sleep(rng.uniform(5, 20))
    return _bring_back(world, victim)


def _kill(world, victim):
    """It is frozen for a moment first, so that it dies with requests that it has not answered."""
    world.kafka.pause(victim)
    time.sleep(FREEZE_S)
    world.kafka.kill(victim)


def _bring_back(world, victim):
    started = time.monotonic()
    world.kafka.restart(victim)
    world.kafka.await_in_sync()
    return {"broker": victim, "in_sync_after_s": round(time.monotonic() - started, 1)}


def pause_broker(world, rng):
    """SIGSTOP for longer than the brokers' session; the others take over."""
    victim = rng.choice(_BROKERS)
    world.kafka.pause(victim)
    try:
        time.sleep(rng.uniform(8, 25))
    finally:
        world.kafka.resume(victim)
    world.kafka.await_in_sync()
    return {"broker": victim}


def roll_brokers(world, rng):
    """Each broker is shut down and started, one after the other."""
    for number in rng.sample(_BROKERS, 3):
        world.kafka.restart(number)
        world.kafka.await_in_sync()
    return {}


def upgrade_brokers(world, rng):
    """A rolling upgrade to the newest version on the same data directories, then its features."""
    if world.kafka.version == DEFAULT_VERSION:
        return {"skipped": "the brokers have the newest version"}
    former = world.kafka.version
    world.kafka.upgrade()
    roll_brokers(world, rng)
    release = ".".join(DEFAULT_VERSION.split(".")[:2])
    world.run_tool("FeatureCommand", "upgrade", "--release-version", release)
    return {"from": former, "to": DEFAULT_VERSION}


def move_leaders(world, rng):
    """Other replicas are preferred for all partitions of the workloads, and then elected."""
    topics = {t for w in world.workloads for t in w.topics}
    described = world.admin.list_topics(timeout=PATIENCE_S).topics
    moved = [
        {"topic": name, "partition": number, "replicas": rng.sample(_BROKERS, 3)}
        for name in sorted(topics & set(described))
        for number in described[name].partitions
    ]
    file = world.folder / "reassignment.json"
    file.write_text(json.dumps({"version": 1, "partitions": moved}))
    arguments = ("--reassignment-json-file", str(file), "--execute")
    world.run_tool("ReassignPartitionsCommand", *arguments)
    world.run_tool(
        "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions"
    )
    return {"partitions": len(moved)}


def add_partitions(world, rng):
    """Two partitions more for one topic with keys."""
    topics = [t for t in ("week-avro", "week-writer") if t in world.topics]
    if not topics:
        return {"skipped": "there is no topic with keys"}
    topic = rng.choice(topics)
    count = len(world.admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
    if count >= _MOST_PARTITIONS:
        return {"skipped": f"{topic} has {count} partitions"}
    for created in world.admin.create_partitions([NewPartitions(topic, count + 2)]).values():
        created.result(PATIENCE_S)
    return {"topic": topic, "partitions": count + 2}


def recreate_topic(world, rng):
    """One of the 200 topics is deleted, and created again some seconds later."""
    topic = rng.choice([t for t in world.topics if t.startswith("week-topics-")])
    for deleted in world.admin.delete_topics([topic]).values():
        deleted.result(PATIENCE_S)
    time.sleep(rng.uniform(2, 8))
    world.create_topics({topic: 1})
    # What is made from now on must be there.
    world.deleted[topic] = world.feed.rows
    return {"topic": topic, "rows_until": world.feed.rows}


def shrink_isr(world, rng):
    """All three replicas must acknowledge, and one of them is gone for a while."""
    victim = rng.choice(_BROKERS)
    _set_min_isr(world, "3")
    try:
        _kill(world, victim)
        killed = time.monotonic()
        assert eventually(lambda: not _is_in_sync(world, victim)), "the replica stays in sync"
        shrunk_after_s = round(time.monotonic() - killed, 1)
        time.sleep(rng.uniform(5, 15))
        return {"shrunk_after_s": shrunk_after_s, **_bring_back(world, victim)}
    finally:
        _set_min_isr(world, "2")


def _is_in_sync(world, broker):
    """Whether a broker is in sync with any other, for the topics whose rows need all replicas."""
    described = world.admin.list_topics(timeout=PATIENCE_S).topics
    partitions = [p for t in _strict_topics(world) for p in described[t].partitions.values()]
    return any(broker in p.isrs for p in partitions)


def _strict_topics(world):
    return [t for t in world.topics if not t.startswith("week-topics-")]


def _set_min_isr(world, value):
    operation = AlterConfigOpType.SET
    entry = ConfigEntry("min.insync.replicas", value, incremental_operation=operation)
    topics = _strict_topics(world)
    asked = [ConfigResource(ResourceType.TOPIC, t, incremental_configs=[entry]) for t in topics]
    for changed in world.admin.incremental_alter_configs(asked).values():
        changed.result(PATIENCE_S)


def rotate_certificates(world, rng):
    """Brokers and clients get other keys; brokers are rolled to load theirs."""
    secured = world.kafka.secured(SECURED)
    write_private(secured.user_file(USER), world.authority.issue(USER).pem())
    broker = world.authority.issue("broker", LOCAL_HOSTS)
    write_private(secured.broker_file, broker.pem())
    return roll_brokers(world, rng)


def rotate_password(world, rng):
    """The brokers get another password; the file that the options refer to follows at once."""
    password = f"password {rng.randrange(10**9)}"
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, info, password.encode())
    for changed in world.admin.alter_user_scram_credentials([change]).values():
        changed.result(PATIENCE_S)
    world.set_password(password)
    # Sessions end within a minute: their connections log in with the new password.
    time.sleep(world.session_s)
    return {}


def set_quota(world, rng):
    """The brokers throttle the writers until the page says so."""
    who = ("--entity-type", "users", "--entity-name", USER, "--alter")
    quota = f"producer_byte_rate={_QUOTA_BYTES_PER_S}"
    world.run_tool("ConfigCommand", *who, "--add-config", quota)
    try:
        world.hold("quota", rng.uniform(15, 30))
    finally:
        world.run_tool("ConfigCommand", *who, "--delete-config", "producer_byte_rate")
    return {"bytes_per_second": _QUOTA_BYTES_PER_S}
