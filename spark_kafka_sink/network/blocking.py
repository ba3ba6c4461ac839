"""Requests that block: to one node, to several nodes at once, or to any reachable node.

Every wait has a deadline, an instant of the injected clock in milliseconds. A broker that hangs
must not use up the whole deadline:

- A request that any node can answer also goes to another node after a quarter of a second without a
  response. The first response counts, even if it is from the slow node.
- A request to a leader or coordinator is abandoned if other nodes name another leader or
  coordinator. The others are asked four times per second while the node is silent.
- A node that accepted a request has some seconds for its response. Then its connection is closed,
  and a new one shows whether the node is alive. A node that is only slow has twice the time for its
  next response, until it is as quick as others again.

Source: ``KafkaAdminClient``, which gives each attempt ``request.timeout.ms``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

from spark_kafka_sink.base.clock import Clock, ExponentialBackoff, RandomSource
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerError,
    error_named,
    joined,
)
from spark_kafka_sink.base.model import Node, dataclass
from spark_kafka_sink.network.channels import Network
from spark_kafka_sink.network.client import ClientSettings, NetworkClient
from spark_kafka_sink.network.node_connection import NO_ANSWER, ClientResponse
from spark_kafka_sink.protocol.api import BrokerApiVersions
from spark_kafka_sink.protocol.connection import SaslClientFactory
from spark_kafka_sink.protocol.messages.topics import MetadataRequest
from spark_kafka_sink.protocol.schema import Message, Request

SILENT_MS = 250
"""Silence in ms, after which other nodes get the request, or are asked for the current node."""


class Call(NamedTuple):
    """A request to one node. ``at_most_version``: the highest version to send it in."""

    node: Node
    request: Request
    at_most_version: int | None = None


@dataclass(slots=True)
class SentCall:
    """A call that was sent.

    until_ms: when its connection is closed if no response has come
    is_open: True while the response is awaited
    """

    call: Call
    until_ms: int
    is_open: bool = True
    answer: Message | None = None


class PendingCalls:
    """Calls that are awaited together, by position.

    waiting: calls that are not sent yet, by node
    look_ms: when silent nodes are looked for next
    """

    def __init__(self, calls: Sequence[Call], now_ms: int) -> None:
        self.calls = calls
        self.waiting: dict[Node, deque[int]] = {}
        for position, call in enumerate(calls):
            self.waiting.setdefault(call.node, deque()).append(position)
        self.sent: dict[int, SentCall] = {}
        self.look_ms = now_ms + SILENT_MS
        self._missing = {node: len(positions) for node, positions in self.waiting.items()}

    @property
    def open(self) -> list[SentCall]:
        return [sent_call for sent_call in self.sent.values() if sent_call.is_open]

    def answers(self) -> list[Message | None]:
        """Return the responses in the order of the calls; None for calls without one."""
        positions = range(len(self.calls))
        return [self.sent[p].answer if p in self.sent else None for p in positions]

    def silent(self) -> list[int]:
        """Return the open calls to nodes that were silent since this method was called last."""
        missing = {node: list(positions) for node, positions in self.waiting.items()}
        for position, sent_call in self.sent.items():
            if sent_call.is_open:
                missing.setdefault(sent_call.call.node, []).append(position)
        before = self._missing
        self._missing = {node: len(positions) for node, positions in missing.items()}
        return [
            p for node, found in missing.items() if before.get(node) == len(found) for p in found
        ]

    def leave(self, positions: Collection[int]) -> None:
        """Stop waiting for these calls."""
        for node, waiting in list(self.waiting.items()):
            self.waiting[node] = deque(p for p in waiting if p not in positions)
            if not self.waiting[node]:
                del self.waiting[node]
        for position in self.sent.keys() & positions:
            self.sent[position].is_open = False


# Short, because a transaction in completion completes within some milliseconds.
_RETRY_BACKOFF_MS = 20
_RETRY_BACKOFF_MAX_MS = 250
# Time that unreachable nodes may delay the requests to the other nodes.
_UNREACHABLE_PATIENCE_MS = 2_000
# Time of a node for a response, and how often a late node gets twice that time.
_ANSWER_MS = 3_000
_MAX_DOUBLINGS = 5


_Client = TypeVar("_Client", bound="BlockingClient")

FindMoved = Callable[[Sequence[int]], Collection[int]]
"""Takes positions of calls to silent nodes; returns those that must go to another node now."""


class BlockingClient:
    """Sends one request, or several at once, and waits. A context manager; not thread-safe.

    ``bootstrap_nodes``: the given addresses, as nodes -1, -2, ….

    Raises BootstrapError if no broker is reachable, with a reason for each address. Raises
    AuthenticationError, at once, if a broker rejects this client or this client the broker. Raises
    UnsupportedVersionError if a broker is too old.
    """

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        settings: ClientSettings,
        network: Network,
        clock: Clock,
        rng: RandomSource,
        create_sasl_client: SaslClientFactory | None = None,
    ) -> None:
        """``create_sasl_client`` begins an authentication with a host; None without SASL."""
        self.bootstrap_nodes = tuple(
            Node(-1 - index, host, port) for index, (host, port) in enumerate(bootstrap)
        )
        self._clock = clock
        self._client = NetworkClient(settings, network, clock, rng, create_sasl_client)
        self._refusals: list[AuthenticationError] = []
        self._client.on_refused = self._refusals.append
        self.gives_up_on_other_protocols = False
        """Raise BootstrapError at once if every node has another protocol than Kafka's."""
        self._backoff = ExponentialBackoff(_RETRY_BACKOFF_MS, _RETRY_BACKOFF_MAX_MS, rng)
        self._api_versions: dict[Node, BrokerApiVersions] = {}
        # Timeouts of each node since its last response within the first time limit.
        self._unanswered: Counter[Node] = Counter()
        # Index of the bootstrap node that is asked first: another one after each pause.
        self._first = 0

    def __enter__(self: _Client) -> _Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    # --- time ----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the injected clock's time, on which deadlines are based."""
        return self._clock.now_ms()

    def deadline_in(self, timeout_ms: int) -> int:
        """Return the deadline that is ``timeout_ms`` from now."""
        return self._clock.now_ms() + timeout_ms

    def pause(self, attempts: int, deadline_ms: int) -> bool:
        """Back off before the next attempt; return False if no time is left for one.

        The next attempt asks another bootstrap node. The node that was asked last may be cut off
        from the other brokers, and then keeps naming former leaders and coordinators.
        """
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._backoff.backoff_ms(attempts)
        if until_ms >= deadline_ms:
            return False
        self._ask_another_first(now_ms)
        while now_ms < until_ms:
            self._wait(until_ms - now_ms, now_ms)
            now_ms = self._clock.now_ms()
        return True

    # --- reachable nodes -----------------------------------------------------------------------

    def any_node(self, deadline_ms: int) -> Node:
        """Return a bootstrap node that is connected."""
        return self.await_any(self._any_nodes(), deadline_ms)

    def learn_cluster(self, deadline_ms: int) -> None:
        """Request the cluster's id, with which brokers reject misrouted connections (KIP-1242).

        A client that sends no other metadata request must call this before it connects to the
        nodes that brokers name.
        """
        if self._client.must_learn_cluster(self.any_node(deadline_ms)):
            self.request(None, MetadataRequest([], False), deadline_ms)

    def _ask_another_first(self, now_ms: int) -> None:
        self._first = (self._first + 1) % len(self.bootstrap_nodes)
        for node in self.bootstrap_nodes:
            self._client.ready(node, now_ms)  # connects

    def _any_nodes(self) -> tuple[Node, ...]:
        """Return the bootstrap nodes, in the order in which they are asked now."""
        return self.bootstrap_nodes[self._first :] + self.bootstrap_nodes[: self._first]

    def await_any(self, nodes: Sequence[Node], deadline_ms: int) -> Node:
        """Return the least busy one of ``nodes`` that is ready; until one is, connect to all.

        A dead address thus costs no time. If all are dead, the error has a reason for each.
        """
        while True:
            now_ms = self._clock.now_ms()
            ready = [node for node in nodes if self._client.is_ready(node, now_ms)]
            if ready:
                # A node with requests in flight may hang.
                return min(ready, key=self._client.in_flight_count)
            if now_ms >= deadline_ms or self._is_hopeless(nodes):
                raise self._unreachable(nodes)
            self._connect_until(nodes, deadline_ms, now_ms)

    def await_all(self, nodes: Sequence[Node], deadline_ms: int) -> list[Node]:
        """Return those of ``nodes`` that are reachable within a few seconds."""
        deadline_ms = min(deadline_ms, self.deadline_in(_UNREACHABLE_PATIENCE_MS))
        while True:
            now_ms = self._clock.now_ms()
            missing = [node for node in nodes if not self._is_asked(node)]
            if not missing or now_ms >= deadline_ms:
                return [node for node in nodes if node not in missing]
            self._connect_until(missing, deadline_ms, now_ms)

    def _connect_until(self, nodes: Iterable[Node], deadline_ms: int, now_ms: int) -> None:
        """Connect to each of ``nodes``, and wait for an event."""
        waits = [deadline_ms - now_ms]
        for node in nodes:
            self._client.ready(node, now_ms)
            delay_ms = self._client.poll_delay_ms(node, now_ms)
            if delay_ms is not None:
                waits.append(delay_ms)
        self._wait(min(waits), now_ms)

    def api_versions(self, node: Node) -> BrokerApiVersions | None:
        """Return the API versions and finalized features of ``node``, as last reported, or None."""
        return self._client.api_versions(node) or self._api_versions.get(node)

    def _is_hopeless(self, nodes: Sequence[Node]) -> bool:
        """Return True if no deadline is worth waiting for: no node has Kafka's protocol."""
        return self.gives_up_on_other_protocols and all(map(self._client.is_not_kafka, nodes))

    def _unreachable(self, nodes: Sequence[Node]) -> BootstrapError:
        why, now_ms = self._client.why_not_ready, self._clock.now_ms()
        reasons = (f"{node.address} ({why(node, now_ms) or NO_ANSWER})" for node in nodes)
        # Several brokers may advertise the same address.
        text = f"no broker reachable: {joined(dict.fromkeys(reasons))}"
        return BootstrapError(text, code="CONNECT-001")

    def _timed_out(self, call: Call) -> BrokerError:
        name = type(call.request).__name__.removesuffix("Request")
        why = self._client.last_failure(call.node)
        before = None if why is None else f"Before that: {why}"
        what = f"{name}: no answer of {call.node}"
        return BrokerError(error_named("REQUEST_TIMED_OUT"), what, before)

    # --- requests ------------------------------------------------------------------------------

    def request(self, node: Node | None, request: Request, deadline_ms: int) -> Message:
        """Send ``request`` to ``node``, or with None to the bootstrap node that answers first.

        Returns the response, whatever error codes it has. Until the deadline, it reconnects and
        repeats the request if a connection is lost or no response arrives. Raises BrokerError with
        REQUEST_TIMED_OUT if a broker has the request and is silent at the deadline.
        """
        if node is None:
            return self._request_any(request, deadline_ms)
        while True:
            ready = self.await_any((node,), deadline_ms)
            response = self.request_once(Call(ready, request), deadline_ms)
            if response is not None:
                return response

    def _request_any(self, request: Request, deadline_ms: int) -> Message:
        """Ask one bootstrap node after the other; return the first response."""
        sent_calls: list[SentCall] = []
        next_ms = 0
        while True:
            now_ms = self._clock.now_ms()
            for sent_call in sent_calls:
                if sent_call.answer is not None:
                    return sent_call.answer
            sent_calls = [sent_call for sent_call in sent_calls if sent_call.is_open]
            if now_ms >= deadline_ms or self._is_hopeless(self.bootstrap_nodes):
                if sent_calls:
                    raise self._timed_out(sent_calls[0].call)
                raise self._unreachable(self.bootstrap_nodes)
            if not sent_calls or now_ms >= next_ms:
                others = self._not_among(sent_calls)
                ready = [node for node in others if self._client.ready(node, now_ms)]
                if ready:
                    # A node with requests in flight may hang.
                    node = min(ready, key=self._client.in_flight_count)
                    sent_calls.append(self._send(Call(node, request), now_ms))
                    next_ms = now_ms + SILENT_MS
            self._disconnect_late(sent_calls, now_ms)
            until_ms = min([deadline_ms, *(sent_call.until_ms for sent_call in sent_calls)])
            if sent_calls and now_ms < next_ms:
                self._poll((), min(until_ms, next_ms), now_ms)
            else:
                self._poll(self._not_among(sent_calls), until_ms, now_ms)

    def _not_among(self, sent_calls: Sequence[SentCall]) -> list[Node]:
        nodes = {sent_call.call.node for sent_call in sent_calls}
        return [node for node in self._any_nodes() if node not in nodes]

    def request_once(self, call: Call, deadline_ms: int) -> Message | None:
        """Return the response of a connected node; None without one, if time is left."""
        (answer,) = self.request_all([call], deadline_ms)
        if answer is None and self._clock.now_ms() >= deadline_ms:
            raise self._timed_out(call)
        return answer

    def request_all(
        self, calls: Sequence[Call], deadline_ms: int, have_moved: FindMoved | None = None
    ) -> list[Message | None]:
        """Send calls to several nodes at once; return the responses in the order of ``calls``.

        A response is None if the connection was lost, or if the node was unreachable or silent for
        a few seconds. It is also None if another node must be asked. In all three cases, the node
        may or may not have executed the request.
        """
        pending = PendingCalls(calls, self._clock.now_ms())
        patience_ms = min(deadline_ms, self.deadline_in(_UNREACHABLE_PATIENCE_MS))
        while True:
            now_ms = self._clock.now_ms()
            self._send_waiting(pending, now_ms, patience_ms)
            self._disconnect_late(pending.open, now_ms)
            if now_ms >= deadline_ms or not (pending.waiting or pending.open):
                return pending.answers()
            until_ms = min([deadline_ms, *(sent_call.until_ms for sent_call in pending.open)])
            if have_moved is None:
                self._poll(pending.waiting, until_ms, now_ms)
            elif now_ms < pending.look_ms:
                self._poll(pending.waiting, min(until_ms, pending.look_ms), now_ms)
            else:
                silent = pending.silent()
                if silent:
                    self._ask_another_first(now_ms)
                    pending.leave(have_moved(silent))
                pending.look_ms = self.deadline_in(SILENT_MS)

    def _send_waiting(self, pending: PendingCalls, now_ms: int, patience_ms: int) -> None:
        for node, positions in list(pending.waiting.items()):
            while positions and self._client.ready(node, now_ms):
                position = positions.popleft()
                pending.sent[position] = self._send(pending.calls[position], now_ms)
            if not positions or (now_ms >= patience_ms and not self._is_asked(node)):
                del pending.waiting[node]

    def _answer_ms(self, node: Node) -> int:
        return _ANSWER_MS << min(self._unanswered[node], _MAX_DOUBLINGS)

    def _disconnect_late(self, sent_calls: Iterable[SentCall], now_ms: int) -> None:
        """Close the connections to late nodes, which completes their calls."""
        late = {sent.call.node for sent in sent_calls if sent.is_open and now_ms >= sent.until_ms}
        for node in late:
            if self._is_asked(node):
                self._client.disconnect(node, f"no answer within {self._answer_ms(node)} ms")
                self._unanswered[node] += 1

    def _is_asked(self, node: Node) -> bool:
        """Return True if ``node`` is connected, even if it is busy with earlier requests."""
        return self._client.is_any_connected((node,))

    def _send(self, call: Call, now_ms: int) -> SentCall:
        node, request, at_most_version = call
        sent_call = SentCall(call, now_ms + self._answer_ms(node))

        def complete(response: ClientResponse, _: int) -> None:
            sent_call.is_open = False
            sent_call.answer = response.response
            if response.response is not None and response.latency_ms < _ANSWER_MS:
                del self._unanswered[node]

        versions = self._client.api_versions(node)
        assert versions is not None, "the node is ready"
        self._api_versions[node] = versions
        self._client.send(node, request, now_ms, complete, at_most_version=at_most_version)
        return sent_call

    def _wait(self, timeout_ms: int, now_ms: int) -> None:
        """Wait for any event. Raises AuthenticationError if one side rejects the other."""
        self._client.poll(timeout_ms, now_ms)
        if self._refusals:
            refusal = self._refusals[-1]
            self._refusals.clear()
            raise refusal

    def _poll(self, waiting: Iterable[Node], until_ms: int, now_ms: int) -> None:
        """Poll until ``until_ms``, or until one of the nodes ``waiting`` needs an action."""
        delays = [self._client.poll_delay_ms(node, now_ms) for node in waiting]
        longest_ms = max(0, until_ms - now_ms)
        if delays:
            longest_ms = min(longest_ms, _UNREACHABLE_PATIENCE_MS)
        wait_ms = min([longest_ms, *(delay for delay in delays if delay is not None)])
        self._wait(wait_ms, now_ms)
