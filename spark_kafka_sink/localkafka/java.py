"""The Java that runs the broker: where it is, and whether it is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from spark_kafka_sink.localkafka.errors import LocalKafkaError

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_VERSION_TIMEOUT_S = 30
_ADVICE = "install a Java runtime 17 or newer and put it on the PATH, or set JAVA_HOME"


def find_java() -> str:
    """Path of the ``java`` of JAVA_HOME, else of the PATH. Raises LocalKafkaError without one."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise LocalKafkaError(f"JAVA_HOME is {home}, but there is no {java}: {_ADVICE}")
        return os.path.abspath(java)
    found = shutil.which("java")
    if found is None:
        raise LocalKafkaError(f"no java on the PATH, and JAVA_HOME is not set: {_ADVICE}")
    return os.path.abspath(found)


def java_major_version(java: str) -> int:
    """17 for Java 17, 8 for Java 1.8. Raises LocalKafkaError if ``java`` does not run."""
    try:
        done = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalKafkaError(f"{java} does not run ({error}): {_ADVICE}") from error
    output = done.stdout.decode("utf-8", "replace")
    match = _VERSION.search(output)
    if done.returncode or match is None:
        raise LocalKafkaError(f"{java} -version says {output.strip()!r}: {_ADVICE}")
    return int(match[1])


def find_java_for_kafka(kafka_version: str) -> str:
    """A ``java`` that can run this Kafka. Raises LocalKafkaError if it is missing or too old."""
    java = find_java()
    needed = 17 if int(kafka_version.split(".")[0]) >= 4 else 8
    found = java_major_version(java)
    if found < needed:
        raise LocalKafkaError(
            f"Kafka {kafka_version} needs Java {needed} or newer, {java} is Java {found}: {_ADVICE}"
        )
    return java
