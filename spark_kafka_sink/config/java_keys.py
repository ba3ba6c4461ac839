"""Keys of the Java client that are no row of ``producer_keys``: refused, or without effect here."""

from __future__ import annotations

REFUSED_KEYS = {
    "key.serializer": "Kafka option 'kafka.key.serializer' is not supported as keys are serialized "
    "with ByteArraySerializer.",
    "value.serializer": "Kafka option 'kafka.value.serializer' is not supported as value are "
    "serialized with ByteArraySerializer.",
    "transactional.id": "Kafka option 'kafka.transactional.id' is not supported: tasks of a query "
    "would fence each other. Use delivery.guarantee=exactly-once with transactional.id.prefix, "
    "from which each task gets an id of its own.",
}

# Keys that name Java classes, which no Python worker can load: what to use instead.
JAVA_CLASS_KEYS = {
    "partitioner.class": "kafka.partitioner=round-robin, murmur3, crc32 or package.module:name, or "
    "a 'partition' column",
    "interceptor.classes": "interceptors=package.module:Class",
    "metric.reporters": "every batch's metrics are logged as JSON, and written to metrics.path",
    "security.providers": "leave it out; TLS and cryptography are OpenSSL's, as in Python",
}

# Those of them that are lists: an empty one is valid in Java, and says nothing.
LISTS_OF_JAVA_CLASSES = ("interceptor.classes", "metric.reporters", "security.providers")

# Java partitioners that have a counterpart here.
JAVA_PARTITIONERS = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": {"partitioner": "round-robin"},
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": {
        "partitioner.ignore.keys": "true"
    },
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": {"partitioner": "default"},
}

_IN_A_JVM = "it chooses among parts of a JVM, and there is none here"
_KINIT = "kinit is not called: a key tab is used anew, a ticket cache is read anew"
_BROKERS_CHECK = "what it sets is how brokers check tokens"
_OF_CONSUMERS = "it is a consumer's option, and this is a writer"
_OF_ADMINS = "it is an option of admin clients, and this is a writer"

# Names of ConsumerConfig, ShareConsumerConfig and AdminClientConfig of Kafka 4.3 that are no
# producer's: jobs give one set of options to Spark's reader and to the writer.
_CONSUMER_KEYS = (
    *("allow.auto.create.topics", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs"),
    *("default.api.timeout.ms", "enable.auto.commit", "exclude.internal.topics"),
    *("fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "group.instance.id"),
    *("group.protocol", "group.remote.assignor", "heartbeat.interval.ms", "isolation.level"),
    *("key.deserializer", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records"),
    *("partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode"),
    *("share.acquire.mode", "value.deserializer"),
)
_ADMIN_KEYS = ("bootstrap.controllers",)

# The Java client's own keys that have no effect here: accepted, and reported in the log.
KEYS_WITHOUT_EFFECT = {
    "auto.include.jmx.reporter": "there is no JMX here",
    "metrics.num.samples": "metrics are counted per batch, not sampled",
    "metrics.recording.level": "metrics are counted per batch, not sampled",
    "metrics.sample.window.ms": "metrics are counted per batch, not sampled",
    "ssl.provider": _IN_A_JVM,
    "ssl.keymanager.algorithm": _IN_A_JVM,
    "ssl.trustmanager.algorithm": _IN_A_JVM,
    "ssl.secure.random.implementation": _IN_A_JVM,
    "sasl.kerberos.kinit.cmd": _KINIT,
    "sasl.kerberos.ticket.renew.window.factor": _KINIT,
    "sasl.kerberos.ticket.renew.jitter": _KINIT,
    "sasl.oauthbearer.clock.skew.seconds": _BROKERS_CHECK,
    "sasl.oauthbearer.expected.audience": _BROKERS_CHECK,
    "sasl.oauthbearer.expected.issuer": _BROKERS_CHECK,
    "sasl.oauthbearer.jwks.endpoint.url": _BROKERS_CHECK,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _BROKERS_CHECK,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _BROKERS_CHECK,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _BROKERS_CHECK,
    **dict.fromkeys(_CONSUMER_KEYS, _OF_CONSUMERS),
    **dict.fromkeys(_ADMIN_KEYS, _OF_ADMINS),
}
