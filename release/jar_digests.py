"""``python -m release.jar_digests [VERSION]``: write the digests of Kafka's jars for the package.

Fetches the jars of a LocalKafka of VERSION (by default, the default version) without a cache, and
writes a file for each set of jars. Ivy compares the jars with the repository's own checksums. The
digest of a released version never changes: check the difference before you commit it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from spark_kafka_sink.base.machine import CACHE_VARIABLE
from spark_kafka_sink.localkafka.jars import fetch_jars
from spark_kafka_sink.localkafka.processes import broker_jars, tool_jars
from spark_kafka_sink.localkafka.settings import DEFAULT_VERSION

FOLDER = Path(__file__).resolve().parents[1] / "spark_kafka_sink" / "localkafka" / "digests"


def write(version: str) -> list[Path]:
    """Write the files of ``version`` and return their paths. Raises LocalKafkaError."""
    written = []
    FOLDER.mkdir(exist_ok=True)
    for modules, name in (broker_jars(version), tool_jars(version)):
        path = FOLDER / f"{name}.sha256"
        path.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as cache:
            os.environ[CACHE_VARIABLE] = cache
            jars = fetch_jars(modules, name)
            lines = [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}" for jar in jars]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
        written.append(path)
    return written


if __name__ == "__main__":
    for path in write(*(sys.argv[1:] or [DEFAULT_VERSION])):
        print(path)
