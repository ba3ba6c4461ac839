"""JSON as Spark writes it, value by value in plain Python: slow, obvious, written independently.

Values are as Arrow has them: days, micro- and nanoseconds as integers.
"""

import base64
import json
import math
import re
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

DAYS_OF_400_YEARS = 146_097
DAY_US = 86_400_000_000
LAST_OF_PYTHON = 253_402_300_799 - 86_400


def row_text(row, schema, ignored, zone):
    return text(row, pa.struct(list(schema)), ignored, zone)


def text(value, kind, ignored, zone):
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        found = [
            f"{quoted(f.name)}:{text(value[f.name], f.type, ignored, zone)}"
            for f in kind
            if not (ignored and value[f.name] is None)
        ]
        return "{" + ",".join(found) + "}"
    if pa.types.is_map(kind):
        found = [
            f"{key_text(k, kind.key_type)}:{text(v, kind.item_type, ignored, zone)}"
            for k, v in value
        ]
        return "{" + ",".join(found) + "}"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "[" + ",".join(text(v, kind.value_type, ignored, zone) for v in value) + "]"
    return scalar(value, kind, zone)


def key_text(value, kind):
    if pa.types.is_temporal(kind):
        return f'"{value}"'
    found = scalar(value, kind, "UTC")
    return found if found.startswith('"') else f'"{found}"'


def scalar(value, kind, zone):
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if pa.types.is_integer(kind):
        return str(value)
    if pa.types.is_floating(kind):
        return floating(value, kind == pa.float32())
    if pa.types.is_decimal(kind):
        return decimal(value, kind.scale)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f'"{base64.b64encode(value).decode()}"'
    if pa.types.is_date(kind):
        return f'"{day(value)}"'
    if pa.types.is_timestamp(kind):
        return f'"{moment(value, zone if kind.tz else None)}"'
    if pa.types.is_time(kind):
        return f'"{clock(value // 1000, 6)}"'
    if pa.types.is_duration(kind):
        return interval(value)
    return quoted(value)


def quoted(value):
    found = json.dumps(value, ensure_ascii=False)
    return re.sub(r"\\u(00..)", lambda match: rf"\u{match[1].upper()}", found)


def floating(value, is_single):
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    shortest = np.format_float_scientific(np.float32(value)) if is_single else repr(value)
    sign, digits, _ = Decimal(shortest).as_tuple()
    two = f"{value:.1e}"
    same = (
        (lambda t: np.float32(t) == np.float32(value))
        if is_single
        else (lambda t: float(t) == value)
    )
    if len("".join(map(str, digits)).rstrip("0")) == 1 and same(two):
        shortest = two
    number = abs(Decimal(shortest))
    minus = "-" if sign else ""
    if number == 0:
        return f"{minus}0.0"
    _, digits, exponent = number.normalize().as_tuple()
    written = "".join(map(str, digits))
    if Decimal("1e-3") <= number < Decimal("1e7"):
        plain = f"{number.normalize():f}"
        return minus + (plain if "." in plain else f"{plain}.0")
    return f"{minus}{written[0]}.{written[1:] or '0'}E{exponent + len(written) - 1}"


def decimal(value, scale):
    return unscaled_decimal(int(Context(prec=60).scaleb(value, scale)), scale)


def unscaled_decimal(unscaled, scale):
    digits = str(abs(unscaled))
    minus = "-" if unscaled < 0 else ""
    exponent = len(digits) - 1 - scale
    if scale == 0:
        return minus + digits
    if scale > 0 and exponent >= -6:
        padded = digits.rjust(scale + 1, "0")
        return f"{minus}{padded[:-scale]}.{padded[-scale:]}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{minus}{digits[0]}{fraction}E{exponent:+d}"


def day(days):
    cycles, rest = divmod(days + date(1970, 1, 1).toordinal() - 1, DAYS_OF_400_YEARS)
    found = date.fromordinal(rest + 1)
    year = found.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{found.month:02d}-{found.day:02d}"


def clock(micros, digits):
    """Without the zeros at the end where ``digits`` is six."""
    seconds, rest = divmod(micros, 1_000_000)
    found = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if digits == 3:
        return f"{found}.{rest // 1000:03d}"
    return f"{found}.{rest:06d}".rstrip("0").rstrip(".")


def moment(micros, zone):
    ahead = 0 if zone is None else seconds_ahead(micros // 1_000_000, zone)
    days, rest = divmod(micros + ahead * 1_000_000, DAY_US)
    found = f"{day(days)}T{clock(rest, 3)}"
    if zone is None:
        return found
    if ahead == 0:
        return f"{found}Z"
    sign, ahead = ("-" if ahead < 0 else "+"), abs(ahead)
    seconds = f":{ahead % 60:02d}" if ahead % 60 else ""
    return f"{found}{sign}{ahead // 3600:02d}:{ahead // 60 % 60:02d}{seconds}"


def seconds_ahead(seconds, zone):
    cycle = 400 * 31_556_952
    first = datetime(1000, 1, 1, tzinfo=timezone.utc)
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    while seconds > LAST_OF_PYTHON:
        seconds -= cycle
    seconds = max(seconds, int((first - epoch).total_seconds()))
    offset = (epoch + timedelta(seconds=seconds)).astimezone(ZoneInfo(zone)).utcoffset()
    return int(offset.total_seconds())


def interval(micros):
    """All units, of which no Spark type says otherwise."""
    sign = "-" if micros < 0 else ""
    days, rest = divmod(abs(micros), DAY_US)
    return f"\"INTERVAL '{sign}{days} {clock(rest, 6)}' DAY TO SECOND\""
