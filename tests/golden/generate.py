"""Writes the golden cases anew, with Apache Kafka's own Java client.

::

    python -m tests.golden.generate

The cases are committed, so tests need this only when cases are added (in ``generator/*.java``) or
the client's version changes (``CLIENT_VERSION``). Needs a JDK 17; the jars are those of the local
Kafka of the same version. What codecs make may differ from machine to machine: Java's gzip is the
system's zlib.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from spark_kafka_sink.localkafka import LocalKafkaError, fetch_jars
from spark_kafka_sink.localkafka.jars import find_java_for_kafka

# With the same modules, the folder of jars that the broker tests have fetched is used.
from spark_kafka_sink.localkafka.processes import LOGGER_MODULE
from tests.golden.case_files import CLIENT_VERSION, FOLDER

_SOURCES = Path(__file__).parent / "generator"
_TIMEOUT_S = 1000


def find_javac():
    """The compiler beside the ``java`` that is used, else of the PATH; None without a JDK."""
    try:
        beside = Path(find_java_for_kafka(CLIENT_VERSION)).with_name("javac")
    except LocalKafkaError:
        return None
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("javac")


def generate(folder):
    """Compile the generator and let it write all cases into ``folder``."""
    javac = find_javac()
    if javac is None:
        raise SystemExit("no javac: install a JDK 17 or newer and put it on the PATH")
    modules = [f"org.apache.kafka:kafka_2.13:{CLIENT_VERSION}", LOGGER_MODULE]
    jars = [str(jar) for jar in fetch_jars(modules, f"kafka-{CLIENT_VERSION}")]
    # Both run for seconds: the fast compiler and the simplest garbage collector.
    jvm = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    with tempfile.TemporaryDirectory() as classes:
        sources = sorted(str(source) for source in _SOURCES.glob("*.java"))
        class_path = os.pathsep.join(jars)
        compiler = [javac, *(f"-J{option}" for option in jvm), "-encoding", "UTF-8"]
        _run([*compiler, "-d", classes, "-cp", class_path, *sources])
        class_path = os.pathsep.join([classes, *jars])
        java = find_java_for_kafka(CLIENT_VERSION)
        _run([java, *jvm, "-cp", class_path, "Generate", str(folder)])


def _run(command):
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout.decode('utf-8', 'replace')}")


if __name__ == "__main__":
    generate(FOLDER)
