"""Our messages and the JSON that Kafka's own generated converters make of theirs."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any
from uuid import UUID

from spark_kafka_sink.protocol import schema, types
from spark_kafka_sink.protocol.messages.client import (
    ApiVersionsRequest,
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from spark_kafka_sink.protocol.messages.inspection import (
    DescribeClientQuotasRequest,
    DescribeProducersRequest,
    DescribeQuorumRequest,
    FetchRequest,
    ListOffsetsRequest,
)
from spark_kafka_sink.protocol.messages.topics import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    MetadataRequest,
    ProduceRequest,
)
from spark_kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

REQUESTS: dict[str, type[schema.Request]] = {
    "ApiVersions": ApiVersionsRequest,
    "CreateTopics": CreateTopicsRequest,
    "InitProducerId": InitProducerIdRequest,
    "Metadata": MetadataRequest,
    "Produce": ProduceRequest,
    "AddPartitionsToTxn": AddPartitionsToTxnRequest,
    "DescribeClientQuotas": DescribeClientQuotasRequest,
    "DescribeConfigs": DescribeConfigsRequest,
    "DescribeProducers": DescribeProducersRequest,
    "DescribeQuorum": DescribeQuorumRequest,
    "DescribeTransactions": DescribeTransactionsRequest,
    "EndTxn": EndTxnRequest,
    "Fetch": FetchRequest,
    "FindCoordinator": FindCoordinatorRequest,
    "GetTelemetrySubscriptions": GetTelemetrySubscriptionsRequest,
    "ListOffsets": ListOffsetsRequest,
    "ListTransactions": ListTransactionsRequest,
    "PushTelemetry": PushTelemetryRequest,
    "SaslAuthenticate": SaslAuthenticateRequest,
    "SaslHandshake": SaslHandshakeRequest,
}


def speaks(case: dict[str, Any]) -> bool:
    """Whether this package knows the version of a case."""
    request = REQUESTS[case["api"]]
    return request.min_version <= case["version"] <= request.max_version


def uuid_of(text: str) -> UUID:
    """Kafka writes ids in URL-safe base64 without padding."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def from_json(cls: Any, body: dict[str, Any]) -> Any:
    """An instance of ``cls``; what the JSON does not mention keeps its default."""
    given = {}
    names = set(body)
    for field in dataclasses.fields(cls):
        name = _camel_case(field.name)
        if name in names:
            names.remove(name)
            given[field.name] = _value_from_json(field.metadata["wire"].wire_type, body[name])
    assert not names, f"{cls.__name__} has no {names}"
    return cls(**given)


def to_json(message: Any, version: int) -> dict[str, Any]:
    """The fields that ``version`` has; tagged ones only where they are not the default.

    Fields that it has not must have their default.
    """
    defaults = type(message)()
    out = {}
    for field in dataclasses.fields(message):
        spec = field.metadata["wire"]
        value = getattr(message, field.name)
        first, last = spec.versions
        is_default = value == getattr(defaults, field.name)
        if not first <= version <= last:
            assert is_default, f"{field.name} has a value in version {version}"
        elif spec.tag is None or not is_default:
            out[_camel_case(field.name)] = _value_to_json(value, version)
    return out


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _value_from_json(wire_type: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(wire_type, types.ArrayOf):
        return [_value_from_json(wire_type.element, element) for element in value]
    if wire_type is types.UUID_TYPE:
        return uuid_of(value)
    if wire_type is types.BYTES:
        return base64.b64decode(value)
    return from_json(wire_type, value) if isinstance(value, dict) else value


def _value_to_json(value: Any, version: int) -> Any:
    if isinstance(value, types.Records):
        return b"".join(value.buffers).hex()
    if isinstance(value, list):
        return [_value_to_json(element, version) for element in value]
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return to_json(value, version) if dataclasses.is_dataclass(value) else value
