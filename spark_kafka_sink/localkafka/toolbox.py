"""The Java programs of one version of Kafka: broker, kafka-storage, and all other tools."""

from __future__ import annotations

import base64
import signal
import uuid
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from spark_kafka_sink.localkafka import settings
from spark_kafka_sink.localkafka.broker_process import BrokerProcess
from spark_kafka_sink.localkafka.certificates import write_private
from spark_kafka_sink.localkafka.errors import LocalKafkaError, tail_of
from spark_kafka_sink.localkafka.jars import fetch_jars
from spark_kafka_sink.localkafka.java import find_java_for_kafka
from spark_kafka_sink.localkafka.keeper_client import KeeperClient
from spark_kafka_sink.localkafka.tools import find_tool_class

# Kafka's own dependencies bring no logger: without one, a broker that fails logs nothing.
LOGGER_MODULE = "org.slf4j:slf4j-simple:1.7.36"
_FORMAT_TIMEOUT_MS = 300_000


def broker_jars(version: str) -> tuple[list[str], str]:
    """Return the modules that a broker of this version needs, and the name of their folder."""
    return [f"org.apache.kafka:kafka_2.13:{version}", LOGGER_MODULE], f"kafka-{version}"


def tool_jars(version: str) -> tuple[list[str], str]:
    """Return the modules of the command-line tools, and the name of their folder."""
    kafka = [f"org.apache.kafka:{name}:{version}" for name in ("kafka_2.13", "kafka-tools")]
    return [*kafka, LOGGER_MODULE], f"kafka-tools-{version}"


class Toolbox:
    """Java is looked for and jars are fetched when they are needed.

    All methods raise LocalKafkaError.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._runs = 0

    @cached_property
    def _java(self) -> str:
        return find_java_for_kafka(self._version)

    @cached_property
    def _jars(self) -> list[Path]:
        return fetch_jars(*broker_jars(self._version))

    def fetch(self) -> None:
        """What brokers need is there afterwards."""
        assert self._java
        assert self._jars

    def broker_command(self, heap: str, folder: Path, jvm_options: Sequence[str]) -> list[str]:
        """The command that runs a broker on ``folder/server.properties``."""
        return settings.broker_command(self._java, self._jars, heap, folder, jvm_options)

    def run(
        self, keeper: KeeperClient, class_name: str, arguments: Sequence[str], timeout_ms: int
    ) -> str:
        """What a command-line class prints on stdout. Its jars are fetched at the first call."""
        jars = fetch_jars(*tool_jars(self._version))
        full_name = find_tool_class(jars, class_name)
        self._runs += 1
        name = f"tool-{self._runs}"
        stdout, stderr = keeper.folder / f"{name}.out", keeper.folder / f"{name}.err"
        command = settings.tool_command(self._java, jars, keeper.folder, full_name, arguments)
        keeper.start(name, command, stdout, stderr)
        code = keeper.wait([name], timeout_ms).get(name)
        if code is None:
            keeper.signal(name, signal.SIGKILL)
            raise LocalKafkaError(
                f"{full_name} did not end within {timeout_ms} ms:\n{tail_of(stderr)}"
            )
        if code:
            raise LocalKafkaError(f"{full_name} ended with code {code}:\n{tail_of(stderr)}")
        return stdout.read_text(encoding="utf-8", errors="replace")

    def format(
        self,
        keeper: KeeperClient,
        brokers: Sequence[BrokerProcess],
        scram_credentials: Sequence[str],
    ) -> None:
        """Prepare every data directory, all nodes at once.

        scram_credentials : with which users log in, as ``--add-scram`` takes them.
        """
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # A leading dash would be taken for an option.
        arguments = ["format", f"--cluster-id={cluster_id}"]
        for credential in scram_credentials:
            arguments += ["--add-scram", credential]
        for broker in brokers:
            given = [*arguments, "--config", str(broker.properties_file)]
            if scram_credentials:
                # In a file: what stands on a command line can be read by everybody on the machine.
                # Older Kafkas know neither the users nor such a file.
                file = write_private(broker.folder / "format.arguments", "\n".join(given))
                given = [f"@{file}"]
            command = settings.tool_command(
                self._java, self._jars, broker.folder, "kafka.tools.StorageTool", given
            )
            keeper.start(f"format-{broker.broker_id}", command, broker.log_file, broker.log_file)
        for broker in brokers:
            name = f"format-{broker.broker_id}"
            code = keeper.wait([name], _FORMAT_TIMEOUT_MS).get(name)
            if code != 0:
                raise LocalKafkaError(
                    f"the data directory could not be formatted (exit code {code}), check "
                    f"server_properties:\n{tail_of(broker.log_file)}"
                )
