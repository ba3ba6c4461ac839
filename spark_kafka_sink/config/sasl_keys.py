"""The table of ``sasl.*`` keys, but for OAUTHBEARER's own, which are in ``oauth_keys``.

Source: ``SaslConfigs`` of Kafka 4.3.
"""

from __future__ import annotations

from spark_kafka_sink.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    in_usual_case,
    non_empty,
    one_of,
)
from spark_kafka_sink.config.java_classes import (
    CLIENT_HANDLERS,
    LOGIN_CLASSES,
    LOGIN_HANDLERS,
    TOKENS_OF_YOUR_OWN,
    one_of_classes,
    simple_name,
)

SHORT, INT, LONG, DOUBLE = ConfigType.SHORT, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
STRING, CLASS, PASSWORD = ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

PLAIN, OAUTHBEARER, GSSAPI, AWS_MSK_IAM = "PLAIN", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER, GSSAPI, AWS_MSK_IAM)
WITH_PASSWORD = (PLAIN, *SCRAM)

SASL_KEYS = [
    ConfigKey(
        "sasl.mechanism",
        STRING,
        GSSAPI,
        one_of(*MECHANISMS),
        MEDIUM,
        "How to prove who this client is: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI "
        "(Kerberos) or AWS_MSK_IAM. As in Java, GSSAPI is meant where nothing is said.",
        convert=in_usual_case(*MECHANISMS),
    ),
    ConfigKey(
        "sasl.jaas.config",
        PASSWORD,
        None,
        None,
        HIGH,
        "Credentials as a JAAS entry, as in Java: the login module, a flag, options, a semicolon; "
        "e.g. org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="${env:KAFKA_PASSWORD}"; '
        "Databricks' names (kafkashaded.org.apache.kafka…) are taken, too.",
        takes_references=True,
    ),
    ConfigKey(
        "sasl.username",
        STRING,
        None,
        non_empty,
        MEDIUM,
        "User of PLAIN or SCRAM, instead of kafka.sasl.jaas.config. Not an option of Java's; as in "
        "librdkafka.",
        takes_references=True,
    ),
    ConfigKey(
        "sasl.password",
        PASSWORD,
        None,
        None,
        MEDIUM,
        "The password that belongs to kafka.sasl.username.",
        takes_references=True,
    ),
    ConfigKey(
        "sasl.kerberos.service.name",
        STRING,
        None,
        non_empty,
        MEDIUM,
        "The first part of the brokers' Kerberos principal, usually kafka; needed with GSSAPI, "
        "here or as serviceName in kafka.sasl.jaas.config.",
        takes_references=True,
    ),
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        60_000,
        at_least(0),
        LOW,
        "Milliseconds that a Kerberos login is kept at least before there is another one.",
    ),
    ConfigKey(
        "sasl.client.callback.handler.class",
        CLASS,
        None,
        one_of_classes(
            CLIENT_HANDLERS,
            "kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config, with "
            "references such as ${file:/path:key}",
        ),
        MEDIUM,
        "A Java class: only software.amazon.msk.auth.iam.IAMClientCallbackHandler and "
        "IAMOAuthBearerLoginCallbackHandler are taken, for MSK, which needs no such option here.",
        convert=simple_name(CLIENT_HANDLERS),
    ),
    ConfigKey(
        "sasl.login.callback.handler.class",
        CLASS,
        None,
        one_of_classes(LOGIN_HANDLERS, TOKENS_OF_YOUR_OWN),
        MEDIUM,
        "A Java class: Kafka's OAuthBearerLoginCallbackHandler is taken, by its names of before "
        "and since Kafka 4.0, and software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler, "
        "which stands for mechanism AWS_MSK_IAM. OAUTHBEARER needs no such option here.",
        convert=simple_name(LOGIN_HANDLERS),
    ),
    ConfigKey(
        "sasl.login.class",
        CLASS,
        None,
        one_of_classes(LOGIN_CLASSES, "leave it out"),
        MEDIUM,
        "A Java class: only Kafka's own are taken, which changes nothing.",
        convert=simple_name(LOGIN_CLASSES),
    ),
    ConfigKey(
        "sasl.login.refresh.window.factor",
        DOUBLE,
        0.8,
        between(0.5, 1.0),
        LOW,
        "After which part of its life a token of OAUTHBEARER is fetched anew.",
    ),
    ConfigKey(
        "sasl.login.refresh.window.jitter",
        DOUBLE,
        0.05,
        between(0.0, 0.25),
        LOW,
        "Up to which part of its life, by chance, that is later.",
    ),
    ConfigKey(
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        60,
        between(0, 900),
        LOW,
        "Seconds between two fetches at least. Together with "
        "kafka.sasl.login.refresh.buffer.seconds longer than the token's remaining life: both are "
        "ignored.",
    ),
    ConfigKey(
        "sasl.login.refresh.buffer.seconds",
        SHORT,
        300,
        between(0, 3600),
        LOW,
        "Seconds before its end at which a token is fetched anew at the latest.",
    ),
    ConfigKey(
        "sasl.login.connect.timeout.ms",
        INT,
        None,
        at_least(1),
        LOW,
        "How long a connection to the token endpoint may take to come about; 10 s if nothing is "
        "said, where Java waits for as long as the operating system does.",
    ),
    ConfigKey(
        "sasl.login.read.timeout.ms",
        INT,
        None,
        at_least(1),
        LOW,
        "How long the token endpoint may take to answer, until all of the answer is there; 10 s if "
        "nothing is said, where Java waits for ever.",
    ),
    ConfigKey(
        "sasl.login.retry.backoff.ms",
        LONG,
        100,
        at_least(0),
        LOW,
        "Pause before the token endpoint is asked again, after an error that may pass; doubles "
        "with each.",
    ),
    ConfigKey(
        "sasl.login.retry.backoff.max.ms",
        LONG,
        10_000,
        at_least(0),
        LOW,
        "How long the token endpoint is asked again and again, and the longest pause.",
    ),
]
