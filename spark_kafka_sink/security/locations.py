"""Where a file is that an option names: as it was given, or among the files that Spark ships.

A relative path is looked for in the working directory of the process, where YARN and standalone
clusters put what ``--files`` ships, and then in the root folder of ``SparkFiles``, where every
cluster manager has it.

That folder is known without importing pyspark: in a Python process that Spark has started, and on
the driver, ``pyspark.core.files`` (before Spark 4: ``pyspark.files``) is loaded already, and its
``SparkFiles.getRootDirectory()`` tells. Elsewhere (on the command line) there is no such folder.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from urllib.parse import unquote

from spark_kafka_sink.base.errors import ConfigError

_MODULES_OF_SPARK_FILES = ("pyspark.core.files", "pyspark.files")
_HERE = ("", "localhost")


def locate(location: str, option: str) -> Path:
    """The file that ``location`` names: a path, or a ``file:`` URL.

    Raises ConfigError, naming ``option`` and where it was looked for, if there is none.
    """
    path = _path_of(location, option)
    if path.is_absolute():
        candidates = [path]
    else:
        candidates = [Path.cwd() / path, *(root / path for root in _roots_of_spark_files())]
    for candidate in candidates:
        if _is_there(candidate):
            return candidate
    raise ConfigError(_missing(location, option, candidates))


def place() -> str:
    """Which process this is, for messages: files differ between the driver and its executors."""
    module = sys.modules.get("pyspark.taskcontext")
    in_task = module is not None and module.TaskContext.get() is not None
    return f"{'a Spark task' if in_task else 'this process'} on host {platform.node()}"


def _missing(location: str, option: str, candidates: list[Path]) -> str:
    looked = ", ".join(str(candidate) for candidate in candidates)
    return (
        f"{option}={location}: {place()} finds no such file: {looked}. It must be on the driver "
        "and on every executor; or ship it with --files and give its name without a folder"
    )


def _path_of(location: str, option: str) -> Path:
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme or _is_there(Path(location)):
        return Path(location)
    if scheme.lower() != "file":
        path = "/" + rest.lstrip("/")
        of_databricks = f"; on Databricks write /dbfs{path}, or a path in /Volumes"
        raise ConfigError(
            f"{option}={location}: files are read from the local disk only: give a path; "
            "ship the file with --files where it is not on every host"
            f"{of_databricks if scheme.lower() == 'dbfs' else ''}"
        )
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host not in _HERE:
            raise ConfigError(f"{option}={location}: the URL names another host")
        rest = slash + rest
    return Path(unquote(rest))


def _is_there(path: Path) -> bool:
    """Also where it may not be looked at: then opening it tells why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def _roots_of_spark_files() -> list[Path]:
    for name in _MODULES_OF_SPARK_FILES:
        module = sys.modules.get(name)
        if module is None:
            continue
        try:
            root = module.SparkFiles.getRootDirectory()
        except Exception:
            # No Spark context, or a JVM that is gone: then nothing was shipped to here.
            continue
        if root:
            return [Path(root)]
    return []
