"""Who sends: OpenTelemetry's resource."""

from __future__ import annotations

from functools import cache

from opentelemetry.sdk.resources import (
    SERVICE_NAME,
    TELEMETRY_SDK_LANGUAGE,
    TELEMETRY_SDK_NAME,
    TELEMETRY_SDK_VERSION,
    OTELResourceDetector,
    Resource,
)
from opentelemetry.sdk.version import __version__

from spark_kafka_sink.metrics.names import Values

DEFAULT_SERVICE = "pykafka-sink"
_OF_A_LINE = {
    "query_id": "pykafka_sink.query.id",
    "query_name": "pykafka_sink.query.name",
    "application_id": "spark.application.id",
}


def resource_of(line: Values, service_name: str | None) -> Resource:
    """service_name: of the option, which wins over the environment's."""
    told = {name: str(line[field]) for field, name in _OF_A_LINE.items() if field in line}
    if service_name is not None:
        told[SERVICE_NAME] = service_name
    return _of_this_process().merge(Resource(told))


@cache
def _of_this_process() -> Resource:
    """What the environment says, and which library this is.

    Not the library's ``Resource.create``: in newer versions that has a random service.instance.id
    for each process. The process that commits may be another one for each batch, and each batch
    would be told as another instance's.
    """
    default = Resource(
        {
            TELEMETRY_SDK_LANGUAGE: "python",
            TELEMETRY_SDK_NAME: "opentelemetry",
            TELEMETRY_SDK_VERSION: __version__,
            SERVICE_NAME: DEFAULT_SERVICE,
        }
    )
    return default.merge(OTELResourceDetector().detect())
