"""Dead letters on a real broker: their topic, what brokers take, and ``pykafka-sink dead-letters``."""

import json
import random
import shlex
import uuid
from collections import Counter

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.entry_points import Hook
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.model import NO_PRODUCER, ColumnPositions, TopicPartition
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_keys import ExactlyOnceConfig, TopicLimits
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.network.admin import AdminClient
from spark_kafka_sink.record.record_batch import NewRecord, RecordLimitError, encode_batch
from spark_kafka_sink.spark.commit import KafkaCommitMessage
from spark_kafka_sink.spark.preflight import check_cluster
from spark_kafka_sink.spark.task import write_rows
from spark_kafka_sink.tools.dead_letter_replay import (
    SUPERSEDED,
    LetterFilter,
    Replay,
    SupersededRows,
    Topic,
)
from spark_kafka_sink.transactions.client import TransactionClient
from spark_kafka_sink.transactions.commit_protocol import CommitProtocol
from spark_kafka_sink.transactions.decision_log import LogPartition, prepare_log_topic
from spark_kafka_sink.transactions.model import Driver
from tests.broker.producing import Topics, batch_of, plan_of
from tests.broker.refused import Refusing
from tests.patience import AN_HOUR_MS, PATIENCE_MS, PATIENCE_S
from tests.reading import read_topic

DEAD = "errors.deadletterqueue.topic."
PATIENT = {
    "preflight.timeout.ms": str(AN_HOUR_MS),
    "kafka.max.block.ms": str(AN_HOUR_MS),
}


def options(kafka, topic, **more):
    return SinkOptions.parse(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": topic,
            "errors.tolerance": "all",
            f"{DEAD}name": f"{topic}-dead",
            "errors.deadletterqueue.max.ratio": "1",
            **PATIENT,
            **more,
        }
    )


def checked(given):
    return check_cluster(given, is_stream=False)


def rules(given):
    assert given.dead_letters is not None
    return given.dead_letters


def causes(records):
    headers = [dict(record.headers).get("__connect.errors.cause") for record in records]
    return Counter(None if cause is None else cause.decode() for cause in headers)


def test_the_topic_is_created_as_the_options_say(strict_kafka):
    strict_kafka.create_topic("dl-made", 1)
    given = options(
        strict_kafka,
        "dl-made",
        **{f"{DEAD}replication.factor": "1", "topic.creation.partitions": "3"},
    )
    assert rules(checked(given)).own_topic_limits == TopicLimits(1_048_588, False)
    topics = Topics(strict_kafka.bootstrap_servers)
    assert topics.created("dl-made-dead") == {0: [1], 1: [1], 2: [1]}
    assert topics.own_configs("dl-made-dead") == {}
    assert checked(given).dead_letters == checked(given).dead_letters


def test_a_compacted_topic_is_refused(strict_kafka):
    strict_kafka.create_topic("dl-compact", 1)
    strict_kafka.create_topic("dl-compact-dead", 1, configs={"cleanup.policy": "compact,delete"})
    with pytest.raises(ConfigError, match="'dl-compact-dead'.* is compacted"):
        checked(options(strict_kafka, "dl-compact"))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_broker_takes_what_is_no_dead_letter_and_nothing_else_would_fit(strict_kafka, codec):
    """Around the topic's limit, which the driver has read; and rows without a key."""
    topic = f"dl-limits-{codec}"
    configs = {"max.message.bytes": "5000", "cleanup.policy": "compact"}
    strict_kafka.create_topic(topic, 2, configs=configs)
    given = checked(options(strict_kafka, topic, **{"kafka.compression.type": codec}))
    assert rules(given).data_topic_limits == TopicLimits(5000, True)
    noise = random.Random(1).randbytes(6000)
    values = [*(noise[:size] for size in range(4880, 4960)), bytes(20_000), b"without a key"]
    keys = [b"%02d" % (n % 90) for n in range(81)]
    batch = batch_of(key=[*keys, None], value=values)
    message = KafkaCommitMessage(0, 0)
    write_rows([batch], given, plan_of(batch, topic), message)
    good = read_topic(strict_kafka.bootstrap_servers, topic)
    dead = read_topic(strict_kafka.bootstrap_servers, f"{topic}-dead")
    assert len(good) + len(dead) == message.records == 82
    found = causes(dead)
    assert found == message.dead_letters
    assert (found["null-key"], len(found)) == (1, 2)
    assert {r.value for r in good} <= set(values)
    assert (bytes(20_000) in {r.value for r in good}) == (codec != "none")
    if codec == "none":
        assert max(len(r.value or b"") for r in good) == 5000 - 61 - 2 - 3 - 3 - 2 - 1


@pytest.mark.parametrize("cause", ["refused", "too-large", "bad-timestamp"])
def test_what_the_broker_refuses_is_a_dead_letter(strict_kafka, cause):
    refusing = Refusing(
        strict_kafka,
        f"dl-refused-{cause}",
        cause,
        delivery_guarantee="exactly-once",
        transactional_id_prefix=f"dl-refused-{cause}",
        transaction_log_replication_factor="1",
    )
    refusing.check(refusing.write())


PREFIX = "__connect.errors."


def with_partition_0(arrow_batch):
    """Mends rows; named below."""
    position = arrow_batch.schema.get_field_index("partition")
    zeros = pa.array([0] * arrow_batch.num_rows, pa.int32())
    return arrow_batch.set_column(position, "partition", zeros)


class Dead:
    """A topic with one partition, and dead letters of rows for it."""

    def __init__(self, kafka):
        self.servers = kafka.bootstrap_servers
        self.topic = f"cdl-{uuid.uuid4().hex[:8]}"
        self.name = f"{self.topic}-dead"
        kafka.create_topic(self.topic, 1)
        kafka.create_topic(self.name, 2)
        options = SinkOptions.parse(
            {
                "kafka.bootstrap.servers": self.servers,
                # Partitions that do not exist are waited for as long as that.
                "kafka.max.block.ms": "10000",
                "topic": self.topic,
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": self.name,
                "errors.deadletterqueue.max.ratio": "1",
            }
        )
        rules = TopicLimits(max_message_bytes=3000)
        config = options.dead_letters._replace(data_topic_limits=rules, own_topic_limits=rules)
        object.__setattr__(options, "dead_letters", config)
        batch = batch_of(
            key=[b"k%d" % n for n in range(10)],
            value=[b"good", *[b"v%d" % n for n in range(1, 8)], bytes(4000), bytes(5000)],
            partition=[None, *range(1, 8), None, None],
        )
        message = KafkaCommitMessage(3, 0, query_id="q-1")
        write_rows([batch], options, plan_of(batch, self.topic), message)
        assert message.dead_letters == {"bad-partition": 7, "too-large": 2}

    def abort_one(self):
        """A dead letter that nobody is to see."""
        producer = Producer(
            {"bootstrap.servers": self.servers, "transactional.id": self.name, "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(self.name, b"aborted", headers=[(PREFIX + "cause", b"too-large")])
        producer.flush(PATIENCE_S)
        producer.abort_transaction(PATIENCE_S)

    def run(self, capsys, *arguments):
        code = main(
            [
                *("dead-letters", arguments[0], "--bootstrap-server", self.servers),
                *("--topic", self.name, "--timeout", str(AN_HOUR_MS), *arguments[1:]),
            ]
        )
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if "--json" in arguments else shown.out + shown.err


@pytest.fixture(scope="module")
def dead(kafka):
    """Left as it is by what only looks."""
    made = Dead(kafka)
    made.abort_one()
    return made


def test_they_are_counted_by_cause_without_what_was_aborted(dead, capsys):
    code, found = dead.run(capsys, "count", "--json")
    assert (code, found["count"]) == (0, 9)
    groups = [(g["cause"], g["topic"], g["letters"], g["cut"]) for g in found["groups"]]
    assert groups == [("bad-partition", dead.topic, 7, 0), ("too-large", dead.topic, 2, 2)]
    _, table = dead.run(capsys, "count", "--cause", "too-large")
    assert table.splitlines()[0].split() == [
        "COUNT",
        "CAUSE",
        "TOPIC",
        "CUT",
        "OFF",
        "FIRST",
        "LAST",
    ]
    assert table.splitlines()[1].split()[:4] == ["2", "too-large", dead.topic, "2"]
    assert dead.run(capsys, "count", "--json", "--query-id", "q-2")[1]["count"] == 0


def test_single_ones_are_shown(dead, capsys):
    _, found = dead.run(capsys, "show", "--json", "--cause", "bad-partition", "--limit", "3")
    assert len(found["dead_letters"]) == 3
    for letter in found["dead_letters"]:
        assert letter["told"]["cause"] == "bad-partition"
        assert letter["told"]["task.id"] == "3"
        assert letter["value"] == f"v{letter['told']['partition']}"
        assert letter["headers"] == []
    _, text = dead.run(capsys, "show", "--cause", "too-large", "--limit", "1")
    assert "larger than 3000, the topic's max.message.bytes" in text
    assert r"value \x00" in text
    assert "bytes)" in text


def test_they_are_written_again_once_their_topic_has_the_partitions(kafka, capsys):
    dead = Dead(kafka)
    code, text = dead.run(
        capsys,
        *("replay", "--cause", "bad-partition", "--allow-topic", dead.topic),
        *("--without-partition", "--yes"),
    )
    assert code == 0
    assert f"7 written to {dead.topic}" in text
    values = Counter(r.value for r in read_topic(dead.servers, dead.topic))
    assert values == Counter([b"good", *[b"v%d" % n for n in range(1, 8)]])
    replayed = [r for r in read_topic(dead.servers, dead.topic) if r.value != b"good"]
    assert all(r.key == b"k%d" % int((r.value or b"")[1:]) for r in replayed)
    assert all(not r.headers for r in replayed)
    assert "2 not written: of cause too-large, which --cause does not name" in text
    command = text.split("next time: ")[1].strip()
    assert command.startswith(
        f"pykafka-sink dead-letters replay --bootstrap-server {dead.servers} --topic {dead.name} "
        f"--cause bad-partition --allow-topic {dead.topic} --from 0:"
    )
    assert command.endswith(" --without-partition")
    offsets = shlex.split(command)[shlex.split(command).index("--from") + 1]
    _, found = dead.run(capsys, "count", "--json", "--from", offsets)
    assert found["count"] == 0
    assert main([*shlex.split(command)[1:], "--timeout", str(AN_HOUR_MS)]) == 1  # nothing to ask
    assert "nothing written: there is no dead letter" in capsys.readouterr().out


def test_any_other_topic_is_not_written_again(kafka, capsys):
    """Records without the sink's headers, unless they are asked for by name."""
    dead = Dead(kafka)
    reading = ("--topic", dead.topic)  # of all rows: it has one, b"good"
    _, text = dead.run(capsys, "count", *reading)
    assert "unknown: no __connect.errors.cause header, so perhaps no dead letters" in text
    elsewhere = ("--to-topic", dead.name)
    _, found = dead.run(capsys, "replay", *reading, *elsewhere, "--yes", "--json")
    assert found["written"] == {}
    (reason,) = found["left_out"]
    assert (found["left_out"][reason], "--cause unknown" in reason) == (1, True)
    given = (*reading, *elsewhere, "--cause", "unknown", "--yes", "--json")
    assert dead.run(capsys, "replay", *given)[1]["written"] == {dead.name: 1}


def test_a_topic_is_not_written_behind_itself(dead, capsys):
    code, text = dead.run(capsys, "replay", "--to-topic", dead.name, "--yes")
    assert code == 2
    assert "is the topic that is read" in text


def test_a_cause_that_there_is_not(capsys):
    given = ["--bootstrap-server", "nowhere:1", "--topic", "t", "--cause", "to-large"]
    with pytest.raises(SystemExit) as raised:
        main(["dead-letters", "count", *given])
    assert raised.value.code == 2
    assert "'to-large' is none of interceptor, not-encodable, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("offsets", "problem"), [("0:100000", "partition 0 ends at"), ("7:0", "partition 7: it has 2")]
)
def test_offsets_that_the_topic_does_not_have(dead, capsys, offsets, problem):
    for action in ("count", "show", "replay --allow-topic t"):
        code, text = dead.run(capsys, *action.split(), "--from", offsets)
        assert code == 2
        assert problem in text


def test_a_function_of_the_users_own_mends_them(kafka, capsys):
    dead = Dead(kafka)
    mend = f"{__name__}:with_partition_0"
    allowed = ("--allow-topic", dead.topic)
    _, found = dead.run(capsys, "replay", "--mend", mend, *allowed, "--yes", "--json")
    assert found["written"] == {dead.topic: 9}


def test_nothing_is_written_without_a_yes(kafka, capsys):
    dead = Dead(kafka)
    code, text = dead.run(capsys, "replay", "--allow-topic", dead.topic)
    assert code == 2
    assert f"written again: 7 bad-partition to {dead.topic}\n" in text
    assert "Not written: 2 a part of the row is missing: it was cut off" in text
    assert "--yes confirms" in text
    assert [r.value for r in read_topic(dead.servers, dead.topic)] == [b"good"]


def test_nothing_is_asked_where_nothing_can_be_replayed(kafka, capsys):
    """The dead letters were announced, and then none was written."""
    dead = Dead(kafka)
    code, text = dead.run(capsys, "replay", "--cause", "too-large", "--allow-topic", dead.topic)
    assert code == 1
    assert "nothing written" in text
    assert "2 not written: a part of the row is missing: it was cut off" in text


REPAINT = "\x1b[2J\x1b[1;1Hflights\x9b31m\u202e"
"""Clears a terminal, writes another name, and turns its direction."""


def forged(kafka, *topics):
    """A topic of dead letters that somebody else has written."""
    name = f"forged-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for topic in topics:
        told = {"cause": REPAINT, "exception.message": REPAINT + "\nforged line", "topic": topic}
        headers = [(f"{PREFIX}{key}", value.encode()) for key, value in told.items()]
        producer.produce(name, b"forged", REPAINT.encode(), headers=headers)
    producer.flush(PATIENCE_S)
    return name


def test_a_dead_letter_does_not_choose_where_it_is_written(kafka, capsys):
    log, other = f"log-{uuid.uuid4().hex[:8]}", f"other-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(log, 1)
    kafka.create_topic(other, 1)
    name = forged(kafka, log, REPAINT, other)
    at = ("dead-letters", "replay", "--bootstrap-server", kafka.bootstrap_servers, "--topic", name)
    given = [*at, "--timeout", str(AN_HOUR_MS), "--yes"]
    assert main(given) == 2
    said = capsys.readouterr().err
    assert "name where the rows go: --to-topic T for all, or --allow-topic T" in said
    assert said.rstrip("\n").isprintable()
    assert log in said
    assert main([*given, "--allow-topic", other]) == 0
    done = capsys.readouterr().out
    assert f"1 written to {other}" in done
    assert "1 not written: it was to go to a topic that --allow-topic does not name" in done
    assert read_topic(kafka.bootstrap_servers, log) == []
    assert [r.value for r in read_topic(kafka.bootstrap_servers, other)] == [b"forged"]


def test_nothing_is_replayed_into_a_decision_log_or_an_internal_topic(kafka, capsys):
    """A decision log of any name: its records tell."""
    log = f"decisions-{uuid.uuid4().hex[:8]}"
    config = ExactlyOnceConfig("p", 60_000, log, 1, accepts_missing_record=True)
    with AdminClient.connect(kafka.bootstrap_servers) as admin:
        prepare_log_topic(admin, config, admin.deadline_in(PATIENCE_MS))
        protocol = CommitProtocol(TransactionClient(admin), config, SystemClock(), PATIENCE_MS)
        protocol.plan(Driver("driver-1", "host-1", 1_700_000_000_000, "/ck", "q"), None)
    name = forged(kafka, "flights")
    given = ["dead-letters", "replay", "--bootstrap-server", kafka.bootstrap_servers]
    given += ["--topic", name, "--timeout", str(AN_HOUR_MS), "--yes"]
    for option in ("--to-topic", "--allow-topic"):
        for topic, reason in (
            ("pykafka-sink-transactions", "a decision log"),
            (log, "a decision log"),
            ("__consumer_offsets", "internal"),
            ("__transaction_state", "internal"),
            (REPAINT, "no topic can have this name"),
        ):
            assert main([*given, option, topic]) == 2
            said = capsys.readouterr().err
            assert reason in said
            assert said.rstrip("\n").isprintable()


@pytest.mark.parametrize("action", ["count", "show", "replay --to-topic flights"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_nothing_of_a_record_reaches_the_terminal_as_it_is(kafka, capsys, action, form):
    name = forged(kafka, REPAINT)
    main(
        [
            *("dead-letters", *action.split(), "--topic", name, "--format", form),
            *("--bootstrap-server", kafka.bootstrap_servers, "--timeout", str(AN_HOUR_MS)),
        ]
    )
    shown = capsys.readouterr()
    lines = (shown.out + shown.err).split("\n")
    assert all(line.isprintable() for line in lines)
    if action != "replay --to-topic flights":  # it names neither the topic nor a foreign cause
        assert "\\x1b[2J" in "".join(lines) or "\\u001b[2J" in "".join(lines)
    if form == "json" and action != "replay --to-topic flights":
        (found,) = [v for v in json.loads(shown.out).values() if isinstance(v, list)]
        topic = found[0]["topic"] if action == "count" else found[0]["told"]["topic"]
        assert topic == REPAINT


def raw_text(*given):
    return pa.array(given, pa.binary()).view(pa.string())


def test_texts_of_rows_that_are_no_utf8_can_be_read_by_every_consumer(kafka):
    """As Spark's JVM sink writes them, also in dead letters; sizes are of what is written."""
    topic = f"texts-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    kafka.create_topic(f"{topic}-dead", 1)
    given = options(kafka, topic)
    keys = raw_text(b"\xffA", b"\xed\xa0\x80", b"\xff" * 500_000)
    entries = pa.StructArray.from_arrays([keys, pa.array([b"1", b"2", b"3"])], ["key", "value"])
    batch = pa.record_batch(
        {
            "value": pa.array([b"good", b"no topic", b"too large"]),
            "headers": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), entries),
            "topic": raw_text(topic.encode(), b"caf\xe9", topic.encode()),
        }
    )
    message = KafkaCommitMessage(0, 0)
    write_rows([batch], given, ColumnPositions(value=0, headers=1, topic=2), message)
    assert message.dead_letters == {"invalid-topic": 1, "too-large": 1}
    (good,) = read_topic(kafka.bootstrap_servers, topic)
    assert (good.value, good.headers) == (b"good", (("\ufffdA", b"1"),))
    letters = read_topic(kafka.bootstrap_servers, f"{topic}-dead")
    headers = {letter.value: dict(letter.headers) for letter in letters}
    assert headers[b"no topic"]["\ufffd"] == b"2"
    assert headers[b"no topic"][f"{PREFIX}topic"] == "caf\ufffd".encode()
    assert headers[b""][f"{PREFIX}headers.dropped"] == b"1"


# --- rows whose key has a later record ------------------------------------------------------------

NOW_MS = SystemClock().timestamp_ms()


class Outdated:
    """A topic, and dead letters of rows that were too large for it: one for each key.

    The first one is of NOW_MS, each further one is a second later. Since then the limit was raised.
    """

    def __init__(self, kafka, keys, **configs):
        self.servers = kafka.bootstrap_servers
        self.topic = f"outdated-{uuid.uuid4().hex[:8]}"
        self.name = f"{self.topic}-dead"
        kafka.create_topic(
            self.topic, 2, configs={k.replace("_", "."): v for k, v in configs.items()}
        )
        kafka.create_topic(self.name, 2)
        given = options(kafka, self.topic)
        config = rules(given)._replace(data_topic_limits=TopicLimits(max_message_bytes=3000))
        object.__setattr__(given, "dead_letters", config)
        times = [NOW_MS + 1000 * n for n in range(len(keys))]
        batch = batch_of(key=keys, value=[bytes(4000)] * len(keys), timestamp=times)
        message = KafkaCommitMessage(0, 0)
        write_rows([batch], given, plan_of(batch, self.topic), message)
        assert message.dead_letters == {"too-large": len(keys)}

    def produce(self, *rows):
        """Rows of another writer: key, value, ms after NOW_MS."""
        producer = Producer({"bootstrap.servers": self.servers, "partitioner": "murmur2_random"})
        for key, value, after_ms in rows:
            producer.produce(self.topic, value, key, timestamp=NOW_MS + after_ms)
        assert producer.flush(PATIENCE_S) == 0

    def replay(self, capsys, *more):
        at = ("--bootstrap-server", self.servers, "--topic", self.name)
        code = main(["dead-letters", "replay", *at, "--timeout", str(AN_HOUR_MS), *more])
        return code, *capsys.readouterr()

    def last_of_keys(self):
        """What compaction leaves: the last value of each key, or its size if it is large."""
        records = read_topic(self.servers, self.topic)
        return {r.key: r.value if len(r.value or b"") < 100 else len(r.value) for r in records}


LATER = [(b"new", b"later", 500), (b"same", b"equal", 1000), (b"gone", None, 9000)]


def test_a_replay_into_a_compacted_topic_says_what_it_replaces(kafka, capsys):
    made = Outdated(kafka, [b"new", b"only"], cleanup_policy="compact")
    made.produce(*LATER)
    to = ("--allow-topic", made.topic)
    warning = f"Topic '{made.topic}' is compacted: a row that is written again comes behind newer"
    code, _, said = made.replay(capsys, *to)
    assert (code, warning in said, "--yes confirms" in said) == (2, True, True)
    code, _, said = made.replay(capsys, *to, "--yes")
    assert (code, warning in said, "--skip-superseded" in said) == (0, True, True)
    assert made.last_of_keys()[b"new"] == 4000


def test_rows_with_a_later_record_of_their_key_are_left_out(kafka, capsys):
    """Or with one of the same millisecond, because their order is not known."""
    long_key = b"k" * 3000
    keys = [b"new", b"same", b"gone", b"old", b"only", long_key]
    made = Outdated(kafka, keys, cleanup_policy="compact")
    made.produce(*LATER, (b"old", b"older", 2999), (long_key, b"later", 9000))
    to = ("--to-topic", made.topic, "--skip-superseded")
    code, shown, said = made.replay(capsys, *to, "--yes")
    assert (code, "compacted" in said) == (0, False)
    assert "4 not written: its topic has a later record of its key" in shown
    assert "--skip-superseded" in shown.split("next time: ")[1]
    assert made.last_of_keys() == {
        **{b"new": b"later", b"same": b"equal", b"gone": None, long_key: b"later"},
        **{b"old": 4000, b"only": 4000},
    }


def test_the_keys_of_few_dead_letters_are_in_memory_at_a_time(kafka):
    """Rows are as the user's function returns them. Without a key none is superseded."""
    made = Outdated(kafka, [b"a", b"b", b"c", None, b"d", b"e", b"f"])
    made.produce((b"A", b"later", 9000), (b"E", b"later", 9000), (b"b", b"later", 9000))
    config = ProducerConfig.parse({"bootstrap.servers": made.servers})
    replay = Replay(config, made.name, to_topic=made.topic, mend=Hook("upper", upper))
    with AdminClient.connect(made.servers) as admin:
        letters = Topic(admin, made.name, PATIENCE_MS)
        superseded = SupersededRows(
            admin, PATIENCE_MS, letters.letters(LetterFilter()), replay.outcome, most_letters=2
        )
        done = replay.write(letters.letters(LetterFilter()), superseded)
    assert (done.written, done.left_out) == ({made.topic: 5}, {SUPERSEDED: 2})
    written = {key: value for key, value in made.last_of_keys().items() if value == 4000}
    assert set(written) == {b"B", b"C", b"D", b"F", None}


def upper(arrow_batch):
    """Mends rows: another key."""
    keys = [key and key.upper() for key in arrow_batch.column(1).to_pylist()]
    return arrow_batch.set_column(1, "key", pa.array(keys, pa.binary()))


def test_a_record_of_a_million_headers_is_named_and_can_be_left_out(kafka, capsys):
    """Brokers take it: 2 MB of empty headers are 200 bytes of a batch."""
    name = f"bomb-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, 1)
    with AdminClient.connect(kafka.bootstrap_servers) as admin:
        partition = LogPartition(admin, TopicPartition(name, 0))
        deadline_ms = admin.deadline_in(PATIENCE_MS)
        for count in (0, 1_000_000, 0):
            records = [NewRecord(b"k", b"v", [("", b"")] * count)]
            batch = encode_batch(
                records, 1_000, NO_PRODUCER, -1, is_transactional=False, codec="zstd"
            )
            assert len(batch) < 1000
            assert partition.append(None, batch, 11, deadline_ms).error_code == 0
        with pytest.raises(RecordLimitError):
            list(Topic(admin, name, PATIENCE_MS).records_since(0))
    given = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", name, "--json"]
    for action in ("count", "show"):
        assert main(["dead-letters", action, *given]) == 1
        said = capsys.readouterr().err
        assert "--skip-unreadable" in said
        assert f"0:1 of topic '{name}'" in said
        assert "DEADLETTER-010" in said
        assert main(["dead-letters", action, *given, "--skip-unreadable"]) == 0
        assert "1 left out: too large to read" in capsys.readouterr().err
    assert main(["dead-letters", "count", *given, "--from", "0:2"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] == 1
    replay = ["dead-letters", "replay", *given, "--to-topic", f"{name}-2", "--cause", "unknown"]
    assert main([*replay, "--yes", "--skip-unreadable"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["written"] == {f"{name}-2": 2}
    assert list(found["left_out"].values()) == [1]
    assert "--skip-unreadable" in found["next"]
