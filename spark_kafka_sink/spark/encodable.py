"""Whether planned rows can be written in their formats, before the first task.

Apart from the planning, as it loads pyarrow, which only columns of formats need.
"""

from __future__ import annotations

from pyspark.sql.types import StructType

from spark_kafka_sink.config.formats import JSON, KEY, VALUE
from spark_kafka_sink.formats.encoder import RowEncoder
from spark_kafka_sink.formats.plan import FormatError, FormatPlan, PartPlan
from spark_kafka_sink.formats.times import patterns_of, zone_table
from spark_kafka_sink.spark.row_planning import PlannedRows
from spark_kafka_sink.spark.versions import arrow_schema

# Plans and schemas that were found in order, in this process: streams are planned again and again.
_checked: list[tuple[FormatPlan, StructType]] = []
_MOST_CHECKED = 20


def check_encodable(rows: PlannedRows) -> None:
    """Raise SchemaError for a column that its format or its Avro schema cannot have, and for
    patterns of times that cannot be written.
    """
    if rows.plan is None or rows.schema is None:
        return
    parts = {VALUE: rows.plan.value, KEY: rows.plan.key}
    for name, part in parts.items():
        if part is not None:
            _check_times(name, part)
    plans = [part.plan for part in parts.values() if part is not None]
    wanted = [(plan, rows.schema) for plan in plans if plan is not None]
    for plan, schema in (one for one in wanted if one not in _checked):
        RowEncoder(plan, arrow_schema(schema))
        _checked.append((plan, schema))
        del _checked[:-_MOST_CHECKED]


def _check_times(name: str, part: PartPlan) -> None:
    """Raise FormatError for patterns and a time zone of JSON, by the names of their options."""
    if part.plan is None or part.plan.format != JSON:
        return
    options = part.plan.json_options
    patterns_of(options, f"{name}.json.")
    if not part.takes_session_zone:
        try:
            zone_table(options.time_zone)
        except FormatError as error:
            told = str(error).replace("spark.sql.session.timeZone", f"{name}.json.timeZone")
            raise FormatError(f"{name}.json.timeZone={options.time_zone}: {told}") from None
