"""The table of ``schema.registry.*`` and of what is asked of a schema registry.

Source of the names: Confluent's ``SchemaRegistryClientConfig``, ``AbstractKafkaSchemaSerDeConfig``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.base.printable import misplaced_at
from spark_kafka_sink.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    in_usual_case,
    non_empty,
    one_of,
)
from spark_kafka_sink.config.ssl_keys import SSL_KEYS

if TYPE_CHECKING:
    from urllib.parse import SplitResult

REGISTRY_PREFIX = "schema.registry."
URL, USER_INFO, SASL_INHERIT = "URL", "USER_INFO", "SASL_INHERIT"
STATIC_TOKEN, OAUTHBEARER = "STATIC_TOKEN", "OAUTHBEARER"
TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = (
    "TopicNameStrategy",
    "RecordNameStrategy",
    "TopicRecordNameStrategy",
)
_STRATEGIES = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)
_TEXT, _BOOLEAN, _INT = ConfigType.STRING, ConfigType.BOOLEAN, ConfigType.INT
_PASSWORD, _LIST = ConfigType.PASSWORD, ConfigType.LIST
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_BASIC = f"{REGISTRY_PREFIX}basic.auth."
_BEARER = f"{REGISTRY_PREFIX}bearer.auth."


def _simple_name(text: str) -> str:
    """Java's class without its package, in its usual case; a function of the user's as it is."""
    if ":" in text:
        return text
    name: str = in_usual_case(*_STRATEGIES)(text.rpartition(".")[2])
    return name


def split_url(url: str) -> SplitResult | None:
    """None for what is no URL. Python's own error would show the password in it."""
    # Not above: a write without a registry loads nothing for it.
    from urllib.parse import urlsplit

    try:
        return urlsplit(url)
    except ValueError:
        return None


def _urls(urls: list[str]) -> str | None:
    for url in urls:
        if not url.lower().startswith(("http://", "https://", "${")):
            return "each must begin with http:// or https://"
        parts = split_url(url)
        if parts is None:
            return "each must be of the form https://host:port or https://host:port/path"
        problem = misplaced_at(parts)
        if problem is not None:
            return f"one {problem}"
    return None if urls else "must not be empty"


def _pairs(pairs: list[str]) -> str | None:
    is_right = all(name and "=" in pair for pair in pairs for name in [pair.partition("=")[0]])
    return None if is_right else "each must be of the form name=value"


def _known_or_own(strategy: str) -> str | None:
    if strategy in _STRATEGIES or ":" in strategy:
        return None
    return f"must be one of {', '.join(_STRATEGIES)}, or package.module:function"


def _references(part: str) -> ConfigKey:
    return ConfigKey(
        f"{part}.schema.references",
        _TEXT,
        None,
        non_empty,
        _LOW,
        f"What {part}.avro.schema or {part}.json.schema builds on, as the registry has it: a JSON "
        'list as in its API, [{"name": …, "subject": …, "version": …}]. Without version: the '
        "latest one when the query is started. Of protobuf: where a file that "
        f"{part}.protobuf.descriptor.file imports is registered already, if not under its name.",
    )


def _strategy(part: str) -> ConfigKey:
    return ConfigKey(
        f"{part}.subject.name.strategy",
        ConfigType.CLASS,
        TOPIC_NAME,
        _known_or_own,
        _MEDIUM,
        f"Under which subject the schema of {part}s is registered: TopicNameStrategy, which is "
        f"topic-{part}; RecordNameStrategy, the record's full name; TopicRecordNameStrategy, both "
        "with a - between. Java's class names are taken. package.module:function: your own, called "
        "on the driver with topic (None where a column has it), is_key and record_name.",
        convert=_simple_name,
    )


def _of_registry(key: ConfigKey) -> ConfigKey:
    """A key of TLS with brokers, as one with the registry."""
    doc = key.doc.replace("a broker's", "the registry's").replace("brokers are", "the registry is")
    doc = doc.replace("if the brokers want", "if the registry wants")
    doc = doc.replace("kafka.ssl.", f"{REGISTRY_PREFIX}ssl.")
    doc = doc.replace("on every machine that runs the driver or a task", "on the driver")
    return key._replace(name=REGISTRY_PREFIX + key.name, doc=doc, importance=_LOW)


REGISTRY_KEYS = (
    ConfigKey(
        "schema.registry.url",
        _LIST,
        [],
        _urls,
        _HIGH,
        "Addresses of a schema registry that speaks Confluent's REST API, separated by commas: the "
        "next one is asked where one does not answer. Only the driver asks, before the first task.",
        takes_references=True,
        hides_value=True,
    ),
    ConfigKey(
        "auto.register.schemas",
        _BOOLEAN,
        True,
        None,
        _HIGH,
        "Register the schema if its subject does not have it. false: it must be there.",
    ),
    ConfigKey(
        "use.latest.version",
        _BOOLEAN,
        False,
        None,
        _MEDIUM,
        "Write with the latest schema of the subject instead of one that is derived from the "
        "columns; nothing is registered.",
    ),
    ConfigKey(
        "use.latest.with.metadata",
        _LIST,
        [],
        _pairs,
        _LOW,
        "Write with the latest schema of the subject that has these metadata, name=value separated "
        "by commas; nothing is registered.",
    ),
    ConfigKey(
        "latest.compatibility.strict",
        _BOOLEAN,
        True,
        None,
        _LOW,
        "With use.latest.version: refuse columns that the latest schema does not have. false: avro "
        "and protobuf leave them out, and json is not compared with the schema.",
    ),
    ConfigKey(
        "use.schema.id",
        _INT,
        None,
        at_least(0),
        _MEDIUM,
        "Write values with the registry's schema of this id; nothing is registered. Keys: "
        "key.use.schema.id.",
    ),
    ConfigKey("key.use.schema.id", _INT, None, at_least(0), _LOW, "The same for keys."),
    ConfigKey(
        "id.compatibility.strict",
        _BOOLEAN,
        True,
        None,
        _LOW,
        "With use.schema.id or key.use.schema.id: refuse columns that the schema does not have. "
        "false: avro and protobuf leave them out, and json is not compared with the schema.",
    ),
    ConfigKey(
        "normalize.schemas",
        _BOOLEAN,
        False,
        None,
        _LOW,
        "Have the registry bring a schema into its normal form when it looks for it, so that one "
        "that means the same counts as the same.",
    ),
    _references("value"),
    _references("key"),
    _strategy("value"),
    _strategy("key"),
    ConfigKey(
        f"{_BASIC}credentials.source",
        _TEXT,
        None,
        one_of(URL, USER_INFO, SASL_INHERIT),
        _MEDIUM,
        "Where user and password for the registry are: URL, in schema.registry.url; USER_INFO, in "
        "schema.registry.basic.auth.user.info; SASL_INHERIT, those of kafka.sasl.*. Default: "
        "USER_INFO if that option is given, else URL.",
        convert=in_usual_case(URL, USER_INFO, SASL_INHERIT),
    ),
    ConfigKey(
        f"{_BASIC}user.info",
        _PASSWORD,
        None,
        None,
        _MEDIUM,
        "User and password for the registry, as user:password.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_BEARER}credentials.source",
        _TEXT,
        None,
        one_of(STATIC_TOKEN, OAUTHBEARER),
        _MEDIUM,
        "Where a bearer token for the registry comes from: STATIC_TOKEN, "
        "schema.registry.bearer.auth.token; OAUTHBEARER, an issuer, by client credentials. "
        "Default: what is given.",
        convert=in_usual_case(STATIC_TOKEN, OAUTHBEARER),
    ),
    ConfigKey(
        f"{_BEARER}token",
        _PASSWORD,
        None,
        None,
        _MEDIUM,
        "A bearer token for the registry.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_BEARER}issuer.endpoint.url",
        _TEXT,
        None,
        non_empty,
        _MEDIUM,
        "The token endpoint of the issuer.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_BEARER}client.id",
        _TEXT,
        None,
        non_empty,
        _MEDIUM,
        "Id of the client at the issuer.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_BEARER}client.secret",
        _PASSWORD,
        None,
        None,
        _MEDIUM,
        "Secret of the client at the issuer.",
        takes_references=True,
    ),
    ConfigKey(f"{_BEARER}scope", _TEXT, None, non_empty, _LOW, "Scope to ask the issuer for."),
    ConfigKey(
        f"{_BEARER}logical.cluster",
        _TEXT,
        None,
        non_empty,
        _LOW,
        "Confluent Cloud: the id of the registry (lsrc-…), sent as header target-sr-cluster.",
    ),
    ConfigKey(
        f"{_BEARER}identity.pool.id",
        _TEXT,
        None,
        non_empty,
        _LOW,
        "Confluent Cloud: the id of an identity pool, sent as header Confluent-Identity-Pool-Id.",
    ),
    ConfigKey(
        f"{REGISTRY_PREFIX}timeout.ms",
        _INT,
        12000,
        at_least(1),
        _LOW,
        "How long the driver tries, in all, at all addresses, before it gives up a registry that "
        "does not answer. One request may take a third of it, or 5000 where that is more.",
    ),
    *(_of_registry(key) for key in SSL_KEYS if key.name != "ssl.engine.factory.class"),
)
