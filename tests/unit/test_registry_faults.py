"""All that can be wrong with a registry, in one table: what is told, and for how long it is tried.

With the client's own waiting on a clock of the tests. That a registry which dies while a query runs
has no effect is in ``tests/registry/test_spark.py``, TLS with a real registry in ``test_tls.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from spark_kafka_sink.base.errors import KafkaSinkError
from spark_kafka_sink.registry import schemas
from tests.unit.registry_asking import TEXT, Times, options
from tests.unit.registry_server import Registry, serving
from tests.unit.test_registry_refusals import unused_port
from tests.unit.tls_server import authority, server_context


class Fault(NamedTuple):
    """words: in the message

    is_waited_for: whether it may pass, so that it is tried for a while; None where that depends on
        what is lost with the connection

    change: makes it of a registry; url: of its address; options: of the query
    request_timeout_ms: instead of the sink's own
    """

    words: str
    is_waited_for: bool | None = False
    change: Callable[[Registry], Any] = lambda registry: None
    url: Callable[[str], str] = lambda url: url
    options: dict[str, str] = {}  # noqa: RUF012
    has_tls: bool = False
    request_timeout_ms: int | None = None


def answers(status: int, content: Any) -> Callable[[Registry], None]:
    def change(registry: Registry) -> None:
        registry.fails = status, content

    return change


def is_slow(registry: Registry) -> None:
    registry.waits_for = threading.Event()


def is_incompatible(registry: Registry) -> None:
    registry.add("t-value", {"schema": '"string"'})
    registry.refuses.add("t-value")


def code(number: int) -> dict[str, Any]:
    return {"error_code": number, "message": "Reason"}


TRUST = {
    "schema_registry_ssl_truststore_type": "PEM",
    "schema_registry_ssl_truststore_certificates": authority().pem,
}
FAULTS = {
    "down": Fault("Connection refused", True, url=lambda _: f"http://127.0.0.1:{unused_port()}"),
    "slow": Fault("no answer within 20 ms", True, is_slow, request_timeout_ms=20),
    "slow, with little time": Fault("no answer within 2", None, is_slow, options={"schema_registry_timeout_ms": "30"}),
    "not ready": Fault("answers 503 (50301), Reason", True, answers(503, code(50301))),
    "too many requests": Fault("answers 429, Reason", True, answers(429, code(429))),
    "a name that is not known": Fault("http://registry.invalid:", True, url=lambda _: "http://registry.invalid:8081"),
    "401": Fault("it wants credentials", False, answers(401, code(401))),
    "403": Fault("do not allow it", False, answers(403, code(40301))),
    "409": Fault("not compatible with version 1", False, is_incompatible),
    "422": Fault("does not take the schema of subject 't-value'", False, answers(422, code(42201))),
    "not registered": Fault("has no subject 't-value'", options={"auto_register_schemas": "false"}),
    "a wrong path": Fault("Apicurio's ends with", False, answers(404, "<html>")),
    "a page to log in": Fault("it is no schema registry", False, answers(200, "<html>")),
    "a redirect": Fault("which is not followed", False, answers(302, "")),
    "a bug in the registry": Fault("answers 500 (50001), Reason", True, answers(500, code(50001))),
    "nobody is trusted": Fault("schema.registry.ssl.truststore.location is not set", has_tls=True),
    "another name": Fault("not for the name or address 127.0.0.1", options=TRUST, has_tls=True),
    "clear text to TLS": Fault("the port speaks TLS", url=lambda url: url.replace("https:", "http:"), has_tls=True),
    "TLS to clear text": Fault("does not speak TLS", url=lambda url: url.replace("http:", "https:")),
    "no client certificate": Fault("wants a client certificate", None, options=TRUST, has_tls=True),
}  # fmt: skip


@pytest.fixture
def running():
    schemas._answers.clear()
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_told_within_seconds(running, name):
    fault = FAULTS[name]
    host = "elsewhere" if name == "another name" else "127.0.0.1"
    shown = authority().issue("registry", [host])
    context = server_context(shown, "client" in name) if fault.has_tls else None
    registry = running.enter_context(serving(Registry(), context))
    fault.change(registry)
    given = options(fault.url(registry.url), **fault.options)
    assert given.registry.value is not None
    times = Times()
    config = given.registry.config
    if fault.request_timeout_ms is not None:
        config = replace(config, request_timeout_ms=fault.request_timeout_ms)
    client = schemas.RegistryClient(config, times, times.wait)
    wanted = schemas.SchemaRequest("value", "t", TEXT, "prefix", given.registry.value)
    with pytest.raises(KafkaSinkError) as refused:
        schemas._fetch(client, wanted)
    assert fault.words in str(refused.value)
    if fault.is_waited_for is not None:
        assert bool(times.pauses) == fault.is_waited_for
    assert times.ms <= given.registry.config.timeout_ms
