"""Configure Spark's Python processes: the log, garbage collection, memory, tracebacks.

Log: the sink's loggers are a tree, one per module, below ``spark_kafka_sink``. If the application
has configured logging, its handlers and formats are used. Otherwise, as in Spark's Python
processes, lines go to standard error, which is the log of the driver or the executor.

Garbage: Spark collects garbage after each task, planning and commit, before the process takes the
next one (``pyspark/daemon.py``). A collection visits every object of the imported modules, which
can take as long as a small task. So ``freeze_loaded`` excludes these objects.

Memory: Spark reads an Arrow batch into one block. glibc maps blocks above 32 MiB again each time,
and an Arrow batch of values above 3 KB has up to 64 MiB. The page faults took a quarter of a
worker's CPU.

Tracebacks: an error of the sink is shown as a sentence, without a traceback. Spark sends the driver
the text of the error and prints this text several times. Without the traceback, the text is the
sentence alone. The sentence about an error in the user's own code names file and line
(``base.entry_points``). With ``log.level=debug`` the process logs the traceback.
"""

from __future__ import annotations

import functools
import gc
import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from spark_kafka_sink.base.errors import KafkaSinkError

if TYPE_CHECKING:
    from spark_kafka_sink.config.sink_options import SinkOptions

    _StreamHandler = logging.StreamHandler[TextIO]
else:
    _StreamHandler = logging.StreamHandler

logger = logging.getLogger("spark_kafka_sink")

DOCUMENT = "spark_kafka_sink_document"
"""Attribute of a log record about a batch: the batch's line of metrics."""
_is_json = False  # log.format of this process
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up(options: SinkOptions) -> None:
    """Configure the log of this process, whose queries share the loggers."""
    global _is_json
    _is_json = options.log_format == "json"
    if options.log_level is not None:
        logger.setLevel(options.log_level.upper())
    ensure_log_handler()


def logs_json() -> bool:
    """Return True if this process logs JSON: ``log.format``."""
    return _is_json


def ensure_log_handler() -> None:
    """Log to standard error, the driver's log, until the application configures logging."""
    mine = next((h for h in logger.handlers if isinstance(h, _StandIn)), None)
    is_set_up = _is_logging_set_up()
    if mine is None and not is_set_up:
        logger.addHandler(_StandIn(has_level=logger.level == logging.NOTSET))
    elif mine is not None and is_set_up:
        logger.removeHandler(mine)
        if mine.has_level and logger.level == logging.INFO:
            logger.setLevel(logging.NOTSET)


class _StandIn(_StreamHandler):
    """The handler that is used until another handler exists; both would log each line twice.

    has_level: whether this handler has set the logger's level
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
    """Return True if a line of the sink reaches a handler of the application."""
    at: logging.Logger | None = logger
    while at is not None:
        if any(not isinstance(handler, _StandIn) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


# malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

# Twice Spark's default of spark.sql.execution.arrow.maxBytesPerBatch.
LARGEST_KEPT_BYTES = 128 << 20
"""Blocks up to this size are reused."""
MOST_KEPT_BYTES = 256 << 20
"""Free memory at the end of the heap that glibc keeps."""


_frozen_modules = 0  # number of modules at the last gc.freeze


def freeze_loaded() -> None:
    """Exclude all loaded objects from garbage collection; repeat after more modules were loaded.

    Threads that send metrics may load modules later. Frozen objects in a cycle are never freed: at
    most the objects of a process's first task before its first row, or of a commit after loading.
    """
    global _frozen_modules
    if len(sys.modules) > _frozen_modules:
        _frozen_modules = len(sys.modules)
        gc.freeze()


def keep_large_blocks() -> None:
    """Make glibc reuse the memory of Arrow batches.

    This does nothing without glibc, if glibc rejects the value, or if the user has set glibc's
    thresholds in the environment.
    """
    if any(name in os.environ for name in _OF_THE_USER):
        return
    import ctypes  # here, so that processes that plan do not load it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Older versions reject more than 32 MiB. Then do not set the trim threshold either: it would
    # fix the mmap threshold at its current value, 128 KiB in a new process, instead of growing.
    if mallopt is not None and mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES):
        mallopt(_M_TRIM_THRESHOLD, MOST_KEPT_BYTES)


_M_ARENA_MAX = -8


def keep_one_arena() -> None:
    """Make glibc use one arena: each further one, of a thread, takes 64 MiB of addresses."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def address_limit() -> int | None:
    """Return the limit of this process's addresses, bytes; None for no limit."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


# Spark 4 writes an error of a process with this variable without its traceback; Spark 3.5 does not
# know it. Source: pyspark.util.handle_worker_exception.
_HIDE = "SPARK_HIDE_TRACEBACK"
_PROCESSES = ("pyspark.", "spark_kafka_sink.spark.daemon")
"""Spark's Python processes run a main module with one of these prefixes."""

_Called = TypeVar("_Called", bound=Callable[..., Any])


def sentence_first(called: _Called) -> _Called:
    """Make Spark show an error of ``called`` without the frames of this package.

    Only for functions that Spark calls: after their error, Spark ends the process, and with it the
    variable. Other exceptions than KafkaSinkError are bugs, and keep their tracebacks. Outside of
    Spark's processes nothing changes.
    """

    @functools.wraps(called)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return called(*arguments, **named)
        except KafkaSinkError as error:
            if not is_process_of_spark():
                raise
            logger.debug("Spark shows this error without its traceback", exc_info=True)
            os.environ[_HIDE] = "1"
            raise error.with_traceback(None) from None

    return cast(_Called, call)


def is_process_of_spark() -> bool:
    """Return True in a process that Spark has started, False in the user's own."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_PROCESSES)
