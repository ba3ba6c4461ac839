"""The driver's limit server: found, or started where there is none.

It is found through a file, in a folder that only this user may read, whose name has the owner in
it: Spark replaces the processes that plan micro-batches, and each finds the server of the one
before, so that what was sent in the last micro-batch still counts.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from spark_kafka_sink import __version__
from spark_kafka_sink.base.environment import child_environment
from spark_kafka_sink.base.errors import ConfigError, KafkaSinkError
from spark_kafka_sink.base.private_folder import PrivateFolderError, private_folder
from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.config.limits import (
    PAUSE_PATH,
    SERVER_HOST,
    SERVER_PORT,
    LimitAccess,
    LimitConfig,
)
from spark_kafka_sink.limits.messages import Granted, Reservation, read_answer, write_request
from spark_kafka_sink.limits.process import identity_of
from spark_kafka_sink.limits.server import listen, lock_of

_MODULE = "spark_kafka_sink.limits.server"
_ANSWER_S = 2.0
_START_S = 30.0
_TOKEN_BYTES = 16
_LOOPBACK = "127.0.0.1"


class LimitServerError(KafkaSinkError):
    """The driver has no server that tells tasks how fast they may send."""


class _Place(NamedTuple):
    """Where a server listens, and for whom. bind: an empty one is all addresses"""

    owner_id: int
    bind: str
    port: int


def access_for(
    limits: LimitConfig, query: Iterable[str | None], brokers: Iterable[tuple[str, int]], owner: int
) -> LimitAccess:
    """What the tasks of a query need to keep to ``limits``: the server runs when this returns.

    query: what tells it from the driver's other ones
    brokers: the server listens at the address from which this machine reaches them
    owner: id of the process with which the server ends

    Raises LimitServerError, and ConfigError where a folder would hold the query.
    """
    if limits.pause_path is not None and os.path.isdir(limits.pause_path):
        raise ConfigError(
            f"{PAUSE_PATH} = {limits.pause_path} is a folder on the driver, which would hold the "
            "query for as long as it exists: name a file that is there only in a pause"
        )
    bind = "" if limits.server_host is not None else _address_toward(brokers)
    port, token = find_or_start(_Place(owner, bind, limits.server_port))
    digest = hashlib.sha256(json.dumps([limits.pause_path, *query]).encode()).hexdigest()
    return LimitAccess(limits, digest, limits.server_host or bind, port, token)


def check_listening(limits: LimitConfig, brokers: Iterable[tuple[str, int]]) -> str:
    """Where a server would listen, in words. It is tried, and nothing is left.

    Raises LimitServerError.
    """
    bind = "" if limits.server_host is not None else _address_toward(brokers)
    _private_folder()
    place = f"{bind or 'any address'}, port {limits.server_port or 'any'}"
    try:
        listen(bind, limits.server_port).close()
    except OSError as error:
        raise LimitServerError(_cannot_listen(place, error.strerror or str(error))) from error
    return place


def find_or_start(place: _Place) -> tuple[int, Secret]:
    """Port and token of the server of ``place``. Raises LimitServerError."""
    identity = identity_of(place.owner_id)
    if identity is None:
        raise LimitServerError(f"process {place.owner_id}, which this is for, has ended")
    name = hashlib.sha256(f"{place.bind} {place.port} {__version__}".encode()).hexdigest()[:16]
    folder = _private_folder()
    path = folder / f"limits-{identity}-{name}.json"
    with _locked(lock_of(path)):
        found = _read(path)
        if found is None or not _answers(place.bind, *found):
            found = _start(place, identity, path)
    return found


def _private_folder() -> Path:
    """Of this user. Raises LimitServerError where somebody else's has its name."""
    try:
        return private_folder("limits")
    except PrivateFolderError as error:
        raise LimitServerError(str(error)) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two queries that start at the same time share a server."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path) -> tuple[int, Secret] | None:
    try:
        document = json.loads(path.read_text())
        return int(document["port"]), Secret(document["token"])
    except (OSError, ValueError, KeyError):
        return None


def _answers(bind: str, port: int, token: Secret) -> bool:
    """Whether the server is still there."""
    request = write_request(token.reveal(), Reservation("", 0, 0))
    try:
        with socket.create_connection((bind or _LOOPBACK, port), _ANSWER_S) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as lines:
                return isinstance(read_answer(lines.readline()), Granted)
    except (OSError, ValueError):
        return False


def _start(place: _Place, identity: str, path: Path) -> tuple[int, Secret]:
    token = secrets.token_hex(_TOKEN_BYTES)
    owner = [str(place.owner_id), identity]
    arguments = [*owner, place.bind, str(place.port), str(path)]
    # Python puts the working directory first on the module path: not wherever this may be.
    process = subprocess.Popen(
        [sys.executable, "-m", _MODULE, *arguments],
        cwd="/",
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        said, problem = process.communicate(token + "\n", timeout=_START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise LimitServerError(
            f"the limit server has not started within {_START_S:.0f} s"
        ) from None
    answer: dict[str, Any] = json.loads(said) if said else {"error": problem.strip()}
    if "error" in answer:
        where = f"{place.bind or 'any address'}, port {place.port or 'any'}"
        raise LimitServerError(_cannot_listen(where, answer["error"]))
    return int(answer["port"]), Secret(token)


def _cannot_listen(where: str, reason: str) -> str:
    return (
        f"the limit server cannot listen at {where}: {reason}. {SERVER_PORT} must be a port that "
        f"nobody else has, and {SERVER_HOST} a name under which executors reach this driver"
    )


def _address_toward(brokers: Iterable[tuple[str, int]]) -> str:
    """This machine's address from which packets go to the brokers, as executors' do.

    No packet is sent: to connect a datagram socket only chooses the way.
    """
    for host, port in brokers:
        try:
            for family, kind, protocol, _, address in socket.getaddrinfo(
                host, port, type=socket.SOCK_DGRAM
            ):
                with socket.socket(family, kind, protocol) as sock:
                    sock.connect(address)
                    return str(sock.getsockname()[0])
        except OSError:
            continue
    raise LimitServerError(
        "the driver does not know its own address: no host name of kafka.bootstrap.servers can be "
        f"looked up. Set {SERVER_HOST} to a name under which executors reach this driver"
    )
