"""What the brokers grant to this client: bytes, requests. Source: ``ClientQuotaManager``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from spark_kafka_sink.base.errors import KafkaErrorCode, error_for_code
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.security_config import PLAINTEXT, SecurityConfig
from spark_kafka_sink.protocol.messages.describe_client_quotas import (
    MATCH_DEFAULT,
    MATCH_EXACT,
    MATCH_SPECIFIED,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
    QuotaEntity,
    QuotaEntry,
)

USER, CLIENT_ID = "user", "client-id"
# Source: ``KafkaPrincipal.ANONYMOUS``.
_ANONYMOUS = "ANONYMOUS"
WRITERS_QUOTAS = {
    "producer_byte_rate": "bytes per second to each broker",
    "request_percentage": "% of the time of each broker's request and network threads",
    "controller_mutation_rate": "partitions created or deleted per second",
}
"""Those that a producer feels. All clients with the same user and client.id share them."""


class Quota(NamedTuple):
    """entity: whose it is, as brokers name it: the user's, the client's, or a default's.

    values: by the names of WRITERS_QUOTAS
    """

    entity: str
    values: Mapping[str, float]


class NotToldError(Exception):
    """The brokers refuse to tell quotas."""

    def __init__(self, error: KafkaErrorCode) -> None:
        super().__init__(str(error))
        self.error = error


def granted(admin: AdminClient, config: ProducerConfig, timeout_ms: int) -> list[Quota]:
    """What may apply to this client; the brokers take the first that has a value.

    Where the options do not tell the user's name, those of all users are there. Raises
    NotToldError without DESCRIBE_CONFIGS on the cluster, UnsupportedVersionError for brokers before
    Kafka 2.6.
    """
    found: list[QuotaEntry] = []
    for components in _questions(_user(config.security), config.client_id):
        request = DescribeClientQuotasRequest(list(components), strict=True)
        answer = admin.request(None, request, admin.deadline_in(timeout_ms))
        assert isinstance(answer, DescribeClientQuotasResponse)
        if answer.error_code:
            raise NotToldError(error_for_code(answer.error_code))
        found.extend(answer.entries or ())
    return [quota for quota in map(_quota, found) if quota.values]


def _user(security: SecurityConfig) -> str | None:
    """As brokers name the principal; None where only they know."""
    if security.protocol == PLAINTEXT:
        return _ANONYMOUS
    return None if security.sasl is None else security.sasl.username


def _questions(user: str | None, client_id: str) -> Iterator[Sequence[QuotaComponent]]:
    """In the brokers' order: user and client, user, client; each its own before the default."""
    clients = (
        QuotaComponent(CLIENT_ID, MATCH_EXACT, client_id),
        QuotaComponent(CLIENT_ID, MATCH_DEFAULT),
    )
    users = (
        # It has the default as well.
        (QuotaComponent(USER, MATCH_SPECIFIED),)
        if user is None
        else (QuotaComponent(USER, MATCH_EXACT, user), QuotaComponent(USER, MATCH_DEFAULT))
    )
    for one in users:
        for client in clients:
            yield one, client
        yield (one,)
    for client in clients:
        yield (client,)


def _quota(entry: QuotaEntry) -> Quota:
    values = {value.key: value.value for value in entry.values if value.key in WRITERS_QUOTAS}
    return Quota(", ".join(map(_name, entry.entity)), values)


def _name(entity: QuotaEntity) -> str:
    name = "(default)" if entity.entity_name is None else entity.entity_name
    return f"{entity.entity_type} {name}"
