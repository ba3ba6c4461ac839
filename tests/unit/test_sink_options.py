"""Spark's options → SinkOptions: what is used, refused with an alternative, or without effect."""

from __future__ import annotations

import pickle
from pathlib import Path

import packaging.requirements
import pytest

from spark_kafka_sink.base.codes import sentence
from spark_kafka_sink.base.entry_points import Hook, HookError, run
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.option_names import JAVA_CLASS_KEYS, KEYS_WITHOUT_EFFECT
from spark_kafka_sink.config.producer_config import TopicCreation
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS, MetricsOutputs
from spark_kafka_sink.config.sink_options import SinkOptions, effective_settings
from spark_kafka_sink.spark.task import Interceptors
from spark_kafka_sink.tools.checks import all_checks
from tests.unit.simulated_time import SimulatedClock

SERVERS = {"kafka.bootstrap.servers": "b:9092"}


class Recording:
    """Loadable as an interceptor."""

    def on_send(self, arrow_batch: object) -> object:
        return arrow_batch


class Misspelt:
    def on_sned(self, arrow_batch: object) -> object:
        return arrow_batch


class HalfMisspelt(Misspelt):
    def on_acknowledgement(self, summary: object) -> None:
        pass


class Nothing:
    def mask(self, arrow_batch: object) -> object:
        return arrow_batch


class TooMany:
    def on_send(self, arrow_batch: object, schema: object) -> object:
        return arrow_batch


class TooFew:
    @staticmethod
    def on_acknowledgement() -> None:
        pass


class NotAMethod:
    on_send = "upper"


class NeedsArgument(Recording):
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern


class SetsItsMethods:
    """The methods are attributes of the object alone, which cannot be seen in the class."""

    def __init__(self) -> None:
        self.on_send = lambda arrow_batch: arrow_batch


class SetsAWrongMethod:
    def __init__(self) -> None:
        self.on_send = lambda: None


def make_misspelt() -> Misspelt:
    made.append("misspelt")
    return Misspelt()


made: list[str] = []


class OnlyOnExecutors:
    def __init__(self) -> None:
        raise FileNotFoundError("/opt/executor/model")


def partition_by_hand(keys: object, values: object, partitions_count: int) -> None:
    """Loadable as a partitioner."""


HERE = __name__


def parse(options: dict[str, str] | None = None, /) -> SinkOptions:
    return SinkOptions.parse({**SERVERS, **(options or {})})


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as raised:
        parse(options)
    return sentence(raised.value)


def test_defaults() -> None:
    options = parse()
    assert options.topic is None
    assert options.interceptors == ()
    assert options.metrics_log
    assert options.metrics == MetricsOutputs()
    assert options.notes == ()
    assert options.producer.topic_creation is None
    assert options.producer.bootstrap_servers == (("b", 9092),)


def test_names_are_not_case_sensitive_and_values_are() -> None:
    options = SinkOptions.parse(
        {
            "Kafka.Bootstrap.SERVERS": "b:9092",
            "TOPIC": "Flights",
            "KAFKA.compression.TYPE": "zstd",
            "includeHeaders": "TRUE",
            "Metrics.Path": "/Tmp/M.json",
            "Topic.Creation.Enable": "true",
        }
    )
    assert options.topic == "Flights"
    assert options.producer.compression_type == "zstd"
    assert options.metrics.path == "/Tmp/M.json"
    assert options.producer.topic_creation == TopicCreation()
    assert options.notes == ()


def test_every_own_option_is_lower_case() -> None:
    """Names are looked up in lower case: any other spelling in the table could never be set."""
    assert all(name == name.lower() for name in SINK_OPTIONS.keys)
    assert all(name == name.lower() for name in [*JAVA_CLASS_KEYS, *KEYS_WITHOUT_EFFECT])


def test_bootstrap_servers_are_asked_for_in_the_jvm_sinks_words() -> None:
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({"topic": "t"})
    assert sentence(raised.value) == (
        "Option 'kafka.bootstrap.servers' must be specified for writing to Kafka, as host:port."
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "kafka.key.serializer",
            "Kafka option 'kafka.key.serializer' is not supported as keys are serialized with "
            "ByteArraySerializer.",
        ),
        (
            "kafka.value.serializer",
            "Kafka option 'kafka.value.serializer' is not supported as value are serialized with "
            "ByteArraySerializer.",
        ),
    ],
)
def test_serializers_are_refused_in_the_jvm_sinks_words(name: str, message: str) -> None:
    assert refusal({name: "x"}) == message


@pytest.mark.parametrize("name", JAVA_CLASS_KEYS)
def test_java_classes_are_refused_with_an_alternative(name: str) -> None:
    assert refusal({f"kafka.{name}": "org.example.Class"}) == (
        f"Kafka option 'kafka.{name}' names a Java class, and there is no JVM here. "
        f"Instead: {JAVA_CLASS_KEYS[name]}."
    )


@pytest.mark.parametrize(
    ("java_class", "partitioner", "ignore_keys"),
    [
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "round-robin", False),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", "default", True),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "default", False),
    ],
)
def test_kafkas_own_partitioners_have_counterparts(
    java_class: str, partitioner: str, ignore_keys: bool
) -> None:
    producer = parse({"kafka.partitioner.class": java_class}).producer
    assert producer.partitioner == partitioner
    assert producer.partitioner_ignore_keys is ignore_keys


@pytest.mark.parametrize("name", KEYS_WITHOUT_EFFECT)
def test_keys_without_effect_are_accepted_and_told(name: str) -> None:
    assert parse({f"kafka.{name}": "whatever"}).notes == (
        f"option 'kafka.{name}' has no effect: {KEYS_WITHOUT_EFFECT[name]}",
    )


def test_other_options_are_accepted_and_told() -> None:
    assert parse({"numPartitionsOfMine": "x"}).notes == (
        "option 'numpartitionsofmine' is not one of this sink's and has no effect [PKS-OPTION-019]",
    )


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"kafka.compression.type": "LZ4"}, "compression_type", "lz4"),
        ({"kafka.compression.type": "GZIP"}, "compression_type", "gzip"),
        ({"kafka.compression.type": "Zstd"}, "compression_type", "zstd"),
        ({"kafka.acks": "ALL"}, "acks", -1),
        ({"kafka.partitioner": "CRC32"}, "partitioner", "crc32"),
    ],
)
def test_words_are_taken_in_capitals(options: dict[str, str], field: str, value: object) -> None:
    assert getattr(parse(options).producer, field) == value


def test_a_guarantee_in_capitals_is_that_guarantee() -> None:
    options = parse({"delivery.guarantee": "EXACTLY-ONCE", "transactional.id.prefix": "p"})
    assert options.exactly_once is not None
    assert options.notes == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"includeHeaders": "yes"}, "configuration includeheaders: must be true or false"),
        ({"metrics.log": "1"}, "configuration metrics.log: must be true or false"),
        ({"topic.creation.partitions": "0"}, "must be -1 or at least 1"),
        ({"topic.creation.replication.factor": "-2"}, "must be -1 or between 1 and 32767"),
        ({"topic.creation.replication.factor": "32768"}, "must be -1 or between 1 and 32767"),
        ({"transaction.log.replication.factor": "32768"}, "must be between 1 and 32767"),
        (
            {"kafka.buffer.memory": "1099511627777"},
            "Invalid value 1099511627777 for configuration kafka.buffer.memory: "
            "must be between 0 and 1099511627776",
        ),
        ({"kafka.buffer.memory": "-1"}, "kafka.buffer.memory: must be between 0 and"),
        ({"preflight.timeout.ms": "0"}, "must be at least 1"),
        ({"kafka.linger.ms": "soon"}, "Invalid value soon for configuration kafka.linger.ms"),
    ],
)
def test_wrong_values(options: dict[str, str], message: str) -> None:
    assert message in refusal(options)


def test_topic_creation() -> None:
    options = parse(
        {
            "topic.creation.enable": "true",
            "topic.creation.partitions": "6",
            "topic.creation.replication.factor": "3",
            "topic.creation.configs": "retention.ms=1000",
        }
    )
    assert options.producer.topic_creation == TopicCreation(6, 3, (("retention.ms", "1000"),))


def test_topic_creation_has_to_be_enabled() -> None:
    assert parse({"topic.creation.partitions": "6"}).producer.topic_creation is None


def test_wrong_topic_configs_are_refused_even_when_not_enabled() -> None:
    assert "'x' is not name=value" in refusal({"topic.creation.configs": "x"})


def test_hooks_are_loaded_on_the_driver() -> None:
    interceptor, partitioner = f"{HERE}:Recording", f"{HERE}:partition_by_hand"
    options = parse(
        {"interceptors": f"{interceptor}, {interceptor}", "kafka.partitioner": partitioner}
    )
    assert options.interceptors == (interceptor, interceptor)
    assert options.producer.partitioner == partitioner


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("interceptors", "Recording", "'Recording' is not of the form package.module:name"),
        ("interceptors", ":Recording", "is not of the form"),
        ("interceptors", f"{HERE}:", "is not of the form"),
        ("interceptors", "no.such.module:X", "cannot be loaded: No module named 'no'"),
        ("interceptors", f"{HERE}:NotThere", "cannot be loaded: module"),
        ("interceptors", f"{HERE}:SERVERS", "is not callable"),
        ("kafka.partitioner", f"{HERE}:nothing", f"partitioner '{HERE}:nothing' cannot be loaded"),
        ("kafka.partitioner", "sticky", "must be one of default, round-robin"),
    ],
)
def test_hooks_that_cannot_be_had(name: str, value: str, message: str) -> None:
    assert message in refusal({name: value})


@pytest.mark.parametrize("raising", ["helper_of_hook.fail()", "json.loads('')"])
def test_an_error_in_a_module_of_the_user_names_the_innermost_line_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raising: str
) -> None:
    (tmp_path / "helper_of_hook.py").write_text("def fail():\n    raise NameError('x')\n")
    name = "hook_by_json" if "json" in raising else "hook_by_helper"
    (tmp_path / f"{name}.py").write_text(f"import json\nimport helper_of_hook\n{raising}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = (
        f"{name}.py, line 3, in <module>"
        if "json" in raising
        else "helper_of_hook.py, line 2, in fail"
    )
    refused = refusal({"interceptors": f"{name}:X"})
    assert refused.startswith(f"interceptor '{name}:X' cannot be loaded: ")
    assert refused.endswith(f" (file {tmp_path}/{file})")


def test_an_error_in_an_installed_hook_names_its_outermost_line() -> None:
    hook = Hook("the installed hook", packaging.requirements.Requirement)
    with pytest.raises(
        HookError, match=r"requirements\.py, line \d+, in __init__\) \[PKS-HOOK-001\]$"
    ):
        run(hook, lambda result: result, "no requirement =")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Misspelt", "has the method 'on_sned', which the sink never calls. Did you mean 'on_send'?"),
        ("HalfMisspelt", "Did you mean 'on_send'?"),
        ("Nothing", "has neither on_send nor on_acknowledgement: the sink would call nothing"),
        ("TooMany", "on_send takes (arrow_batch: 'object', schema: 'object') -> 'object', but the "
         "sink passes 1 argument, the Arrow batch: missing a required argument: 'schema'"),
        ("TooFew", "on_acknowledgement takes () -> 'None', but the sink passes 1 argument"),
        ("NotAMethod", "on_send is not callable"),
        ("NeedsArgument", "its creation takes (pattern: 'str')"),
        ("SetsAWrongMethod", "on_send takes (), but the sink passes 1 argument"),
    ],
)  # fmt: skip
def test_interceptors_that_no_task_could_call_are_refused(name: str, words: str) -> None:
    refused = refusal({"interceptors": f"{HERE}:{name}"})
    assert refused.startswith(f"interceptor '{HERE}:{name}'")
    assert words in refused


@pytest.mark.parametrize(
    "name", ["Recording", "SetsItsMethods", "make_misspelt", "OnlyOnExecutors"]
)
def test_interceptors_of_any_making_are_accepted(name: str) -> None:
    """The driver cannot judge the last two."""
    assert parse({"interceptors": f"{HERE}:{name}"}).interceptors == (f"{HERE}:{name}",)


def test_only_a_task_calls_a_function_that_makes_an_interceptor_and_checks_its_methods() -> None:
    """The driver parses the options several times in a micro-batch, and the function may be slow."""
    parse({"interceptors": f"{HERE}:make_misspelt"})
    assert made == []
    with pytest.raises(ConfigError, match=r"Did you mean 'on_send'\?"):
        Interceptors([f"{HERE}:make_misspelt"])


def test_options_survive_pickling() -> None:
    """Spark pickles them to the tasks; there they must be what they were."""
    options = parse({"topic": "t", "topic.creation.enable": "true", "kafka.acks": "1"})
    assert pickle.loads(pickle.dumps(options)) == options


EXACTLY_ONCE = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": "orders"}


def test_exactly_once_brings_its_own_defaults() -> None:
    options = parse(EXACTLY_ONCE)
    log_topic = "pykafka-sink-transactions"
    assert options.exactly_once == ("orders", 900_000, log_topic, 3, False, False)
    assert options.producer.transaction_timeout_ms == 900_000
    assert options.producer.enable_idempotence
    assert options.notes == ()


def test_at_least_once_is_the_default_and_has_no_transactions() -> None:
    options = parse({})
    assert options.exactly_once is None
    assert options.producer.transaction_timeout_ms == 60_000


def test_no_guarantee_waits_for_no_acknowledgement_unless_told_to() -> None:
    assert parse({"delivery.guarantee": "none"}).producer.acks == 0
    assert not parse({"delivery.guarantee": "none"}).producer.enable_idempotence
    assert parse({"delivery.guarantee": "none", "kafka.acks": "1"}).producer.acks == 1


def test_exactly_once_takes_what_is_given() -> None:
    given = {
        "kafka.transaction.timeout.ms": "60000",
        "transaction.log.topic": "decisions",
        "transaction.log.replication.factor": "1",
        "checkpointLocation": "/ck/orders",
        "queryName": "orders",
    }
    options = parse({**EXACTLY_ONCE, **given})
    assert options.exactly_once == ("orders", 60_000, "decisions", 1, False, False)
    accepting = parse({**EXACTLY_ONCE, "transaction.log.missing": "accept"}).exactly_once
    assert accepting is not None
    assert accepting.accepts_missing_record
    dropping = parse({**EXACTLY_ONCE, "transaction.replay": "drop"}).exactly_once
    assert dropping is not None
    assert dropping.drops_replays
    assert (options.checkpoint, options.query_name) == ("/ck/orders", "orders")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delivery.guarantee": "exactly-once"}, "needs option 'transactional.id.prefix'"),
        ({**EXACTLY_ONCE, "transactional.id.prefix": ""}, "must not be empty"),
        ({**EXACTLY_ONCE, "kafka.acks": "1"}, "needs kafka.acks=all"),
        ({**EXACTLY_ONCE, "kafka.enable.idempotence": "false"}, "kafka.enable.idempotence=true"),
        ({**EXACTLY_ONCE, "transaction.log.missing": "ignore"}, "refuse, accept"),
        ({**EXACTLY_ONCE, "transaction.replay": "ignore"}, "compare, drop"),
        ({**EXACTLY_ONCE, "write.id": "etl"}, "write.id and write.version belong together"),
        ({**EXACTLY_ONCE, "write.version": "7"}, "write.id and write.version belong together"),
        (
            {**EXACTLY_ONCE, "topic": "d", "transaction.log.topic": "d"},
            "option 'topic' names the decision log, transaction.log.topic = 'd'",
        ),
        (
            {
                **EXACTLY_ONCE,
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "pykafka-sink-transactions",
            },
            "option 'errors.deadletterqueue.topic.name' names the decision log",
        ),
        ({"delivery.guarantee": "twice"}, "at-least-once, exactly-once, none"),
        ({"kafka.transactional.id": "mine"}, "would fence each other"),
    ],
)
def test_what_exactly_once_refuses(given: dict[str, str], message: str) -> None:
    assert message in refusal(given)


def test_options_of_exactly_once_alone_have_no_effect() -> None:
    notes = parse({"transactional.id.prefix": "mine", "transaction.log.topic": "d"}).notes
    assert [note.split(" has no effect")[0] for note in notes] == [
        "option 'transactional.id.prefix'",
        "option 'transaction.log.topic'",
    ]


def test_a_small_buffer_is_rounded_up_as_java_accepts_any() -> None:
    options = parse({"kafka.buffer.memory": " 16384 "})
    assert options.producer.buffer_memory == 65536
    assert [sentence(note) for note in options.notes] == [
        "kafka.buffer.memory=16384 is taken as 65536, what this sink needs"
    ]
    enough = parse({"kafka.buffer.memory": "65536"})
    assert (enough.producer.buffer_memory, enough.notes) == (65536, ())


def test_settings_that_metrics_tell():
    told = effective_settings(parse({"kafka.compression.type": "zstd", "kafka.acks": "-1"}))
    assert told["kafka.compression.zstd.level"] == "3"
    assert told["kafka.acks"] == "all"
    assert told["kafka.batch.size"] == "131072"
    assert told["delivery.guarantee"] == "at-least-once"
    nothing = effective_settings(parse({"delivery.guarantee": "none"}))
    assert (nothing["delivery.guarantee"], nothing["kafka.acks"]) == ("none", "0")
    once = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": "p"}
    assert effective_settings(parse(once))["delivery.guarantee"] == "exactly-once"
    secured = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        'required username="u" password="geheim";',
    }
    assert effective_settings(parse(secured)).keys() == effective_settings(parse()).keys()
    assert effective_settings(parse({"kafka.acks": "1"}))["kafka.acks"] == "1"


@pytest.mark.parametrize(
    ("guarantee", "begins"),
    [
        ("at-least-once", "at-least-once, kafka.acks=all, kafka.enable.idempotence=true"),
        ("none", "delivery.guarantee=none, kafka.acks=0, kafka.enable.idempotence=false"),
    ],
)
def test_what_a_check_tells_first(guarantee: str, begins: str) -> None:
    options = parse({"delivery.guarantee": guarantee})
    first = next(all_checks(options, writes=False, time=SimulatedClock()))
    assert first.text.startswith(begins)
