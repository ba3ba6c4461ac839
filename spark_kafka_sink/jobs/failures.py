"""Print one line when a job fails, and exit with a status that says whether a retry can help.

Spark's exceptions carry tracebacks of Python, plans and stack traces of Java around one sentence.
Spark logs all of that.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.jobs.settings import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_REFUSED = 2
"""The user's settings, files or columns are wrong: a retry cannot help."""

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""The exceptions that calls of Spark raise."""

_OWN_ERROR = re.compile(r"(?:^|: )spark_kafka_sink\.[\w.]*?(\w+): (.*)$", re.MULTILINE)
_USERS_ERRORS = {"ConfigError", "FormatError", "SchemaError", "TopicError"}

# Exceptions of Java that a wrong setting causes. Py4J wraps those that PySpark does not know.
_USERS_JAVA_ERRORS = re.compile(
    r"\A: [\w.$]*(?:Analysis|ClassNotFound|FileNotFound|IllegalArgument|NumberFormat|"
    r"ParentNotDirectory)Exception:"
)
_JAVA_CLASS = re.compile(r"\A(?:: )?(?:[a-z]\w*\.)+[\w$]+: ")
_OF_A_QUERY = re.compile(r"\A.*? terminated with exception: ")
_SQLSTATE = re.compile(r"(?: SQLSTATE: \w+)+\s*\Z")


def run_job(name: str, run: Callable[[SparkSession], int]) -> int:
    """Run a job in a session of its own and return its exit status.

    Errors of settings, and of Spark before the write begins, are printed in one line.
    """
    spark = open_session()
    try:
        return run(spark)
    except ConfigError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except SPARK_ERRORS as error:
        return report(name, error)
    finally:
        spark.stop()


def report(name: str, error: Exception, what: str = "") -> int:
    """Print the sentence of Spark's ``error`` and return the exit status.

    what: precedes the sentence, unless the user's settings are wrong
    """
    text = str(error).strip()
    if isinstance(error, Py4JJavaError):  # Py4J's line names a call and an object's number
        text = text.partition("\n")[2]
    own = _OWN_ERROR.findall(text)
    if own:
        kind, sentence = own[-1]
        is_users = kind in _USERS_ERRORS
    else:
        # The first line, without what belongs to Spark's log.
        line = text.splitlines()[0] if text else "Spark gives no reason"
        sentence = _SQLSTATE.sub("", _OF_A_QUERY.sub("", _JAVA_CLASS.sub("", line)))
        is_users = isinstance(error, (AnalysisException, IllegalArgumentException))
        is_users = is_users or _USERS_JAVA_ERRORS.match(text) is not None
    print(f"{name}: {sentence if is_users else what + sentence}", file=sys.stderr)
    return EXIT_REFUSED if is_users else EXIT_FAILED
