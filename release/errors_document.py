"""Write docs/errors.md from the table of codes, spark_kafka_sink/tools/codes/.

python -m release.errors_document > docs/errors.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from spark_kafka_sink.base.errors import ERRORS as KAFKA_ERRORS
from spark_kafka_sink.base.errors import PREFIX, BrokerError, advice_for, transaction_advice_for
from spark_kafka_sink.tools.shipped import IN_TRANSACTION, Area, Cause, read_areas

_HEAD = """\
# Errors: message, cause, fix

For engineers with an error message. Errors, and warnings in the log, end with a code: search this page for it, or run
`pykafka-sink explain CODE`. A code keeps its meaning, so you can search logs and raise alarms by it. With a symptom
instead of a message, start with [troubleshooting](troubleshooting.md).

Read the line of an error that ends with a code. The Python traceback above says where it was raised, and Spark may add
lines after it, such as `SQLSTATE: 38000` or a plan. In messages, `…` stands for names, numbers and further words. An
area's **Verify** is for all its codes that have none of their own. The page is generated from
`spark_kafka_sink/tools/codes/`; do not edit it.

"""  # noqa: E501
_REST = Path(__file__).with_name("errors_rest.md")
"""Messages of other programs, which have no code."""


def render() -> str:
    """Return the whole document."""
    parts = [_HEAD, _REST.read_text(encoding="utf-8")]
    for area in read_areas():
        causes = [cause for cause in area.causes if _is_shown(cause)]
        if causes:
            parts += _area(area, causes)
    return "".join(parts)


def _is_shown(cause: Cause) -> bool:
    """Return False for errors of Kafka without advice, which a producer does not meet."""
    area, _, number = cause.code.partition("-")
    if f"{area}-000" != BrokerError.code:
        return True
    error = KAFKA_ERRORS.get(int(number))
    return error is not None and bool(advice_for(error) or transaction_advice_for(error))


def _area(area: Area, causes: list[Cause]) -> Iterator[str]:
    yield f"\n## {area.name}: {area.title}\n\n{area.about} **Verify:** {area.verify}\n"
    advised: dict[str, str] = {}
    for cause in causes:
        yield f"\n### {PREFIX}{cause.code}\n\n{_messages(cause)}\n"
        verify = "" if cause.verify == area.verify else f" **Verify:** {cause.verify}"
        # A brokers' error has its name in the message: "Brokers answer NAME" would repeat it.
        what = "" if cause.code.startswith("BROKER-") else f"{cause.cause} "
        yield f"{what}**Fix:** {_fix(cause, advised)}{verify}\n"


def _messages(cause: Cause) -> str:
    where = "Log: " if cause.is_logged else ""
    if len(cause.messages) == 1:
        return f"{where}{_quoted(cause.messages[0])}\n"
    heading = f"{where.strip()}\n\n" if where else ""
    return heading + "".join(f"- {_quoted(one)}\n" for one in cause.messages)


def _fix(cause: Cause, advised: dict[str, str]) -> str:
    """Return the fix. Advice that an earlier code has, too, becomes a link to that code."""
    own, mark, shared = cause.fix.partition(IN_TRANSACTION)
    first = advised.setdefault(shared, cause.code)
    if not mark or first == cause.code:
        return cause.fix
    code = f"{PREFIX}{first}"
    return f"{own}{mark}see [{code}](#{code.lower()})."


def _quoted(message: str) -> str:
    """Return a message as code of Markdown, which may itself hold backticks."""
    mark = "``" if "`" in message else "`"
    return f"{mark}{message}{mark}"


if __name__ == "__main__":
    sys.stdout.write(render())
