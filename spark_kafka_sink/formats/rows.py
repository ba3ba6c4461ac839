"""What each row's key and value are made of: planned by the driver, pickled, read by its tasks."""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.formats.plan import FormatPlan


class PartPlan(NamedTuple):
    """A key or a value.

    column: position of the column that it is; or, with ``plan``, of the struct that its fields are
        in, whose nulls are nulls of the whole; None where there is no such column
    plan: how it is made of fields; None if ``column`` is it
    is_text: the column's text, whatever its type; otherwise its bytes as they are
    prefix: put before ``column``, as it is part of what ``plan`` makes
    takes_session_zone: whether the time zone of ``plan`` is that of the Spark session
    """

    column: int | None = None
    plan: FormatPlan | None = None
    is_text: bool = False
    prefix: bytes = b""
    takes_session_zone: bool = False


class RowsPlan(NamedTuple):
    """What is made of the columns that come from Spark, before they are appended.

    kept: positions of the columns for the record's other parts, by the names of those
    null_when: position of a column of booleans, true where the value is null
    headers: added to those of each row
    session_zone: the time zone of the Spark session, None where that is not known
    is_ansi: spark.sql.ansi.enabled of the Spark session, which texts of decimals go by
    """

    value: PartPlan
    key: PartPlan | None = None
    kept: tuple[tuple[str, int], ...] = ()
    null_when: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    session_zone: str | None = None
    is_ansi: bool = True


VALUE, KEY, HEADERS = "value", "key", "headers"


def names_of(plan: RowsPlan) -> list[str]:
    """Names of the columns that are appended, in their order."""
    names = [VALUE]
    if plan.key is not None:
        names.append(KEY)
    names += [part for part, _ in plan.kept]
    if plan.headers and HEADERS not in names:
        names.append(HEADERS)
    return names
