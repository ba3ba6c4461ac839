"""Coordinators of transactions: how to find them, the requests to them, and verdicts on responses.

The functions build FindCoordinator and AddPartitionsToTxn requests and judge the responses, without
I/O. The producer's sender calls them step by step. :class:`Coordinators` calls them for the driver,
and blocks. So both send the same requests and draw the same conclusions.

:class:`CoordinatorWait` logs what the driver waits for, as a producer does for its rows.

Source: ``TransactionManager``'s handlers, ``TransactionManager.FindCoordinatorHandler``,
``CoordinatorStrategy``; KIP-98, KIP-699, KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import (
    BrokerError,
    KafkaErrorCode,
    KafkaSinkError,
    TransactionError,
    error_for_code,
    error_named,
    transaction_advice_for,
    warn,
)
from spark_kafka_sink.base.model import Node, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.base.text import some_of
from spark_kafka_sink.network.blocking import BlockingClient, Call
from spark_kafka_sink.protocol.api import BrokerApiVersions
from spark_kafka_sink.protocol.connection import SOFTWARE_NAME
from spark_kafka_sink.protocol.messages.client import ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.messages.transactions import (
    BATCHED_VERSION,
    TRANSACTION_KEY_TYPE,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    Coordinator,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    TransactionState,
)
from spark_kafka_sink.protocol.schema import Message, Request

logger = logging.getLogger(__name__)


class Verdict(Enum):
    """The next step after a response."""

    DONE = auto()
    RETRY = auto()
    RETRY_SOON = auto()
    FIND_AGAIN = auto()
    FATAL = auto()


VERDICTS = {
    "NONE": Verdict.DONE,
    "NOT_COORDINATOR": Verdict.FIND_AGAIN,
    "COORDINATOR_NOT_AVAILABLE": Verdict.FIND_AGAIN,
    "NETWORK_EXCEPTION": Verdict.FIND_AGAIN,
    "CONCURRENT_TRANSACTIONS": Verdict.RETRY_SOON,  # the id's previous one is being ended
    "OPERATION_NOT_ATTEMPTED": Verdict.RETRY,  # the error of another partition prevented it
}
"""Error -> verdict; every other error is RETRY if it is retriable, otherwise FATAL."""

_NONE = error_named("NONE")
_NOT_ATTEMPTED = error_named("OPERATION_NOT_ATTEMPTED")
_MISSING = error_named("COORDINATOR_NOT_AVAILABLE")


def verdict_on(error: KafkaErrorCode) -> Verdict:
    """Return the verdict on ``error``.

    All verdicts but DONE and FATAL are temporary, and say nothing about the transaction.
    """
    otherwise = Verdict.RETRY if error.retriable else Verdict.FATAL
    return VERDICTS.get(error.name, otherwise)


# --- FindCoordinator ------------------------------------------------------------------------------


class FoundCoordinator(NamedTuple):
    """The coordinator of ``transactional_id``, unless there is an error."""

    transactional_id: str
    coordinator: Node
    error: KafkaErrorCode
    detail: str | None


def find_requests(
    transactional_ids: Sequence[str], versions: BrokerApiVersions
) -> list[FindCoordinatorRequest]:
    """Return one request for all ids, or one per id if the broker does not support batches."""
    is_known = versions.supports(FindCoordinatorRequest)
    if is_known and versions.latest_usable_version(FindCoordinatorRequest) >= BATCHED_VERSION:
        return [FindCoordinatorRequest("", TRANSACTION_KEY_TYPE, list(transactional_ids))]
    return [FindCoordinatorRequest(i, TRANSACTION_KEY_TYPE) for i in transactional_ids]


def parse_coordinators(
    request: FindCoordinatorRequest, response: FindCoordinatorResponse
) -> list[FoundCoordinator]:
    """Return the result for each id of ``request``, in whichever version ``response`` came.

    An id that the response omits has no coordinator yet.
    """
    answers: dict[str, Coordinator | FindCoordinatorResponse]
    answers = {c.key: c for c in response.coordinators}
    if not answers and (response.error_code or response.host):
        answers = {request.key: response}
    return [_found(key, answers.get(key)) for key in request.coordinator_keys or [request.key]]


def _found(key: str, answer: Coordinator | FindCoordinatorResponse | None) -> FoundCoordinator:
    if answer is None:
        return FoundCoordinator(key, Node(-1, "", -1), _MISSING, "the broker did not say")
    node = Node(answer.node_id, answer.host, answer.port)
    return FoundCoordinator(key, node, error_for_code(answer.error_code), answer.error_message)


# --- AddPartitionsToTxn ---------------------------------------------------------------------------


def add_partitions_request(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Build a request that adds ``partitions`` to the transaction, below transaction.version 2."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(topic)).partitions.append(partition)
    return AddPartitionsToTxnRequest(transactional_id, *producer, list(topics.values()))


def parse_results(
    request: AddPartitionsToTxnRequest, response: AddPartitionsToTxnResponse
) -> dict[TopicPartition, KafkaErrorCode]:
    """Return the error of each requested partition; omitted partitions were not attempted."""
    codes = {
        (topic.name, result.partition_index): result.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }
    asked = (TopicPartition(t.name, p) for t in request.v3_and_below_topics for p in t.partitions)
    return {one: error_for_code(codes[one]) if one in codes else _NOT_ATTEMPTED for one in asked}


def decisive_error(
    results: Mapping[TopicPartition, KafkaErrorCode],
) -> tuple[TopicPartition, KafkaErrorCode]:
    """Return the partition whose error decides.

    One partition's error prevents the attempt of the others. Fatal errors come first, because the
    task must report them.
    """

    def severity(result: tuple[TopicPartition, KafkaErrorCode]) -> int:
        error = result[1]
        if error in (_NONE, _NOT_ATTEMPTED):
            return int(error is _NOT_ATTEMPTED)
        return 3 if verdict_on(error) is Verdict.FATAL else 2

    return max(results.items(), key=severity)


_NETWORK_EXCEPTION = error_named("NETWORK_EXCEPTION")
_SETTLED = (Verdict.DONE, Verdict.FATAL)
# Time for brokers to report whether another broker coordinates now.
_LOOK_MS = 10_000
# Time for a coordinator to report which markers are missing.
_MARKERS_LOOK_MS = 1_000


WAIT_LOGGED_AFTER_MS = 5_000
"""Time after which the log says what rows of a producer, or its driver, wait for."""
WAIT_REPEATED_AFTER_MS = 60_000
"""Time after which it says so again."""
_BUSY = error_named("CONCURRENT_TRANSACTIONS")


ENDING = frozenset({"PrepareCommit", "PrepareAbort"})
"""States of a transaction whose end is decided and whose markers are not all written."""


def unwritten_markers(state: TransactionState) -> str:
    """Return where the markers of a transaction that is being ended are missing, and what to do."""
    partitions = [f"{topic.topic}-{p}" for topic in state.topics for p in topic.partitions]
    if state.transaction_state not in ENDING or not partitions:
        return transaction_advice_for(_BUSY)
    topics = some_of(sorted({topic.topic for topic in state.topics}))
    return (
        f"the brokers have not written the markers that end its transaction to "
        f"{some_of(partitions)}: look at the leaders, the in-sync replicas and "
        f"min.insync.replicas of {topics}"
    )


class CoordinatorWait:
    """Logs that the driver waits for coordinators: once after 5 s, then each minute."""

    def __init__(self, admin: BlockingClient) -> None:
        self._admin = admin
        self._began_ms = self._due_ms = admin.now_ms()
        self._due_ms += WAIT_LOGGED_AFTER_MS

    @property
    def is_due(self) -> bool:
        """Return True if a line is due."""
        return self._admin.now_ms() >= self._due_ms

    def log(self, transactional_id: str, why: str) -> None:
        """Log why the request about ``transactional_id`` is repeated; a line must be due."""
        now_ms = self._admin.now_ms()
        self._due_ms = now_ms + WAIT_REPEATED_AFTER_MS
        waited_s = (now_ms - self._began_ms) / 1000
        warn(
            logger,
            "TXN-047",
            f"the driver has waited for {waited_s:.0f} s for the coordinator of "
            f"{transactional_id}: {why}",
        )


class CoordinatorRequest(NamedTuple):
    """One request to the common coordinator of all ``ids``.

    at_most_version: returns the highest version for the coordinator's current transaction.version;
        None for the highest common version
    """

    ids: tuple[str, ...]
    request: Request
    at_most_version: Callable[[int], int] | None = None


class Coordinators:
    """Sends requests to coordinators, and finds coordinators again after a move."""

    def __init__(self, admin: BlockingClient) -> None:
        self._admin = admin
        self._nodes: dict[str, Node] = {}

    def ask(
        self,
        questions: Sequence[CoordinatorRequest],
        code_of: Callable[[Message], int],
        deadline_ms: int,
    ) -> Iterable[tuple[tuple[str, ...], Message]]:
        """Yield ids and response of each question; repeat questions until verdicts are final."""
        waiting = list(questions)
        attempts = 0
        wait = CoordinatorWait(self._admin)
        while waiting:
            last_error = _NETWORK_EXCEPTION
            coordinators = self.find([q.ids[0] for q in waiting], deadline_ms)
            calls = self._calls(waiting, coordinators, deadline_ms)
            answers = self._ask(calls, deadline_ms)
            again: list[CoordinatorRequest] = []
            for question in waiting:
                answer = answers.get(question.ids[0])
                error = _NETWORK_EXCEPTION if answer is None else error_for_code(code_of(answer))
                verdict = verdict_on(error)
                if answer is not None and verdict in _SETTLED:
                    yield question.ids, answer
                    continue
                last_error = error
                again.append(question)
                if verdict is Verdict.FIND_AGAIN:
                    self.forget(question.ids)
            waiting = again
            if waiting:
                name, node = waiting[-1].ids[0], coordinators[waiting[-1].ids[0]]
                problem = ""
                if wait.is_due:
                    problem = self._problem(name, node, last_error)
                    wait.log(name, problem)
                if not self._admin.pause(attempts, deadline_ms):
                    lack = "held by their coordinator"
                    if last_error is _NETWORK_EXCEPTION:
                        lack = "without an answer of their coordinator"
                    raise TransactionError(
                        f"{len(waiting)} transactional id(s) {lack}, e.g. {name}. Last: "
                        f"{problem or self._problem(name, node, last_error)}",
                        code="TXN-004",
                    )
            attempts += 1

    def _problem(self, transactional_id: str, node: Node, error: KafkaErrorCode) -> str:
        """Return ``error`` and its meaning: where markers are missing, if the brokers say it."""
        meaning = transaction_advice_for(error)
        if error is _BUSY:
            request = DescribeTransactionsRequest([transactional_id])
            look_until_ms = self._admin.deadline_in(_MARKERS_LOOK_MS)
            (answer,) = self._admin.request_all([Call(node, request)], look_until_ms)
            if isinstance(answer, DescribeTransactionsResponse) and answer.transaction_states:
                meaning = unwritten_markers(answer.transaction_states[0])
        return f"{error} from {node}" + (f": {meaning}" if meaning else "")

    def _ask(self, calls: Mapping[str, Call], deadline_ms: int) -> dict[str, Message | None]:
        """Send each call to the coordinator of its id, until another one coordinates the id."""
        ids = list(calls)

        def have_moved(positions: Sequence[int]) -> list[int]:
            silent = {ids[p]: calls[ids[p]].node for p in positions}
            moved = self._have_moved(silent, deadline_ms)
            return [p for p in positions if ids[p] in moved]

        answers = self._admin.request_all(list(calls.values()), deadline_ms, have_moved)
        return dict(zip(ids, answers))

    def _have_moved(self, coordinators: Mapping[str, Node], deadline_ms: int) -> set[str]:
        """Return the ids that another node than the given one coordinates now."""
        look_until_ms = min(deadline_ms, self._admin.deadline_in(_LOOK_MS))
        try:
            self._find_now(list(coordinators), look_until_ms)
        except KafkaSinkError:
            return set()  # no broker responded: keep waiting
        return {i for i, node in coordinators.items() if self._nodes.get(i) not in (None, node)}

    def _calls(
        self,
        questions: Sequence[CoordinatorRequest],
        coordinators: dict[str, Node],
        deadline_ms: int,
    ) -> dict[str, Call]:
        """Return a call per first id; none if the version matters and no level is known."""
        ids = [q.ids[0] for q in questions if q.at_most_version is not None]
        levels = self.transaction_versions(ids, deadline_ms)
        calls: dict[str, Call] = {}
        for (first, *_), request, at_most_version in questions:
            node = coordinators[first]
            if at_most_version is None:
                calls[first] = Call(node, request)
            elif node in levels:
                calls[first] = Call(node, request, at_most_version(levels[node]))
        return calls

    def transaction_versions(
        self, transactional_ids: Collection[str], deadline_ms: int
    ) -> dict[Node, int]:
        """Return the current finalized transaction.version of each coordinator that responds.

        The level that a connection received at its start may be outdated, because the feature can
        be downgraded. Brokers of transaction.version 0 accept EndTxn v5, which leaves the
        transaction open for good.
        """
        coordinators = self.find(transactional_ids, deadline_ms)
        request = ApiVersionsRequest(SOFTWARE_NAME, __version__)
        id_of = {node: i for i, node in coordinators.items()}
        calls = {i: Call(node, request) for node, i in id_of.items()}
        return {
            calls[i].node: BrokerApiVersions.from_response(answer).transaction_version
            for i, answer in self._ask(calls, deadline_ms).items()
            if isinstance(answer, ApiVersionsResponse) and answer.error_code == 0
        }

    def known(self, transactional_id: str) -> Node | None:
        """Return the last known coordinator of the id, without a request."""
        return self._nodes.get(transactional_id)

    def forget(self, transactional_ids: Iterable[str]) -> None:
        """Forget the coordinators of these ids; the next request finds them again."""
        for transactional_id in transactional_ids:
            self._nodes.pop(transactional_id, None)

    def find(self, transactional_ids: Iterable[str], deadline_ms: int) -> dict[str, Node]:
        """Return the coordinator of each id, without a request for known ones."""
        wanted = list(transactional_ids)
        attempts = 0
        while missing := [i for i in wanted if i not in self._nodes]:
            last_error = self._find_now(missing, deadline_ms)
            if last_error is None:
                continue
            is_final = verdict_on(last_error) is Verdict.FATAL
            if is_final or not self._admin.pause(attempts, deadline_ms):
                advice = transaction_advice_for(last_error)
                raise BrokerError(last_error, f"FindCoordinator of {missing[0]}", advice=advice)
            attempts += 1
        return {i: self._nodes[i] for i in wanted}

    def _find_now(self, missing: Sequence[str], deadline_ms: int) -> KafkaErrorCode | None:
        """Ask once; return the last error, None without one."""
        self._admin.learn_cluster(deadline_ms)
        node = self._admin.any_node(deadline_ms)
        versions = self._admin.api_versions(node)
        assert versions is not None, "the node is ready"
        last_error: KafkaErrorCode | None = None
        for request in find_requests(missing, versions):
            answer = self._admin.request(None, request, deadline_ms)
            assert isinstance(answer, FindCoordinatorResponse)
            for found in parse_coordinators(request, answer):
                if verdict_on(found.error) is Verdict.DONE:
                    self._nodes[found.transactional_id] = found.coordinator
                else:
                    last_error = found.error
        return last_error
