"""Options and what comes of them, as tables: ``name=value & name=value -> what is expected``.

Expected is, with ``; `` between them:

- ``OPTION-001 topic``: the driver refuses it, with this code and these words;
- ``acks=1``: a field of ``SinkOptions``, of its producer or of that one's security;
- ``note OPTION-019 mode``: a note for the log, ``note -`` for one without a code. No others come.

``<tls>`` is what SHORT says. A row with ``<a|b>`` is a row for each, and ``<>`` is the one of them.
A line that is indented continues the one before. No row shows S3CRET, wherever it is given.
"""

import ast
import functools
import pickle
import re

import pytest

from spark_kafka_sink.base.errors import ConfigError, code_of
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.config_def import REQUIRED
from spark_kafka_sink.config.producer_config import PRODUCER_CONFIG, ProducerConfig
from spark_kafka_sink.config.security_config import (
    SUGGESTED_REGEX,
    clear_secrets,
    for_java_client,
    secrets_shown_by_spark,
    warning_about_shown_secrets,
)
from spark_kafka_sink.config.security_keys import SECRET_KEYS, SECURITY_CONFIG
from spark_kafka_sink.config.sink_keys import SINK_OPTIONS, TopicLimits
from spark_kafka_sink.config.sink_options import (
    KEYS_WITHOUT_EFFECT,
    LIBRDKAFKA_KEYS,
    PASSED_BY_SPARK,
    SinkOptions,
    effective_settings,
    read_command_config,
    with_query_name,
)
from spark_kafka_sink.security.aws import aws_user
from spark_kafka_sink.security.credentials import unresolved_jaas_entry
from spark_kafka_sink.security.security import check as check_login
from spark_kafka_sink.spark.dead_letters import max_letter_bytes
from spark_kafka_sink.spark.task import Interceptors
from spark_kafka_sink.tools.check_cluster import all_checks
from tests.tables import each_row
from tests.unit.simulated_time import SimulatedClock

SERVERS = {"kafka.bootstrap.servers": "b:9092"}
SHORT = {
    "servers": "kafka.bootstrap.servers",
    "protocol": "kafka.security.protocol",
    "mechanism": "kafka.sasl.mechanism",
    "trust": "kafka.ssl.truststore",
    "key": "kafka.ssl.keystore",
    "partitioner": "kafka.partitioner.class=org.apache.kafka.clients.producer",
    "idle time": "kafka.connections.max.idle.ms",
    "delivery": "kafka.delivery.timeout.ms",
    "in flight": "kafka.max.in.flight.requests.per.connection",
    "hosts": "kafka.ssl.endpoint.identification.algorithm",
    "versions": "kafka.ssl.enabled.protocols",
    "jaas": "kafka.sasl.jaas.config",
    "login": "kafka.sasl.login.callback.handler.class",
    "client": "kafka.sasl.client.callback.handler.class",
    "url": "kafka.sasl.oauthbearer.token.endpoint.url",
    "tls": "kafka.security.protocol=SSL",
    "sasl": "kafka.security.protocol=SASL_SSL",
    "plain": "kafka.security.protocol=SASL_SSL & kafka.sasl.mechanism=PLAIN",
    "oauth": "kafka.security.protocol=SASL_SSL & kafka.sasl.mechanism=OAUTHBEARER",
    "aws": "kafka.security.protocol=SASL_SSL & kafka.sasl.mechanism=AWS_MSK_IAM",
    "user": "kafka.sasl.username=alice & kafka.sasl.password=S3CRET",
    "oauth handler": "<java>.oauthbearer.OAuthBearerLoginCallbackHandler",
    "iam": "software.amazon.msk.auth.iam",
    "iam handler": "<iam>.IAMOAuthBearerLoginCallbackHandler",
    "java": "org.apache.kafka.common.security",
    "shade": "|kafkashaded.|shadedmskiam.",
    "plain module": "<java>.plain.PlainLoginModule",
    "scram module": "<java>.scram.ScramLoginModule",
    "in jaas": 'required username="a" password="S3CRET";',
    "created": "topic.creation.enable=true & topic.creation.configs",
    "once": "delivery.guarantee=exactly-once & transactional.id.prefix=orders",
    "dead": "topic=t & errors.tolerance=all & errors.deadletterqueue.topic.name",
    "log": "pykafka-sink-transactions",
    "registry": "topic=t & value.format=avro & schema.registry.url=https://r:1",
    "latest": "<registry> & use.latest.version=true",
    "basic": "schema.registry.basic.auth",
    "bearer": "schema.registry.bearer.auth",
    "issuer": "<bearer>.issuer.endpoint.url=https://i/t & <bearer>.client.id=x & "
    "<bearer>.client.secret=S3CRET",
    "here": __name__,
    "quoted": 'kafka.sasl.username=a"b & kafka.sasl.password=c\\d',
    "quoted in jaas": 'username="a\\"b" password="c\\\\d";',
    "providers": "kafka.config.providers",
    "provider": "org.apache.kafka.common.config.provider",
    "jwt": "kafka.sasl.oauthbearer.jwt",
    "javas": "<providers>=env,file,dir & <providers>.env.class=<provider>.EnvVarConfigProvider & "
    "<providers>.file.class=<provider>.FileConfigProvider & "
    "<providers>.dir.class=<provider>.DirectoryConfigProvider",
    "urls": "metrics.otlp.endpoint|metrics.prometheus.push.url|schema.registry.url|"
    "schema.registry.bearer.auth.issuer.endpoint.url|kafka.sasl.oauthbearer.token.endpoint.url",
}


def rows(text):
    """What a table gives, and what it expects."""
    text = re.sub(r"\n {8,}", " ", re.sub(r"\|\n {8,}", "|", text)).strip("\n ")
    lines = [line for line in text.split("\n    ") if line[0] != "#"]
    split = [line.split(" -> ") for line in lines]
    return [row for given, expected in split for row in _each(given, expected)]


def _each(given, expected):
    match = re.search(r"<([^<>]+)>", given)
    if match is None:
        return [(given, _in_full(expected))]
    ways = (match[1] if "|" in match[1] else SHORT[match[1]]).split("|")
    return [
        row
        for way in ways
        for row in _each(
            f"{given[: match.start()]}{way}{given[match.end() :]}",
            expected.replace("<>", way) if len(ways) > 1 else expected,
        )
    ]


def _in_full(text):
    while found := re.search(r"<([a-z ]+)>", text):
        text = text.replace(found[0], SHORT[found[1]])
    return text


def either(names):
    """Each of them: what a row has between < and >."""
    return "|".join(names.split())


def named(given):
    """The options of a row."""
    pairs = (one.partition("=") for one in given.split(" & "))
    return {name.strip(): value for name, _, value in pairs}


def says(told, expected):
    code, _, words = expected.partition(" ")
    assert (code_of(told) or "-") == code, str(told)
    assert words in str(told)
    assert "S3CRET" not in str(told)


def refused(expected, function, *arguments):
    with pytest.raises(ConfigError) as raised:
        function(*arguments)
    says(raised.value, expected)
    assert raised.value.__cause__ is None or "HOOK" in expected, "it may show the text"


def agrees(found, notes, expected):
    """Compare notes and fields with all that a row expects; ``taken`` expects no more."""
    parts = [part for part in expected.split("; ") if part != "taken"]
    said = [part.removeprefix("note ") for part in parts if part.startswith("note ")]
    assert len(notes) == len(said), notes
    for told, one in zip(notes, said):
        says(told, one)
    for part in parts:
        if not part.startswith("note "):
            path, _, value = part.partition("=")
            assert field(found, path) == literal(value), part


def field(found, path):
    """What is at a path from the options, from their producer or from its security."""
    places = [found, getattr(found, "producer", None) or found.security]
    places.append(getattr(places[1], "security", None))
    names = path.split(".")
    value = next(one for one in places if hasattr(one, names[0]))
    for name in names:
        value = getattr(value, name)
    return value.reveal() if isinstance(value, Secret) else value


def literal(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse(given):
    return SinkOptions.parse({**SERVERS, **named(given)})


def parse_and_check(given):
    """What the driver does with options before it connects."""
    sasl = parse(given).producer.security.sasl
    if sasl is not None:
        check_login(sasl)


# --- Java's table --------------------------------------------------------------------------------

# Names with default, lowest and highest value, by types: all that ProducerConfig.configDef() of
# kafka-clients 4.4.0 lists and that has an effect here.
JAVA = """
boolean: enable.idempotence=True enable.metrics.push=True metadata.cluster.check.enable=True
    partitioner.adaptive.partitioning.enable=True partitioner.ignore.keys=False
    partitioner.rack.aware=False sasl.oauthbearer.header.urlencode=False
    sasl.oauthbearer.assertion.claim.jti.include=False
class: sasl.client.callback.handler.class=None sasl.login.callback.handler.class=None
    sasl.login.class=None ssl.engine.factory.class=None
    sasl.oauthbearer.jwt.retriever.class=DefaultJwtRetriever
    sasl.oauthbearer.jwt.validator.class=DefaultJwtValidator
double: sasl.login.refresh.window.jitter=0.05|0.0|0.25 sasl.login.refresh.window.factor=0.8|0.5|1.0
int: sasl.login.connect.timeout.ms=None|1 sasl.login.read.timeout.ms=None|1
    compression.gzip.level=-1|-1|9 compression.zstd.level=3|-131072|22
    max.in.flight.requests.per.connection=5|1 compression.lz4.level=9|1|17
    sasl.oauthbearer.assertion.claim.nbf.seconds=60|0|3600
    sasl.oauthbearer.assertion.claim.exp.seconds=300|0|86400 batch.size=16384|0
    request.timeout.ms=30000|0 receive.buffer.bytes=32768|-1 transaction.timeout.ms=60000|1
    delivery.timeout.ms=120000|0 send.buffer.bytes=131072|-1 max.request.size=1048576|0
    retries=2147483647|0
list: ssl.cipher.suites=[] ssl.enabled.protocols=['TLSv1.2','TLSv1.3']
long: partitioner.availability.timeout.ms=0|0 linger.ms=5|0 reconnect.backoff.ms=50|0
    retry.backoff.ms=100|0 sasl.login.retry.backoff.ms=100|0 reconnect.backoff.max.ms=1000|0
    retry.backoff.max.ms=1000|0 sasl.login.retry.backoff.max.ms=10000|0
    socket.connection.setup.timeout.ms=10000|1 socket.connection.setup.timeout.max.ms=30000|1
    max.block.ms=60000|0 sasl.kerberos.min.time.before.relogin=60000|0 metadata.max.age.ms=300000|0
    metadata.recovery.rebootstrap.trigger.ms=300000|0 metadata.max.idle.ms=300000|5000
    connections.max.idle.ms=540000 buffer.memory=33554432|0|1099511627776
password: sasl.jaas.config=None sasl.oauthbearer.assertion.private.key.passphrase=None
    ssl.key.password=None sasl.oauthbearer.client.credentials.client.secret=None
    ssl.keystore.certificate.chain=None ssl.keystore.key=None ssl.keystore.password=None
    ssl.truststore.password=None ssl.truststore.certificates=None
short: sasl.login.refresh.min.period.seconds=60|0|900 sasl.login.refresh.buffer.seconds=300|0|3600
string: sasl.kerberos.service.name=None sasl.oauthbearer.assertion.claim.aud=None
    sasl.oauthbearer.assertion.claim.iss=None sasl.oauthbearer.assertion.claim.sub=None
    sasl.oauthbearer.assertion.file=None sasl.oauthbearer.assertion.private.key.file=None
    sasl.oauthbearer.assertion.template.file=None sasl.oauthbearer.client.credentials.client.id=None
    sasl.oauthbearer.scope=None sasl.oauthbearer.token.endpoint.url=None ssl.keystore.location=None
    ssl.truststore.location=None client.rack="" sasl.mechanism=GSSAPI ssl.keystore.type=JKS
    ssl.truststore.type=JKS security.protocol=PLAINTEXT sasl.oauthbearer.assertion.algorithm=RS256
    ssl.protocol=TLSv1.3 acks=all ssl.endpoint.identification.algorithm=https compression.type=none
    metadata.recovery.strategy=rebootstrap sasl.oauthbearer.scope.claim.name=scope
    sasl.oauthbearer.sub.claim.name=sub client.dns.lookup=use_all_dns_ips
"""
OURS = {
    *("bootstrap.servers", "client.id", "partitioner", "allow.auto.create.topics"),
    *("sasl.username", "sasl.password", "sasl.oauthbearer.token.provider"),
}
KEYS = {**PRODUCER_CONFIG.keys, **SECURITY_CONFIG.keys}
JAVAS_KEYS = [
    (name, kind, [literal(value) for value in values.split("|")])
    for kind, _, text in (line.partition(": ") for line in re.split(r"\n(?! )", JAVA.strip()))
    for name, _, values in (one.partition("=") for one in text.split())
]


@each_row(("name", "kind", "values"), JAVAS_KEYS)
def test_types_defaults_and_bounds_are_javas_or_the_difference_is_told(name, kind, values):
    key, (default, *bounds) = KEYS[name], values
    assert key.type == kind
    assert key.default == default or (key.java_default == str(default) and key.difference)
    step = 0.01 if kind == "double" else 1
    for bound, beyond in zip(bounds, (-step, step)):
        assert key.parse(str(bound)) == bound
        refused(f"OPTION-003 kafka.{name}", key.parse, str(bound + beyond))


def test_the_tables_of_keys():
    assert KEYS.keys() == {name for name, *_ in JAVAS_KEYS} | OURS
    consumers = {"group.id", "auto.offset.reset", "key.deserializer", "share.acquire.mode"}
    assert {*consumers, "auto.include.jmx.reporter", "ssl.provider"} < KEYS_WITHOUT_EFFECT.keys()
    assert KEYS["bootstrap.servers"].default is REQUIRED
    assert KEYS["client.id"].java_default == "producer-N"
    kept = {name for name, key in KEYS.items() if key.type == "password"}
    assert kept - {"ssl.truststore.certificates", "ssl.keystore.certificate.chain"} == SECRET_KEYS
    for key in KEYS.values():
        assert (key.doc[-1], key.when[-1]) == (".", ".")
        assert key.java_default is None or key.difference
        if key.default not in (None, REQUIRED) and key.validator is not None:
            assert key.validator(key.default) is None
        if key.type != "string":
            assert key.takes_references == (key.type == "password"), "every one, and no number"
    names = [*KEYS, *SINK_OPTIONS.keys, *KEYS_WITHOUT_EFFECT]
    assert names == [name.lower() for name in names], "any other spelling could never be set"


# --- names ---------------------------------------------------------------------------------------

# Of Java's producers, consumers and admin clients.
SHORT["idle"] = "|".join(
    KEYS_WITHOUT_EFFECT.keys() - {"ssl.provider", "ssl.trustmanager.algorithm"}
)
# Of Spark's other sinks and sources, and of libraries beside it: one set of options for all.
SHORT["foreign"] = either("""
    assign client.timeout.ms collection compression connection.uri database dbtable driver encoding
    endingoffsets endingoffsetsbytimestamp endingtimestamp es.nodes failondataloss
    fetchoffset.numretries fetchoffset.retryintervalms fetchsize groupidprefix header isolationlevel
    kafkaconsumer.polltimeoutms keyspace maxfilespertrigger maxoffsetspertrigger maxrecordsperfile
    maxrecordsperpartition maxtriggerdelay mergeschema minoffsetspertrigger minpartitions mode name
    numpartitions partitioncolumn partitionoverwritemode provider querytimeout replacewhere
    rowspersecond startingoffsets startingoffsetsbytimestamp startingoffsetsbytimestampstrategy
    startingtimestamp subscribe subscribepattern table truncate txnappid txnversion url write-format
""")
SHORT["passed"] = "|".join(PASSED_BY_SPARK)
NEAR = rows("""
    <delivery.guarante|deliveryGuarantee|delivery>=x -> OPTION-001 mean 'delivery.guarantee'?
    acks=x -> OPTION-001 mean 'kafka.acks'?
    <kafka.batchsize|batchsize>=x -> OPTION-001 mean 'kafka.batch.size'?
    <kafka.bootstrap.server|bootstrap.servers|bootstrap.server>=x ->
        OPTION-001 mean 'kafka.bootstrap.servers'?
    <kafka.Linger_MS|linger.ms|kafkalinger.ms>=x -> OPTION-001 mean 'kafka.linger.ms'?
    partitions=x -> OPTION-001 mean 'kafka.partitioner'?
    <kafka.sasl.jaas.conf|sasl.jaas.config>=x -> OPTION-001 mean 'kafka.sasl.jaas.config'?
    <kafka.security.protocoll|security.protocol>=x -> OPTION-001 mean 'kafka.security.protocol'?
    key.json.ignoreNulls=x -> OPTION-001 mean 'key.json.ignoreNullFields'?
    metrics=x -> OPTION-001 mean 'metrics.log'?
    <schema.registry.uri|kafka.schema.registry.url|kafka.value.schema.registry.url>=x ->
        OPTION-001 mean 'schema.registry.url'?
    schema.registry.basic.auth.user=x -> OPTION-001 'schema.registry.basic.auth.user.info'
    <topc|topics|kafka.topic>=x -> OPTION-001 mean 'topic'?
    <transactional.id.prefx|transactional.id>=x -> OPTION-001 mean 'transactional.id.prefix'?
    <kafka.value.format|value.formatt>=x -> OPTION-001 mean 'value.format'?
""")
LIBRDKAFKAS = [
    (f"kafka.{name}=S3CRET", f"OPTION-007 Instead: {instead}")
    for name, instead in LIBRDKAFKA_KEYS.items()
]
NAMES = rows("""
    kafka.<idle>=45000 -> note - 'kafka.<>' has no effect
    kafka.ssl.<provider=SunJSSE|trustmanager.algorithm=SunX509> -> note - there is no JVM
    # They may restrict: no value but the JDK's own is ignored.
    kafka.<ssl.provider|ssl.trustmanager.algorithm>=Pinned -> OPTION-006 kafka.<>
    <checkpointLocation|queryName>=x -> taken
    <passed>=x -> taken
    <passed>=x & value.format=json & key.format=json & key.columns=a -> taken
    <foreign>=x -> note OPTION-019 '<>'
    <foreign>=x & value.format=json & key.format=json & key.columns=a -> note OPTION-019 '<>'
    <key.serializer|key.deserializer|value.serializer|value.deserializer>=x -> note OPTION-019 '<>'
    numPartitionsOfMine=x -> note OPTION-019 'numpartitionsofmine'
    # Others' names of options of rows, in either part; where rows are made they would be missed.
    timeZone=x & key.format=json & key.columns=a -> OPTION-001 'key.json.timeZone'
    schema.id=x & key.format=json & key.columns=a -> OPTION-001 'key.use.schema.id'
    kafka.zzz=1 -> OPTION-001 See docs/options.md
    <value.zzzzzzzz|value.serialiser|key.serializers>=x -> OPTION-001 '<>'
    # Of brokers, of other tools, and of former versions.
    kafka.sasl.enabled.mechanisms=x -> OPTION-001 Instead: kafka.sasl.mechanism
    kafka.ssl.keystore=x -> OPTION-001 Instead: kafka.ssl.keystore.location
    <kafka.ssl.ca.cert|kafka.ssl.cafile|kafka.ssl.ca.locaton|ssl.ca.location>=x ->
        OPTION-001 Instead: kafka.ssl.truststore.location
    kafka.ssl.truststore<|.path>=x -> OPTION-001 Instead: kafka.ssl.truststore.location
    max.records.per.second=1 -> OPTION-001 Instead: max.bytes.per.second.per.task
    transaction.log.missing=1 -> OPTION-001 Instead: transaction.accept
    pause.path=1 -> OPTION-001 stop it
    transaction.log.min.isr=1 -> OPTION-001 min.insync.replicas
    databricks.serviceCredential<|.scope>=msk -> OPTION-017 docs security
    kafka.<key.serializer|value.serializer>=x -> OPTION-015 ByteArraySerializer
    kafka.transactional.id=mine -> OPTION-015 fence
    kafka.<partitioner.class|interceptor.classes|metric.reporters|security.providers>=a.B ->
        OPTION-006 'kafka.<>'
    # Templates leave lists empty. An empty class is refused, in Java, too.
    kafka.<interceptor.classes|metric.reporters|security.providers>=< ,|> -> taken
    kafka.<partitioner|sasl.login|ssl.engine.factory>.class=  -> OPTION-003 is empty
    kafka.sasl.<login|client>.callback.handler.class=  -> OPTION-003 is empty
""")
# What Spark's functions and Confluent's serializers call them, and the sink does.
OF_ROWS = """
key.json.timestampFormat: key.timestampFormat
schema.registry.basic.auth.credentials.source: basic.auth.credentials.source
schema.registry.basic.auth.user.info: basic.auth.user.info
schema.registry.url: value.schema.registry.url registry.url value.converter.schema.registry.url
use.latest.version: use.latest.schema
use.schema.id: schema.id
value.avro.schema: avroSchema avro.schema
value.columns: columns
value.format: format
value.json.ignoreNullFields: ignoreNullFields json.ignoreNullFields
value.json.timeZone: timeZone
value.json.timestampFormat: timestampFormat value.timestampFormat json.timestampFormat
value.protobuf.descriptor.file: descFilePath
value.protobuf.message: protobuf.message messageName
value.subject.name.strategy: subject.name.strategy
"""
OTHERS_NAMES = [
    (name, near)
    for near, _, names in (line.partition(":") for line in OF_ROWS.strip().splitlines())
    for name in names.split()
]


@each_row(("name", "near"), OTHERS_NAMES)
def test_others_names_of_options_are_refused_where_rows_are_made(name, near):
    assert near.lower() in SINK_OPTIONS.keys
    refused(f"OPTION-001 mean '{near}'?", parse, f"{name}=x & value.format=json")
    if name.startswith(("value.", "key.")):
        refused(f"OPTION-001 mean '{near}'?", parse, f"{name}=x")
    else:
        agrees(None, parse(f"{name}=x").notes, f"note OPTION-019 '{name.lower()}'")


@each_row(("given", "expected"), [("topic=t", "OPTION-004 kafka.bootstrap.servers"), *NEAR])
def test_names_come_first(given, expected):
    """The answer to a wrong name would not help if something else were asked for before it."""
    refused(expected, SinkOptions.parse, named(given))
    refused("OPTION-004 kafka.bootstrap.servers", ProducerConfig.parse, {})
    refused("OPTION-001 'kafka.linger.ms'", ProducerConfig.parse, {"lingerms": "1"})


# --- values --------------------------------------------------------------------------------------

PRODUCER = rows(
    """
    topic=t -> topic=t; interceptors=(); metrics_log=True; metrics.otlp=None; topic_creation=None;
        exactly_once=None; dead_letters=None; formats=None; bootstrap_servers=(('b', 9092),);
        acks=-1; enable_idempotence=True; delivery_timeout_ms=120000; transaction_timeout_ms=60000
    TOPIC=Flights & KAFKA.Compression.TYPE=zstd & includeHeaders=TRUE & Metrics.Path=/T/M ->
        topic=Flights; compression_type=zstd; metrics.path=/T/M
    # Addresses. A protocol before one is ignored, as in Java.
    <servers>=a:1,b-1.org:65535 -> bootstrap_servers=(('a', 1), ('b-1.org', 65535))
    <servers>=<['a:1', 'b:2']|("a:1",)> -> OPTION-002 commas
    <servers>= a:1 ,\tb:2,,a:1, -> bootstrap_servers=(('a', 1), ('b', 2))
    <servers>=[::1]:09092 -> bootstrap_servers=(('::1', 9092),)
    <servers>=[fe80::1%eth0]:2 -> bootstrap_servers=(('fe80::1%eth0', 2),)
    <servers>=my-listener.1://a:1 -> bootstrap_servers=(('a', 1),)
    <servers>=SSL://[::1]:9,ssl://c:9 -> bootstrap_servers=(('::1', 9), ('c', 9));
        note - SSL before an address
    <servers>=SASL_SSL://b:9,ssl://c:9 -> note - SASL_SSL and SSL before
    <servers>=SSL://b:9,ssl://c:9 & <tls> -> taken
    <servers>=<| , > -> OPTION-010 names no broker
    <servers>=<broker1|a:1,broker1> -> OPTION-010 write broker1:9092
    <servers>=<[::1]|SSL://a> -> OPTION-010 the port is missing
    <servers>=<::1:9092|fe80::1|SSL://::1:1> -> OPTION-010 in brackets
    <servers>=<:9092|SSL://:1> -> OPTION-010 the host is missing
    <servers>=<a:|a:port|a:-1|a:٣> -> OPTION-010 the port must be a number
    <servers>=<a:0|a:65536> -> OPTION-010 '<>' has a port outside
    <servers>=<SSL://a:9/chroot|a:9/chroot|a://b://c:1> -> OPTION-010 no path
    <servers>=<a:1;b:2|a:1 b:2|a b:1> -> OPTION-010 with commas
    kafka.enable.metrics.push=< FALSE |False> -> enable_metrics_push=False
    <includeHeaders|metrics.log|kafka.enable.metrics.push>=<|yes|1> -> OPTION-002 true or false
    kafka.linger.ms= <42|+42|0042>  -> linger_ms=42
    <idle time>=<9223372036854775807|-9223372036854775808> -> connections_max_idle_ms=<>
    kafka.linger.ms=<|1.0|1e3|0x10|five|1_000> -> OPTION-002 whole
    kafka.linger.ms=<128k|1.5 s> -> OPTION-002 unit
    kafka.linger.ms=<9223372036854775808|-9223372036854775809> -> OPTION-002 9223372036854775807
    kafka.retries=2147483647 -> retries=2147483647
    kafka.retries=<2147483648|-2147483649|<long>> -> OPTION-002 2147483647
    kafka.sasl.login.refresh.buffer.seconds=<32768|-32769> -> OPTION-002 32767
    kafka.sasl.login.refresh.window.factor=<0,8|NaN|> -> OPTION-002 number
    kafka.client.id=<| >text<| > -> client_id=text
    kafka.client.id= -> client_id=
    interceptors= , -> interceptors=()
    kafka.acks=<0|1|-1> -> acks=<>
    kafka.metadata.recovery.strategy=NONE -> metadata_recovery_strategy=none
    kafka.compression.type=<ZSTD|brotli|> -> OPTION-003 one of none, gzip, snappy, lz4, zstd
    kafka.compression.gzip.level=1 -> compression_level=None
    kafka.compression.gzip.level=1 & kafka.compression.type=gzip -> compression_level=1
    kafka.compression.lz4.level=12 & kafka.compression.type=lz4 -> compression_level=12
    kafka.compression.zstd.level=-5 & kafka.compression.type=zstd -> compression_level=-5
    kafka.compression.gzip.level=<0|10|-2> -> OPTION-003 -1 or between 1 and 9
    # Rules across keys.
    <kafka.acks=1|kafka.retries=0|kafka.acks=1 & kafka.enable.idempotence=false> ->
        enable_idempotence=False
    kafka.enable.idempotence=true & kafka.retries=0 -> OPTION-011 kafka.retries
    kafka.enable.idempotence=true & kafka.acks=1 -> OPTION-011 kafka.acks
    <in flight>=6 -> OPTION-011 value is 6. Lower it, or set kafka.enable.idempotence=false
    <in flight>=6 & kafka.enable.idempotence=false -> max_in_flight_requests_per_connection=6
    kafka.request.timeout.ms=130000 -> delivery_timeout_ms=130005
    <delivery>=110 & kafka.linger.ms=10 & kafka.request.timeout.ms=100 -> delivery_timeout_ms=110
    <delivery>=109 & kafka.linger.ms=10 & kafka.request.timeout.ms=100 -> OPTION-012 linger.ms
    kafka.linger.ms=1099511627776 -> delivery_timeout_ms=2147483647
    kafka.linger.ms=1099511627776 & <delivery>=2147483647 -> taken
    # As CommonClientConfigs.postProcessReconnectBackoffConfigs: it was set to be just that.
    kafka.reconnect.backoff.ms=<200|5000> -> reconnect_backoff_max_ms=<>
    kafka.reconnect.backoff.ms=2 & kafka.reconnect.backoff.max.ms=9 -> reconnect_backoff_max_ms=9
    kafka.buffer.memory= 16384  -> buffer_memory=65536; note OPTION-020 65536
    kafka.buffer.memory=65536 -> buffer_memory=65536
    kafka.partitioner=<round-robin|murmur3> -> partitioner=<>
    kafka.partitioner=CRC32 -> partitioner=crc32
    kafka.partitioner=sticky -> OPTION-003 default, round-robin, murmur3, crc32
    <partitioner>.RoundRobinPartitioner -> partitioner=round-robin; partitioner_ignore_keys=False
    <partitioner>.UniformStickyPartitioner -> partitioner=default; partitioner_ignore_keys=True
    <partitioner>.internals.DefaultPartitioner -> partitioner=default
""".replace("<long>", "9" * 5000)
)

SINK = rows("""
    # Topics that the sink creates.
    topic.creation.partitions=6 -> topic_creation=None
    Topic.Creation.Enable=true -> topic_creation.partitions=-1; topic_creation.configs=();
        topic_creation.replication_factor=-1
    <created>=r.ms=1 & topic.creation.partitions=6 & topic.creation.replication.factor=3 ->
        topic_creation.partitions=6; topic_creation.replication_factor=3
    <created>=<| , ,> -> topic_creation.configs=()
    <created>=< a = 1 , b=2 ,|a=1,,b=2> -> topic_creation.configs=(('a', '1'), ('b', '2'))
    <created>=a= -> topic_creation.configs=(('a', ''),)
    <created>=a=x=y -> topic_creation.configs=(('a', 'x=y'),)
    <created>=p=compact, delete ,a=1 -> topic_creation.configs=(('p', 'compact,delete'), ('a', '1'))
    <created>=l=0:1,1:2,2:0 -> topic_creation.configs=(('l', '0:1,1:2,2:0'),)
    topic.creation.configs=<r.ms|=1|r.ms:1> -> OPTION-003 '<>' is not name=value
    topic.creation.configs=a=1,=2 -> OPTION-003 '=2' is
    topic.creation.configs=a=1, =  -> OPTION-003 '=' is
    topic.creation.partitions=<0|-2> -> OPTION-003 -1 or at least 1
    topic.creation.replication.factor=<-2|0|32768> -> OPTION-003 -1 or between 1 and 32767
    preflight.timeout.ms=0 -> OPTION-003 at least 1
    # Guarantees.
    <once> -> exactly_once=('orders', 900000, '<log>', 3, False, False, False);
        transaction_timeout_ms=900000; decision_log=<log>; exactly_once.first_of_ids=orders.
    delivery.guarantee=EXACTLY-ONCE & transactional.id.prefix=p -> exactly_once.prefix=p
    <once> & kafka.transaction.timeout.ms=60000 & transaction.log.topic=d & queryName=q &
        checkpointLocation=/Ck & transaction.log.replication.factor=1 ->
        exactly_once=('orders', 60000, 'd', 1, False, False, False); exactly_once.log_min_isr=1;
        checkpoint=/Ck; query_name=q
    <once> & transaction.accept=missing-record -> exactly_once.accepts_missing_record=True;
        exactly_once.accepts_new_query=False
    <once> & transaction.accept=new-query -> exactly_once.accepts_missing_record=False;
        exactly_once.accepts_new_query=True
    <once> & transaction.replay=drop -> exactly_once.drops_replays=True
    <once> & write.id=a & write.version=7 -> write_id=a; write_version=7
    <once>-{query} -> exactly_once.first_of_ids=orders-
    delivery.guarantee=none -> acks=0; enable_idempotence=False
    delivery.guarantee=none & kafka.acks=1 -> acks=1
    transactional.id.prefix=mine & transaction.log.topic=d -> exactly_once=None;
        note - 'transactional.id.prefix' has; note - 'transaction.log.topic' has no effect
    delivery.guarantee=twice -> OPTION-003 at-least-once, exactly-once, none
    delivery.guarantee=exactly-once -> TXN-001 transactional.id.prefix
    <once> & transactional.id.prefix= -> OPTION-003 empty
    <once>-{Query} -> TXN-038 brace
    <once> & transactional.id.prefix={query} -> TXN-038 begins with
    <once>\tb -> TXN-038 cannot be printed
    <once> & <kafka.acks=1|kafka.enable.idempotence=false> -> TXN-002 kafka.acks
    <once> & transaction.accept=accept -> OPTION-003 nothing, missing-record, new-query
    <once> & transaction.replay=ignore -> OPTION-003 compare, drop
    <once> & transaction.log.replication.factor=<0|32768> -> OPTION-003 between 1 and 32767
    <once> & <write.id=etl|write.version=7> -> OPTION-008 write.id and write.version
    <once> & topic=d & transaction.log.topic=d -> TXN-003 'topic'
    <once> & <dead>=<log> -> TXN-003 'errors.deadletterqueue.topic.name'
    # Dead letters.
    <dead>=dead & errors.tolerance=ALL -> dead_letters.topic=dead; dead_letters.max_ratio=0.01;
        dead_letters.has_context_headers=True; dead_letters.max_rows=None;
        dead_letters.is_logged=False; dead_letters.data_topic_limits=(None, False);
        dead_letters.creation.partitions=-1; dead_letters.creation.replication_factor=-1
    <dead>=dead & topic.creation.partitions=4 & topic.creation.configs=cleanup.policy=compact &
        errors.deadletterqueue.topic.replication.factor=1 -> dead_letters.creation.partitions=4;
        dead_letters.creation.replication_factor=1; dead_letters.creation.configs=()
    errors.tolerance=all -> DEADLETTER-001 would vanish
    <dead>=t -> DEADLETTER-002 't', the topic of all rows
    <dead>= -> OPTION-003 errors.deadletterqueue.topic.name
    <dead>=dead & errors.tolerance=some -> OPTION-003 errors.tolerance
    <dead>=dead & errors.deadletterqueue.max.ratio=1.5 -> OPTION-003 max.ratio
    <dead>=dead & errors.deadletterqueue.max.rows=-1 -> OPTION-003 max.rows
    <dead>=dead & errors.deadletterqueue.topic.replication.factor=0 -> OPTION-003 factor
    errors.deadletterqueue.topic.name=d -> note - has no effect without errors.tolerance=all
    <dead>=dead & errors.log.include.messages=1 -> note - pykafka-sink dead-letters show
    <dead>=dead & errors.retry.<timeout|delay.max.ms>=1 -> note - kafka.delivery.timeout.ms
""")


# --- users' code ---------------------------------------------------------------------------------


class Good:
    def on_send(self, arrow_batch):
        return arrow_batch


class Sets:
    """The method is an attribute of the object alone, which cannot be seen in the class."""

    def __init__(self, on_send=lambda arrow_batch: arrow_batch):
        self.on_send = on_send


class OnlyOnExecutors:
    def __init__(self):
        raise FileNotFoundError("/opt/executor/model")


def with_log(function):
    """A decorator that passes one argument more than the signature shows."""
    return functools.wraps(function)(lambda self, *given: function(self, *given, "log"))


Decorated = type("Decorated", (), {"on_send": with_log(lambda self, arrow_batch, log: None)})
Named = type("Named", (Good,), {"__init__": lambda self, pattern: None})
SetsWrong = type("SetsWrong", (Sets,), {"__init__": lambda self: Sets.__init__(self, lambda: None)})
Misspelt = type("Misspelt", (), {"on_sned": Good.on_send})
Half = type("Half", (Misspelt,), {"on_acknowledgement": lambda self, summary: None})
Nothing = type("Nothing", (), {"mask": Good.on_send})
TooMany = type("TooMany", (), {"on_send": lambda self, arrow_batch, schema: arrow_batch})
TooFew = type("TooFew", (), {"on_acknowledgement": staticmethod(lambda: None)})
NotAMethod = type("NotAMethod", (), {"on_send": "upper"})
made = []


@functools.wraps(Named)
def make_named():
    return Named("name")


def make_misspelt():
    made.append("misspelt")
    return Misspelt()


def by_hand(keys, values, partitions_count):
    """Loadable as a partitioner."""


HOOKS = rows("""
    interceptors=<here>:Good, <here>:Good -> interceptors=('<here>:Good', '<here>:Good')
    # The driver cannot judge what an interceptor sets itself, nor what a function makes.
    interceptors=<here>:<Sets|make_misspelt|OnlyOnExecutors|Decorated|make_named> ->
        interceptors=('<here>:<>',)
    kafka.partitioner=<here>:by_hand -> partitioner=<here>:by_hand
    interceptors=<Good|:Good|spark_kafka_sink:> -> HOOK-003 '<>' is not of the form
    interceptors=no.such.module:X -> HOOK-003 No module named 'no'
    interceptors=<here>:NotThere -> HOOK-003 cannot be loaded: module
    interceptors=<here>:SERVERS -> HOOK-003 is not callable
    kafka.partitioner=<here>:nothing -> HOOK-003 partitioner
    interceptors=<here>:<Misspelt|Half> -> HOOK-004 mean 'on_send'?
    interceptors=<here>:Nothing -> HOOK-004 neither on_send nor on_acknowledgement
    interceptors=<here>:TooMany -> HOOK-004 takes (arrow_batch, schema), but the sink passes 1
    interceptors=<here>:TooFew -> HOOK-004 on_acknowledgement takes (), but
    interceptors=<here>:NotAMethod -> HOOK-004 on_send is not callable
    interceptors=<here>:Named -> HOOK-004 its creation takes (pattern)
    interceptors=<here>:SetsWrong -> HOOK-004 on_send takes (), but
""")


def test_only_a_task_calls_a_function_that_makes_an_interceptor_and_checks_its_methods():
    """The driver parses options several times in a micro-batch; the function may be slow."""
    parse(f"interceptors={__name__}:make_misspelt")
    assert made == []
    refused("HOOK-004 mean 'on_send'?", Interceptors, [f"{__name__}:make_misspelt"])


# --- security ------------------------------------------------------------------------------------

SECURITY = rows("""
    <protocol>=PLAINTEXT -> security.protocol=PLAINTEXT; ssl=None; sasl=None
    <protocol>=ssl -> security.protocol=SSL; ssl.protocol=TLSv1.3; sasl=None; ssl.cipher_suites=();
        ssl.enabled_protocols=('TLSv1.2', 'TLSv1.3'); ssl.checks_host_name=True
    <protocol>=Sasl_Plaintext -> ssl=None; sasl.mechanism=GSSAPI
    <protocol>=TLS -> OPTION-003 one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
    <protocol>=<PlaintextSasl|PLAINTEXTSASL> -> OPTION-003 SASL_PLAINTEXT: write that
    # TLS.
    <tls> & <key>.location=k.jks & <key>.password=S3CRET & <key>.type=jks &
        kafka.ssl.key.password= S3CRETk  & <trust>.location=/t.p12 & <trust>.password= &
        <trust>.type=pkcs12 & kafka.ssl.cipher.suites=TLS_A,SSL_B_1 ->
        ssl.keystore.location=k.jks; ssl.keystore.password=S3CRET; ssl.keystore.type=JKS;
        ssl.keystore.key_password=S3CRETk; ssl.truststore.location=/t.p12; ssl.truststore.password=;
        ssl.truststore.type=PKCS12; ssl.cipher_suites=('TLS_A', 'SSL_B_1')
    <tls> & <trust>.certificates=ca & <key>.certificate.chain=chain & <key>.key=S3CRET &
        <key>.type=pem -> ssl.truststore.certificates=ca; ssl.keystore.type=PEM;
        ssl.keystore.certificates=chain; ssl.keystore.key=S3CRET; ssl.truststore.location=None;
        note AUTH-001 kafka.ssl.keystore.key:
    # References travel as they are.
    <tls> & <trust>.location=${env:T} & <key>.location=${env:HOME}/k.pem &
        kafka.ssl.key.password=${file:/run/kafka:key.password} -> ssl.truststore.location=${env:T};
        ssl.keystore.location=${env:HOME}/k.pem;
        ssl.keystore.key_password=${file:/run/kafka:key.password}
    <tls> & <key>.type=JKS & <key>.location=${env:A} & <key>.password=x -> taken
    <tls> & <key>.certificate.chain=chain & <key>.key=${env:KEY} -> ssl.keystore.key=${env:KEY}
    <tls> & kafka.ssl.protocol=<TLS|SSL|TLSv1.3> -> ssl.protocol=TLSv1.3
    <tls> & kafka.ssl.protocol=tlsv1.2 -> ssl.protocol=TLSv1.2
    <tls> & kafka.ssl.protocol=TLSv1.3 & <versions>=TLSv1.3 -> ssl.enabled_protocols=('TLSv1.3',)
    <tls> & <versions>=TLSv1.2 -> ssl.enabled_protocols=('TLSv1.2',)
    <tls> & <versions>= -> ssl.enabled_protocols=()
    <tls> & <versions>=TLSv1.3,TLSv1.1,TLSv1 -> ssl.enabled_protocols=('TLSv1.3',);
        note - TLSv1.1, TLSv1 has no effect
    <tls> & <versions>=TLSv1.2,SSLv3,SSLv2Hello -> note - SSLv3, SSLv2Hello has no effect
    <tls> & <hosts>=<none|None> -> ssl.checks_host_name=False; note TLS-002 =none is librdkafka's
    <tls> & <hosts>=  -> ssl.checks_host_name=False; note TLS-002 is empty
    kafka.ssl.protocol=TLSv1.1 -> OPTION-003 one of TLSv1.3, TLSv1.2, TLS, SSL
    <versions>=TLSv1.4 -> OPTION-003 'TLSv1.4' is not one of
    <versions>=TLSv1,TLSv1.1 -> OPTION-003 older
    kafka.ssl.cipher.suites=<ECDHE-RSA-AES256-GCM-SHA384|TLS_A:TLS_B> -> OPTION-003 IANA
    <hosts>=LDAPS -> OPTION-003 https
    <trust>.location= -> OPTION-003 empty
    <trust>.type=BCFKS -> OPTION-003 one of JKS, PKCS12, PEM
    <tls> & <trust>.type=PEM & <trust>.location=f & <trust>.password=x -> TLS-005 <trust>.password
    <tls> & <key>.type=PEM & <key>.location=f & <key>.password=x -> TLS-005 kafka.ssl.key.password
    <tls> & kafka.ssl.<truststore|keystore>.password=x -> OPTION-008 kafka.ssl.<>.location
    <tls> & <trust>.certificates=x & <trust>.type=JKS -> TLS-004 <trust>.type
    <tls> & <trust>.certificates=x & <trust>.location=f -> OPTION-009 <trust>.location
    <tls> & <trust>.certificates=x & <trust>.password=x -> TLS-005 truststore.password out
    <tls> & <key>.key=S3CRET -> OPTION-008 chain is missing
    <tls> & <key>.certificate.chain=x -> OPTION-008 key is missing
    <tls> & <key>.certificate.chain=x & <key>.key=S3CRET & <key>.location=f -> OPTION-009 <key>.key
    <tls> & <key>.location=f & <key>.type=<PKCS12|JKS> -> OPTION-008 <> needs
    <tls> & kafka.ssl.protocol=TLSv1.2 & <versions>=TLSv1.3 -> TLS-003 no version
    # SASL.
    <plain> & <user> -> sasl.mechanism=PLAIN; sasl.username=alice; sasl.password=S3CRET
    <sasl> & <mechanism>=Plain & <user> & <trust>.location=f -> sasl.mechanism=PLAIN
    <sasl> & <mechanism>=scram-sha-256 & <user> -> sasl.mechanism=SCRAM-SHA-256
    <oauth> & <jaas>=S3CRET & <login>=<oauth handler> & <url>=https://idp/token &
        kafka.sasl.login.read.timeout.ms=5000 & kafka.sasl.kerberos.service.name=kafka &
        kafka.sasl.kerberos.min.time.before.relogin=1 & kafka.sasl.oauthbearer.scope=a b &
        kafka.sasl.oauthbearer.client.credentials.client.id=id &
        kafka.sasl.oauthbearer.client.credentials.client.secret=S3CRETs &
        kafka.sasl.oauthbearer.jwt.retriever.class=<java>.oauthbearer.FileJwtRetriever &
        kafka.sasl.oauthbearer.token.provider=a.b:c & kafka.sasl.oauthbearer.header.urlencode=true &
        kafka.sasl.oauthbearer.assertion.algorithm=es256 &
        kafka.sasl.oauthbearer.assertion.claim.iss=me &
        kafka.sasl.oauthbearer.assertion.private.key.passphrase=S3CRETp ->
        sasl.mechanism=OAUTHBEARER; sasl.jaas_config=S3CRET; sasl.login.read_timeout_ms=5000;
        sasl.kerberos.service_name=kafka; sasl.kerberos.min_time_before_relogin_ms=1;
        sasl.oauth.token_endpoint_url=https://idp/token; sasl.oauth.scope=a b;
        sasl.oauth.client_id=id; sasl.oauth.client_secret=S3CRETs; sasl.oauth.token_provider=a.b:c;
        sasl.oauth.retriever=FileJwtRetriever; sasl.oauth.header_urlencode=True;
        sasl.oauth.assertion.algorithm=ES256; sasl.oauth.assertion.claim_iss=me;
        sasl.oauth.assertion.private_key_passphrase=S3CRETp; note AUTH-001 passphrase:
    <oauth> & <url>=<HTTPS://idp/token|http://idp/token|file:/run/token> -> taken
    <url>=S3CRET/token -> OPTION-003 must begin with https://, http:// or file:
    kafka.sasl.oauthbearer.token.provider=<module|module:|:callable> -> OPTION-003 callable
    <mechanism>=SCRAM-SHA-1 -> OPTION-003 one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
    kafka.sasl.username=  -> OPTION-003 empty
    kafka.sasl.login.retry.backoff.ms=${env:MS} -> OPTION-002 whole
    <plain> & kafka.sasl.password=<${vault:S3CRET}|pa${b:S3CRET}|${vault:kv/S3CRET:password}> ->
        OPTION-005 must be given by reference
    <plain> & kafka.sasl.password=<${file:S3CRET}|${env:a:S3CRET}|${env:}> -> OPTION-005 complete
    <plain> & kafka.sasl.username=u -> OPTION-008 kafka.sasl.password is missing
    <plain> & kafka.sasl.password=S3CRET -> OPTION-008 kafka.sasl.username is missing
    <plain> & <user> & <jaas>=x -> OPTION-009 Both <jaas>
    <oauth> & <user> -> AUTH-004 the mechanism is OAUTHBEARER
    <sasl> & <mechanism>=GSSAPI & <user> -> AUTH-004 the mechanism is GSSAPI [
    <sasl> & <user> -> AUTH-004 the mechanism is GSSAPI, which is the default
    <sasl> & <login>=<oauth handler> -> AUTH-004 GSSAPI, which is the default
    <plain> & <login>=<iam handler> -> AUTH-004 <login> is for <mechanism>=AWS_MSK_IAM
    <plain> & <login>=<oauth handler> -> AUTH-004 <login> is for <mechanism>=OAUTHBEARER
    <plain> & <client>=<iam>.<IAMClientCallbackHandler|IAMOAuthBearerLoginCallbackHandler> ->
        AUTH-004 <client> is for <mechanism>=AWS_MSK_IAM
    # On the wire it is the same.
    <oauth> & <<login>|<client>>=<iam handler> -> sasl.mechanism=AWS_MSK_IAM
    # Java's classes, also as Databricks and Amazon ship them; others are refused by name.
    <sasl> & kafka.sasl.login.class=<shade><java>.kerberos.KerberosLogin -> taken
    <tls> & kafka.ssl.engine.factory.class=<shade><java>.ssl.DefaultSslEngineFactory -> taken
    <sasl> & <jwt>.validator.class=<shade><java>.oauthbearer.ClientJwtValidator -> taken
    <sasl> & <jwt>.retriever.class=<shade><java>.oauthbearer.JwtBearerJwtRetriever ->
        sasl.oauth.retriever=JwtBearerJwtRetriever
    <oauth> & <login>=<shade><java>.oauthbearer.<|secured.>OAuthBearerLoginCallbackHandler -> taken
    <aws> & <client>=<shade><iam>.IAMClientCallbackHandler -> sasl.mechanism=AWS_MSK_IAM
    kafka.ssl.engine.factory.class=org.example.Own -> OPTION-006 names a Java class
    kafka.sasl.<login|client.callback.handler|login.callback.handler>.class=a.B -> OPTION-006 <>
    <jwt>.<retriever|validator>.class=<java>.oauthbearer.BrokerJwtValidator ->
        OPTION-006 jwt.<>.class: names a Java class
    <oauth> & <login>=<io.strimzi.kafka.oauth.Jaas|com.google.cloud.Gcp> -> OPTION-006 docs security
    <providers>=s & <providers>.s.class=io.strimzi.kafka.KubernetesSecretConfigProvider ->
        OPTION-006 docs security
    # What others write in JAAS texts, which are read when a login is made.
    <aws> & <jaas>=<iam>.IAMLoginModule required awsRoleArn="x"
        aws<StsRegion|RoleExternalId|RoleAccessKeyId|RoleSecretAccessKey|RoleSessionToken>="S3CRET";
        -> AUTH-007 'aws<>', which
    <aws> & <jaas>=<iam>.IAMLoginModule required awsS3CRET="x"; -> AUTH-007 begins with 'aws'
    <oauth> & <|<url>=https://idp/token> & <jaas>=<java>.oauthbearer.OAuthBearerLoginModule required
        <oauth.client.id="id" oauth.client.secret="S3CRET"|oauth.token.endpoint.uri="https://idp/"|
        clientId="id" clientSecret="S3CRET" oauth.ssl.truststore.location="/ca.pem">; ->
        AUTH-007 Strimzi
    <sasl> & <jaas>=<plain module> <in jaas> -> AUTH-004 set <mechanism>=PLAIN
    <sasl> & <jaas>=<scram module> <in jaas> -> AUTH-004 SCRAM-SHA-256 or SCRAM-SHA-512
    # What is doubtful or not used is told, once.
    <mechanism>=PLAIN & <user> & <trust>.location=f -> note AUTH-003 <mechanism>,
        kafka.sasl.password, kafka.sasl.username have; note TLS-001 to SASL_SSL
    <protocol>=PLAINTEXT & kafka.ssl.protocol=TLSv1.2 -> note TLS-001 security.protocol to SSL
    <tls> & kafka.sasl.login.retry.backoff.ms=1 -> note AUTH-003 option kafka.sasl.login.retry
    <versions>=TLSv1,TLSv1.2 & <hosts>= none  -> note TLS-001 options <versions>, <hosts> have
    <key>.key=S3CRET -> ssl=None; note TLS-001 keystore.key; note AUTH-001 keystore.key
    <protocol>=SASL_PLAINTEXT & <mechanism>=PLAIN & <user> -> note AUTH-002 the password crosses
    <protocol>=SASL_PLAINTEXT & <mechanism>=OAUTHBEARER & <url>=https://i -> note AUTH-002 the token
    <protocol>=SASL_PLAINTEXT & <mechanism>=AWS_MSK_IAM -> note AUTH-002 the token crosses
    <protocol>=SASL_PLAINTEXT & <mechanism>=SCRAM-SHA-512 & <user> -> taken
""")

REGISTRY = rows("""
    # With an address: what is chosen, what it is named after, and what is registered.
    <registry> & <normalize.schemas=true|value.schema.id.location=header> -> taken
    <latest> & value.subject.name.strategy=RecordNameStrategy & avro.record.name=X -> taken
    <latest> & <auto.register.schemas=false|latest.compatibility.strict=false> -> taken
    <latest> & key.format=avro & key.columns=a & key.use.schema.id=5 -> taken
    <registry> & value.format=json & key.format=avro & key.columns=a & use.schema.id=7 ->
        note - 'use.schema.id' has no effect
    <registry> & key.format=json & key.columns=a & key.use.schema.id=5 -> note - with keys: this
    <registry> & key.<subject.name.strategy=RecordNameStrategy|schema.references=[]> ->
        note - with keys: this needs key.schema.id.prefix=true
    <registry> & use.schema.id=7 & <use.latest.version=true|use.latest.with.metadata=a=b|
        value.subject.name.strategy=RecordNameStrategy|latest.compatibility.strict=false> ->
        note - has no effect beside use.schema.id, which
    <registry> & latest.compatibility.strict=false -> note - 'latest.compatibility.strict' has
    <latest> & id.compatibility.strict=false -> note - 'id.compatibility.strict' has no effect
    <registry> & <use.latest.version=true|use.schema.id=7> & auto.register.schemas=true ->
        note - 'auto.register.schemas' has no effect
    <latest> & normalize.schemas=true -> note - 'normalize.schemas' has
    <registry> & <value.avro.schema="string"|use.schema.id=7|use.latest.version=true> &
        <avro.record.name|avro.namespace>=X -> note - where the schema is given, or
    <registry> & value.schema.id.prefix=false & <value.schema.id.location=header|use.schema.id=7> ->
        note - 'schema.registry.url' has; note - has no effect
    <registry> & value.format=raw & value.schema.id.prefix=true & use.schema.id=7 -> taken
    # Its credentials.
    <registry> & <issuer> & <bearer>.token=t -> note - issuer.endpoint.url' has no effect;
        note - <bearer>.client.id' has; note - <bearer>.client.secret' has no effect
    <registry> & <issuer> & <bearer>.token=t & <bearer>.credentials.source=OAUTHBEARER ->
        note - '<bearer>.token' has no effect
    <registry> & <basic>.credentials.source=URL & <basic>.user.info=u:S3CRET &
        schema.registry.url=https://u:S3CRET@r:1 -> note - '<basic>.user.info' has; note AUTH-001
    <registry> & <basic>.credentials.source=SASL_INHERIT & <basic>.user.info=u:S3CRET & <plain> &
        <user> -> note - '<basic>.user.info' has; note AUTH-001 <basic>.user.info
    <registry> & schema.registry.url=https://u:S3CRET@r:1 & schema.registry.<bearer.auth.token=t|
        basic.auth.user.info=u:p> ->
        note AUTH-001 schema.registry.url; note - user and password in schema.registry.url have no
    <registry> & schema.registry.url=https://u:S3CRET@r:1 -> note AUTH-001 schema.registry.url
    <registry> & schema.registry.url=http://r:1 & <basic>.user.info=u:S3CRET -> note AUTH-001;
        note REGISTRY-006 use https:
    <registry> & schema.registry.url=http://u:S3CRET@a:1,https://u@b:1 &
        <basic>.credentials.source=URL -> note AUTH-001; note REGISTRY-006 use https:
    <registry> & schema.registry.url=http://u:S3CRET@a:1,http://b:1/x & <|<basic>.user.info=u:p & >
        <basic>.credentials.source=URL -> OPTION-008 http://b:1/x has none
    <registry> & <bearer>.<client.id|client.secret|scope|logical.cluster|identity.pool.id>=S3CRET ->
        OPTION-008 <bearer>.<> needs a token
    <registry> & schema.registry.url=http://u:S3CRET@<h℀:1|[::1> -> OPTION-003 of the form
    # Without an address.
    value.format=<avro|protobuf> & use.schema.id=7 -> REGISTRY-002 without it value.format=<>
    value.format=<avro|protobuf> & <use.latest.version|normalize.schemas>=true ->
        REGISTRY-002 needs schema.registry.url
    value.format=avro & <auto.register.schemas|latest.compatibility.strict|
        id.compatibility.strict>=false -> REGISTRY-002 '<>'
    value.format=avro & <use.latest.with.metadata=a=b|value.schema.references=[]> -> REGISTRY-002
    value.format=avro & <value.subject.name.strategy=RecordNameStrategy|<basic>.user.info=u:S3CRET|
        schema.registry.ssl.truststore.location=/x.pem> -> REGISTRY-002 needs schema.registry.url
    value.format=json & key.format=avro & key.columns=a & key.use.schema.id=7 ->
        REGISTRY-002 'key.use.schema.id'
    value.schema.id.prefix=true -> REGISTRY-002 needs schema.registry.url
    value.format=avro & value.schema.id.location=header -> note - this needs schema.registry.url
    value.format=avro & value.schema.id.prefix=false & use.schema.id=7 -> note - use.schema.id
    value.format=json & use.latest.version=true -> note - 'use.latest.version' has no effect
    # So no index of a message is put behind the id, which consumers of Protobuf need.
    value.format=raw & value.schema.id.prefix=true & use.schema.id=7 -> registry.config=None;
        note REGISTRY-005 of Protobuf set schema.registry.url
    value.format=protobuf & value.protobuf.descriptor.file=x.desc & value.protobuf.message=X &
        value.schema.id.prefix=true & use.schema.id=7 -> taken
    schema.registry.url=http://r:1<| & value.format=json| & value.column=v> ->
        REGISTRY-001 neither value.format nor key.format
    schema.registry.url=http://r:1 & value.schema.id.prefix=true & use.latest.version=true -> taken
    schema.registry.url=http://r:1 & key.format=avro & key.columns=a -> taken
""")

METRICS = rows("""
    metrics.otlp.endpoint=http://c:4318 -> metrics.otlp.endpoint=http://c:4318
    metrics.otlp.enable=true -> metrics.otlp.endpoint=None; metrics.otlp.headers=None;
        metrics.otlp.signals=('metrics', 'traces'); metrics.otlp.timeout_ms=None
    metrics.otlp.enable=false & metrics.otlp.endpoint=http://c:4318 -> metrics.otlp=None;
        note - 'metrics.otlp.endpoint' has no effect without metrics.otlp.enable=true
    metrics.otlp.endpoint=collector:4318 -> OPTION-003 must begin with http:// or https://
    metrics.otlp.endpoint=http://c/v1/traces/ -> OPTION-003 leave /v1/metrics and /v1/traces away
    metrics.otlp.endpoint=https://c<?k=S3CRET|/v1/metrics?k=S3CRET|#S3CRET> -> OPTION-003 api-key=
    metrics.otlp.endpoint=https://me:S3CRET@c:4318 -> OPTION-003 otlp.headers, as Authorization
    metrics.otlp.signals=<logs|,> -> OPTION-003 one or more of metrics, traces
    metrics.otlp.timeout.ms=0 -> OPTION-003 at least 1
    metrics.otlp.headers=S3CRET -> OPTION-003 its part 1 is not as name=value
    metrics.otlp.headers=a=b,c d=S3CRET -> OPTION-003 its part 2 is not as name=value
    metrics.otlp.headers=${vault:a:S3CRET} -> OPTION-005 a kind that is not known
    metrics.prometheus.push.url=<|gateway:9091|ftp://gateway|file:///tmp/g|http://|http://:9091|
        http://g:port|http://g:0|http://g:99999|http://g?x=1|http://[::1> ->
        OPTION-003 http://HOST:9091
    metrics.prometheus.push.url=<http://g:9091|https://g|http://[::1]:1/a/> -> metrics.push_url=<>
    metrics.prometheus.push.url=https://me:S3CRET@gateway:9091 -> OPTION-003 no user and password
    metrics.prometheus.push.job=7 -> note - has no effect without metrics.prometheus.push.url
    metrics.prometheus.push.job=j & metrics.prometheus.push.url=http://g:9091 -> metrics.push_job=j
    metrics.path.max.bytes=7 -> note - has no effect without metrics.path
    metrics.path.max.bytes=7 & metrics.path=m.jsonl -> metrics.max_bytes=7
    metrics.path=<s3://me:S3CRET@b/l|s3://me:12/S3CRET@b/l|abfs://:S3CRET@container@a.b/l> ->
        OPTION-003 metrics.path: no password can be given
    metrics.path=</tmp/a:b@c|hdfs://me@name:8020/lines|s3://bucket|s3://[::1> -> metrics.path=<>
""")


@each_row(
    ("given", "expected"),
    [*NAMES, *LIBRDKAFKAS, *NEAR, *PRODUCER, *SINK, *HOOKS, *SECURITY, *REGISTRY, *METRICS],
)
def test_options(given, expected):
    if re.match(r"[A-Z]+-\d", expected):
        refused(expected, parse_and_check, given)
        return
    options = parse(given)
    agrees(options, options.notes, expected)
    # Spark pickles options to the tasks, and the pool keeps producers by their configuration.
    pickled, again = pickle.dumps(options), parse(given)
    assert pickle.loads(pickled) == options == again
    assert hash(options.producer) == hash(again.producer)
    assert b"S3CRET" not in pickled
    shown = f"{options} {options.producer!r} {options.producer.security!r}"
    assert "S3CRET" not in f"{shown} {effective_settings(options)}"


def test_texts_that_others_have_in_their_documents():
    [(event_hubs, _), (msk, _)] = rows("""
    <oauth> & <url>=https://idp/token & <login>=kafkashaded.<oauth handler> &
        <jaas>=kafkashaded.<java>.oauthbearer.OAuthBearerLoginModule required clientId="id"
        clientSecret="S3CRET" scope="https://x/.default" ssl.protocol="SSL"; -> taken
    <aws> & <jaas>=<iam>.IAMLoginModule required awsProfileName="dev" awsStsRegion="x"; -> taken
    """)
    parse_and_check(event_hubs)
    # As in Java's library, which asks STS for a role, a region for it means nothing without one.
    entry = unresolved_jaas_entry(parse(msk).producer.security.sasl)
    assert aws_user(entry.options).profile == "dev"


# --- the file of --command-config ----------------------------------------------------------------


@each_row(
    ("given", "expected"),
    rows("""
    bootstrap.servers=other:1 & security.protocol=SASL_SSL & sasl.mechanism=PLAIN &
        sasl.jaas.config=<plain module> required \\\\n username="a" password="b\\\\\\"S3CRET"; &
        request.timeout.ms=5000 & ssl.truststore.password=${env:T} & ssl.truststore.location=/t ->
        bootstrap_servers=(('b', 9092),); client_id=tool; request_timeout_ms=5000;
        sasl.jaas_config=<plain module> required username="a" password="b\\"S3CRET";;
        ssl.truststore.password=${env:T}
    group.id=g & ssl.provider=SunJSSE & key.serializer=y & ssl.protocol=TLSv1.2 ->
        note - line 1: group.id has; note - line 2: ssl.provider; note - line 3: key.serializer;
        note TLS-001 set security.protocol to SSL
    group.id=g & security.protocol=SASL_SSL & sasl.username=u -> AUTH-004 line 3: sasl.username
    security.protocol=SSL & ssl.truststore.type=PEM & ssl.truststore.location=f &
        ssl.truststore.password=S3CRET -> TLS-005 line 4: SSL trust store
    group.id=g & ssl.key.password=${vault:S3CRET} -> OPTION-005 line 2: Invalid value [hidden]
    kafka.security.protocol=SSL -> OPTION-001 line 1: write security.protocol, without
    group.id=g & security.protcol=SSL ->
        OPTION-001 line 2: there is no 'security.protcol'. Did you mean 'security.protocol'?
    ssl.ca.location=/ca.pem -> OPTION-007 line 1: Kafka option 'ssl.ca.location'
    ssl.provider=BCJSSE -> OPTION-006 Invalid value BCJSSE
    config.providers=x -> OPTION-008 line 1: config.providers names 'x'
    group.id=g & a=S3CRET\\u0 -> OPTION-014 line 2: \\u
    """),
)
def test_a_file_for_kafkas_tools(given, expected, tmp_path_factory):
    file = tmp_path_factory.mktemp("tool") / "client.properties"
    file.write_text(given.replace(" & ", "\n").replace("\\n", "\n"), encoding="utf-8")
    arguments = str(file), "b:9092", {"client.id": "tool"}
    if re.match(r"[A-Z]+-\d", expected):
        refused(expected, read_command_config, *arguments)
    else:
        found = read_command_config(*arguments)
        agrees(found, found.notes, expected)


# --- the same options for Java's client ----------------------------------------------------------


@each_row(
    ("given", "more"),
    rows("""
    Kafka.Security.Protocol=SSL & kafka.ssl.protocol=TLSv1.2 -> taken
    <trust>.location=${env:TRUST} -> <javas>
    <trust>.location=${env:TRUST} & <providers>=env &
        <providers>.env.class=<provider>.EnvVarConfigProvider -> taken
    <trust>.location=/a/ca.<PEM|crt|cer|key> -> <trust>.type=PEM
    <trust>.certificates=x -> <trust>.type=PEM
    <key>.certificate.chain=x -> <key>.type=PEM
    <key>.location=/a/<key.p12|k.pem & kafka.ssl.keystore.type=JKS> -> taken
    <mechanism>=PLAIN & <quoted> -> <jaas>=<plain module> required <quoted in jaas>
    <mechanism>=scram-sha-512 & <quoted> ->
        <mechanism>=SCRAM-SHA-512 & <jaas>=<scram module> required <quoted in jaas>
    <<mechanism>=GSSAPI & |><quoted> -> taken
    <mechanism>=PLAIN & kafka.sasl.<username|password>=half -> taken
    # Words as Java compares them.
    <protocol>=sasl_ssl -> <protocol>=SASL_SSL
    <trust>.type=pem & <key>.type=jks -> <trust>.type=PEM & <key>.type=JKS
    <hosts>=none -> <hosts>=
    <hosts>=HTTPS -> <hosts>=https
    kafka.ssl.protocol= tlsv1.3  -> kafka.ssl.protocol=TLSv1.3
    <mechanism>=${env:mechanism} -> <javas>
    <login>=kafkashaded.<oauth handler> -> taken
    """),
)
def test_what_javas_client_is_given(given, more):
    others = "topic=t & sasl.mechanism=PLAIN & kafka.linger.ms=5 & "
    given_too = named(f"{others}kafka.sasl.oauthbearer.token.provider=a:b & {given}")
    not_javas = ("kafka.sasl.username", "kafka.sasl.password")
    kept = {name.lower(): value for name, value in named(given).items() if name not in not_javas}
    assert for_java_client(given_too) == kept | ({} if more == "taken" else named(more))


# --- secrets -------------------------------------------------------------------------------------


@each_row(
    ("given", "expected"),
    rows("""
    Kafka.SSL.Keystore.Key=x -> clear
    kafka.ssl.keystore.key=<${dir:/run:key}|-----BEGIN K----- ${env:K} -----END K-----> -> hidden
    <ssl.keystore.key|kafka.ssl.truststore.certificates>=x -> hidden
    schema.registry.<ssl.keystore.key|bearer.auth.token|bearer.auth.client.secret>=x -> clear
    # A reference beside a secret hides nothing: its value may be empty.
    <kafka.sasl.password|schema.registry.bearer.auth.token>=x${env:EMPTY} -> clear
    kafka.sasl.password=< |${env:A}${env:B}> -> hidden
    schema.registry.basic.auth.user.info=user:<x|x${env:EMPTY}> -> clear
    schema.registry.basic.auth.user.info=user:${env:P} -> hidden
    metrics.otlp.headers=<api-key=x|A=x${env:E}|A=Bearer x${env:E}|A=Bearer%20x,t=${env:T}> -> clear
    metrics.otlp.headers=<A=Bearer%20${env:T}|a=${env:A}, b = Basic ${env:T}> -> hidden
    <urls>=https://<user:x@h:1/path|user:1/x@h:1|user:@x@h:1|@x@h:1> -> clear
    <urls>=https://<u:x${env:E}@h:1|u:x@h:1/?tenant=${env:T}|h:1/?api_key=x${env:E}> -> clear
    <urls>=https://<u:${env:P}@h:1/path|h:1/?api_key=${env:K}|h:1/path|h:1/path?tenant=x> -> hidden
    <urls>=https://h:1,https://${env:U}:${env:P}@i:1 -> hidden
    <urls>=https://${env:U}:${env:P}@h:1,https://u:x@i:1 -> clear
    <urls>=https://h:1/?a=b&<API_Key|token|client_secret|Password|auth|sig|credentials>=x -> clear
    metrics.path=abfss://container@account.dfs.core.windows.net/lines -> hidden
    <jaas>=M required <password="x"|password=x|Password = 'x'|key.passphrase="x">; -> clear
    <jaas>=M required <password="a${env:P}"|clientId="${env:A}" clientSecret="x">; -> clear
    <jaas>=<M r password="${env:P}";|${file:/run/a:jaas}|M r keyTab="/etc/key.tab";> -> hidden
    """),
)
def test_what_is_a_secret_in_clear(given, expected):
    name = given.partition("=")[0].lower()
    assert clear_secrets(named(given)) == ([name] if expected == "clear" else [])


def test_what_spark_shows():
    """Spark looks at names and at values: a JAAS text with a password in it is hidden."""
    secrets = {f"kafka.{name}": "marked-hush" for name in SECRET_KEYS}
    secrets[SHORT["jaas"]] = 'M required username="u" password="marked-hush";'
    key, passphrase = "ssl.keystore.key", "sasl.oauthbearer.assertion.private.key.passphrase"
    assert secrets_shown_by_spark(secrets) == [f"kafka.{passphrase}", f"kafka.{key}"]
    assert secrets_shown_by_spark(secrets, SUGGESTED_REGEX) == []
    assert secrets_shown_by_spark({"Kafka.SSL.Keystore.Key": "x"}) == [f"kafka.{key}"]
    headers = {"Metrics.Otlp.Headers": "a=b"}
    assert secrets_shown_by_spark(headers) == ["metrics.otlp.headers"]
    for url in ("https://user:x@h:1", "https://user:1/x@h", "https://h/?api_key=x"):
        given = dict.fromkeys(SHORT["urls"].split("|"), url)
        assert len(secrets_shown_by_spark(given)) == 4
        assert secrets_shown_by_spark(given, SUGGESTED_REGEX) == []
    # Another expression may hide less, or hide by the prefix; Python may not know Java's syntax.
    assert len(secrets_shown_by_spark(secrets, "(?i)token")) == len(secrets)
    assert secrets_shown_by_spark(secrets, "spark[.]pykafka", "spark.pykafka.") == []
    assert secrets_shown_by_spark(secrets, "(?i)[[:broken") == secrets_shown_by_spark(secrets)
    told = warning_about_shown_secrets(["a", "b"])
    says(told, "AUTH-001 a, b: a secret in clear text")
    says(told, f"AUTH-001 spark.redaction.regex={SUGGESTED_REGEX}")
    says(told, "AUTH-001 for the default of spark.redaction.regex")
    says(warning_about_shown_secrets(["a"], "x"), "AUTH-001 for spark.redaction.regex")


# --- what is made of options ---------------------------------------------------------------------


@each_row(
    ("name", "expected"),
    [
        *((name, f"orders-{name}") for name in ("a.b", "{query}", "späte Züge", "<b>'x'</b>")),
        *((name, "TXN-037 needs the name of a query, and here is none") for name in (None, "")),
        *((name, "TXN-038 cannot be printed") for name in ("two\nlines", "\ud800")),
        ("late ", "TXN-038 'orders-late ' begins or ends with a space"),
        ("n" * 32_000, "TXN-038 has 32007 bytes"),
    ],
)
def test_the_prefix_gets_the_name_of_the_query(name, expected):
    arguments = parse(f"{SHORT['once']}-{{query}}"), name, "here is none"
    if expected.startswith("TXN"):
        refused(expected, with_query_name, *arguments)
    else:
        assert with_query_name(*arguments).exactly_once.prefix == expected


@each_row(
    ("given", "expected"),
    rows("""
    kafka.compression.type=zstd & kafka.acks=-1 -> kafka.compression.zstd.level=3 & kafka.acks=all &
        kafka.batch.size=131072 & delivery.guarantee=at-least-once & kafka.compression.type=zstd
    delivery.guarantee=none -> delivery.guarantee=none & kafka.acks=0
    <once> -> delivery.guarantee=exactly-once
    kafka.acks=1 -> kafka.acks=1 & kafka.enable.idempotence=false
    max.bytes.per.second.per.task=7 -> max.bytes.per.second.per.task=7
    """),
)
def test_settings_that_metrics_tell(given, expected):
    told = effective_settings(parse(given))
    assert named(expected).items() <= told.items()
    first = next(all_checks(parse("delivery.guarantee=none"), writes=False, time=SimulatedClock()))
    assert first.text.startswith(
        "delivery.guarantee=none, kafka.acks=0, kafka.enable.idempotence=false"
    )


def test_a_dead_letter_fits_where_it_goes():
    options = parse(f"{SHORT['dead']}=dead")
    assert max_letter_bytes(options.dead_letters, options.producer) == 1_048_576 - 61
    own = options.dead_letters._replace(own_topic_limits=TopicLimits(max_message_bytes=10_061))
    assert max_letter_bytes(own, options.producer) == 10_000
    zstd = parse("kafka.compression.type=zstd").producer
    assert max_letter_bytes(own, zstd) == 10_000 - 156 - 64
