"""A broker's version, server.properties and JVM arguments. Pure functions.

:class:`LocalKafkaError` is the error of a local Kafka; its message quotes a part of a log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from spark_kafka_sink.base.errors import KafkaSinkError

_TAIL_BYTES = 65536
_LINE_LENGTH = 500


class LocalKafkaError(KafkaSinkError):
    """A local Kafka cannot be fetched, started or used. The message says what to do."""


def tail_of(path: Path, lines: int = 30) -> str:
    """Return the last lines of a log file, indented, for an error message."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        text = ""
    tail = text.splitlines()[-lines:]
    return (
        "\n".join(f"    {line[:_LINE_LENGTH]}" for line in tail)
        if tail
        else "    (nothing was logged)"
    )


# --- versions of Apache Kafka --------------------------------------------------------------------

DEFAULT_VERSION = "4.4.0"
KNOWN_VERSIONS = ("3.3.2", "3.9.1", "4.0.2", "4.1.2", "4.3.0", "4.4.0")
"""The versions that the project's own tests run."""
_OLDEST = (3, 3)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)", re.ASCII)


def check_version(version: str) -> str:
    """Return ``version``. Raises LocalKafkaError if it is not a version, or too old."""
    match = _VERSION.fullmatch(version)
    problem = ""
    if match is None:
        problem = f"'{version}' is not a version of Apache Kafka, such as {DEFAULT_VERSION}"
    elif (int(match[1]), int(match[2])) < _OLDEST:
        problem = f"Apache Kafka {version} is too old to be run here, which needs 3.3 or newer"
    if problem:
        known = f"Known to work: {', '.join(KNOWN_VERSIONS)}"
        raise LocalKafkaError(f"{problem}. {known}", code="LOCAL-002")
    return version


# --- settings ------------------------------------------------------------------------------------

HOST = "127.0.0.1"
MAIN_LISTENER = "PLAINTEXT"
CONTROLLER_LISTENER = "CONTROLLER"

FAST_FAILOVER: Mapping[str, str] = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "250",
}
"""Server properties for tests that kill brokers.

By default, the partitions of a dead broker get other leaders after 9 s, and the broker may return
no earlier. The short times are no default here: on a machine with too little CPU, a slow broker
would count as dead.
"""

# kafka-run-class.sh starts brokers with these options; with others, measurements would differ.
BROKER_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# A tool runs for a second, so little compiling and a simple collector are best.
TOOL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOGGER = "org.slf4j.simpleLogger"


class BrokerPorts(NamedTuple):
    """Ports of one node: the listener of the Raft quorum, and those for clients by name."""

    controller: int
    listeners: Mapping[str, int]


def server_properties(
    broker_id: int,
    ports: Mapping[int, BrokerPorts],
    protocols: Mapping[str, str],
    log_directory: Path,
    advertised: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the settings of a combined node for tests, both broker and controller.

    ``protocols``: security protocol by listener name. ``advertised``: ``host:port`` by listener
    name, if clients shall not connect to the listener itself.
    """
    mine = ports[broker_id]
    replicas = min(3, len(ports))
    in_sync = min(2, replicas)
    clients = {name: f"{HOST}:{port}" for name, port in mine.listeners.items()}
    listeners = [f"{name}://{address}" for name, address in clients.items()]
    reached = {**clients, **(advertised or {})}
    advertised_listeners = [f"{name}://{address}" for name, address in reached.items()]
    controllers = [f"{node}@{HOST}:{its.controller}" for node, its in ports.items()]
    protocol_map = {**protocols, CONTROLLER_LISTENER: "PLAINTEXT"}
    return {
        "process.roles": "broker,controller",
        "node.id": str(broker_id),
        "controller.quorum.voters": ",".join(controllers),
        "controller.listener.names": CONTROLLER_LISTENER,
        "listeners": ",".join((*listeners, f"{CONTROLLER_LISTENER}://{HOST}:{mine.controller}")),
        "advertised.listeners": ",".join(advertised_listeners),
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocol_map.items()),
        "inter.broker.listener.name": MAIN_LISTENER,
        "log.dirs": str(log_directory),
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        **TEST_PROPERTIES,
    }


TEST_PROPERTIES: Mapping[str, str] = {
    "num.partitions": "1",
    "auto.create.topics.enable": "true",
    "controlled.shutdown.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    # The default of 50 each costs the first consumer or transaction seconds of start-up.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # Test data may have any timestamp; a week's retention would delete old data in half a minute.
    "log.retention.ms": "-1",
    # The default takes 128 MB of heap.
    "log.cleaner.dedupe.buffer.size": "2097152",
}


def render_properties(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items())


_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(text: str) -> str:
    escaped = "".join(map(_escape_character, text))
    return "\\" + escaped if escaped.startswith((" ", "#", "!")) else escaped


def _escape_character(character: str) -> str:
    """Escape one character. Java reads Latin-1, so others become ``\\uXXXX`` per UTF-16 unit."""
    if character <= "~":
        return _ESCAPES.get(character, character)
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def java_program(
    class_name: str, jars: Sequence[Path], folder: Path, log_level: str, jvm: Sequence[str]
) -> list[str]:
    """Return the arguments of ``java``: options of every program and ``jvm``, class path, class."""
    return [
        "-Djava.awt.headless=true",
        # A killed JVM would leave these files in the system's temporary folder.
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={folder}",
        f"-D{_LOGGER}.defaultLogLevel={log_level}",
        f"-D{_LOGGER}.showDateTime=true",
        f"-D{_LOGGER}.dateTimeFormat=[yyyy-MM-dd HH:mm:ss,SSS]",
        # These loggers repeat the configuration in hundreds of lines.
        f"-D{_LOGGER}.log.org.apache.kafka.common.config.AbstractConfig=warn",
        f"-D{_LOGGER}.log.kafka.server.KafkaConfig=warn",
        *jvm,
        "-cp",
        os.pathsep.join(str(jar) for jar in jars),
        class_name,
    ]
