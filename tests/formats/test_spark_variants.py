"""Random variants, also damaged ones, as Spark's own ``Variant.toJson`` writes them.

``make test-formats``. Hypothesis draws others each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import JSON, FormatPlan, JsonOptions, PlannedField
from tests.formats import variant_twin
from tests.formats.spark_rows import avro_session, same_numbers
from tests.formats.variant_strategies import KIND, Variant, mutated, variants

pytestmark = pytest.mark.long

ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Europe/London", "Africa/Monrovia"]
Write = Callable[[Variant, str], str | None]
LONG = settings(
    max_examples=4000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def to_json() -> Iterator[Write]:
    """What Spark writes of a variant, None if it raises an error."""
    with avro_session() as spark:
        java = spark._jvm  # type: ignore[attr-defined]
        kind = java.org.apache.spark.types.variant.Variant
        zones = {name: java.java.time.ZoneId.of(name) for name in ZONES}

        def write(found: Variant, zone: str) -> str | None:
            try:
                made = kind(bytearray(found.value), bytearray(found.metadata))
                return str(made.toJson(zones[zone]))
            except (CapturedException, Py4JJavaError):
                return None

        yield write


def ours(found: Variant, zone: str) -> str | None:
    plan = FormatPlan(JSON, (PlannedField(("c",), "c"),), json_options=JsonOptions(time_zone=zone))
    batch = pa.record_batch([pa.array([found._asdict()], KIND)], ["c"])
    (value,) = RowEncoder(plan, batch.schema).encode(batch).values.to_pylist()
    return None if value is None else value.decode().removeprefix('{"c":').removesuffix("}")


@LONG
@given(found=variants(), zone=st.sampled_from(ZONES))
def test_variants(to_json: Write, found: Variant, zone: str) -> None:
    mine, sparks = ours(found, zone), to_json(found, zone)
    assert mine is not None
    assert sparks is not None
    same_numbers(mine, sparks, is_single=None)


@LONG
@given(
    found=st.one_of(mutated(), st.builds(Variant, st.binary(max_size=30), st.binary(max_size=9)))
)
def test_damaged_variants(to_json: Write, found: Variant) -> None:
    mine, sparks = ours(found, "UTC"), to_json(found, "UTC")
    if mine is None and sparks is not None:
        # Values that have one place for several of them are not written here.
        with pytest.raises(variant_twin.VariantError):
            variant_twin.text(*found, "UTC")
        mine = variant_twin.text(*found, "UTC", may_overlap=True)
        if "\ufffd" in mine:
            mine, sparks = (text.replace("\ufffd", "") for text in (mine, sparks))
    assert (mine is None) == (sparks is None)
    if mine is not None and sparks is not None:
        same_numbers(mine, sparks, is_single=None)
