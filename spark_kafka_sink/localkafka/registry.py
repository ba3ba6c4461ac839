"""A schema registry on this machine to try things with: Apicurio, with Confluent's REST API.

Its schemas are in memory. It needs Java 17.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.localkafka.cluster import free_ports
from spark_kafka_sink.localkafka.jars import Step, fetch_archive, find_java_for, print_step
from spark_kafka_sink.localkafka.processes import SupervisorClient
from spark_kafka_sink.localkafka.settings import HOST, LocalKafkaError, tail_of

# 3.1 and newer need Java 21.
REGISTRY_VERSION = "3.0.9"
_NAME = "registry"
_TITLE = f"the schema registry Apicurio {REGISTRY_VERSION}"
_ARCHIVE = f"io.apicurio:apicurio-registry-app:{REGISTRY_VERSION}:all"
_RUNNER = f"apicurio-registry-app-{REGISTRY_VERSION}-runner.jar"
_PATH = "/apis/ccompat/v7"
_JSON = "application/vnd.schemaregistry.v1+json"
_ASK_AGAIN_MS = 250
_ASK_TIMEOUT_S = 10
# A proxy that the environment names cannot reach this machine's own address.
_OPENER = build_opener(ProxyHandler({}))


class LocalRegistry:
    """Apicurio with its store in memory. A context manager; methods raise LocalKafkaError.

    ``url``: for ``schema.registry.url``.

    Parameters
    ----------
    compatibility: the global rule; Confluent's default is BACKWARD, Apicurio's own is NONE.
    start_timeout_ms: ms until the registry must answer.
    step: as for LocalKafka.
    """

    def __init__(
        self,
        compatibility: str = "BACKWARD",
        *,
        start_timeout_ms: int = 90_000,
        step: Step = print_step,
    ) -> None:
        self._compatibility = compatibility
        self._start_timeout_ms = start_timeout_ms
        self._step = step
        self._clock = SystemClock()
        self._supervisor: SupervisorClient | None = None
        self._log = Path()
        self.url = ""

    def __enter__(self) -> LocalRegistry:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Fetch the archive, start the registry, and wait until it answers."""
        java = find_java_for(_TITLE, 17)
        name = f"apicurio-registry-{REGISTRY_VERSION}"
        archive = fetch_archive(_ARCHIVE, name, f"{_TITLE}, 109 MB", self._step)
        with self._step(f"Starting {_TITLE}"):
            self._supervisor = SupervisorClient(Path(tempfile.gettempdir()))
            try:
                self._launch(self._supervisor, java, archive)
                self._await_answer()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Kill the registry and remove its files. May be called at any time, and again."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.close()

    def await_failure(self, timeout_ms: int) -> str | None:
        """Wait for the registry to end by itself; return the end of its log, or None if it runs."""
        if self._supervisor is None:
            raise LocalKafkaError("this LocalRegistry is not started", code="LOCAL-012")
        codes = self._supervisor.wait([_NAME], timeout_ms)
        if not codes:
            return None
        return f"{_TITLE} ended by itself with code {codes[_NAME]}:\n{tail_of(self._log)}"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer of the REST API. Raises OSError and its subclass HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": _JSON}, method=method)
        with _OPENER.open(request, timeout=_ASK_TIMEOUT_S) as answer:
            return json.load(answer)

    def _launch(self, supervisor: SupervisorClient, java: str, archive: Path) -> None:
        # Without a filter, newer Pythons warn. The archive has the digest that the package has.
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(archive) as tar:
            tar.extractall(supervisor.folder, **safe)
        (port,) = free_ports(1, HOST)
        self.url = f"http://{HOST}:{port}{_PATH}"
        command = [java, "-Xmx512m", "-XX:-UsePerfData", f"-Djava.io.tmpdir={supervisor.folder}"]
        command += [f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}"]
        command += ["-jar", str(supervisor.folder / _RUNNER)]
        self._log = supervisor.folder / "registry.log"
        supervisor.start(_NAME, command, self._log, self._log)

    def _await_answer(self) -> None:
        deadline_ms = self._clock.now_ms() + self._start_timeout_ms
        while True:
            try:
                # Apicurio rejects the removal of a rule that it does not have.
                if self.ask("GET", "/config")["compatibilityLevel"] != self._compatibility:
                    self.ask("PUT", "/config", {"compatibility": self._compatibility})
                return
            except (OSError, HTTPException, ValueError) as error:
                problem = error
            failure = self.await_failure(_ASK_AGAIN_MS)
            if failure is None and self._clock.now_ms() >= deadline_ms:
                failure = (
                    f"{_TITLE} does not answer within {self._start_timeout_ms} ms ({problem}). The "
                    f"end of its log:\n{tail_of(self._log)}"
                )
            if failure is not None:
                raise LocalKafkaError(failure, code="LOCAL-010")
