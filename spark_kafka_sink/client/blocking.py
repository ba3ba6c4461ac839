"""Requests that are waited for: to one node, to several at once, to whichever can be reached.

Every wait ends at a deadline, an instant of the injected clock in milliseconds. A node that took a
request has some seconds for its answer; then its connection is closed, and the request goes to
another node where any will do. So a broker that hangs costs seconds, not the whole deadline. One
that is only slow has twice the time for its next answer, until it is as quick as others again.

Source: ``KafkaAdminClient``, which gives each attempt ``request.timeout.ms``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, TypeVar

from spark_kafka_sink.base.backoff import ExponentialBackoff, RandomSource
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import BootstrapError, BrokerError, error_named
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.interface import Network
from spark_kafka_sink.network.node_connection import ClientResponse
from spark_kafka_sink.network.settings import ClientSettings
from spark_kafka_sink.protocol.api import BrokerApiVersions
from spark_kafka_sink.protocol.schema import Message, Request

# Short: a transaction that is just being completed is so within some milliseconds.
_RETRY_BACKOFF_MS = 20
_RETRY_BACKOFF_MAX_MS = 1_000
# How long nodes that cannot be reached hold up what is asked of the others.
_UNREACHABLE_PATIENCE_MS = 2_000
# How long a node has for an answer, and how often that time is doubled for one that was late.
_ANSWER_MS = 3_000
_MOST_DOUBLINGS = 5


_Client = TypeVar("_Client", bound="BlockingClient")


class Call(NamedTuple):
    """A request for one node. ``at_most_version``: the highest version it may be sent in."""

    node: Node
    request: Request
    at_most_version: int | None = None


class BlockingClient:
    """Asks one question, or several at once, and waits. A context manager; not for several threads.

    ``bootstrap_nodes``: the addresses it was given, as nodes -1, -2, ….

    Errors: BootstrapError if no broker could be reached, with a reason for each address;
    UnsupportedVersionError for a broker that is too old.
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
        self._api_versions: dict[Node, BrokerApiVersions] = {}
        # How often each node was given up since it last answered within the first limit.
        self._unanswered: Counter[Node] = Counter()
        # Which bootstrap node is asked first: another one after each pause.
        self._first = 0

    def __enter__(self: _Client) -> _Client:
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

    # --- time ----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The injected clock's time, in which deadlines are."""
        return self._clock.now_ms()

    def deadline_in(self, timeout_ms: int) -> int:
        """The deadline that is ``timeout_ms`` from now."""
        return self._clock.now_ms() + timeout_ms

    def pause(self, attempts: int, deadline_ms: int) -> bool:
        """Back off before the next try; False if there is no time left for one.

        The next try asks another bootstrap node: who was asked last may be cut off from the other
        brokers, and name leaders and coordinators of the past for as long as that lasts.
        """
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._backoff.backoff_ms(attempts)
        if until_ms >= deadline_ms:
            return False
        self._first = (self._first + 1) % len(self.bootstrap_nodes)
        for node in self.bootstrap_nodes:
            self._client.ready(node, now_ms)  # connects
        while now_ms < until_ms:
            self._client.poll(until_ms - now_ms, now_ms)
            now_ms = self._clock.now_ms()
        return True

    # --- who can be asked ----------------------------------------------------------------------

    def any_node(self, deadline_ms: int) -> Node:
        """A bootstrap node that is connected."""
        return self.await_any(self._any_nodes(), deadline_ms)

    def _any_nodes(self) -> tuple[Node, ...]:
        """The bootstrap nodes, in the order in which they are asked now."""
        return self.bootstrap_nodes[self._first :] + self.bootstrap_nodes[: self._first]

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

    def is_reachable(self, node: Node, deadline_ms: int) -> bool:
        """Connect to ``node``; False if that takes more than a few seconds."""
        try:
            self.await_any((node,), min(deadline_ms, self.deadline_in(_UNREACHABLE_PATIENCE_MS)))
        except BootstrapError:
            return False
        return True

    def api_versions(self, node: Node) -> BrokerApiVersions | None:
        """What ``node`` speaks and which features are finalized, as told when it was asked last;
        None before that.
        """
        return self._client.api_versions(node) or self._api_versions.get(node)

    def _unreachable(self, nodes: Sequence[Node]) -> BootstrapError:
        reasons = (
            f"{node.address} ({self._client.why_not_ready(node) or 'no answer yet'})"
            for node in nodes
        )
        return BootstrapError(f"no broker reachable: {', '.join(reasons)}")

    # --- questions -----------------------------------------------------------------------------

    def request(self, node: Node | None, request: Request, deadline_ms: int) -> Message:
        """Send ``request`` to ``node``, or with None to whichever bootstrap node answers first.

        Returns the response, whatever error codes it carries. Until the deadline, it reconnects
        and asks again when a connection is lost or nothing is answered. Raises BrokerError with
        REQUEST_TIMED_OUT when the deadline finds a broker asked and silent.
        """
        while True:
            nodes = self._any_nodes() if node is None else (node,)
            ready = self.await_any(nodes, deadline_ms)
            response = self.ask_once(Call(ready, request), deadline_ms)
            if response is not None:
                return response

    def ask_once(self, call: Call, deadline_ms: int) -> Message | None:
        """The response of a node that is connected; None if there was none, and there is time."""
        (answer,) = self.request_all([call], deadline_ms)
        if answer is None and self._clock.now_ms() >= deadline_ms:
            name = type(call.request).__name__.removesuffix("Request")
            timed_out = error_named("REQUEST_TIMED_OUT")
            raise BrokerError(timed_out, f"{name}: no answer of {call.node}")
        return answer

    def request_all(self, calls: Sequence[Call], deadline_ms: int) -> list[Message | None]:
        """Ask several nodes at once; the responses in the order of ``calls``.

        None where the connection was lost before the answer, or the node could not be reached or
        did not answer within a few seconds: whether it did what it was asked is not known then.
        """
        answers: list[Message | None] = [None] * len(calls)
        waiting: dict[Node, deque[int]] = {}
        for index, call in enumerate(calls):
            waiting.setdefault(call.node, deque()).append(index)
        # When the connection of each call that has no answer yet is given up.
        open_calls: dict[int, int] = {}
        patience_ms = min(deadline_ms, self.deadline_in(_UNREACHABLE_PATIENCE_MS))
        while waiting or open_calls:
            now_ms = self._clock.now_ms()
            for node, indices in list(waiting.items()):
                while indices and self._client.ready(node, now_ms):
                    index = indices.popleft()
                    open_calls[index] = now_ms + self._answer_ms(node)
                    self._send(calls[index], index, answers, open_calls)
                if not indices or (now_ms >= patience_ms and not self._is_asked(node)):
                    del waiting[node]
            if now_ms >= deadline_ms:
                break
            for index in [i for i, until_ms in open_calls.items() if now_ms >= until_ms]:
                self._give_up(calls[index].node)
            if waiting or open_calls:
                until_ms = min([deadline_ms, *open_calls.values()])
                self._client.poll(self._wait_ms(waiting, until_ms, now_ms), now_ms)
        return answers

    def _answer_ms(self, node: Node) -> int:
        return _ANSWER_MS << min(self._unanswered[node], _MOST_DOUBLINGS)

    def _give_up(self, node: Node) -> None:
        """Close the connection to ``node``, which completes its calls, if that is not done yet."""
        if self._is_asked(node):
            self._client.disconnect(node, f"no answer within {self._answer_ms(node)} ms")
            self._unanswered[node] += 1

    def _is_asked(self, node: Node) -> bool:
        """Whether ``node`` is connected, and answers what it was asked before."""
        return self._client.is_any_connected((node,))

    def _send(
        self,
        call: Call,
        index: int,
        answers: list[Message | None],
        open_calls: dict[int, int],
    ) -> None:
        def complete(response: ClientResponse, _: int) -> None:
            answers[index] = response.response
            open_calls.pop(index, None)
            if response.response is not None and response.latency_ms < _ANSWER_MS:
                del self._unanswered[call.node]

        node, request, at_most_version = call
        versions = self._client.api_versions(node)
        assert versions is not None, "the node is ready"
        self._api_versions[node] = versions
        now_ms = self._clock.now_ms()
        self._client.send(node, request, now_ms, complete, at_most_version=at_most_version)

    def _wait_ms(self, waiting: Iterable[Node], until_ms: int, now_ms: int) -> int:
        delays = [self._client.poll_delay_ms(node, now_ms) for node in waiting]
        longest_ms = max(0, until_ms - now_ms)
        if waiting:
            longest_ms = min(longest_ms, _UNREACHABLE_PATIENCE_MS)
        return min([longest_ms, *(delay for delay in delays if delay is not None)])
