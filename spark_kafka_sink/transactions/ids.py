"""Transactional ids of drivers and workers, and how a driver is told from others.

``{prefix}.driver`` belongs to the driver, ``{prefix}.{worker}.{index}`` to one Python worker
process for one task at a time. A worker takes another index for each task of the same plan, whose
earlier transactions wait for the driver; a new plan finds them all ended, and the ids free. So
attempts, speculation and other numbers of partitions never share an id, and ids stay few.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import uuid
from collections.abc import Mapping

from spark_kafka_sink.transactions.model import Driver, DriverToken

_WORKER_CHARACTERS = 12
_DRIVER = "driver"


def driver_transactional_id(prefix: str) -> str:
    """Under which decisions are written."""
    return f"{prefix}.{_DRIVER}"


def task_id_pattern(prefix: str) -> str:
    """A regular expression, for Java and Python, of exactly the tasks' ids of ``prefix``."""
    return rf"{_quoted(prefix)}\.[0-9a-f]{{{_WORKER_CHARACTERS}}}\.[0-9]+"


def is_task_id(prefix: str, transactional_id: str) -> bool:
    """Whether a task under ``prefix`` uses this id; false for the driver's and other prefixes'."""
    return re.fullmatch(task_id_pattern(prefix), transactional_id) is not None


def _quoted(text: str) -> str:
    """``re.escape`` in what both dialects understand."""
    return "".join(c if c.isalnum() or c in "_-" else f"\\{c}" for c in text)


class WorkerTransactionalIds:
    """The transactional ids of this Python worker process."""

    def __init__(self, worker: str | None = None) -> None:
        self._worker = worker or uuid.uuid4().hex[:_WORKER_CHARACTERS]
        self._plans: dict[str, tuple[int, int]] = {}
        self._next: dict[str, int] = {}
        self._retired: set[str] = set()

    def take(self, prefix: str, token: DriverToken) -> str:
        """An id for one task of the plan that ``token`` stands for."""
        plan = (token.producer_id, token.producer_epoch)
        if self._plans.get(prefix) != plan:
            self._plans[prefix] = plan
            self._next[prefix] = 0
        while True:
            transactional_id = f"{prefix}.{self._worker}.{self._next[prefix]}"
            self._next[prefix] += 1
            if transactional_id not in self._retired:
                return transactional_id

    def retire(self, transactional_id: str) -> None:
        """Never take this id again: a request of a task that failed may reach the coordinator
        late, and would fence whoever has the id then.
        """
        self._retired.add(transactional_id)

    def renew(self) -> None:
        """Become another worker: what a forked child must do."""
        self.__init__()  # type: ignore[misc]


TRANSACTIONAL_IDS = WorkerTransactionalIds()
os.register_at_fork(after_in_child=TRANSACTIONAL_IDS.renew)


_LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"


def own_environment() -> dict[str, str]:
    """What ``current_driver`` needs to know of a driver that is this process itself."""
    return {_LOCAL_FOLDERS: uuid.uuid4().hex}


def current_driver(
    environment: Mapping[str, str], started_ms: int, checkpoint: str | None, name: str | None
) -> Driver:
    """The Spark driver that this Python process works for.

    Spark gives planning neither query id nor run id. What all Python processes of one driver, and
    of no other, have in common is the folder of its block manager, which ends in a UUID.
    """
    folders = environment.get(_LOCAL_FOLDERS)
    secret = environment.get("PYTHON_WORKER_FACTORY_SECRET")
    seed = folders or secret or str(os.getppid())
    host = platform.node()
    driver_id = hashlib.sha256(f"{host}/{seed}".encode()).hexdigest()[:16]
    return Driver(driver_id, host, started_ms, checkpoint, name)
