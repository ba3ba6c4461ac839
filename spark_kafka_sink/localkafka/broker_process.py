"""One broker of a local Kafka: its folder, its process, and what can be done to it."""

from __future__ import annotations

import signal
from enum import Enum, auto
from pathlib import Path

from spark_kafka_sink.localkafka.errors import LocalKafkaError, tail_of
from spark_kafka_sink.localkafka.keeper_client import KeeperClient

_KILL_TIMEOUT_MS = 30_000


class _State(Enum):
    """What was last done to the process; one that died by itself is found by ``wait``."""

    RUNNING = auto()
    PAUSED = auto()
    STOPPED = auto()


class BrokerProcess:
    """``name`` is the process's name at the keeper, ``pid`` the id of the latest process."""

    def __init__(self, keeper: KeeperClient, broker_id: int, folder: Path) -> None:
        self._keeper = keeper
        self._state = _State.STOPPED
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.folder = folder / self.name
        self.data_directory = self.folder / "data"
        self.log_file = self.folder / "broker.log"
        self.properties_file = self.folder / "server.properties"
        self.pid = -1
        self.folder.mkdir()

    @property
    def is_running(self) -> bool:
        return self._state is _State.RUNNING

    @property
    def is_alive(self) -> bool:
        """Running or paused."""
        return self._state is not _State.STOPPED

    def start(self, command: list[str]) -> None:
        self.pid = self._keeper.start(self.name, command, self.log_file, self.log_file)
        self._state = _State.RUNNING

    def stop(self, timeout_ms: int) -> None:
        """Shut down cleanly. Raises LocalKafkaError if that takes too long."""
        if not self.is_alive:
            return
        self._signal(signal.SIGTERM)
        if self._state is _State.PAUSED:
            self._signal(signal.SIGCONT)
        # Until it has ended, it counts as running: then it can still be killed.
        self._state = _State.RUNNING
        advice = "a shutdown needs a quorum of running nodes, kill() does not"
        self._await_end(timeout_ms, advice)

    def kill(self) -> None:
        if self.is_alive:
            self._signal(signal.SIGKILL)
            self._await_end(_KILL_TIMEOUT_MS, "it is in a system call that cannot be interrupted")

    def pause(self) -> None:
        self._require(_State.RUNNING, "pause")
        self._signal(signal.SIGSTOP)
        self._state = _State.PAUSED

    def resume(self) -> None:
        self._require(_State.PAUSED, "resume")
        self._signal(signal.SIGCONT)
        self._state = _State.RUNNING

    def failure(self, exit_code: int) -> str:
        """What to say about a broker that ended by itself."""
        return (
            f"broker {self.broker_id} ended by itself with code {exit_code}. The end of its log:\n"
            f"{tail_of(self.log_file)}"
        )

    def _signal(self, number: signal.Signals) -> None:
        self._keeper.signal(self.name, number)

    def _require(self, state: _State, what: str) -> None:
        if self._state is not state:
            now = self._state.name.lower()
            raise LocalKafkaError(f"cannot {what} broker {self.broker_id}: it is {now}")

    def _await_end(self, timeout_ms: int, advice: str) -> None:
        if not self._keeper.wait([self.name], timeout_ms):
            raise LocalKafkaError(
                f"broker {self.broker_id} did not end within {timeout_ms} ms: {advice}. The end of "
                f"its log:\n{tail_of(self.log_file)}"
            )
        self._state = _State.STOPPED
