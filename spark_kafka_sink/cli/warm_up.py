"""``pykafka-sink warm-up``: compile all kernels now, so that no worker has to."""

from __future__ import annotations

import argparse
import os

from spark_kafka_sink.base.environment import CACHE_VARIABLE, COMPILER_CACHE_VARIABLE
from spark_kafka_sink.cli.exit_codes import EXIT_FAILED, EXIT_OK
from spark_kafka_sink.cli.output import add_command, add_json, print_json

_DESCRIPTION = f"""\
Compile all kernels and keep them in a file, so that Spark's Python workers load them, instead of
waiting about 30 s for it once on each machine. For building images, and for nodes before their
first job. Not needed where the package has them for the platform, as a release has for Linux on
x86_64 and aarch64: this command tells.

Without --cache they are kept beside the package if that can be written, else in the user's cache
folder. Workers look in the same places; with --cache, they need the variable {CACHE_VARIABLE}
set to that folder: spark.executorEnv.{CACHE_VARIABLE}=FOLDER.
"""
_EXAMPLES = (
    ("in a Dockerfile, after pip install", "RUN pykafka-sink warm-up"),
    ("in a folder that all executors see", "pykafka-sink warm-up --cache /opt/pykafka-sink"),
)


def add_warm_up(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its options."""
    parser = add_command(
        subparsers, "warm-up", "compile all kernels now, for images", _DESCRIPTION, _EXAMPLES
    )
    parser.add_argument(
        "--cache", metavar="FOLDER", help=f"keep them there, as {CACHE_VARIABLE} does"
    )
    add_json(parser)
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.cache is not None:
        os.environ[CACHE_VARIABLE] = arguments.cache
        os.environ.pop(COMPILER_CACHE_VARIABLE, None)
    from spark_kafka_sink.record.kernels.prepare import keep_kernels

    totals, folder, is_lasting = keep_kernels()
    compile_ms = totals.compile_ns // 1_000_000
    if arguments.json:
        print_json(
            {
                "compiled": totals.compiled,
                "loaded": totals.loaded,
                "compile_ms": compile_ms,
                "folder": None if folder is None else str(folder),
            }
        )
    elif folder is not None:
        done = "they were there before"
        if totals.compiled:
            done = f"compiled all kernels in {compile_ms / 1000:.1f} s"
        print(f"{done}; they are in {folder}")
    # The log has told which folders cannot be written.
    return EXIT_OK if is_lasting else EXIT_FAILED
