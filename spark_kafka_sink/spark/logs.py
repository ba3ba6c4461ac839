"""Where the sink's log goes, how much of it, and in which form.

Its loggers are a tree, one for each module, below ``spark_kafka_sink``. Where the application has
set up logging, its handlers and formats are used; where nobody has, as in Spark's Python processes,
lines go to standard error, which is the log of the driver or the executor.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from spark_kafka_sink.config.sink_options import SinkOptions

    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler  # Python 3.9 and 3.10 know no parameter of it

logger = logging.getLogger("spark_kafka_sink")

DOCUMENT = "spark_kafka_sink_document"
"""Attribute of a log record whose message is a JSON document: the document."""
_is_json = False  # log.format of this process
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up(options: SinkOptions) -> None:
    """Log as the options ask: in this process, whose queries share its loggers."""
    global _is_json
    _is_json = options.log_format == "json"
    if options.log_level is not None:
        logger.setLevel(options.log_level.upper())
    ensure_log_handler()


def ensure_log_handler() -> None:
    """Log to standard error, the driver's log, until the application sets up logging."""
    mine = next((h for h in logger.handlers if isinstance(h, _StandIn)), None)
    is_set_up = _is_logging_set_up()
    if mine is None and not is_set_up:
        logger.addHandler(_StandIn(has_level=logger.level == logging.NOTSET))
    elif mine is not None and is_set_up:
        logger.removeHandler(mine)
        if mine.has_level and logger.level == logging.INFO:
            logger.setLevel(logging.NOTSET)


class _StandIn(_StreamHandler):
    """For as long as there is no other handler: with one, each line would be there twice.

    has_level: the level of the logger is set with it
    """

    def __init__(self, has_level: bool) -> None:
        super().__init__(sys.stderr)
        self.has_level = has_level
        if has_level:
            logger.setLevel(logging.INFO)
        self.setFormatter(_Formatter(_TEXT))
        self.addFilter(lambda _: not _is_logging_set_up())


class _Formatter(logging.Formatter):
    """Text, or with ``log.format=json`` one JSON document per line."""

    def format(self, record: logging.LogRecord) -> str:
        if not _is_json:
            return super().format(record)
        time = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
        }
        document = getattr(record, DOCUMENT, None)
        if document is None:
            line["message"] = record.getMessage()
        else:
            line["metrics"] = document
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _is_logging_set_up() -> bool:
    """Whether a line of the sink reaches a handler of the application."""
    at: logging.Logger | None = logger
    while at is not None:
        if any(not isinstance(handler, _StandIn) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False
