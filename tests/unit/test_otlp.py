"""Metrics as OTLP, read by OpenTelemetry's own messages."""

import math

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from spark_kafka_sink.producer.telemetry_figures import Metric, Payload, Point, metrics_data

NOW_MS, EARLIER_MS = 1_700_000_000_123, 1_699_999_000_007
ATTRIBUTES = st.dictionaries(st.text(max_size=300), st.text(max_size=300), max_size=3)
POINTS = st.lists(st.builds(Point, st.floats(allow_nan=False), ATTRIBUTES), max_size=3)
METRICS = st.lists(
    st.builds(Metric, st.text(max_size=20), POINTS, st.none() | st.just(EARLIER_MS)), max_size=4
)


def decode(payload):
    data = MetricsData()
    assert data.ParseFromString(metrics_data(payload)) == len(metrics_data(payload))
    data.DiscardUnknownFields()
    assert data.SerializeToString() != b"", "nothing was known"
    return data


def read_back(payload):
    """The official reader's view, in our words."""
    (resource,) = decode(payload).resource_metrics
    (scope,) = resource.scope_metrics
    metrics = []
    for metric in scope.metrics:
        is_sum = metric.WhichOneof("data") == "sum"
        points = metric.sum.data_points if is_sum else metric.gauge.data_points
        if is_sum:
            assert metric.sum.is_monotonic
            temporality = metric.sum.aggregation_temporality
            is_delta = temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
            assert is_delta == payload.is_delta
        for point in points:
            assert point.time_unix_nano == payload.at_ms * 1_000_000
            assert point.start_time_unix_nano == (EARLIER_MS * 1_000_000 if is_sum else 0)
            assert point.WhichOneof("value") == "as_double"
        read = [Point(p.as_double, attributes(p.attributes)) for p in points]
        metrics.append(Metric(metric.name, read, EARLIER_MS if is_sum else None))
    labels = attributes(resource.resource.attributes)
    return Payload(labels, metrics, payload.at_ms, payload.is_delta)


def attributes(pairs):
    return {pair.key: pair.value.string_value for pair in pairs}


@given(ATTRIBUTES, METRICS, st.booleans())
def test_the_official_reader_has_what_was_written(resource, metrics, is_delta):
    payload = Payload(resource, metrics, NOW_MS, is_delta)
    assert read_back(payload) == payload


def test_a_payload_of_many_points_is_longer_than_one_byte_of_length():
    points = [Point(float(number), {"topic": f"t{number}"}) for number in range(1000)]
    payload = Payload({}, [Metric("many", points, None)], NOW_MS, False)
    assert len(metrics_data(payload)) > 1 << 14
    assert read_back(payload) == payload


def test_infinity_and_nothing_are_values_too():
    payload = Payload({}, [Metric("m", [Point(math.inf, {}), Point(0.0, {})], 0)], NOW_MS, True)
    (resource,) = decode(payload).resource_metrics
    points = resource.scope_metrics[0].metrics[0].sum.data_points
    assert [point.as_double for point in points] == [math.inf, 0.0]
    assert [point.start_time_unix_nano for point in points] == [0, 0]
