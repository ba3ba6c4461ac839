"""A Spark cluster on this machine whose executors are on two hosts, as far as Spark can tell.

Speculation wants a second host for the second attempt, and is off where driver and executor are
one. Executors are no children of the driver here: they end after it, and write until then.
"""

from tests.clusters.standalone import StandaloneCluster

_HOSTS = ("127.0.0.1", "127.0.0.2")

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


def on_two_hosts(folder, environment):
    """A context manager. ``environment``: added to that of the executors."""
    return StandaloneCluster(folder, environment, hosts=_HOSTS)
