"""The options that connections and requests have."""

from __future__ import annotations

from typing import Any, NamedTuple


class ClientSettings(NamedTuple):
    """The network part of the producer's configuration; Kafka's keys with dots as underscores."""

    client_id: str
    request_timeout_ms: int
    max_in_flight_requests_per_connection: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int

    @classmethod
    def of(cls, config: Any) -> ClientSettings:
        """The settings out of a configuration that has fields of the same names."""
        return cls(**{name: getattr(config, name) for name in cls._fields})
