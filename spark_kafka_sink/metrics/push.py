"""Tells a Prometheus push gateway of a batch: for jobs that are over before they are scraped."""

from __future__ import annotations

from http.client import HTTPException

from prometheus_client import CollectorRegistry, push_to_gateway

from spark_kafka_sink.base.printable import shown_url
from spark_kafka_sink.metrics.exposition import Exposition
from spark_kafka_sink.metrics.line import Line
from spark_kafka_sink.metrics.told import Told


class Pushing:
    """To one gateway, under one job. Totals are those of this process, and go on."""

    def __init__(self, url: str, job: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._url = url
        self._job = job
        self._exposition = Exposition()
        self._registry = CollectorRegistry()
        self._registry.register(self._exposition)
        where = shown_url(url)
        name = "metrics.prometheus.push.url"
        self._told = Told(f"{name}: cannot push to {where}", f"{name}: {where} takes metrics again")

    def send(self, line: Line, lost: int) -> None:
        """Add one batch and replace what the gateway has of the job."""
        self._exposition.add(line)
        problem = None
        try:
            push_to_gateway(self._url, self._job, self._registry, timeout=self._timeout_s)
        except OSError as error:
            problem = str(error.strerror or error)
        except (HTTPException, ValueError) as error:  # of an answer that is none, or leads nowhere
            problem = f"what answers does not speak HTTP ({type(error).__name__})"
        self._told.note(problem, lost)
