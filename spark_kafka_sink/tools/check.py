"""``pykafka-sink check`` and ``quota``: check a cluster with a job's options."""

from __future__ import annotations

import argparse
import itertools
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import ConfigError, UnsupportedVersionError, coded
from spark_kafka_sink.base.text import printable
from spark_kafka_sink.tools.command import (
    EXIT_FAILED,
    EXIT_OK,
    Examples,
    RefusedError,
    add_command,
    add_json,
    print_json,
    show,
    show_table,
)

if TYPE_CHECKING:
    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.tools.check_cluster import Finding
    from spark_kafka_sink.tools.command import Subparsers

_CHECK = """\
Check a cluster with the options of a job: addresses, login, clocks, topics and their settings,
rights, quotas, needs of exactly-once, outputs of metrics, schema registry. Each line says what was
found, and what to do.

Run the command where Spark's driver runs; executors may be in another network. It reads the
properties file of the jobs, spark.pykafka.<option>. Without --write it writes nothing.

exit codes: 0 nothing is wrong; 1 something is, marked ✗; 2 wrong usage, and nothing was checked: an
option is missing, misspelt or invalid, or the file cannot be read
"""
_QUOTA = """\
Show what the brokers grant to a client with these options: bytes per second, and time of their
threads. All clients with the same user and kafka.client.id share it. Needs DESCRIBE_CONFIGS on the
cluster, and Kafka 2.6 or newer.
"""
_CHECK_EXAMPLES: Examples = (
    ("a job's options", "pykafka-sink check --properties-file conf/secured.conf"),
    (
        "without a file",
        "pykafka-sink check --option kafka.bootstrap.servers=broker:9092 --topic events",
    ),
    (
        "before a deployment, with a test record",
        "pykafka-sink check --properties-file job.conf --topic events --write",
    ),
)
_QUOTA_EXAMPLES: Examples = (
    ("of a job's options", "pykafka-sink quota --properties-file conf/secured.conf"),
    ("for a script", "pykafka-sink quota --option kafka.bootstrap.servers=broker:9092 --json"),
)


_MARKS = {"passed": "✓", "failed": "✗", "warned": "!", "unknown": "?"}
_SUBJECT_WIDTH = 36


def add_check(subparsers: Subparsers) -> None:
    """Declare the command and its options."""
    summary = "check a cluster with a job's options; ✓ or ✗ for each line"
    parser = add_command(subparsers, "check", summary, _CHECK_EXAMPLES, _CHECK)
    _add_options(parser)
    parser.add_argument("--topic", help="short for --option topic=…")
    parser.add_argument(
        "--write", action="store_true", help="write one test record to the topic, which stays there"
    )
    add_json(parser)
    parser.set_defaults(command=_run_check)


def add_quota(subparsers: Subparsers) -> None:
    """Declare the command and its options."""
    summary = "what the brokers grant to a client with these options"
    parser = add_command(subparsers, "quota", summary, _QUOTA_EXAMPLES, _QUOTA)
    _add_options(parser)
    add_json(parser)
    parser.set_defaults(command=_run_quota, topic=None)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--properties-file",
        metavar="FILE",
        help="as for spark-submit: the sink's options as spark.pykafka.<option>",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the sink, wins over the file; may be repeated",
    )


def _options(arguments: argparse.Namespace) -> SinkOptions:
    try:
        return _parse_options(arguments)
    except ConfigError as error:
        raise RefusedError(str(error), code=error.code) from None


def _parse_options(arguments: argparse.Namespace) -> SinkOptions:
    from spark_kafka_sink.config.config_def import read_properties
    from spark_kafka_sink.config.sink_options import SinkOptions
    from spark_kafka_sink.jobs.settings import JOB_PREFIX, JobArguments

    conf: list[tuple[str, str]] = []
    if arguments.properties_file is not None:
        try:
            found = read_properties(arguments.properties_file)
        except OSError as error:
            raise ConfigError(
                f"--properties-file: cannot read {arguments.properties_file}: {error.strerror}",
                code="OPTION-013",
            ) from None
        _check_has_options(arguments.properties_file, [name for name, _, _ in found], arguments)
        # The job's own settings are irrelevant for the target cluster.
        conf = [(name, value) for name, value, _ in found if not name.startswith(JOB_PREFIX)]
    command_line = [text for option in arguments.option for text in ("--option", option)]
    if arguments.topic is not None:
        command_line += ["--topic", arguments.topic]
    settings = JobArguments("").parse(command_line, conf, takes_unknown=True)
    return SinkOptions.parse(settings.sink_options)


def _check_has_options(path: str, names: list[str], arguments: argparse.Namespace) -> None:
    """Raise ConfigError for a file without options of the sink, as one of another client is.

    If ``--option`` gives options, the file may hold settings of Spark alone: stderr says it.
    """
    from spark_kafka_sink.jobs.settings import CONF_PREFIX

    if any(name.startswith(CONF_PREFIX) for name in names):
        return
    count = "1 setting, which does not begin"
    if len(names) != 1:
        count = f"{len(names)} settings, none begins"
    problem = (
        f"--properties-file {path}: {count} with {CONF_PREFIX} Write the sink's options as "
        f"{CONF_PREFIX}<option>, for example {CONF_PREFIX}kafka.bootstrap.servers"
    )
    if not arguments.option:
        raise ConfigError(problem, code="TOOL-005")
    print(f"pykafka-sink: {coded(problem, 'TOOL-005')}", file=sys.stderr)


def _run_check(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.base.clock import SystemClock
    from spark_kafka_sink.tools.check_cluster import Outcome, all_checks

    options = _options(arguments)
    if arguments.write and options.topic is None:
        problem = "--write needs a topic: --topic, or the option topic"
        raise RefusedError(problem, code="OPTION-004")
    found = []
    findings = all_checks(options, arguments.write, SystemClock())
    for finding in itertools.chain(findings, _spark_settings(arguments.properties_file)):
        found.append(finding)
        if not arguments.json:
            subject, text = printable(finding.subject), printable(finding.text)
            mark = _MARKS[finding.outcome.value]
            print(f"{mark} {subject.ljust(_SUBJECT_WIDTH)} {text}", flush=True)
            if finding.cure:
                print(f"  {'':{_SUBJECT_WIDTH}} → {printable(finding.cure)}", flush=True)
    is_failed = any(finding.outcome is Outcome.FAILED for finding in found)
    if arguments.json:
        documents = [{**one._asdict(), "outcome": one.outcome.value} for one in found]
        print_json({"passed": not is_failed, "findings": documents})
    return EXIT_FAILED if is_failed else EXIT_OK


def _spark_settings(properties_file: str | None) -> Iterator[Finding]:
    """Yield findings on a job's properties file: how Spark reads it, and settings of Spark."""
    from spark_kafka_sink.config.config_def import read_properties
    from spark_kafka_sink.config.sink_options import UNIX_SOCKETS
    from spark_kafka_sink.tools.check_cluster import failed, warned

    if properties_file is None:
        return
    properties = read_properties(properties_file)
    if properties and properties[0].line == 1 and _has_byte_order_mark(properties_file):
        text = f"begins with a byte order mark, so spark-submit ignores {properties[0].name}"
        yield failed(properties_file, text, "save the file as UTF-8 without a byte order mark")
    values = {name: value.strip().lower() for name, value, _ in properties}
    if values.get(UNIX_SOCKETS) is None:
        text = f"{UNIX_SOCKETS} is not set: with Spark 4.1 and later each task may take 40 ms less"
        yield warned("Spark's workers", text, "set it to true: pykafka-sink docs tuning")


def _has_byte_order_mark(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(BOM_UTF8)) == BOM_UTF8


def _run_quota(arguments: argparse.Namespace) -> int:
    from spark_kafka_sink.network.admin import AdminClient
    from spark_kafka_sink.tools.check_cluster import (
        WRITERS_QUOTAS,
        QuotaAccessDeniedError,
        granted_quotas,
    )

    options = _options(arguments)
    try:
        with AdminClient.of(options.producer, patience_ms=options.preflight_timeout_ms) as admin:
            admin.gives_up_on_other_protocols = True
            found = granted_quotas(admin, options.producer, options.preflight_timeout_ms)
    except QuotaAccessDeniedError as error:
        print(
            f"pykafka-sink: the brokers do not tell: {error}. It needs DESCRIBE_CONFIGS on the "
            "cluster",
            file=sys.stderr,
        )
        return EXIT_FAILED
    except UnsupportedVersionError as error:
        text = f"the brokers do not report quotas, as Kafka's do since 2.6: {error}"
        print(f"pykafka-sink: {text}", file=sys.stderr)
        return EXIT_FAILED
    document = [{"entity": quota.entity, **quota.values} for quota in found]
    if not found:
        return show(
            arguments, document, [f"no quota for kafka.client.id {options.producer.client_id}"]
        )
    rows = [
        (quota.entity, name, f"{value:g} {WRITERS_QUOTAS[name]}")
        for quota in found
        for name, value in quota.values.items()
    ]
    return show_table(arguments, document, ("ENTITY", "QUOTA", "VALUE"), rows)
