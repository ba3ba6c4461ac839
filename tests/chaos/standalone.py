"""A Spark cluster on this machine whose executors are on two hosts, as far as Spark can tell.

Speculation wants a second host for the second attempt, and is off where driver and executor are
one. Executors are no children of the driver here: they end after it, and write until then.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil
import pyspark

from tests.broker.processes import eventually

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY = "org.apache.spark.deploy"
_HOSTS = ("127.0.0.1", "127.0.0.2")
_START_TIMEOUT_S = 300

SPECULATION = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "600m",
    "spark.task.maxFailures": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "50ms",
}
"""Spark's settings: one task slot per host, and a second attempt at whatever takes longer."""


def _free_port() -> int:
    with socket.create_server((_HOSTS[0], 0)) as server:
        port: int = server.getsockname()[1]
        return port


class StandaloneCluster:
    """A context manager. ``environment``: added to that of the executors."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://{_HOSTS[0]}:{_free_port()}"

    def __enter__(self) -> StandaloneCluster:
        host, _, port = self.master.removeprefix("spark://").partition(":")
        self._launch("master", "Master", "--host", host, "--port", port, "--webui-port", "0")
        for number, worker_host in enumerate(_HOSTS):
            self._launch(
                f"worker-{number}",
                "Worker",
                "--host",
                worker_host,
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                str(self._folder / f"work-{number}"),
                self.master,
            )
        assert eventually(self._is_ready, _START_TIMEOUT_S), "Spark's workers do not register"
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()

    def _launch(self, name: str, class_name: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(_SPARK_CLASS), f"{_DEPLOY}.{class_name.lower()}.{class_name}", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "SPARK_DAEMON_MEMORY": "256m", **self._environment},
                )
            )

    def _is_ready(self) -> bool:
        logs = [self._folder / f"worker-{number}.log" for number in range(len(_HOSTS))]
        said = [log.read_text(encoding="utf-8", errors="replace") for log in logs]
        return all("Successfully registered with master" in text for text in said)
