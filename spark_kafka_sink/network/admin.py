"""Requests metadata, brokers, topics and settings from a cluster, and creates topics; calls block.

Drivers and the local Kafka use it where blocking is allowed, for checks before the first task.
Tasks create topics with it. Every wait has a deadline, an instant of the injected clock in
milliseconds.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Sequence
from random import Random

from spark_kafka_sink.base.clock import Clock, RandomSource, SystemClock
from spark_kafka_sink.base.errors import (
    BootstrapError,
    BrokerError,
    ConfigError,
    TopicError,
    UnsupportedVersionError,
    error_for_code,
    error_named,
    sentence,
    warn,
)
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.config.producer_config import (
    BROKER_DEFAULT,
    ProducerConfig,
    TopicCreation,
    parse_bootstrap_servers,
)
from spark_kafka_sink.network.blocking import BlockingClient, Call
from spark_kafka_sink.network.channels import Network
from spark_kafka_sink.network.client import ClientSettings
from spark_kafka_sink.network.transport import SelectorNetwork, canonical_addresses, open_channel_of
from spark_kafka_sink.protocol.messages.topics import (
    TOPIC_RESOURCE,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from spark_kafka_sink.protocol.messages.transactions import InitProducerIdRequest
from spark_kafka_sink.protocol.schema import Message, Request
from spark_kafka_sink.security.security import CLEAR_TEXT, Security

# Time for an unreachable controller, before the brokers are asked for the current controller.
_CONTROLLER_PATIENCE_MS = 2_000

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
"""The network settings of :meth:`AdminClient.connect`: Kafka's defaults for its AdminClient."""


def bootstrap_addresses(config: ProducerConfig) -> Sequence[tuple[str, int]]:
    """Return the bootstrap addresses, resolved as ``client.dns.lookup`` says."""
    if config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only":
        return canonical_addresses(config.bootstrap_servers)
    return config.bootstrap_servers


class AdminClient(BlockingClient):
    """Sends brokers one request at a time. A context manager; not thread-safe.

    Until its deadline, every method reconnects and repeats the request if a connection is lost.

    Raises BootstrapError if no broker is reachable, with a reason for each address. Raises
    AuthenticationError, at once, if a broker rejects this client or this client the broker. Raises
    BrokerError for an error response, and UnsupportedVersionError if a broker is too old.

    Example
    -------
    >>> with AdminClient.connect("localhost:9092") as admin:
    ...     cluster = admin.metadata(["flights"], False, admin.deadline_in(10_000))
    """

    _controller: Node | None = None
    _are_credentials_replaced: Callable[[], bool] | None = None

    @classmethod
    def connect(
        cls,
        bootstrap_servers: str,
        *,
        settings: ClientSettings = DEFAULT_SETTINGS,
        network: Network | None = None,
        clock: Clock | None = None,
        rng: RandomSource | None = None,
        security: Security = CLEAR_TEXT,
    ) -> AdminClient:
        """Return a client for ``"host:port,host:port"`` over real sockets and the machine's clock.

        Sends no request yet, but fetches a token if ``security`` needs one, as ``of`` does. Raises
        ConfigError for text that is not a list of addresses, and AuthenticationError.
        """
        addresses = parse_bootstrap_servers(bootstrap_servers)
        hosts = [host for host, _ in addresses]
        security.prepare_if_possible(settings.request_timeout_ms, hosts)
        network = network or SelectorNetwork(open_channel=open_channel_of(security))
        clock, rng = clock or SystemClock(), rng or Random()
        return cls(addresses, settings, network, clock, rng, security.create_sasl_client)

    @classmethod
    def of(
        cls, config: ProducerConfig, clock: Clock | None = None, patience_ms: int | None = None
    ) -> AdminClient:
        """Return a client with the network settings and the security of a producer.

        patience_ms: time limit for the first token or ticket; None for ``max.block.ms``

        Fetches a token if one is needed. If the token may become available later, each request
        waits for it as for brokers. Raises AuthenticationError, ConfigError.
        """
        security = Security.of(config.security)
        hosts = [host for host, _ in config.bootstrap_servers]
        patience_ms = config.max_block_ms if patience_ms is None else patience_ms
        security.prepare_if_possible(patience_ms, hosts)
        sizes = config.send_buffer_bytes, config.receive_buffer_bytes
        client = cls(
            bootstrap_addresses(config),
            ClientSettings.of(config),
            SelectorNetwork(*sizes, open_channel_of(security)),
            clock or SystemClock(),
            Random(),
            security.create_sasl_client,
        )
        client._are_credentials_replaced = security.credentials_watcher()
        return client

    def renew_if_credentials_changed(self) -> None:
        """Renew the connections of a long-lived client if its stores or references have changed."""
        if self._are_credentials_replaced is not None and self._are_credentials_replaced():
            self._client.renew_connections()

    # --- requests ------------------------------------------------------------------------------

    def metadata(
        self, topics: Sequence[str] | None, allow_auto_topic_creation: bool, deadline_ms: int
    ) -> MetadataResponse:
        """Return brokers, controller and ``topics``: all with None, none with an empty sequence.

        The error of a single topic or partition stays in the response for the caller to judge, so a
        missing topic is reported at once. The method waits only for a topic that is being created:
        one without a leader yet, or a missing one if it may be created. It also waits while a
        broker knows no brokers.
        """
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(named, allow_auto_topic_creation)
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
            # A broker that is still starting knows no broker, not even itself.
            is_alone = not response.brokers and not response.error_code
            if not (is_retriable or is_alone) or not self.pause(attempts, deadline_ms):
                break
            attempts += 1
        if response.error_code:
            raise BrokerError(error, "metadata")
        if is_alone:
            raise BootstrapError(
                "a broker answers, and knows of no broker, itself included: it is still starting, "
                "or has no contact with the controller",
                code="CONNECT-008",
            )
        controller = (n for n in brokers_of(response) if n.node_id == response.controller_id)
        self._controller = next(controller, None)
        return response

    def create_topics(
        self, topics: Sequence[CreatableTopic], timeout_ms: int, validate_only: bool = False
    ) -> dict[str, BrokerError | None]:
        """Create ``topics``; return the error of each topic by name, None for success.

        Topics with a retriable error are retried until ``timeout_ms`` from now. After a lost
        connection, TOPIC_ALREADY_EXISTS may be the result of this very call. With ``validate_only``
        no topic is created. The brokers' metadata show new topics a moment later.
        """
        deadline_ms = self.deadline_in(timeout_ms)
        unknown = error_named("UNKNOWN_SERVER_ERROR")
        results: dict[str, BrokerError | None] = {
            t.name: BrokerError(unknown, f"create topic {t.name}", "the broker did not say")
            for t in topics
        }
        pending = list(topics)
        attempts = 0
        while pending:
            remaining_ms = max(1, deadline_ms - self._clock.now_ms())
            request = CreateTopicsRequest(pending, remaining_ms, validate_only)
            response = self._request_controller(request, deadline_ms)
            assert isinstance(response, CreateTopicsResponse)
            results.update({result.name: _create_error(result) for result in response.topics})
            errors = ((topic, results[topic.name]) for topic in pending)
            pending = [topic for topic, error in errors if error and error.error.retriable]
            if not pending or not self.pause(attempts, deadline_ms):
                break
            self._controller = None
            attempts += 1
        return results

    def nodes(self, deadline_ms: int) -> list[Node]:
        """Return all brokers that the cluster knows."""
        return brokers_of(self.metadata([], False, deadline_ms))

    # --- requests to the controller ------------------------------------------------------------

    def _request_controller(self, request: Request, deadline_ms: int) -> Message:
        """Send to the controller. On KRaft, metadata names any broker, which forwards requests."""
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
                response = self.request_once(Call(ready, request), deadline_ms)
                if response is not None:
                    return response
            self._controller = None


_MAX_SIMILAR = 3


def similar_topics(admin: AdminClient, name: str, deadline_ms: int) -> list[str]:
    """Return existing topics with names like ``name``, the nearest first.

    Brokers list the topics that this principal may DESCRIBE. Raises as ``AdminClient.metadata``.
    """
    described = admin.metadata(None, False, deadline_ms).topics
    names = [topic.name for topic in described if topic.name and not topic.is_internal]
    return difflib.get_close_matches(name, set(names) - {name}, n=_MAX_SIMILAR)


def brokers_of(response: MetadataResponse) -> list[Node]:
    """Return the brokers that a response names."""
    return [Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers]


def _create_error(result: CreatableTopicResult) -> BrokerError | None:
    error = error_for_code(result.error_code)
    what = f"create topic {result.name}"
    return BrokerError(error, what, result.error_message) if result.error_code else None


CREATION_TIMEOUT_MS = 60_000
"""Time for three attempts, each with twice the time of the one before, of a controller that takes
ten seconds per response. Source: ``default.api.timeout.ms``."""


def create_missing(
    admin: AdminClient,
    topics: Sequence[str],
    creation: TopicCreation,
    timeout_ms: int = CREATION_TIMEOUT_MS,
) -> None:
    """Create ``topics``. A topic that exists already stays as it is.

    Several drivers and tasks may do so at once, because later ones find the topic.

    Raises TopicError with the brokers' reason, e.g. a replication factor above the number of
    brokers.
    """
    configs = [CreatableTopicConfig(name, value) for name, value in creation.configs]
    counts = creation.partitions, creation.replication_factor
    new_topics = [CreatableTopic(topic, *counts, configs=configs) for topic in topics]
    for topic, error in admin.create_topics(new_topics, timeout_ms).items():
        if error is not None and error.error.name != "TOPIC_ALREADY_EXISTS":
            hint = _hint(error.error.name, creation)
            raise TopicError(
                f"topic '{topic}' cannot be created by {creation.enabling_option}: "
                f"{sentence(error)}{hint}",
                error.error,
                code="TOPIC-002" if hint else error.code,
            )


def _hint(error_name: str, creation: TopicCreation) -> str:
    """Return the option to set, for errors that an option causes."""
    both = creation.replication_factor == BROKER_DEFAULT
    if error_name == "INVALID_PARTITIONS" and creation.partitions == BROKER_DEFAULT:
        more = f" and {creation.replicas_option}" if both else ""
        begin = " Brokers older than Kafka 2.4 have no default to use: set "
        return f"{begin}topic.creation.partitions{more}"
    if error_name != "INVALID_REPLICATION_FACTOR":
        return ""
    if both:
        return (
            ". The brokers' default.replication.factor is more than there are brokers, or they are "
            f"older than Kafka 2.4 and have no default: set {creation.replicas_option}, to "
            "1 for a cluster of one broker"
        )
    return (
        f". {creation.replicas_option} = {creation.replication_factor} is more than there "
        "are brokers: set it to their number at most, to 1 for a cluster of one broker"
    )


def check_idempotence(admin: AdminClient, deadline_ms: int) -> None:
    """Raise ConfigError if the brokers do not offer InitProducerId."""
    node = admin.any_node(deadline_ms)
    versions = admin.api_versions(node)
    first = InitProducerIdRequest.min_version
    if versions is not None and not versions.offers(InitProducerIdRequest, first):
        raise ConfigError(
            f"{node} does not offer InitProducerId, which kafka.enable.idempotence=true needs: it "
            "is a service without idempotent producers. Set kafka.enable.idempotence=false. A "
            "request whose answer is lost may then duplicate its records, and put them behind "
            "later ones unless kafka.max.in.flight.requests.per.connection=1",
            code="CONNECT-012",
        )


logger = logging.getLogger(__name__)

_NOT_ALLOWED = {"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"}


def configs_of(
    admin: AdminClient, node: Node, kind: int, name: str, keys: list[str], deadline_ms: int
) -> dict[str, str]:
    """Return the configuration of a topic or broker; empty if unavailable, and the log says why.

    It is unavailable if this principal may not read it, or if ``node`` does not answer.
    """
    found, reason = configs_or_reason(admin, node, kind, name, keys, deadline_ms)
    if reason:
        what = f"{', '.join(keys)} of {'topic' if kind == TOPIC_RESOURCE else 'broker'} {name}"
        warn(logger, "TOPIC-003", f"{what} not checked: {reason}")
    return found


def configs_or_reason(
    admin: AdminClient, node: Node, kind: int, name: str, keys: list[str], deadline_ms: int
) -> tuple[dict[str, str], str]:
    """Return the configuration of a topic or broker, or why it is unavailable; log nothing.

    Sends DescribeConfigs, which returns the settings that this principal may read.

    Raises BrokerError for any error except a missing permission, request, or response.
    """
    call = Call(node, DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)]))
    attempts = 0
    while True:
        try:
            (answer,) = admin.request_all([call], deadline_ms)
        except UnsupportedVersionError as error:
            return {}, sentence(error)
        results = answer.results if isinstance(answer, DescribeConfigsResponse) else []
        # Not every broker knows a topic that was just created.
        is_retriable = any(error_for_code(result.error_code).retriable for result in results)
        if not is_retriable or not admin.pause(attempts, deadline_ms):
            break
        attempts += 1
    reason = ""
    found: dict[str, str] = {}
    for result in results:
        code = error_for_code(result.error_code)
        if code.name in _NOT_ALLOWED:
            where = "topic" if kind == TOPIC_RESOURCE else "cluster"
            reason = f"{code}: it needs DESCRIBE_CONFIGS on the {where}"
        elif result.error_code:
            raise BrokerError(code, f"DescribeConfigs of {name}", result.error_message)
        found.update({c.name: c.value for c in result.configs if c.value is not None})
    if not found and not reason:
        what = "did not answer DescribeConfigs" if answer is None else "reports no such setting"
        reason = f"{node} {what}"
    return found, reason
