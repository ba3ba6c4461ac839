"""A real schema registry: Apicurio, which answers as Confluent's does, with its store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spark_kafka_sink.localkafka import LocalRegistry
from tests.patience import PATIENCE_MS


class Apicurio:
    """url: for ``schema.registry.url``"""

    def __init__(self, registry: LocalRegistry) -> None:
        self.url = registry.url
        self._registry = registry

    def stop(self) -> None:
        """As if its machine had died."""
        self._registry.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Without the code under test. Raises HTTPError."""
        return self._registry.ask(method, path, body)

    def keep_compatible(self, subject: str, rule: str = "BACKWARD") -> None:
        """Apicurio's own default is NONE."""
        self.ask("PUT", f"/config/{subject}", {"compatibility": rule})


@contextmanager
def running_apicurio() -> Iterator[Apicurio]:
    with LocalRegistry("NONE", start_timeout_ms=PATIENCE_MS) as registry:
        yield Apicurio(registry)
