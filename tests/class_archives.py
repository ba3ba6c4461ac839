"""Archives of Java's classes (AppCDS), with which brokers and Spark's drivers start in half the CPU.

At each start Java reads, checks and links thousands of classes; an archive has them as they are in
memory. ``python -m tests.class_archives`` makes what is missing, once per machine. Without an archive
all is the same, only slower. An archive is of one Java and its jars: of others, there is another.
"""

import hashlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from spark_kafka_sink.base.machine import child_environment, user_cache_folder
from spark_kafka_sink.localkafka import LocalKafkaError
from spark_kafka_sink.localkafka.jars import cache_folder, find_java
from spark_kafka_sink.localkafka.settings import DEFAULT_VERSION

_CACHE = user_cache_folder() or Path(tempfile.gettempdir(), "pykafka-sink")
_FOLDER = _CACHE.with_name("pykafka-sink-tests")
_USED = "-XX:SharedArchiveFile="
# Tests read what programs print: no word about classes that have no place in an archive.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_KAFKA = """
import sys
from spark_kafka_sink.localkafka import LocalKafka
with LocalKafka(jvm_options=sys.argv[1:]) as kafka:
    kafka.create_topic("any", 2)
    kafka.stop(1)
"""
_SPARK = """
import os, sys
from tests.spark import session
os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*session.QUICK_START, *sys.argv[1:]])
with session.spark_session() as spark:
    rows = spark.range(1000).selectExpr("id", "cast(id as string) value").repartition(2)
    rows.mapInPandas(lambda frames: frames, rows.schema).groupBy("value").count().collect()
java = spark.sparkContext._gateway.proc
java.stdin.close()
sys.exit(java.wait())
"""


def of_kafka(version):
    """Return Java's options for a broker; none if there is no archive."""
    return _options(_kafka_archive(version))


def of_spark():
    """Return Java's options for a driver; none if there is no archive."""
    return _options(_spark_archive())


def _options(archive):
    return () if archive is None or not archive.exists() else (f"{_USED}{archive}", *_QUIET)


def _kafka_archive(version=DEFAULT_VERSION):
    return _archive(f"kafka-{version}", cache_folder() / f"kafka-{version}")


def _spark_archive():
    return _archive("spark", Path(find_spec("pyspark").origin).parent / "jars")


def _archive(name, folder):
    """Return the archive's path, which names all that it is of. None without Java."""
    try:
        java = Path(find_java()).resolve()
    except LocalKafkaError:
        return None
    digest = hashlib.sha256()
    for path in (java, *sorted(folder.glob("*.jar"))):
        found = path.stat()
        digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return _FOLDER / f"{name}-{digest.hexdigest()[:16]}.jsa"


def _make(program, archive):
    """Run a program whose Java writes the archive when it ends."""
    if (wanted := archive()) is None or wanted.exists():
        return
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        part = Path(folder, "part")
        done = subprocess.run(
            [sys.executable, "-c", program, f"-XX:ArchiveClassesAtExit={part}", *_QUIET],
            env=child_environment(),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 and part.exists():
            # Its jars may have been fetched only now.
            part.replace(archive())
        else:
            print(f"tests without {wanted.name}: {done.stderr[-1000:]}", file=sys.stderr)


def main():
    """Make what is missing, at once. A failure is told, and no more: tests do without."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        list(pool.map(_make, (_SPARK, _KAFKA), (_spark_archive, _kafka_archive)))


if __name__ == "__main__":
    main()
