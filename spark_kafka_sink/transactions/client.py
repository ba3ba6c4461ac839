"""Blocking client of transaction coordinators: InitProducerId, EndTxn, and what is open.

A broker that is cut off from the others, but not from clients, may consider itself the coordinator
of ids that another broker coordinates by now. Its state is outdated: where that matters, all
brokers are asked.

Source: ``TransactionManager``'s handlers, ``TransactionState``, and ``AdminClient``'s coordinator
strategies; KIP-98, KIP-664, KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from spark_kafka_sink.base.errors import (
    BrokerError,
    KafkaErrorCode,
    RemoteProtocolError,
    TransactionError,
    error_for_code,
    warn,
)
from spark_kafka_sink.base.model import NO_PRODUCER, Node, ProducerIdAndEpoch, TopicPartition
from spark_kafka_sink.network.admin import AdminClient, brokers_of
from spark_kafka_sink.network.blocking import Call
from spark_kafka_sink.network.coordinators import (
    ENDING,
    CoordinatorRequest,
    Coordinators,
    CoordinatorWait,
    Verdict,
    add_partitions_request,
    decisive_error,
    parse_results,
    unwritten_markers,
    verdict_on,
)
from spark_kafka_sink.protocol.api import IMPLICIT_PARTITIONS_VERSION
from spark_kafka_sink.protocol.messages.topics import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.messages.transactions import (
    EPOCH_BUMP_VERSION,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from spark_kafka_sink.protocol.schema import Message
from spark_kafka_sink.transactions.model import (
    FencedError,
    TaskTransaction,
    TransactionLostError,
    is_task_id,
    task_id_pattern,
)

logger = logging.getLogger(__name__)

ONGOING = "Ongoing"
EMPTY = "Empty"
_COMMITTED = {"PrepareCommit", "CompleteCommit"}
_ABORTED = {"PrepareAbort", "CompleteAbort"}


class Outcome(Enum):
    """The outcome of a transaction that was to be committed."""

    COMMITTED = "committed"
    LOST = "aborted by the brokers"
    UNKNOWN = "unknown"


def end_txn_request(transaction: TaskTransaction, committed: bool) -> CoordinatorRequest:
    """Return EndTxn, in the version that the coordinator allows when it is sent."""
    request = EndTxnRequest(transaction.transactional_id, *transaction.producer, committed)
    begun = transaction.transaction_version
    return CoordinatorRequest(
        (transaction.transactional_id,), request, lambda now: _end_txn_version(begun, now)
    )


def _end_txn_version(begun: int, now: int) -> int:
    """Return the version for the lower of two transaction.versions: at the begin, and now.

    The version at the begin keeps repetitions in one version. The feature may have been downgraded
    since, and EndTxn v5 would then leave the transaction open forever. If v5 has ended the
    transaction before, v4 is rejected because of the epoch, and DescribeTransactions shows the
    outcome.
    """
    bumps = min(begun, now) >= IMPLICIT_PARTITIONS_VERSION
    return EPOCH_BUMP_VERSION if bumps else EPOCH_BUMP_VERSION - 1


def outcome_of(transaction: TaskTransaction, state: TransactionState | None) -> Outcome:
    """Return the outcome by the coordinator's last answer, if that is about this transaction."""
    if state is None or state.producer_id != transaction.producer_id:
        return Outcome.UNKNOWN
    if state.producer_epoch not in (transaction.producer_epoch, transaction.producer_epoch + 1):
        return Outcome.UNKNOWN
    if state.transaction_state in _COMMITTED:
        return Outcome.COMMITTED
    return Outcome.LOST if state.transaction_state in _ABORTED else Outcome.UNKNOWN


def is_open(transaction: TaskTransaction, state: TransactionState | None) -> bool:
    """Return True if the transaction is in the state in which its task left it."""
    return (
        state is not None
        and state.transaction_state == ONGOING
        and state.producer_id == transaction.producer_id
        and state.producer_epoch == transaction.producer_epoch
    )


class OpenTransaction(NamedTuple):
    """One entry of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str


def is_known(transaction: TaskTransaction, state: TransactionState | None) -> bool:
    """Return True if a coordinator's answer is about this transaction: it is open, or was ended."""
    return is_open(transaction, state) or outcome_of(transaction, state) is not Outcome.UNKNOWN


def is_outdated(transaction: TaskTransaction, state: TransactionState) -> bool:
    """Return True if the broker does not know the transaction's epoch yet.

    Another broker has assigned that epoch, so this broker is not the coordinator any more.
    """
    return (
        state.producer_id == transaction.producer_id
        and state.producer_epoch < transaction.producer_epoch
    )


class BrokerStates(NamedTuple):
    """The states of transactions by all brokers.

    states: by transactional id; transactions that no broker knows are omitted
    is_final: True if no other broker can know an omitted transaction. False if a broker is
        unreachable, silent or still loading, or if only an outdated broker knows the id
    """

    states: dict[str, TransactionState]
    is_final: bool


def describe_on_all_brokers(
    admin: AdminClient, transactions: Sequence[TaskTransaction], deadline_ms: int
) -> BrokerStates:
    """Return the states of these transactions by all reachable brokers.

    If one broker reports a transaction as open and another as ended, the end counts, because it is
    later.
    """
    by_id = {t.transactional_id: t for t in transactions}
    found: dict[str, TransactionState] = {}
    outdated: set[str] = set()
    answers, has_all = _states_of_all_brokers(admin, list(by_id), deadline_ms)
    for state in answers:
        transaction = by_id.get(state.transactional_id)
        if transaction is None:
            continue
        if not is_known(transaction, state):
            if is_outdated(transaction, state):
                outdated.add(state.transactional_id)
            continue
        if is_open(transaction, found.setdefault(state.transactional_id, state)):
            found[state.transactional_id] = state
    return BrokerStates(found, has_all and outdated <= found.keys())


def is_fenced(
    admin: AdminClient, transactional_id: str, producer: ProducerIdAndEpoch, deadline_ms: int
) -> bool | None:
    """Return True if another process has initialized the id after ``producer``, by all brokers.

    None if no broker knows ``producer`` or a later one. The order of two producer ids is unknown,
    so another producer id counts as later.
    """
    states, _ = _states_of_all_brokers(admin, [transactional_id], deadline_ms)
    holders = {ProducerIdAndEpoch(s.producer_id, s.producer_epoch) for s in states}
    if any(holder.producer_id != producer.producer_id or holder > producer for holder in holders):
        return True
    return False if producer in holders else None


def have_forgotten(admin: AdminClient, transactional_id: str, deadline_ms: int) -> bool:
    """Return True if the id's coordinator does not know it, and no other broker may be that."""
    request = DescribeTransactionsRequest([transactional_id])
    answers = _ask_all_brokers(admin, lambda node: Call(node, request), deadline_ms).values()
    errors = {
        error_for_code(state.error_code).name
        for answer in answers
        if isinstance(answer, DescribeTransactionsResponse)
        for state in answer.transaction_states
    }
    return None not in answers and errors - {"NOT_COORDINATOR"} == {_NOT_FOUND}


def _states_of_all_brokers(
    admin: AdminClient, transactional_ids: Sequence[str], deadline_ms: int
) -> tuple[list[TransactionState], bool]:
    """Return the states from all reachable brokers that consider themselves coordinators.

    And True if every broker has answered with a state, or that it does not coordinate the id.
    """
    request = DescribeTransactionsRequest(list(transactional_ids))
    answers = _ask_all_brokers(admin, lambda node: Call(node, request), deadline_ms)
    states: list[TransactionState] = []
    has_all = True
    for answer in answers.values():
        found = (
            answer.transaction_states if isinstance(answer, DescribeTransactionsResponse) else []
        )
        conclusive = {s.transactional_id for s in found if _is_conclusive(s)}
        has_all = has_all and conclusive.issuperset(transactional_ids)
        states += [state for state in found if not state.error_code]
    return states, has_all


def _is_conclusive(state: TransactionState) -> bool:
    """Return True if the broker has said what it knows. Any other error may hide a coordinator."""
    return error_for_code(state.error_code).name in _CONCLUSIVE


def _ask_all_brokers(
    admin: AdminClient, call_to: Callable[[Node], Call], deadline_ms: int
) -> dict[int, Message | None]:
    """Return the responses by node id of all brokers that any reachable broker names.

    None stands for a broker that is unreachable or silent, or that has named no brokers. The list
    of one broker is not enough: one that is cut off lacks the brokers that joined since.
    """
    membership = MetadataRequest([], False)
    nodes = {node.node_id: node for node in admin.nodes(deadline_ms)}
    answers: dict[int, Message | None] = {}
    while new := [node for node_id, node in nodes.items() if node_id not in answers]:
        answers.update((node.node_id, None) for node in new)
        reachable = admin.await_all(new, deadline_ms)
        calls = [call for node in reachable for call in (Call(node, membership), call_to(node))]
        responses = admin.request_all(calls, deadline_ms)
        for node, listed, response in zip(reachable, responses[::2], responses[1::2]):
            if isinstance(listed, MetadataResponse):
                answers[node.node_id] = response
                for broker in brokers_of(listed):
                    nodes.setdefault(broker.node_id, broker)
    return answers


def merge_listings(answers: Sequence[Message | None]) -> tuple[list[OpenTransaction], bool]:
    """Return all listed transactions, and True if no coordinator was still loading."""
    found: dict[str, OpenTransaction] = {}
    is_complete = True
    for answer in answers:
        if not isinstance(answer, ListTransactionsResponse):
            continue
        error = error_for_code(answer.error_code)
        if verdict_on(error) not in (Verdict.DONE, Verdict.FATAL):
            is_complete = False
            continue
        if answer.error_code:
            raise BrokerError(error, "ListTransactions")
        for state in answer.transaction_states:
            found[state.transactional_id] = OpenTransaction(
                state.transactional_id, state.producer_id, state.transaction_state
            )
    return list(found.values()), is_complete


_FENCED = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
_ENDED_OTHERWISE = _FENCED | {
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
    "TRANSACTION_ABORTABLE",
}
# Nothing is open, or the id has expired.
_NOTHING_TO_ABORT = {"NONE", "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING"}
_NOT_FOUND = "TRANSACTIONAL_ID_NOT_FOUND"
_CONCLUSIVE = {"NONE", "NOT_COORDINATOR", _NOT_FOUND}
_PATTERN_VERSION = 2


class InitializedProducer(NamedTuple):
    """The answer to InitProducerId, and the finalized transaction.version of the coordinator."""

    producer: ProducerIdAndEpoch
    transaction_version: int


class TransactionClient:
    """Requests about transactional ids, each repeated until it is answered or time is up.

    Errors: TransactionError when time is up; BrokerError for an answer that a retry does not
    change; BootstrapError if no broker is reachable.
    """

    def __init__(self, admin: AdminClient) -> None:
        self.admin = admin
        self._coordinators = Coordinators(admin)

    # --- InitProducerId ------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        deadline_ms: int,
        held: ProducerIdAndEpoch = NO_PRODUCER,
    ) -> InitializedProducer:
        """Take a transactional id: its earlier user is fenced, its open transaction aborted.

        Repeats the request near the last producer epoch, until there is another producer id.

        timeout_ms: transaction.timeout.ms of the transactions under the id
        held: the id is taken only from this producer (KIP-360); if a transaction is open,
            coordinators do not compare the epoch. Raises FencedError if another one has it
        """
        while True:
            found = self._init_producer_ids([transactional_id], timeout_ms, deadline_ms, held)
            producer = found[transactional_id]
            if not producer.is_epoch_nearly_exhausted:
                break
            if held.is_valid:
                held = producer
        version = self.transaction_version(transactional_id, deadline_ms)
        return InitializedProducer(producer, version)

    def take_over_from(
        self, held: TaskTransaction, timeout_ms: int, deadline_ms: int
    ) -> InitializedProducer:
        """Take an id as ``init_producer_id`` does, but from this producer and no other.

        held: the driver's identity; its transaction is aborted if it is open
        timeout_ms: transaction.timeout.ms of the transactions under the id

        Raises FencedError if the id was taken since.
        """
        # InitProducerId aborts an open transaction before it compares epochs. EndTxn compares
        # first, and with transaction.version 2 it takes the next epoch, open or not. Below that,
        # a later plan is disturbed only if it comes between the two requests, and its own
        # transaction is open when the second one arrives.
        question = end_txn_request(held, committed=False)
        ((_, response),) = self._coordinators.ask([question], _code_of, deadline_ms)
        assert isinstance(response, EndTxnResponse)
        error = error_for_code(response.error_code)
        raise_if_fenced(error, held.transactional_id)
        if error.name not in _NOTHING_TO_ABORT:
            raise BrokerError(error, f"EndTxn of {held.transactional_id}")
        if response.producer_id >= 0:
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return InitializedProducer(producer, held.transaction_version)
        return self.init_producer_id(held.transactional_id, timeout_ms, deadline_ms, held.producer)

    def coordinator(self, transactional_id: str) -> Node | None:
        """Return the id's cached coordinator, without a request; None if it is unknown."""
        return self._coordinators.known(transactional_id)

    def fence(self, transactional_ids: Iterable[str], timeout_ms: int, deadline_ms: int) -> None:
        """Abort what is open under these ids and keep their writers out.

        EndTxn(abort) is not enough: before KIP-890 a late writer could go on and commit.
        """
        self._init_producer_ids(list(transactional_ids), timeout_ms, deadline_ms)

    def _init_producer_ids(
        self,
        transactional_ids: Sequence[str],
        timeout_ms: int,
        deadline_ms: int,
        held: ProducerIdAndEpoch = NO_PRODUCER,
    ) -> dict[str, ProducerIdAndEpoch]:
        requests = [
            CoordinatorRequest((i,), InitProducerIdRequest(i, timeout_ms, *held))
            for i in transactional_ids
        ]
        initialized = {}
        for (transactional_id,), response in self._coordinators.ask(
            requests, _code_of, deadline_ms
        ):
            assert isinstance(response, InitProducerIdResponse)
            if held.is_valid:
                raise_if_fenced(error_for_code(response.error_code), transactional_id)
            _raise_error(response.error_code, f"InitProducerId of {transactional_id}")
            producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            initialized[transactional_id] = producer
        return initialized

    def transaction_version(self, transactional_id: str, deadline_ms: int) -> int:
        """Return the present finalized feature, from the id's coordinator.

        Brokers advertise request versions that clients must not use yet, and the feature can be
        downgraded between any two requests.
        """
        attempts = 0
        while True:
            found = self._coordinators.transaction_versions([transactional_id], deadline_ms)
            for version in found.values():
                return version
            self._coordinators.forget([transactional_id])
            if not self.admin.pause(attempts, deadline_ms):
                raise TransactionError(
                    f"the coordinator of {transactional_id} does not report its "
                    "transaction.version",
                    code="TXN-004",
                )
            attempts += 1

    # --- EndTxn --------------------------------------------------------------------------------

    def commit_all(
        self,
        transactions: Sequence[TaskTransaction],
        deadline_ms: int,
        on_first_commit: Callable[[], None] | None = None,
    ) -> dict[str, Outcome]:
        """Commit the transactions, or find them committed; return each outcome by transactional id.

        Repetition is harmless as long as each transaction is ended in the same version, which its
        transaction_version decides. ``on_first_commit`` is called after the first answer. If a
        coordinator rejects EndTxn although the transaction is open, the request is repeated: the
        transaction is not lost.
        """
        outcomes: dict[str, Outcome] = {}
        if on_first_commit is not None and transactions:
            self._commit_until_known(transactions[:1], outcomes, deadline_ms)
            on_first_commit()
            transactions = transactions[1:]
        self._commit_until_known(transactions, outcomes, deadline_ms)
        return outcomes

    def _commit_until_known(
        self,
        transactions: Sequence[TaskTransaction],
        outcomes: dict[str, Outcome],
        deadline_ms: int,
    ) -> None:
        """Repeat EndTxn until the outcome of each transaction is known."""
        waiting = transactions
        attempts = 0
        while True:
            try:
                rejected = self._send_end_txn(waiting, outcomes, deadline_ms)
                states = self.describe_with_fallback(list(rejected.values()), deadline_ms)
            except TransactionError as error:
                if attempts:  # time is up
                    raise _still_open(waiting) from error
                raise
            waiting = [t for name, t in rejected.items() if is_open(t, states[name])]
            for name in rejected.keys() - {t.transactional_id for t in waiting}:
                outcomes[name] = outcome_of(rejected[name], states[name])
            if not waiting:
                return
            if not self.admin.pause(attempts, deadline_ms):
                raise _still_open(waiting)
            attempts += 1

    def _send_end_txn(
        self,
        transactions: Sequence[TaskTransaction],
        outcomes: dict[str, Outcome],
        deadline_ms: int,
    ) -> dict[str, TaskTransaction]:
        """Send EndTxn once for each transaction, and return the rejected ones."""
        by_id = {t.transactional_id: t for t in transactions}
        rejected: dict[str, TaskTransaction] = {}
        requests = [end_txn_request(t, committed=True) for t in transactions]
        for (name,), response in self._coordinators.ask(requests, _code_of, deadline_ms):
            assert isinstance(response, EndTxnResponse)
            error = error_for_code(response.error_code)
            if response.error_code == 0:
                outcomes[name] = Outcome.COMMITTED
            elif error.name in _ENDED_OTHERWISE:
                rejected[name] = by_id[name]
            else:
                raise BrokerError(error, f"EndTxn of {name}")
        return rejected

    def commit_driver_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        transaction_version: int,
        deadline_ms: int,
    ) -> ProducerIdAndEpoch:
        """Commit the driver's own transaction and return its next identity.

        Raises FencedError if another driver has taken the id, TransactionLostError if the brokers
        have aborted the transaction.
        """
        transaction = TaskTransaction(transactional_id, *producer, transaction_version, -1, 0, "")
        question = end_txn_request(transaction, committed=True)
        attempts = 0
        while True:
            ((_, response),) = self._coordinators.ask([question], _code_of, deadline_ms)
            assert isinstance(response, EndTxnResponse)
            error = error_for_code(response.error_code)
            if error.name not in _ENDED_OTHERWISE:
                break
            # A coordinator that was replaced may have rejected the request.
            state = self.describe_with_fallback([transaction], deadline_ms)[transactional_id]
            if state is not None and outcome_of(transaction, state) is Outcome.LOST:
                raise _aborted(state)
            if state is not None and _may_be_committed(transaction, state):
                raise _rejected_but_ended(error, state)
            if not is_open(transaction, state) or not self.admin.pause(attempts, deadline_ms):
                break
            attempts += 1
        raise_if_fenced(error, transactional_id)
        _raise_error(response.error_code, f"EndTxn of {transactional_id}")
        if response.producer_id >= 0:
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return producer

    def add_partition(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topic_partition: TopicPartition,
        deadline_ms: int,
    ) -> None:
        """Add a partition to the transaction; needed below transaction.version 2."""
        request = add_partitions_request(transactional_id, producer, [topic_partition])
        question = CoordinatorRequest((transactional_id,), request)

        def code_of(response: Message) -> int:
            assert isinstance(response, AddPartitionsToTxnResponse)
            return decisive_error(parse_results(request, response))[1].code

        for _, response in self._coordinators.ask([question], code_of, deadline_ms):
            code = code_of(response)
            raise_if_fenced(error_for_code(code), transactional_id)
            _raise_error(code, f"AddPartitionsToTxn of {transactional_id}")

    # --- describing and listing ----------------------------------------------------------------

    def describe(
        self, transactional_ids: Sequence[str], deadline_ms: int
    ) -> dict[str, TransactionState | None]:
        """Return the coordinators' state of each id; None for an unknown id. KIP-664."""
        requests = [
            CoordinatorRequest((i,), DescribeTransactionsRequest([i])) for i in transactional_ids
        ]
        states = {}
        answers = self._coordinators.ask(requests, _code_of_description, deadline_ms)
        for (transactional_id,), response in answers:
            assert isinstance(response, DescribeTransactionsResponse)
            states[transactional_id] = _known_state(response.transaction_states[0])
        return states

    def describe_with_fallback(
        self, transactions: Sequence[TaskTransaction], deadline_ms: int
    ) -> dict[str, TransactionState | None]:
        """Return the states as ``describe`` does, and ask all brokers about unknown transactions.

        The coordinator of such a transaction may have been replaced, and is looked up again before
        the next request. Raises TransactionError if at the deadline a broker that may know such a
        transaction has not answered.
        """
        states = self.describe([t.transactional_id for t in transactions], deadline_ms)
        unknown = [t for t in transactions if not is_known(t, states[t.transactional_id])]
        attempts = 0
        while unknown:
            found = describe_on_all_brokers(self.admin, unknown, deadline_ms)
            states.update(found.states)
            self._coordinators.forget(t.transactional_id for t in unknown)
            unknown = [t for t in unknown if t.transactional_id not in found.states]
            if found.is_final:
                break
            if unknown and not self.admin.pause(attempts, deadline_ms):
                raise TransactionError(
                    f"{len(unknown)} transaction(s), e.g. {unknown[0].transactional_id}, are not "
                    "known to the brokers that answered, and a broker that may know them does not "
                    "answer. Check that the driver reaches all brokers",
                    code="TXN-004",
                )
            attempts += 1
        return states

    def describe_when_complete(
        self, transactional_id: str, deadline_ms: int
    ) -> TransactionState | None:
        """Return the coordinator's state, once no transaction is being completed.

        EndTxn is answered before the markers are written; until then the epoch is the former or the
        next.
        """
        attempts = 0
        wait = CoordinatorWait(self.admin)
        while True:
            state = self.describe([transactional_id], deadline_ms)[transactional_id]
            if state is None or state.transaction_state not in ENDING:
                return state
            if wait.is_due:
                wait.log(transactional_id, unwritten_markers(state))
            if not self.admin.pause(attempts, deadline_ms):
                return state
            attempts += 1

    def forget_coordinator(self, transactional_id: str) -> None:
        """Look up the id's coordinator again before the next request."""
        self._coordinators.forget([transactional_id])

    def open_task_transactions(self, prefix: str, deadline_ms: int) -> list[OpenTransaction]:
        """Return open transactions of tasks under ``prefix``, from all reachable brokers."""
        listed = self.list_transactions(task_id_pattern(prefix), [ONGOING], deadline_ms)
        return [t for t in listed if is_task_id(prefix, t.transactional_id)]

    def list_transactions(
        self, pattern: str, states: Sequence[str], deadline_ms: int
    ) -> list[OpenTransaction]:
        """Return transactions by state, from all reachable brokers.

        pattern: the coordinators' filter if they support it (KIP-1152); the caller filters again
        """
        attempts = 0
        while True:
            answers = _ask_all_brokers(
                self.admin, lambda node: self._list_request(node, pattern, states), deadline_ms
            )
            found, is_complete = merge_listings(list(answers.values()))
            silent = [node_id for node_id, answer in answers.items() if answer is None]
            # A connection may have been lost, so a silent broker is asked once more. Other brokers
            # take over the coordinators of one that stays silent, or none does.
            is_complete = is_complete and (attempts > 0 or not silent)
            if is_complete or not self.admin.pause(attempts, deadline_ms):
                if silent:
                    warn(
                        logger,
                        "TXN-027",
                        f"broker(s) {', '.join(map(str, silent))} did not list their open "
                        "transactions: what is open there is aborted by the next planning, or by "
                        "the brokers after kafka.transaction.timeout.ms",
                    )
                return found
            attempts += 1

    def _list_request(self, node: Node, pattern: str, states: Sequence[str]) -> Call:
        versions = self.admin.api_versions(node)
        has_pattern = (
            versions is not None
            and versions.latest_usable_version(ListTransactionsRequest) >= _PATTERN_VERSION
        )
        request = ListTransactionsRequest(
            state_filters=list(states), transactional_id_pattern=pattern if has_pattern else None
        )
        return Call(node, request)


def raise_if_fenced(error: KafkaErrorCode, transactional_id: str) -> None:
    """Raise FencedError if ``error`` means that another process has taken the id."""
    if error.name in _FENCED:
        prefix = transactional_id.rpartition(".")[0]
        raise FencedError(
            f"another driver has taken over transactional.id.prefix '{prefix}' ({error.name}): "
            "this one stops, and nothing that it has not decided becomes visible. If both are "
            "wanted, give each query a prefix of its own"
        )


def _aborted(state: TransactionState) -> TransactionLostError:
    return TransactionLostError(
        f"the brokers have aborted the transaction of {state.transactional_id}, in which this "
        "driver writes down what it decides: it was not ended within "
        f"{state.transaction_timeout_ms} ms, as when the driver is stopped or cut off for longer; "
        "or another driver is just taking over the transactional.id.prefix. Nothing of it was "
        "written down. Started again, the query or job finishes what was decided before, and "
        "writes the rest again"
    )


def _may_be_committed(transaction: TaskTransaction, state: TransactionState) -> bool:
    """Return True if a rejected commit may have been accepted before, with its answer lost.

    A commit keeps the epoch, or leaves the next one with transaction.version 2 (KIP-890). At the
    same epoch, a broker that is cut off may describe the transaction before: nothing is proved.
    """
    if outcome_of(transaction, state) is not Outcome.COMMITTED:
        return False
    is_same = state.producer_epoch == transaction.producer_epoch
    return is_same or transaction.transaction_version >= IMPLICIT_PARTITIONS_VERSION


def _rejected_but_ended(error: KafkaErrorCode, state: TransactionState) -> TransactionError:
    return TransactionError(
        f"the brokers reject the end of the transaction of {state.transactional_id}, in which this "
        f"driver writes down what it decides ({error.name}), and report {state.transaction_state}: "
        "an earlier request may have been accepted and its answer lost. Started again, the query "
        "or job finishes what was written down, and writes the rest again",
        code="TXN-025",
    )


def _still_open(waiting: Sequence[TaskTransaction]) -> TransactionError:
    return TransactionError(
        f"{len(waiting)} transaction(s), e.g. {waiting[0].transactional_id}, are open, and their "
        "coordinators refuse to end them. They are decided: the next start of the query or job "
        "commits them, or pykafka-sink transactions resolve does",
        code="TXN-025",
    )


def _code_of(message: Message) -> int:
    code: int = message.error_code  # type: ignore[attr-defined]
    return code


def _code_of_description(message: Message) -> int:
    assert isinstance(message, DescribeTransactionsResponse)
    if len(message.transaction_states) != 1:
        raise RemoteProtocolError("DescribeTransactions: one id asked for, another number told")
    return message.transaction_states[0].error_code


def _known_state(state: TransactionState) -> TransactionState | None:
    error = error_for_code(state.error_code)
    if error.name == _NOT_FOUND:
        return None
    _raise_error(state.error_code, f"DescribeTransactions of {state.transactional_id}")
    return state


def _raise_error(code: int, what: str) -> None:
    if code:
        raise BrokerError(error_for_code(code), what)
