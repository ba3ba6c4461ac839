"""A small blocking client: metadata, topics, any single request.

For what happens once and may wait: checks on the driver before the first task, and the local Kafka.
Every wait ends at a deadline, an instant of the injected clock in milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from types import TracebackType
from typing import NamedTuple

from spark_kafka_sink.base.backoff import ExponentialBackoff, RandomSource
from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.errors import BootstrapError, BrokerError, error_for_code, error_named
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.config.bootstrap import parse_bootstrap_servers
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client import ClientSettings, NetworkClient
from spark_kafka_sink.network.interface import Network
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.network.resolver import canonical_addresses
from spark_kafka_sink.network.transport import SelectorNetwork
from spark_kafka_sink.protocol.api import BrokerApiVersions
from spark_kafka_sink.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from spark_kafka_sink.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from spark_kafka_sink.protocol.schema import Message, Request

# Short: a transaction that is just being completed is so within some milliseconds.
_RETRY_BACKOFF_MS = 20
_RETRY_BACKOFF_MAX_MS = 1_000
# How long an unreachable controller is waited for before the brokers are asked who it is now.
_CONTROLLER_PATIENCE_MS = 2_000

# How long nodes that cannot be reached hold up what is asked of the others.
_UNREACHABLE_PATIENCE_MS = 2_000

DEFAULT_SETTINGS = ClientSettings(
    client_id="pykafka-sink-admin",
    request_timeout_ms=30_000,
    max_in_flight_requests_per_connection=5,
    reconnect_backoff_ms=50,
    reconnect_backoff_max_ms=1_000,
    socket_connection_setup_timeout_ms=10_000,
    socket_connection_setup_timeout_max_ms=30_000,
    connections_max_idle_ms=540_000,
)
"""The network settings of :meth:`AdminClient.connect`; Kafka's defaults for its AdminClient."""


def bootstrap_addresses(config: ProducerConfig) -> Sequence[tuple[str, int]]:
    """The addresses to begin with, by ``client.dns.lookup``."""
    if config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only":
        return canonical_addresses(config.bootstrap_servers)
    return config.bootstrap_servers


class Call(NamedTuple):
    """A request for one node. ``at_most_version``: the highest version it may be sent in."""

    node: Node
    request: Request
    at_most_version: int | None = None


class AdminClient:
    """Asks brokers one question at a time. A context manager; not for several threads.

    ``bootstrap_nodes``: the addresses it was given, as nodes -1, -2, ….

    Until its deadline, every method reconnects and asks again when a connection is lost. Errors:
    BootstrapError if no broker could be reached, with a reason for each address; BrokerError for
    an answer that is an error; UnsupportedVersionError for a broker that is too old.

    Example
    -------
    >>> with AdminClient.connect("localhost:9092") as admin:
    ...     cluster = admin.metadata(["flights"], False, admin.deadline_in(10_000))
    """

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        settings: ClientSettings,
        network: Network,
        clock: Clock,
        rng: RandomSource,
    ) -> None:
        self.bootstrap_nodes = tuple(
            Node(-1 - index, host, port) for index, (host, port) in enumerate(bootstrap)
        )
        self._clock = clock
        self._client = NetworkClient(settings, network, clock, rng)
        self._backoff = ExponentialBackoff(_RETRY_BACKOFF_MS, _RETRY_BACKOFF_MAX_MS, rng)
        self._controller: Node | None = None

    @classmethod
    def connect(
        cls,
        bootstrap_servers: str,
        *,
        settings: ClientSettings = DEFAULT_SETTINGS,
        network: Network | None = None,
        clock: Clock | None = None,
        rng: RandomSource | None = None,
    ) -> AdminClient:
        """A client for ``"host:port,host:port"`` over real sockets and the machine's clock.

        Nothing is sent yet. Raises ConfigError for text that is not a list of addresses.
        """
        addresses = parse_bootstrap_servers(bootstrap_servers)
        network = SelectorNetwork() if network is None else network
        clock = SystemClock() if clock is None else clock
        return cls(addresses, settings, network, clock, Random() if rng is None else rng)

    @classmethod
    def of(cls, config: ProducerConfig, clock: Clock | None = None) -> AdminClient:
        """A client with the network settings of a producer."""
        network = SelectorNetwork(config.send_buffer_bytes, config.receive_buffer_bytes)
        clock = SystemClock() if clock is None else clock
        settings = ClientSettings.of(config)
        return cls(bootstrap_addresses(config), settings, network, clock, Random())

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def now_ms(self) -> int:
        """The injected clock's time, in which deadlines are."""
        return self._clock.now_ms()

    def deadline_in(self, timeout_ms: int) -> int:
        """The deadline that is ``timeout_ms`` from now."""
        return self._clock.now_ms() + timeout_ms

    # --- questions -----------------------------------------------------------------------------

    def metadata(
        self, topics: Sequence[str] | None, allow_auto_topic_creation: bool, deadline_ms: int
    ) -> MetadataResponse:
        """Brokers, controller and ``topics``: all with None, none with an empty sequence.

        The error of a single topic or partition stays in the response for the caller to judge: a
        missing topic is told at once. Only a topic that is being created is waited for, which is
        one without a leader yet, or a missing one if it may be created.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(wanted, allow_auto_topic_creation)
        awaited = {"LEADER_NOT_AVAILABLE"}
        if allow_auto_topic_creation:
            awaited.add("UNKNOWN_TOPIC_OR_PARTITION")
        attempts = 0
        while True:
            response = self.request(None, request, deadline_ms)
            assert isinstance(response, MetadataResponse)
            error = error_for_code(response.error_code)
            is_retriable = error.retriable or any(
                error_for_code(topic.error_code).name in awaited for topic in response.topics
            )
            if not is_retriable or not self.pause(attempts, deadline_ms):
                break
            attempts += 1
        if response.error_code:
            raise BrokerError(error, "metadata")
        self._controller = _controller_of(response)
        return response

    def create_topics(
        self, topics: Sequence[CreatableTopic], timeout_ms: int, validate_only: bool = False
    ) -> dict[str, BrokerError | None]:
        """Create ``topics``; by name, the error of each, None where there is none.

        Topics with a retriable error are tried again until ``timeout_ms`` from now. After a lost
        connection, TOPIC_ALREADY_EXISTS may be the doing of this very call. With ``validate_only``
        nothing is created. The brokers' metadata show new topics a moment later.
        """
        deadline_ms = self.deadline_in(timeout_ms)
        results: dict[str, BrokerError | None] = {topic.name: _not_told(topic) for topic in topics}
        pending = list(topics)
        attempts = 0
        while pending:
            remaining_ms = max(1, deadline_ms - self._clock.now_ms())
            request = CreateTopicsRequest(pending, remaining_ms, validate_only)
            response = self._request_controller(request, deadline_ms)
            assert isinstance(response, CreateTopicsResponse)
            results.update({result.name: _create_error(result) for result in response.topics})
            pending = [topic for topic in pending if _is_retriable(results[topic.name])]
            if not pending or not self.pause(attempts, deadline_ms):
                break
            self._controller = None
            attempts += 1
        return results

    def request(self, node: Node | None, request: Request, deadline_ms: int) -> Message:
        """Send ``request`` to ``node``, or with None to whichever bootstrap node answers first.

        Returns the response, whatever error codes it carries.
        """
        nodes = self.bootstrap_nodes if node is None else (node,)
        while True:
            ready = self.await_any(nodes, deadline_ms)
            response = self._exchange(ready, request, deadline_ms)
            if response is not None:
                return response

    def request_all(self, calls: Sequence[Call], deadline_ms: int) -> list[Message | None]:
        """Ask several nodes at once; the responses in the order of ``calls``.

        None where the connection was lost before the answer, or the node could not be reached
        within a few seconds: whether the broker did what it was asked is not known then.
        """
        answers: list[Message | None] = [None] * len(calls)
        waiting: dict[Node, deque[int]] = {}
        for index, call in enumerate(calls):
            waiting.setdefault(call.node, deque()).append(index)
        open_calls: set[int] = set()
        patience_ms = min(deadline_ms, self.deadline_in(_UNREACHABLE_PATIENCE_MS))
        while waiting or open_calls:
            now_ms = self._clock.now_ms()
            for node, indices in list(waiting.items()):
                while indices and self._client.ready(node, now_ms):
                    self._send_one_of(calls, indices.popleft(), answers, open_calls, now_ms)
                if not indices or now_ms >= patience_ms:
                    del waiting[node]
            if now_ms >= deadline_ms:
                break
            if waiting or open_calls:
                self._client.poll(self._wait_ms(waiting, deadline_ms, now_ms), now_ms)
        return answers

    def _send_one_of(
        self,
        calls: Sequence[Call],
        index: int,
        answers: list[Message | None],
        open_calls: set[int],
        now_ms: int,
    ) -> None:
        def complete(response: ClientResponse, _: int) -> None:
            answers[index] = response.response
            open_calls.discard(index)

        node, request, at_most_version = calls[index]
        self._client.send(node, request, now_ms, complete, at_most_version=at_most_version)
        open_calls.add(index)

    def _wait_ms(self, waiting: Iterable[Node], deadline_ms: int, now_ms: int) -> int:
        delays = [self._client.poll_delay_ms(node, now_ms) for node in waiting]
        longest_ms = deadline_ms - now_ms
        if waiting:
            longest_ms = min(longest_ms, _UNREACHABLE_PATIENCE_MS)
        return min([longest_ms, *(delay for delay in delays if delay is not None)])

    def nodes(self, deadline_ms: int) -> list[Node]:
        """All brokers that the cluster knows."""
        response = self.metadata([], False, deadline_ms)
        return [Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers]

    def any_node(self, deadline_ms: int) -> Node:
        """A bootstrap node that is connected."""
        return self.await_any(self.bootstrap_nodes, deadline_ms)

    def is_reachable(self, node: Node, deadline_ms: int) -> bool:
        """Connect to ``node``; False if that takes more than a few seconds."""
        try:
            self.await_any((node,), min(deadline_ms, self.deadline_in(_UNREACHABLE_PATIENCE_MS)))
        except BootstrapError:
            return False
        return True

    def api_versions(self, node: Node) -> BrokerApiVersions | None:
        """What ``node`` speaks and which features are finalized; None before it was asked."""
        return self._client.api_versions(node)

    # --- how they are asked --------------------------------------------------------------------

    def _request_controller(self, request: Request, deadline_ms: int) -> Message:
        """Send to the controller; on KRaft, metadata names any broker, which forwards."""
        while True:
            if self._controller is None:
                self.metadata([], False, deadline_ms)
            nodes = self.bootstrap_nodes if self._controller is None else (self._controller,)
            try:
                patience_ms = min(deadline_ms, self.deadline_in(_CONTROLLER_PATIENCE_MS))
                ready = self.await_any(nodes, patience_ms)
            except BootstrapError:
                if self._clock.now_ms() >= deadline_ms:
                    raise
            else:
                response = self._exchange(ready, request, deadline_ms)
                if response is not None:
                    return response
            self._controller = None

    def await_any(self, nodes: Sequence[Node], deadline_ms: int) -> Node:
        """The first of ``nodes`` that can be reached; while none is, all are connected to.

        A dead address thus costs no time, and if all are dead, each has its own reason.
        """
        while True:
            now_ms = self._clock.now_ms()
            for node in nodes:
                if self._client.is_ready(node, now_ms):
                    return node
            if now_ms >= deadline_ms:
                raise self._unreachable(nodes)
            waits = [deadline_ms - now_ms]
            for node in nodes:
                self._client.ready(node, now_ms)
                delay_ms = self._client.poll_delay_ms(node, now_ms)
                if delay_ms is not None:
                    waits.append(delay_ms)
            self._client.poll(min(waits), now_ms)

    def _exchange(self, node: Node, request: Request, deadline_ms: int) -> Message | None:
        """One request and its response; None if the connection was lost in between."""
        answers: list[ClientResponse] = []
        now_ms = self._clock.now_ms()
        self._client.send(node, request, now_ms, lambda answer, _: answers.append(answer))
        while not answers:
            now_ms = self._clock.now_ms()
            if now_ms >= deadline_ms:
                name = type(request).__name__.removesuffix("Request")
                raise BrokerError(error_named("REQUEST_TIMED_OUT"), f"{name}: no answer of {node}")
            self._client.poll(deadline_ms - now_ms, now_ms)
        return answers[0].response

    def pause(self, attempts: int, deadline_ms: int) -> bool:
        """Back off before the next try; False if there is no time left for one."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._backoff.backoff_ms(attempts)
        if until_ms >= deadline_ms:
            return False
        while now_ms < until_ms:
            self._client.poll(until_ms - now_ms, now_ms)
            now_ms = self._clock.now_ms()
        return True

    def _unreachable(self, nodes: Sequence[Node]) -> BootstrapError:
        reasons = (
            f"{node.address} ({self._client.last_failure(node) or 'no answer yet'})"
            for node in nodes
        )
        return BootstrapError(f"no broker reachable: {', '.join(reasons)}")


def _controller_of(response: MetadataResponse) -> Node | None:
    for broker in response.brokers:
        if broker.node_id == response.controller_id:
            return Node(broker.node_id, broker.host, broker.port, broker.rack)
    return None


def _create_error(result: CreatableTopicResult) -> BrokerError | None:
    if not result.error_code:
        return None
    error = error_for_code(result.error_code)
    return BrokerError(error, f"create topic {result.name}", result.error_message)


def _not_told(topic: CreatableTopic) -> BrokerError:
    unknown = error_named("UNKNOWN_SERVER_ERROR")
    return BrokerError(unknown, f"create topic {topic.name}", "the broker did not say")


def _is_retriable(error: BrokerError | None) -> bool:
    return error is not None and error.error.retriable
