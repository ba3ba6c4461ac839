"""What a job needs of this machine: places for metrics, a port for the limit server."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.check.finding import Finding, failed, passed
from spark_kafka_sink.config.metrics_outputs import MetricsOutputs
from spark_kafka_sink.config.sink_options import SinkOptions
from spark_kafka_sink.limits.starting import LimitServerError, check_listening
from spark_kafka_sink.metrics.outputs import check_outputs


def metrics(outputs: MetricsOutputs) -> Iterator[Finding]:
    """Nothing where metrics only go to the log. What is sent away is not tried."""
    places = {
        "metrics.path": outputs.path,
        "metrics.prometheus.path": outputs.prometheus_path,
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


def limits(options: SinkOptions) -> Iterator[Finding]:
    """Nothing without a limit or a pause."""
    if options.limits is None:
        return
    subject = "limit server"
    try:
        address = check_listening(options.limits, options.producer.bootstrap_servers)
    except LimitServerError as error:
        yield failed(
            subject,
            str(error),
            "a query of another driver of this machine may have the port; if this same job is what "
            "runs, it is its own",
        )
    else:
        yield passed(subject, f"can listen at {address}")
