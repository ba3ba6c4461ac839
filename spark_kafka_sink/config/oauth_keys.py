"""The table of ``sasl.oauthbearer.*`` keys: KIP-768, KIP-1139, KIP-1258.

Source: ``SaslConfigs`` of Kafka 4.3.
"""

from __future__ import annotations

from spark_kafka_sink.config.config_def import (
    ConfigKey,
    ConfigType,
    Importance,
    between,
    in_usual_case,
    non_empty,
    one_of,
)
from spark_kafka_sink.config.java_classes import (
    JWT_RETRIEVERS,
    JWT_VALIDATORS,
    RETRIEVERS,
    TOKENS_OF_YOUR_OWN,
    VALIDATORS,
    one_of_classes,
    simple_name,
)

BOOLEAN, INT = ConfigType.BOOLEAN, ConfigType.INT
STRING, CLASS, PASSWORD = ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD
MEDIUM, LOW = Importance.MEDIUM, Importance.LOW

_ALGORITHMS = ("RS256", "ES256")
_SCHEMES = ("https://", "http://", "file:")
_ASSERTION = "sasl.oauthbearer.assertion."


def _url(text: str) -> str | None:
    return (
        None if text.lower().startswith(_SCHEMES) else "must begin with https://, http:// or file:"
    )


def _entry_point(text: str) -> str | None:
    module, separator, name = text.partition(":")
    return None if separator and module and name else "must be package.module:callable"


OAUTH_KEYS = [
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url",
        STRING,
        None,
        _url,
        MEDIUM,
        "Where tokens come from: the URL of the provider's token endpoint, or file:/path of a file "
        "that holds a token.",
        takes_references=True,
        hides_value=True,  # a URL may hold a password
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id",
        STRING,
        None,
        non_empty,
        MEDIUM,
        "This client's id at the provider. Wins over clientId in kafka.sasl.jaas.config.",
        takes_references=True,
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret",
        PASSWORD,
        None,
        None,
        MEDIUM,
        "The secret that belongs to the client's id. Wins over clientSecret in "
        "kafka.sasl.jaas.config.",
        takes_references=True,
    ),
    ConfigKey(
        "sasl.oauthbearer.scope",
        STRING,
        None,
        None,
        MEDIUM,
        "Scopes to ask for, separated by blanks. Wins over scope in kafka.sasl.jaas.config.",
        takes_references=True,
    ),
    ConfigKey(
        "sasl.oauthbearer.token.provider",
        STRING,
        None,
        _entry_point,
        MEDIUM,
        "Your own code that gives tokens, as package.module:callable, instead of everything else. "
        "Not an option of Java's.",
    ),
    ConfigKey(
        "sasl.oauthbearer.header.urlencode",
        BOOLEAN,
        False,
        None,
        LOW,
        "Encode id and secret for URLs before they are put into the Authorization header, as RFC "
        "6749 has it and not every provider.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        RETRIEVERS[0],
        one_of_classes(JWT_RETRIEVERS, TOKENS_OF_YOUR_OWN),
        MEDIUM,
        "How a token is asked for, by the name of Kafka's class: ClientCredentialsJwtRetriever, "
        "JwtBearerJwtRetriever, FileJwtRetriever; DefaultJwtRetriever chooses the last for a file: "
        "URL and the first otherwise.",
        convert=simple_name(JWT_RETRIEVERS),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        VALIDATORS[0],
        one_of_classes(JWT_VALIDATORS, "leave it out: the brokers check the signature"),
        MEDIUM,
        "How a token is looked at before it is sent, by the name of Kafka's class: "
        "DefaultJwtValidator or ClientJwtValidator, which here are the same. Only the brokers "
        "check the signature.",
        convert=simple_name(JWT_VALIDATORS),
    ),
    ConfigKey(
        "sasl.oauthbearer.scope.claim.name",
        STRING,
        "scope",
        non_empty,
        LOW,
        "The claim of a token that holds its scopes.",
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        "sub",
        non_empty,
        LOW,
        "The claim of a token that holds the principal.",
    ),
    ConfigKey(
        f"{_ASSERTION}algorithm",
        STRING,
        "RS256",
        one_of(*_ALGORITHMS),
        MEDIUM,
        "How an assertion is signed: RS256 or ES256.",
        convert=in_usual_case(*_ALGORITHMS),
    ),
    ConfigKey(
        f"{_ASSERTION}claim.aud",
        STRING,
        None,
        non_empty,
        MEDIUM,
        "Claim aud of an assertion: for whom it is made.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_ASSERTION}claim.exp.seconds",
        INT,
        300,
        between(0, 86_400),
        LOW,
        "Seconds that an assertion is valid for.",
    ),
    ConfigKey(
        f"{_ASSERTION}claim.iss",
        STRING,
        None,
        non_empty,
        MEDIUM,
        "Claim iss of an assertion: who makes it. With ClientCredentialsJwtRetriever, this makes a "
        "signed assertion take the place of the client's secret.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_ASSERTION}claim.jti.include",
        BOOLEAN,
        False,
        None,
        MEDIUM,
        "Give each assertion an id of its own, claim jti.",
    ),
    ConfigKey(
        f"{_ASSERTION}claim.nbf.seconds",
        INT,
        60,
        between(0, 3_600),
        LOW,
        "Seconds before now from which an assertion is valid, for clocks that differ.",
    ),
    ConfigKey(
        f"{_ASSERTION}claim.sub",
        STRING,
        None,
        non_empty,
        MEDIUM,
        "Claim sub of an assertion: whom it speaks of.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_ASSERTION}file",
        STRING,
        None,
        non_empty,
        MEDIUM,
        "File with an assertion that something else makes; wins over the other options of "
        "assertions. Read again when it has changed.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_ASSERTION}private.key.file",
        STRING,
        None,
        non_empty,
        MEDIUM,
        "File with the private key that assertions are signed with, in PEM. Read again when it has "
        "changed.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_ASSERTION}private.key.passphrase",
        PASSWORD,
        None,
        None,
        MEDIUM,
        "Password of that private key, if it is encrypted.",
        takes_references=True,
    ),
    ConfigKey(
        f"{_ASSERTION}template.file",
        STRING,
        None,
        non_empty,
        MEDIUM,
        "File with more headers and claims for assertions, in JSON.",
        takes_references=True,
    ),
]
