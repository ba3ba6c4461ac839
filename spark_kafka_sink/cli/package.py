"""``pykafka-sink package``: the sink's own modules as a zip file, for ``--py-files``."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import spark_kafka_sink
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.cli.exit_codes import EXIT_OK
from spark_kafka_sink.cli.output import add_command, add_json, print_json
from spark_kafka_sink.record.compiled.library import check_libraries

_DESCRIPTION = """\
Write the sink's own modules into a zip file, for Spark's --py-files and for addArtifacts of Spark
Connect. Only those: the packages that the sink needs have compiled parts, which Python cannot load
from a zip file. Every node's Python must have them already; they are listed when the file is made.
Where it does not, ship a packed environment with --archives instead: docs/clusters.md.

Spark does not find a sink by itself that comes this way. Call pyspark_kafka_sink.register(spark)
once in the session. The file serves the platforms whose kernels this installation has; they are
named when the file is made. A release has them for Linux on x86_64 and aarch64.
"""
_EXAMPLES = (
    ("the file", "pykafka-sink package --output sink.zip"),
    (
        "and a job with it, which calls register",
        "spark-submit --py-files sink.zip my_job.py",
    ),
    ("with Spark Connect", 'spark.addArtifacts("sink.zip", pyfile=True)  # then register(spark)'),
)
# The sources of the kernels are only in a checkout.
_LEFT_OUT = ("share", "__pycache__", "kernels")
_ENTRY = "pyspark_kafka_sink.py"
# The earliest that a zip file can have: equal modules make equal files.
_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16


def add_package(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command and its options."""
    summary = "the sink's own modules as a zip file, for --py-files"
    parser = add_command(subparsers, "package", summary, _DESCRIPTION, _EXAMPLES)
    parser.add_argument(
        "--output", metavar="FILE", required=True, help="the zip file to write, or to replace"
    )
    add_json(parser)
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    output = Path(arguments.output)
    if output.suffix not in (".zip", ".egg"):
        raise ConfigError(
            f"--output {output}: the name must end with .zip, else Spark does not put the file on "
            "the path of its Python processes"
        )
    modules, platforms = list(_modules()), check_libraries()
    try:
        _write(output, modules)
    except OSError as error:
        raise ConfigError(f"--output {output}: cannot be written: {error.strerror}") from error
    needed = _needed()
    if arguments.json:
        size = output.stat().st_size
        made = {"path": str(output), "modules": len(modules), "bytes": size}
        print_json({**made, "platforms": platforms, "needs": needed})
        return EXIT_OK
    print(f"{output}: {len(modules)} modules of pykafka-sink {spark_kafka_sink.__version__}")
    print(f"it has kernels for {', '.join(platforms)}: the executors must be of these platforms")
    print(f"the Python of driver and executors must have: {', '.join(needed)}")
    print("in the session, before the first write: pyspark_kafka_sink.register(spark)")
    return EXIT_OK


def _modules() -> Iterator[tuple[str, Path]]:
    """Name in the zip file and path of each file. Raises ConfigError for a package in a zip."""
    package = Path(spark_kafka_sink.__file__).absolute().parent
    entry = package.parent / _ENTRY
    if not entry.is_file():
        raise ConfigError(
            f"{package.parent} has no {_ENTRY}: this is neither an installed wheel nor a checkout. "
            "Run the command where pykafka-sink is installed"
        )
    yield _ENTRY, entry
    for path in sorted(package.rglob("*")):
        inner = path.relative_to(package)
        if path.suffix in (".py", ".typed", ".so") and not set(inner.parts) & set(_LEFT_OUT):
            yield (Path(package.name) / inner).as_posix(), path


def _write(output: Path, modules: list[tuple[str, Path]]) -> None:
    """All or nothing: a file that is there stays until the new one is whole."""
    descriptor, part = tempfile.mkstemp(prefix=f".{output.name}-", dir=output.parent)
    try:
        with open(descriptor, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for name, path in modules:
                entry = zipfile.ZipInfo(name, _TIME)
                entry.external_attr = _MODE
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
        os.chmod(part, 0o644)
        os.replace(part, output)
    except BaseException:
        os.unlink(part)
        raise


def _needed() -> list[str]:
    """The packages that the sink needs, as its metadata say; none extra."""
    try:
        requires = importlib.metadata.requires("pykafka-sink") or []
    except importlib.metadata.PackageNotFoundError:
        return ["the dependencies in pyproject.toml"]
    return [one for one in requires if "extra ==" not in one]
