"""What a schema registry's answers mean for whoever wants to write.

    answer                                 | meaning
    ---------------------------------------+-----------------------------------------------
    200                                    | what was asked for, if it is JSON
    3xx                                    | refused: the address is another one
    401, 403                               | refused: credentials, or what they allow
    404 with 40401, 40402, 40403           | the subject, version or schema is not there
    404 without error_code, or with 404    | refused: the address is another one
    409                                    | refused: incompatible with an earlier version
    422                                    | refused: no schema, or an invalid subject
    any other with error_code              | refused, for the reason that it tells
    more bytes than are taken              | refused
    408, 429, 5xx, no connection, no answer| may pass: the next address, then once more
    a certificate that is not trusted      | refused
    no answer of a registry                | refused

A query that was told a schema before goes on with it where the same may pass, where a certificate
is not trusted, and where what answers is no registry: something else may answer in its place.

Source: ``io.confluent.kafka.schemaregistry.rest.exceptions.Errors``.
"""

from __future__ import annotations

from spark_kafka_sink.base.errors import KafkaSinkError

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
NOT_FOUND = (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND)
INCOMPATIBLE = 409
INVALID = 422
MAY_PASS = frozenset({408, 429, *range(500, 600)} - {501, 505})


class RegistryError(KafkaSinkError):
    """A schema registry has refused, or cannot be asked. Nothing was written."""


class RegistryUnavailableError(RegistryError):
    """It does not answer, or says that it cannot now: the same may succeed later."""


class NoRegistryError(RegistryError):
    """What is at its address is none, or not trusted: the address is wrong, or something else
    answers in its place, as a load balancer whose registry is away.
    """


class RegistryRefusedError(RegistryError):
    """It answers with an error. status: of HTTP; code: the registry's own, or the status;
    reason: in its words
    """

    def __init__(self, message: str, status: int, code: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.reason = reason
