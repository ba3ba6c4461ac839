"""What a job needs of this machine: places for metrics."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.check.finding import Finding, failed, passed
from spark_kafka_sink.config.metrics_outputs import MetricsOutputs
from spark_kafka_sink.metrics.outputs import check_outputs


def metrics(outputs: MetricsOutputs) -> Iterator[Finding]:
    """Nothing where metrics only go to the log. What is sent away is not tried."""
    places = {
        "metrics.path": outputs.path,
        "metrics.prometheus.push.url": outputs.push_url,
        "metrics.otlp": outputs.otlp,
    }
    given = [name for name, place in places.items() if place is not None]
    if not given:
        return
    try:
        check_outputs(outputs)
    except ConfigError as error:
        yield failed("metrics", str(error))
    else:
        yield passed("metrics", f"{', '.join(given)}: as far as can be known before there are any")
