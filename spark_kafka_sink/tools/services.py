"""Names the service behind a Kafka listener, if its addresses or its cluster id show it.

``docs/services.md`` says of each service what differs. A service that runs under names of its
users, such as AutoMQ, Bufstream or Kafka on Pulsar, shows nothing, and is not guessed.

Source: the addresses in the services' documents; for Redpanda's id its ``metadata.cc``, for Tansu's
the default of its option ``--kafka-cluster-id``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_EVENT_HUBS = "Azure Event Hubs"
REQUEST_LIMITS = {_EVENT_HUBS: 1_046_528}
"""Bytes of a request, by service: it ends the connection at that many and more."""

_BY_HOST = {
    _EVENT_HUBS: r"\.servicebus\.(windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)",
    "Confluent Cloud": r"\.confluent\.cloud",
    "Amazon MSK": r"\.kafka\.[a-z0-9-]+\.amazonaws\.com(\.cn)?",
    "Amazon MSK Serverless": r"\.kafka-serverless\.[a-z0-9-]+\.amazonaws\.com(\.cn)?",
    "Aiven": r"\.aivencloud\.com",
    "ApsaraMQ of Alibaba Cloud": r"\.alikafka\.aliyuncs\.com",
    "Oracle Cloud's Streaming": r"(^|\.)streaming\.[a-z0-9-]+\.oci\.oraclecloud\.com",
    "Redpanda": r"\.cloud\.redpanda\.com",
    "StreamNative": r"\.snio\.cloud",
    "WarpStream": r"\.warpstream\.com",
}
_BY_CLUSTER_ID = {"Redpanda": r"redpanda\..*", "Tansu": r"tansu_cluster"}


def service_of(hosts: Iterable[str], cluster_id: str | None) -> str | None:
    """Return the name of the service, None if neither shows one.

    hosts: of the bootstrap addresses, and of the addresses that the brokers advertise
    """
    names = [host.lower().rstrip(".") for host in hosts]
    for service, pattern in _BY_HOST.items():
        if any(re.search(rf"{pattern}\Z", name) for name in names):
            return service
    for service, pattern in _BY_CLUSTER_ID.items():
        if re.fullmatch(pattern, cluster_id or ""):
            return service
    return None
