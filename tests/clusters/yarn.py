"""YARN on this machine: Hadoop's MiniYARNCluster, one resource manager and one node, in a JVM."""

import shutil
from contextlib import contextmanager
from pathlib import Path

from spark_kafka_sink.localkafka import fetch_jars
from tests.clusters.standalone import SPARK_HOME, Processes
from tests.clusters.working import clean_environment

_MAIN = Path(__file__).with_name("Yarn.java")
_NEEDED = (
    "org.junit.jupiter:junit-jupiter-api:5.11.4",
    "org.junit.platform:junit-platform-commons:1.11.4",
    "org.opentest4j:opentest4j:1.3.0",
    "org.bouncycastle:bcprov-jdk18on:1.78.1",
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
    "org.bouncycastle:bcutil-jdk18on:1.78.1",
)
"""What MiniYARNCluster needs beside Spark's jars."""


@contextmanager
def yarn_cluster(folder):
    """Its processes, and the folder that is HADOOP_CONF_DIR for spark-submit. Needs a JDK."""
    jars = SPARK_HOME / "jars"
    (api,) = jars.glob("hadoop-client-api-*.jar")
    hadoop = api.stem.removeprefix("hadoop-client-api-")
    mini = f"org.apache.hadoop:hadoop-client-minicluster:{hadoop}"
    fetched = fetch_jars([mini, *_NEEDED], f"yarn-{hadoop}", transitive=False)
    path = ":".join([*map(str, fetched), f"{jars}/*"])
    conf = folder / "conf"
    conf.mkdir(parents=True)
    java = shutil.which("java")
    assert java is not None
    processes = Processes(folder, clean_environment())
    try:
        options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", path]
        command = [java, *options, str(_MAIN), str(conf), str(folder / "data")]
        process = processes.launch("yarn", command)
        processes.await_said("yarn", process, lambda text: "YARN is ready" in text)
        yield processes, conf
    finally:
        processes.end()
