"""DescribeConfigs (32): settings of topics and brokers. Versions 1-4.

Version 1 brought the source of a value and its synonyms (KIP-226), 3 type and documentation
(KIP-569).
"""

from __future__ import annotations

from spark_kafka_sink.base.dataclass import dataclass
from spark_kafka_sink.protocol.schema import Message, Request, wire
from spark_kafka_sink.protocol.types import BOOL, INT8, INT16, INT32, STRING, TEXT, ArrayOf

TOPIC_RESOURCE = 2
"""``resource_type`` whose name is a topic's. Source: ``ConfigResource.Type``."""
BROKER_RESOURCE = 4
"""``resource_type`` whose name is a node id in decimal."""


@dataclass(slots=True)
class DescribeConfigsSynonym:
    name: str = wire(STRING, "1+")
    value: str | None = wire(STRING, "1+", nullable="0+")
    source: int = wire(INT8, "1+")


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL)
    synonyms: list[DescribeConfigsSynonym] = wire(
        ArrayOf(DescribeConfigsSynonym), "1+", ignorable=True
    )
    config_type: int = wire(INT8, "3+", ignorable=True)
    documentation: str | None = wire(TEXT, "3+", nullable="0+", ignorable=True)


@dataclass(slots=True)
class DescribeConfigsResult:
    error_code: int = wire(INT16)
    error_message: str | None = wire(TEXT, nullable="0+")
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configs: list[DescribeConfigsResourceResult] = wire(ArrayOf(DescribeConfigsResourceResult))


@dataclass(slots=True)
class DescribeConfigsResponse(Message):
    api_key = 32
    min_version = 1
    max_version = 4
    flexible_from = 4

    throttle_time_ms: int = wire(INT32)
    results: list[DescribeConfigsResult] = wire(ArrayOf(DescribeConfigsResult))


@dataclass(slots=True)
class DescribeConfigsResource:
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    configuration_keys: list[str] | None = wire(ArrayOf(STRING), nullable="0+")


@dataclass(slots=True)
class DescribeConfigsRequest(Request):
    """DescribeConfigs (32): settings of topics and brokers. Versions 1-4.

    Version 1 brought the source of a value and its synonyms (KIP-226), 3 type and documentation
    (KIP-569).
    """

    api_key = 32
    min_version = 1
    max_version = 4
    flexible_from = 4
    response_type = DescribeConfigsResponse
    throttled_from = 2

    resources: list[DescribeConfigsResource] = wire(ArrayOf(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOL, "1+")
    include_documentation: bool = wire(BOOL, "3+")
