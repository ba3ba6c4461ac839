"""Spark's options → SinkOptions: what is used, refused with an alternative, or without effect."""

import pickle

import packaging.requirements
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.entry_points import Hook, HookError, RefusedRowsError, refused_rows, run
from spark_kafka_sink.base.errors import ConfigError, sentence
from spark_kafka_sink.config.producer_config import (
    BROKER_DEFAULT,
    TopicCreation,
    parse_topic_configs,
)
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS, MetricsOutputs, TopicLimits
from spark_kafka_sink.config.sink_options import (
    JAVA_CLASS_KEYS,
    KEYS_WITHOUT_EFFECT,
    SinkOptions,
    effective_settings,
    with_query_name,
)
from spark_kafka_sink.spark.dead_letters import max_letter_bytes
from spark_kafka_sink.spark.task import Interceptors
from spark_kafka_sink.tools.check_cluster import all_checks
from tests.tables import each_row
from tests.unit.simulated_time import SimulatedClock

SERVERS = {"kafka.bootstrap.servers": "b:9092"}


class Recording:
    """Loadable as an interceptor."""

    def on_send(self, arrow_batch):
        return arrow_batch


class Misspelt:
    def on_sned(self, arrow_batch):
        return arrow_batch


class HalfMisspelt(Misspelt):
    def on_acknowledgement(self, summary):
        pass


class Nothing:
    def mask(self, arrow_batch):
        return arrow_batch


class TooMany:
    def on_send(self, arrow_batch, schema):
        return arrow_batch


class TooFew:
    @staticmethod
    def on_acknowledgement():
        pass


class NotAMethod:
    on_send = "upper"


class NeedsArgument(Recording):
    def __init__(self, pattern):
        self.pattern = pattern


class SetsItsMethods:
    """The methods are attributes of the object alone, which cannot be seen in the class."""

    def __init__(self):
        self.on_send = lambda arrow_batch: arrow_batch


class SetsAWrongMethod:
    def __init__(self):
        self.on_send = lambda: None


def make_misspelt():
    made.append("misspelt")
    return Misspelt()


made = []


class OnlyOnExecutors:
    def __init__(self):
        raise FileNotFoundError("/opt/executor/model")


def partition_by_hand(keys, values, partitions_count):
    """Loadable as a partitioner."""


HERE = __name__


def parse(options=None, /):
    return SinkOptions.parse({**SERVERS, **(options or {})})


def refusal(options):
    with pytest.raises(ConfigError) as raised:
        parse(options)
    return sentence(raised.value)


def test_defaults():
    options = parse()
    assert options.topic is None
    assert options.interceptors == ()
    assert options.metrics_log
    assert options.metrics == MetricsOutputs()
    assert options.notes == ()
    assert options.producer.topic_creation is None
    assert options.producer.bootstrap_servers == (("b", 9092),)


def test_names_are_not_case_sensitive_and_values_are():
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


def test_every_own_option_is_lower_case():
    """Names are looked up in lower case: any other spelling in the table could never be set."""
    assert all(name == name.lower() for name in SINK_OPTIONS.keys)
    assert all(name == name.lower() for name in [*JAVA_CLASS_KEYS, *KEYS_WITHOUT_EFFECT])


def test_bootstrap_servers_are_asked_for_in_the_jvm_sinks_words():
    with pytest.raises(ConfigError) as raised:
        SinkOptions.parse({"topic": "t"})
    assert sentence(raised.value) == (
        "Option 'kafka.bootstrap.servers' must be specified for writing to Kafka, as host:port."
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [("kafka.key.serializer", "keys are"), ("kafka.value.serializer", "value are")],
)
def test_serializers_are_refused_in_the_jvm_sinks_words(name, what):
    message = f"Kafka option '{name}' is not supported as {what} serialized with"
    assert refusal({name: "x"}) == f"{message} ByteArraySerializer."


@pytest.mark.parametrize("name", JAVA_CLASS_KEYS)
def test_java_classes_are_refused_with_an_alternative(name):
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
def test_kafkas_own_partitioners_have_counterparts(java_class, partitioner, ignore_keys):
    producer = parse({"kafka.partitioner.class": java_class}).producer
    assert producer.partitioner == partitioner
    assert producer.partitioner_ignore_keys is ignore_keys


# Others may restrict, and are refused: tests/unit/test_security_options.py.
OF_THE_JDK = {"ssl.provider": "SunJSSE", "ssl.trustmanager.algorithm": "SunX509"}


@each_row("name", KEYS_WITHOUT_EFFECT)
def test_keys_without_effect_are_accepted_and_told(name):
    assert parse({f"kafka.{name}": OF_THE_JDK.get(name, "whatever")}).notes == (
        f"option 'kafka.{name}' has no effect: {KEYS_WITHOUT_EFFECT[name]}",
    )


def test_other_options_are_accepted_and_told():
    assert parse({"numPartitionsOfMine": "x"}).notes == (
        "option 'numpartitionsofmine' is not one of this sink's and has no effect [PKS-OPTION-019]",
    )


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"kafka.metadata.recovery.strategy": "None"}, "metadata_recovery_strategy", "none"),
        ({"kafka.partitioner": "CRC32"}, "partitioner", "crc32"),
    ],
)
def test_words_are_taken_in_capitals(options, field, value):
    assert getattr(parse(options).producer, field) == value


def test_a_guarantee_in_capitals_is_that_guarantee():
    options = parse({"delivery.guarantee": "EXACTLY-ONCE", "transactional.id.prefix": "p"})
    assert options.exactly_once is not None
    assert options.notes == ()


@each_row(
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
def test_wrong_values(options, message):
    assert message in refusal(options)


def test_topic_creation():
    options = parse(
        {
            "topic.creation.enable": "true",
            "topic.creation.partitions": "6",
            "topic.creation.replication.factor": "3",
            "topic.creation.configs": "retention.ms=1000",
        }
    )
    assert options.producer.topic_creation == TopicCreation(6, 3, (("retention.ms", "1000"),))


def test_topic_creation_has_to_be_enabled():
    assert parse({"topic.creation.partitions": "6"}).producer.topic_creation is None


def test_wrong_topic_configs_are_refused_even_when_not_enabled():
    assert "'x' is not name=value" in refusal({"topic.creation.configs": "x"})


def test_hooks_are_loaded_on_the_driver():
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
def test_hooks_that_cannot_be_had(name, value, message):
    assert message in refusal({name: value})


@pytest.mark.parametrize("raising", ["helper_of_hook.fail()", "json.loads('')"])
def test_an_error_in_a_module_of_the_user_names_the_innermost_line_of_their_own(
    tmp_path, monkeypatch, raising
):
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


def test_an_error_in_an_installed_hook_names_its_outermost_line():
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
        ("TooMany", "on_send takes (arrow_batch, schema), but the "
         "sink passes 1 argument, the Arrow batch: missing a required argument: 'schema'"),
        ("TooFew", "on_acknowledgement takes (), but the sink passes 1 argument"),
        ("NotAMethod", "on_send is not callable"),
        ("NeedsArgument", "its creation takes (pattern)"),
        ("SetsAWrongMethod", "on_send takes (), but the sink passes 1 argument"),
    ],
)  # fmt: skip
def test_interceptors_that_no_task_could_call_are_refused(name, words):
    refused = refusal({"interceptors": f"{HERE}:{name}"})
    assert refused.startswith(f"interceptor '{HERE}:{name}'")
    assert words in refused


@pytest.mark.parametrize(
    "name", ["Recording", "SetsItsMethods", "make_misspelt", "OnlyOnExecutors"]
)
def test_interceptors_of_any_making_are_accepted(name):
    """The driver cannot judge the last two."""
    assert parse({"interceptors": f"{HERE}:{name}"}).interceptors == (f"{HERE}:{name}",)


def test_only_a_task_calls_a_function_that_makes_an_interceptor_and_checks_its_methods():
    """The driver parses the options several times in a micro-batch, and the function may be slow."""
    parse({"interceptors": f"{HERE}:make_misspelt"})
    assert made == []
    with pytest.raises(ConfigError, match=r"Did you mean 'on_send'\?"):
        Interceptors([f"{HERE}:make_misspelt"])


def test_options_survive_pickling():
    """Spark pickles them to the tasks; there they must be what they were."""
    options = parse({"topic": "t", "topic.creation.enable": "true", "kafka.acks": "1"})
    assert pickle.loads(pickle.dumps(options)) == options


EXACTLY_ONCE = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": "orders"}


def test_exactly_once_brings_its_own_defaults():
    options = parse(EXACTLY_ONCE)
    log_topic = "pykafka-sink-transactions"
    assert options.exactly_once == ("orders", 900_000, log_topic, 3, False, False, False)
    assert options.producer.transaction_timeout_ms == 900_000
    assert options.producer.enable_idempotence
    assert options.notes == ()


def test_at_least_once_is_the_default_and_has_no_transactions():
    options = parse({})
    assert options.exactly_once is None
    assert options.producer.transaction_timeout_ms == 60_000


def test_no_guarantee_waits_for_no_acknowledgement_unless_told_to():
    assert parse({"delivery.guarantee": "none"}).producer.acks == 0
    assert not parse({"delivery.guarantee": "none"}).producer.enable_idempotence
    assert parse({"delivery.guarantee": "none", "kafka.acks": "1"}).producer.acks == 1


def test_exactly_once_takes_what_is_given():
    given = {
        "kafka.transaction.timeout.ms": "60000",
        "transaction.log.topic": "decisions",
        "transaction.log.replication.factor": "1",
        "checkpointLocation": "/ck/orders",
        "queryName": "orders",
    }
    options = parse({**EXACTLY_ONCE, **given})
    assert options.exactly_once == ("orders", 60_000, "decisions", 1, False, False, False)
    for value in ("missing-record", "new-query"):
        accepting = parse({**EXACTLY_ONCE, "transaction.accept": value}).exactly_once
        assert accepting is not None
        assert accepting.accepts_missing_record is (value == "missing-record")
        assert accepting.accepts_new_query is (value == "new-query")
    dropping = parse({**EXACTLY_ONCE, "transaction.replay": "drop"}).exactly_once
    assert dropping is not None
    assert dropping.drops_replays
    assert (options.checkpoint, options.query_name) == ("/ck/orders", "orders")


@each_row(
    ("given", "message"),
    [
        ({"delivery.guarantee": "exactly-once"}, "needs option 'transactional.id.prefix'"),
        ({**EXACTLY_ONCE, "transactional.id.prefix": ""}, "must not be empty"),
        (
            {**EXACTLY_ONCE, "transactional.id.prefix": "a-{Query}"},
            "only {query}, the query's name, is replaced",
        ),
        (
            {**EXACTLY_ONCE, "transactional.id.prefix": "{query}"},
            "begins with {query}: put a name of your own",
        ),
        ({**EXACTLY_ONCE, "transactional.id.prefix": "a\tb"}, "cannot be printed"),
        ({**EXACTLY_ONCE, "kafka.acks": "1"}, "needs kafka.acks=all"),
        ({**EXACTLY_ONCE, "kafka.enable.idempotence": "false"}, "kafka.enable.idempotence=true"),
        ({**EXACTLY_ONCE, "transaction.accept": "accept"}, "nothing, missing-record, new-query"),
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
def test_what_exactly_once_refuses(given, message):
    assert message in refusal(given)


def test_options_of_exactly_once_alone_have_no_effect():
    notes = parse({"transactional.id.prefix": "mine", "transaction.log.topic": "d"}).notes
    assert [note.split(" has no effect")[0] for note in notes] == [
        "option 'transactional.id.prefix'",
        "option 'transaction.log.topic'",
    ]


def test_a_small_buffer_is_rounded_up_as_java_accepts_any():
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
def test_what_a_check_tells_first(guarantee, begins):
    options = parse({"delivery.guarantee": guarantee})
    first = next(all_checks(options, writes=False, time=SimulatedClock()))
    assert first.text.startswith(begins)


@each_row(
    ("text", "pairs"),
    [
        ("", ()),
        (" , ,", ()),
        ("retention.ms=1000", (("retention.ms", "1000"),)),
        ("a=1,b=2", (("a", "1"), ("b", "2"))),
        (" a = 1 , b=2 ,", (("a", "1"), ("b", "2"))),
        ("a=1,,b=2", (("a", "1"), ("b", "2"))),
        ("a=", (("a", ""),)),
        ("a=x=y", (("a", "x=y"),)),
        ("cleanup.policy=compact,delete", (("cleanup.policy", "compact,delete"),)),
        ("cleanup.policy=compact, delete ,a=1", (("cleanup.policy", "compact,delete"), ("a", "1"))),
        ("l=0:1,1:2,2:0", (("l", "0:1,1:2,2:0"),)),
    ],
)
def test_pairs(text, pairs):
    assert parse_topic_configs(text) == pairs


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("retention.ms", "retention.ms"),
        ("retention.ms:1000,a=1", "retention.ms:1000"),
        ("=1", "=1"),
        ("a=1,=2", "=2"),
        ("a=1, = ", "="),
    ],
)
def test_what_is_not_a_pair(text, item):
    with pytest.raises(ConfigError) as raised:
        parse_topic_configs(text)
    assert sentence(raised.value) == f"topic.creation.configs: '{item}' is not name=value"


WORDS = st.text("abc.:-", min_size=1, max_size=6)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), max_size=4))
def test_what_was_joined_is_split_again(configs):
    pairs = tuple((name, ",".join(values)) for name, values in configs)
    assert parse_topic_configs(",".join(f"{name}={value}" for name, value in pairs)) == pairs


def test_defaults_leave_everything_to_the_brokers():
    assert TopicCreation()[:3] == (BROKER_DEFAULT, BROKER_DEFAULT, ())
    assert BROKER_DEFAULT == -1


ALL = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}


def parse_letters(**options):
    return SinkOptions.parse({"kafka.bootstrap.servers": "b:9092", "topic": "t", **options})


def letters(**options):
    found = parse_letters(**ALL, **options).dead_letters
    assert found is not None
    return found


def test_by_default_no_error_is_tolerated():
    options = parse_letters()
    assert options.dead_letters is None
    assert options.notes == ()


def test_defaults_of_dead_letters():
    found = letters()
    assert (found.topic, found.max_ratio, found.max_rows) == ("dead", 0.01, None)
    assert found.has_context_headers
    assert not found.is_logged
    assert found.creation[:3] == (-1, -1, ())
    assert found.data_topic_limits == found.own_topic_limits == TopicLimits(None, False)
    assert parse_letters(**{**ALL, "errors.tolerance": "ALL"}).dead_letters == found


def test_the_topic_is_created_with_its_own_replicas():
    options = {
        "errors.deadletterqueue.topic.replication.factor": "1",
        "topic.creation.partitions": "4",
        "topic.creation.configs": "cleanup.policy=compact",
    }
    assert letters(**options).creation[:3] == (4, 1, ())


def test_rows_never_vanish():
    with pytest.raises(ConfigError, match="rows that cannot be written would vanish"):
        parse_letters(**{"errors.tolerance": "all"})


def test_dead_letters_do_not_go_where_all_rows_go():
    with pytest.raises(ConfigError, match="'t', the topic of all rows"):
        parse_letters(**{**ALL, "errors.deadletterqueue.topic.name": "t"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("errors.tolerance", "some"),
        ("errors.deadletterqueue.max.ratio", "1.5"),
        ("errors.deadletterqueue.max.rows", "-1"),
        ("errors.deadletterqueue.topic.replication.factor", "0"),
        ("errors.deadletterqueue.topic.name", ""),
    ],
)
def test_a_wrong_value_names_the_option(name, value):
    with pytest.raises(ConfigError, match=name):
        parse_letters(**{**ALL, name: value})


def test_without_a_tolerance_the_other_options_have_no_effect():
    notes = parse_letters(**{"errors.deadletterqueue.topic.name": "dead"}).notes
    assert notes == (
        "option 'errors.deadletterqueue.topic.name' has no effect without errors.tolerance=all",
    )


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("errors.log.include.messages", "pykafka-sink dead-letters show"),
        ("errors.retry.timeout", "kafka.delivery.timeout.ms"),
        ("errors.retry.delay.max.ms", "kafka.delivery.timeout.ms"),
    ],
)
def test_what_kafka_connect_has_besides_is_told(name, instead):
    [note] = parse_letters(**{**ALL, name: "1"}).notes
    assert note.startswith(f"option '{name}' of Kafka Connect has no effect here: ")
    assert instead in note


def test_a_typing_error_is_refused():
    with pytest.raises(ConfigError, match=r"errors\.tolerance"):
        parse_letters(**{"errors.tolerence": "all"})


def test_a_dead_letter_fits_where_it_goes():
    config = letters()
    assert max_letter_bytes(config, parse_letters().producer) == 1_048_576 - 61
    own = config._replace(own_topic_limits=TopicLimits(max_message_bytes=10_061))
    assert max_letter_bytes(own, parse_letters().producer) == 10_000
    zstd = parse_letters(**{"kafka.compression.type": "zstd"}).producer
    assert max_letter_bytes(own, zstd) == 10_000 - 156 - 64


# --- rows that the user's own code refuses ----------------------------------------------------


def test_refused_rows_can_be_pickled():
    error = pickle.loads(pickle.dumps(RefusedRowsError({3: "no id"})))
    assert error.rows == {3: "no id"}
    assert str(error) == "1 row(s) refused: row 3: no id [PKS-ROW-008]"


def test_the_message_names_a_few_rows():
    text = str(RefusedRowsError(dict.fromkeys(range(1000), "bad")))
    assert text == "1000 row(s) refused: row 0: bad; row 1: bad; row 2: bad [PKS-ROW-008]"


@pytest.mark.parametrize(
    ("rows", "wrong"), [({}, "no row"), ({1: "x", 5: "y"}, "row 5; there are 5"), ({-1: "x"}, "-1")]
)
def test_rows_that_were_not_given_cannot_be_refused(rows, wrong):
    hook = Hook("on_send of interceptor 'a:B'", print)
    with pytest.raises(HookError, match=wrong):
        refused_rows(hook, RefusedRowsError(rows), 5)


def test_refused_rows_are_in_order():
    hook = Hook("partitioner 'a:b'", print)
    assert [*refused_rows(hook, RefusedRowsError({4: "x", 0: "y"}), 5)] == [0, 4]


NAMED = {**EXACTLY_ONCE, "transactional.id.prefix": "orders-{query}"}


@pytest.mark.parametrize("name", ["late", "a.b", "{query}", "späte Züge", "<b>'x'</b>"])
def test_the_prefix_gets_the_name_of_the_query(name):
    options = with_query_name(parse(NAMED), name, "")
    assert options.exactly_once.prefix == f"orders-{name}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, "needs the name of a query, and here is none"),
        ("", "needs the name of a query, and here is none"),
        ("two\nlines", r"'orders-two\\nlines' has a character that cannot be printed"),
        ("late ", "'orders-late ' begins or ends with a space"),
        ("\ud800", "cannot be printed"),
        ("n" * 32_000, "has 32007 bytes, and Kafka takes 32000"),
    ],
)
def test_a_name_that_no_transactional_id_can_hold(name, words):
    with pytest.raises(ConfigError, match=words):
        with_query_name(parse(NAMED), name, "here is none")


def test_a_rule_of_an_acl_is_for_the_part_before_the_name():
    assert parse(NAMED).exactly_once.first_of_ids == "orders-"
    assert with_query_name(parse(NAMED), "a", "").exactly_once.first_of_ids == "orders-a."
