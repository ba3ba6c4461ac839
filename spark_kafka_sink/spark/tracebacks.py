"""Errors of the sink in Spark's Python processes are shown as a sentence, without a traceback.

Spark sends the driver the text of the error and prints this text several times. Without the
traceback, the text is the sentence alone. The sentence about an error in the user's own code names
file and line (``base.entry_points``). With ``log.level=debug`` the process logs the traceback.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

from spark_kafka_sink.base.errors import KafkaSinkError

logger = logging.getLogger(__name__)

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
            if not _is_process_of_spark():
                raise
            logger.debug("Spark shows this error without its traceback", exc_info=True)
            os.environ[_HIDE] = "1"
            raise error.with_traceback(None) from None

    return cast(_Called, call)


def _is_process_of_spark() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith(_PROCESSES)
