"""Lines as metrics of Prometheus, under jmx_exporter's names of a Java producer's metrics.

Example: the attribute record-send-total of the MBean
``kafka.producer:type=producer-metrics,client-id=c``. Without rules, jmx_exporter names it
``kafka_producer_producer_metrics_record_send_total{client_id="c"}``. Metrics that Java does not
have are named ``pykafka_sink_…``. The library prometheus_client formats the text.

A push gateway receives the metrics of jobs that end before Prometheus scrapes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any, NamedTuple, Union

from prometheus_client import CollectorRegistry, push_to_gateway
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from spark_kafka_sink.base.node_metrics import count_up_to
from spark_kafka_sink.base.text import redacted_url
from spark_kafka_sink.metrics.background import FailureLog
from spark_kafka_sink.metrics.line import Line
from spark_kafka_sink.metrics.names import OWN_METRICS, OwnMetric, Values, measurements

# --- exposition ----------------------------------------------------------------------------------

Labels = tuple[tuple[str, str], ...]
Family = Union[CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily]

LATENCY = "pykafka_sink_request_latency_seconds"
_LATENCY_DOC = "Produce requests by how long they took until the answer"
_DOUBLINGS = range(0, 18)
_INFINITY = "+Inf"
_DOMAIN = "kafka_producer"


class _Series(NamedTuple):
    """One time series: one line of the text."""

    name: str
    labels: Labels


class Exposition:
    """Sums of all lines: a collector of the library's registry."""

    def __init__(self) -> None:
        self._totals: dict[_Series, float] = {}
        self._gauges: dict[_Series, float] = {}
        self._docs: dict[str, str] = {}
        self._histograms: dict[Labels, dict[int, float]] = {}
        self._latency_sums: dict[Labels, float] = {}

    # --- adding --------------------------------------------------------------------------------

    def add(self, line: Values, query: str = "") -> None:
        """Add one batch. ``query``: name of its query; by default the name in the line."""
        labels = {
            "client_id": str(line.get("client_id", "")),
            "query": query or str(line.get("query_name") or line.get("query_id", "")),
        }
        for metric in OWN_METRICS:
            self._add_own(metric, line, labels)
        for group, kafka, more, value in measurements(line):
            name = prometheus_name(group, kafka.name)
            self._docs[name] = f"{group}: {kafka.name}. {kafka.follows}".replace("`", "")
            self._note(name, {**labels, **more}, value, kafka.is_total)
        self._add_latencies(line, labels)

    def _add_own(self, metric: OwnMetric, line: Values, labels: Mapping[str, str]) -> None:
        self._docs[metric.name] = metric.doc
        for more, value in metric.values(line):
            self._note(metric.name, {**labels, **more}, value, metric.is_total)

    def _note(self, name: str, labels: Mapping[str, str], value: float, is_total: bool) -> None:
        series = _Series(name, _key(labels))
        if is_total:
            self._totals[series] = self._totals.get(series, 0.0) + value
        else:
            self._gauges[series] = value

    def _add_latencies(self, line: Values, labels: Mapping[str, str]) -> None:
        histogram = line.get("request_latency", {}).get("histogram")
        if histogram is None:
            return
        counts = {int(index): count for index, count in histogram["counts"].items()}
        key = _key(labels)
        buckets = self._histograms.setdefault(key, {})
        for doublings in _DOUBLINGS:
            buckets[doublings] = buckets.get(doublings, 0) + count_up_to(counts, doublings)
        last = len(_DOUBLINGS)
        buckets[last] = buckets.get(last, 0) + sum(counts.values())
        seconds = line["metrics"]["request_latency_ms"] / 1000
        self._latency_sums[key] = self._latency_sums.get(key, 0.0) + seconds

    def set_gauge(self, name: str, doc: str, labels: Mapping[str, str], value: float) -> None:
        """Set a gauge that does not come from a line."""
        self._docs[name] = doc
        self._note(name, labels, value, is_total=False)

    def add_total(self, name: str, doc: str, labels: Mapping[str, str], value: float) -> None:
        """Add to a total that does not come from a line."""
        self._docs[name] = doc
        self._note(name, labels, value, is_total=True)

    # --- collecting ----------------------------------------------------------------------------

    def collect(self) -> Iterator[Family]:
        """Yield all metric families, for the registry."""
        yield from self._families(self._totals, CounterMetricFamily)
        yield from self._families(self._gauges, GaugeMetricFamily)
        if self._histograms:
            yield self._latency_family()

    def _latency_family(self) -> HistogramMetricFamily:
        """Return one family for all label sets: Prometheus rejects two families of one name."""
        names_of_labels = [name for name, _ in next(iter(self._histograms))]
        family = HistogramMetricFamily(LATENCY, _LATENCY_DOC, labels=names_of_labels)
        bounds = [*map(_bound, _DOUBLINGS), _INFINITY]
        for key, buckets in self._histograms.items():
            counts = [(bound, buckets[index]) for index, bound in enumerate(bounds)]
            family.add_metric([value for _, value in key], counts, self._latency_sums[key])
        return family

    def _families(self, series: Mapping[_Series, float], kind: Any) -> Iterator[Family]:
        by_name: dict[str, list[tuple[Labels, float]]] = {}
        for (name, labels), value in series.items():
            by_name.setdefault(name, []).append((labels, value))
        for name, samples in by_name.items():
            family = kind(name, self._docs[name], labels=[label for label, _ in samples[0][0]])
            for labels, value in samples:
                family.add_metric([text for _, text in labels], value)
            yield family


def prometheus_name(group: str, name: str) -> str:
    """Return jmx_exporter's name of an attribute of a Kafka MBean, without rules."""
    return f"{_DOMAIN}_{group}_{name}".replace("-", "_")


def _key(labels: Mapping[str, str]) -> Labels:
    """Return the same key for the same labels, whatever their order."""
    return tuple(sorted(labels.items()))


def _bound(doublings: int) -> str:
    """Return the upper bound of a bucket, in seconds."""
    return str(2**doublings / 1000)


# --- push gateway --------------------------------------------------------------------------------


class PushGatewayExporter:
    """Pushes to one gateway, under one job. Totals count over the life of this process."""

    def __init__(self, url: str, job: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._url = url
        self._job = job
        self._exposition = Exposition()
        self._registry = CollectorRegistry()
        self._registry.register(self._exposition)
        where = redacted_url(url)
        name = "metrics.prometheus.push.url"
        self._failure_log = FailureLog(
            f"{name}: cannot push to {where}", f"{name}: {where} takes metrics again"
        )

    def send(self, line: Line, lost: int) -> None:
        """Add one batch, and replace the job's metrics at the gateway."""
        self._exposition.add(line)
        problem = None
        try:
            push_to_gateway(self._url, self._job, self._registry, timeout=self._timeout_s)
        except OSError as error:
            problem = str(error.strerror or error)
        except (HTTPException, ValueError) as error:  # the answer is not HTTP, or redirects nowhere
            problem = f"what answers does not speak HTTP ({type(error).__name__})"
        self._failure_log.record_outcome(problem, lost)
