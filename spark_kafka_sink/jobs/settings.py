"""Settings of the jobs: the properties file first, the command line over it; Spark's session.

``spark-submit --properties-file conf/demo.conf`` may hold, besides Spark's own keys:

- ``spark.pykafka.<option>``: any option of the sink, e.g.
  ``spark.pykafka.kafka.bootstrap.servers`` or ``spark.pykafka.topic``;
- ``spark.pykafka.job.<name>``: any argument of the job, e.g. ``spark.pykafka.job.input``.

``spark-submit --conf`` overrides the file, and the job's own arguments override both.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import ConfigError, warn
from spark_kafka_sink.config.security_config import (
    DEFAULT_REGEX,
    REFERENCE_HINT,
    REGEX_OPTION,
    SUGGESTED_REGEX,
    clear_secrets,
    secrets_shown_by_spark,
    warning_about_shown_secrets,
)
from spark_kafka_sink.config.sink_options import UNIX_SOCKETS, is_unknown, rejection_reason
from spark_kafka_sink.jobs.shutdown import end_at_ctrl_c

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
_NAME = re.compile(r"[\w.-]*")

CONF_PREFIX = "spark.pykafka."
JOB_PREFIX = CONF_PREFIX + "job."
READER_PREFIX = JOB_PREFIX + "reader."

_SHORTCUTS = (
    ("--bootstrap-servers", "kafka.bootstrap.servers", ""),
    ("--topic", "topic", ""),
    ("--value-format", "value.format", ", json, avro, protobuf"),
    ("--key-columns", "key.columns", ""),
)
"""Flag, option of the sink, and possible values for ``--help``."""
_REPEATED = (
    ("--option", "an option of the sink, e.g. kafka.linger.ms=50; may be repeated"),
    ("--reader-option", "an option of Spark's reader, e.g. header=true; may be repeated"),
)


@dataclass(frozen=True)
class JobSettings:
    """Settings of one run of a job.

    sink_options: for ``.options()`` of the writer; reader_options: of the reader
    job: the job's arguments by name, None if not given
    """

    job: Mapping[str, str | None]
    sink_options: Mapping[str, str]
    reader_options: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return an argument of the job."""
        value = self.job.get(name)
        return default if value is None else value

    def count(self, name: str) -> str | None:
        """Return an argument that is a positive whole number. Raises ConfigError."""
        value = self.job.get(name)
        if value is not None and not (value.isascii() and value.isdigit() and int(value) > 0):
            raise ConfigError(
                f"--{name.replace('_', '-')}: '{value}' is not a positive number", code="JOB-002"
            )
        return value

    def require(self, name: str) -> str:
        """Return a mandatory argument of the job. Raises ConfigError, which names both ways."""
        value = self.job.get(name)
        if value is None:
            raise ConfigError(
                f"--{name.replace('_', '-')} is missing: give it on the command line, or as "
                f"{JOB_PREFIX}{name.replace('_', '.')} in the properties file",
                code="JOB-001",
            )
        return value


class JobArguments:
    """The arguments of a job: declared once, read from the command line and from Spark's conf."""

    def __init__(self, description: str) -> None:
        self._parser = argparse.ArgumentParser(description=description)
        self._names: list[str] = []
        for name, option, values in _SHORTCUTS:
            names = (name, "--bootstrap-server") if name == "--bootstrap-servers" else (name,)
            self._parser.add_argument(*names, help=f"short for --option {option}=…{values}")
        for name, what in _REPEATED:
            self._parser.add_argument(
                name, action="append", default=[], metavar="NAME=VALUE", help=what
            )

    def add(self, name: str, help_text: str) -> None:
        """Declare ``--name``; in the properties file ``spark.pykafka.job.name``."""
        self._names.append(name)
        self._parser.add_argument(f"--{name.replace('_', '-')}", help=help_text)

    def run(self, job: str, run: Callable[[SparkSession, JobSettings], int]) -> int:
        """Run a job in a session of its own, and return its exit status.

        ``--help`` and wrong arguments end the process before Spark starts, as Ctrl-C does.
        """
        self._parser.parse_args()
        end_at_ctrl_c(job)
        from spark_kafka_sink.jobs.failures import run_job  # Spark's, so not for --help

        def parsed(spark: SparkSession) -> int:
            return run(spark, self.parse(sys.argv[1:], spark.sparkContext.getConf().getAll()))

        return run_job(job, parsed)

    def parse(
        self,
        arguments: Sequence[str],
        conf: Iterable[tuple[str, str]],
        takes_unknown: bool = False,
    ) -> JobSettings:
        """Merge the command line over Spark's configuration.

        takes_unknown: accept an ``--option`` that resembles none, as ``format(…)`` does

        Raises ConfigError for an unknown name under ``spark.pykafka.``. Warns of secrets that other
        users can see in Spark's UI or in the list of processes.
        """
        parsed = vars(self._parser.parse_args(arguments))
        conf = list(conf)
        job: dict[str, str | None] = dict.fromkeys(self._names)
        sink: dict[str, str] = {}
        reader: dict[str, str] = {}
        for key, value in conf:
            if key.startswith(READER_PREFIX):
                reader[key.removeprefix(READER_PREFIX)] = value
            elif key.startswith(JOB_PREFIX):
                job[self._job_name(key)] = value
            elif key.startswith(CONF_PREFIX):
                option = key.removeprefix(CONF_PREFIX)
                _check_option(option, key)
                sink[option] = value
        regex = dict(conf).get(REGEX_OPTION, DEFAULT_REGEX)
        _warn_of_shown(sink, regex, CONF_PREFIX)
        _warn_of_shown(reader, regex, READER_PREFIX)
        for argument, target in (("--option", sink), ("--reader-option", reader)):
            options = _pairs(parsed[argument[2:].replace("-", "_")])
            for option in options if target is sink else ():
                _check_option(option, f"{argument} {option}", takes_unknown)
            for option in clear_secrets(options):
                text = (
                    f"{argument} {option}: a secret in clear text on the command line, which every "
                    f"user of the machine can see. Write {REFERENCE_HINT}, instead"
                )
                warn(logger, "JOB-006", text)
            target.update(options)
        for flag, option, _ in _SHORTCUTS:
            if (value := parsed[flag[2:].replace("-", "_")]) is not None:
                sink[option] = value
        job.update({name: parsed[name] for name in self._names if parsed[name] is not None})
        return JobSettings(job, sink, reader)

    def _job_name(self, key: str) -> str:
        name = key.removeprefix(JOB_PREFIX).replace(".", "_")
        if name not in self._names:
            known = ", ".join(known.replace("_", ".") for known in self._names)
            raise ConfigError(
                f"{key}: this job has no such argument. It has: {known}", code="JOB-003"
            )
        return name


def _check_option(option: str, where: str, takes_unknown: bool = False) -> None:
    """Raise ConfigError for a rejected option of the sink, and for an unknown one.

    All options of a job are for the sink, so a typing error must not pass unseen.
    """
    name = option.lower()
    problem = rejection_reason(name, ("value",))
    if problem is not None:
        raise ConfigError(f"{where}: {problem}", code="OPTION-001")
    if is_unknown(name) and not takes_unknown:
        raise ConfigError(f"{where}: the sink has no option '{option}'", code="OPTION-001")


def _warn_of_shown(options: Mapping[str, str], regex: str, prefix: str) -> None:
    """Warn of secrets in Spark's configuration, which its UI and event logs show."""
    shown = secrets_shown_by_spark(options, regex, prefix)
    if shown:
        text = warning_about_shown_secrets([prefix + name for name in shown], regex)
        warn(logger, "AUTH-001", text)


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            beginning = _NAME.match(text)
            shown = "" if beginning is None else beginning[0]
            more = "…" if shown != text else ""  # the rest may be a secret
            raise ConfigError(f"'{shown}{more}' is not NAME=VALUE", code="JOB-002")
        pairs[name.strip()] = value.strip()
    return pairs


_DEFAULTS = {
    REGEX_OPTION: SUGGESTED_REGEX,
    # Spark's own default is 64 MiB. For each Arrow batch of values above 3 KB, its JVM maps that
    # memory again. No processor cache holds it, and the worker waits for it.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    # Since Spark 4.1. Over TCP, Nagle's algorithm in Spark's JVM waits for the worker's delayed
    # acknowledgement, about 40 ms a task.
    UNIX_SOCKETS: "true",
}


def defaults_of_jobs(is_set: Callable[[str], bool]) -> dict[str, str]:
    """Return the Spark settings that a job sets, without those that its user has set."""
    return {name: value for name, value in _DEFAULTS.items() if not is_set(name)}


def open_session() -> SparkSession:
    """Open the session that spark-submit requests, with the sink's defaults for unset values.

    A job's options are Spark's configuration, which Spark shows in its UI and in event logs.
    Secrets in it are hidden, unless the configuration sets its own redaction.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()  # from now on, a SparkConf has spark-submit's settings
    builder = SparkSession.builder
    for name, value in defaults_of_jobs(SparkConf().contains).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
