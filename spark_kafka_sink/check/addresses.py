"""Whether every address can be reached: those of the options, and those that brokers advertise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_kafka_sink.base.errors import AuthenticationError, BootstrapError, BrokerError
from spark_kafka_sink.base.model import Node
from spark_kafka_sink.check.finding import Finding, failed, passed, warned
from spark_kafka_sink.client.admin import AdminClient
from spark_kafka_sink.config.security_config import SecurityConfig

_BOOTSTRAP = "check kafka.bootstrap.servers, kafka.security.protocol, firewalls"
_ADVERTISED = (
    "this is the address that the broker advertises: check its advertised.listeners, and that the "
    "name and port can be reached from here and from the executors"
)


def bootstrap(admin: AdminClient, security: SecurityConfig, timeout_ms: int) -> Iterator[Finding]:
    """A finding for each address of ``kafka.bootstrap.servers``: one that answers is enough.

    A refusal ends it: with the same credentials, no other address will do better.
    """
    how = _how(security)
    try:
        tried = list(_tried(admin, admin.bootstrap_nodes, timeout_ms))
    except AuthenticationError as error:
        yield failed("login", str(error))
        return
    is_any_reached = any(problem is None for _, problem in tried)
    for node, problem in tried:
        subject = f"bootstrap {node.address}"
        if problem is None:
            yield passed(subject, f"connected, {how}")
        elif is_any_reached:
            yield warned(subject, problem, "start this broker, or take it out of the option")
        else:
            yield failed(subject, problem, _BOOTSTRAP)


def brokers(admin: AdminClient, timeout_ms: int) -> Iterator[Finding]:
    """A finding for each broker of the cluster, at the address that it advertises."""
    try:
        nodes = admin.nodes(admin.deadline_in(timeout_ms))
    except (BootstrapError, BrokerError) as error:
        yield failed("cluster", str(error))
        return
    for node, problem in _tried(admin, nodes, timeout_ms):
        subject = f"broker {node.node_id}"
        if problem is None:
            yield passed(subject, f"{node.address}, connected")
        else:
            yield failed(subject, problem, _ADVERTISED)


def _tried(
    admin: AdminClient, nodes: Sequence[Node], timeout_ms: int
) -> Iterator[tuple[Node, str | None]]:
    """Each node, and why it cannot be reached. They are connected to at the same time."""
    deadline_ms = admin.deadline_in(timeout_ms)
    admin.await_all(nodes, deadline_ms)
    for node in nodes:
        try:
            admin.await_any([node], deadline_ms)
        except BootstrapError as error:
            reason = str(error).removeprefix(f"no broker reachable: {node.address} (")
            yield node, reason.removesuffix(")")
        else:
            yield node, None


def _how(security: SecurityConfig) -> str:
    if security.sasl is None:
        return security.protocol
    return f"{security.protocol} with {security.sasl.mechanism}"
