"""A real schema registry: Apicurio, which answers as Confluent's does, with its store in memory."""

from contextlib import contextmanager

from spark_kafka_sink.localkafka import LocalRegistry
from tests.patience import PATIENCE_MS


class Apicurio:
    """url: for ``schema.registry.url``"""

    def __init__(self, registry):
        self.url = registry.url
        self._registry = registry

    def stop(self):
        """As if its machine had died."""
        self._registry.close()

    def ask(self, method, path, body=None):
        """Without the code under test. Raises HTTPError."""
        return self._registry.ask(method, path, body)

    def keep_compatible(self, subject, rule="BACKWARD"):
        """Apicurio's own default is NONE."""
        self.ask("PUT", f"/config/{subject}", {"compatibility": rule})


@contextmanager
def running_apicurio():
    with LocalRegistry("NONE", start_timeout_ms=PATIENCE_MS) as registry:
        yield Apicurio(registry)
