"""Network and client: second checks, forgetting, limits, and what is replaced while connections live."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CLIENT = ("unit/test_network_client.py",)
_SOCKETS = ("unit/test_sockets.py",)
_ADMIN = ("unit/test_admin.py",)
_COORDINATORS = ("unit/test_coordinators.py",)
_ROTATION = ("unit/test_secured_client.py",)
_SIZES = ("unit/security/test_sasl.py",)

PLANTED: tuple[str, ...] = ()

MUTANTS = (
    Mutant(
        "network/coordinators.py",
        "        self._admin.learn_cluster(deadline_ms)\n",
        "",
        _COORDINATORS,
    ),
    Mutant(
        "network/client.py",
        "        if connection.is_connected:\n            connection.addresses = []",
        "        if False:\n            connection.addresses = []",
        _CLIENT,
    ),
    Mutant("network/client.py", "if not request.is_own]", "]", _CLIENT),
    Mutant(
        "network/client.py",
        "if (node.host, node.port) != (connection.node.host, connection.node.port):",
        "if False:",
        _CLIENT,
    ),
    Mutant(
        "network/client.py",
        "protocol.is_authenticated or connection.has",
        "connection.has",
        _CLIENT,
    ),
    Mutant(
        "network/transport.py",
        "            self._threads_count -= 1\n            return None",
        "            return None",
        _SOCKETS,
    ),
    Mutant("network/transport.py", "            sock.close()\n", "", _SOCKETS),
    Mutant(
        "network/client.py",
        "                del pauses[0]",
        "                break",
        _CLIENT,
    ),
    Mutant(
        "network/blocking.py",
        "        deadline_ms = min(deadline_ms, self.deadline_in(_UNREACHABLE_PATIENCE_MS))\n",
        "",
        _ADMIN,
    ),
    Mutant(
        "network/blocking.py",
        "patience_ms = min(deadline_ms, self.deadline_in(_UNREACHABLE_PATIENCE_MS))",
        "patience_ms = deadline_ms",
        _ADMIN,
    ),
    Mutant("network/blocking.py", " or self._api_versions.get(node)", "", _ADMIN),
    Mutant("network/admin.py", " if c.value is not None}", "}", _ADMIN),
    Mutant("network/coordinators.py", " and answer.error_code == 0\n", "\n", _COORDINATORS),
    Mutant(
        "producer/producer.py",
        "            self.client.renew_connections()\n",
        "            pass\n",
        _ROTATION,
    ),
    Mutant(
        "protocol/connection.py",
        "if not self.in_flight or self.in_flight[0].is_own:",
        "if not self.in_flight:",
        _SIZES,
    ),
    Mutant(
        "protocol/api.py",
        "_decode_api_versions_cached if len(body) <= _MAX_CACHED_BYTES else _decode_api_versions",
        "_decode_api_versions_cached",
        _SIZES,
    ),
    Mutant(
        "spark/preflight.py",
        "producer.bootstrap_servers, producer.security, ",
        "producer.bootstrap_servers, ",
        ("unit/test_preflight_notes.py",),
    ),
    Mutant(
        "network/client.py",
        "now_ms + self._settings.request_timeout_ms)\n\n    def _expected",
        "connection.set_up_deadline_ms)\n\n    def _expected",
        ("simulation/test_fleet.py",),
    ),
)
