"""What references in options stand for, and where the files are that options name.

References and files are read anew each time, in the process that needs them.

A relative path is looked for in the working directory of the process, where YARN and standalone
clusters put what ``--files`` ships, and then in the root folder of ``SparkFiles``, where every
cluster manager has it.

That folder is known without importing pyspark: in a Python process that Spark has started, and on
the driver, ``pyspark.core.files`` (before Spark 4: ``pyspark.files``) is loaded already, and its
``SparkFiles.getRootDirectory()`` tells. Elsewhere (on the command line) there is no such folder.

Source: ``EnvVarConfigProvider``, ``FileConfigProvider``, ``DirectoryConfigProvider`` of Kafka.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from urllib.parse import unquote

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.config.properties import read_properties
from spark_kafka_sink.config.reference_syntax import (
    DIR,
    ENV,
    FILE,
    REFERENCE,
    problem_of_references,
    reference_of,
)

# --- where a file is -----------------------------------------------------------------------------

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


# --- small files that tokens are made of ---------------------------------------------------------

MOST_BYTES = 1_000_000


def read_text(location: str, option: str) -> str:
    """The text of a file. ``option``: names it in errors. Raises AuthenticationError."""
    try:
        with locate(location, option).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except ConfigError as error:
        raise AuthenticationError(str(error)) from None
    except OSError as error:
        raise AuthenticationError(
            f"{option}: {location} cannot be read: {error.strerror or type(error).__name__}. It "
            "must be there on every machine that runs the driver or a task"
        ) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if len(data) > MOST_BYTES or not text.strip():
        raise AuthenticationError(
            f"{option}: {location} must hold text in UTF-8, and {MOST_BYTES} bytes at most"
        )
    return text


# --- references ----------------------------------------------------------------------------------


def resolve(text: str, option: str) -> str:
    """``text`` with the values of its references in their places. Values are not resolved again.

    option: the one that the text is of, with ``kafka.``, for errors. Raises ConfigError, which
    names the option and where the value was looked for, and shows no value.
    """
    problem = problem_of_references(text)
    if problem is not None:
        raise _error(option, problem)

    def value_of(match: re.Match[str]) -> str:
        reference = reference_of(match)
        if reference is None:
            return match[0]
        return _READ[reference.provider](reference.path or "", reference.key, option)

    return REFERENCE.sub(value_of, text)


def _error(option: str, problem: str) -> ConfigError:
    return ConfigError(f"{option}: {problem}")


def _from_environment(_: str, name: str, option: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise _error(
            option,
            f"{place()} has no environment variable {name}. The driver and each executor need it: "
            f"set it where the driver starts, and by spark.executorEnv.{name}, or by your "
            "platform, for executors",
        )
    return value


def _from_properties(path: str, key: str, option: str) -> str:
    file = _located(path, option)
    try:
        found = {name: value for name, value, _ in read_properties(str(file))}
    except OSError as error:
        raise _unreadable(option, file, error) from None
    except ConfigError as error:
        raise _error(option, str(error)) from None
    if key not in found:
        raise _error(option, f"{place()} finds no key '{key}' in {file}")
    return found[key]


def _from_folder(path: str, name: str, option: str) -> str:
    """Without the line end that editors and ``echo`` put at the end of a file."""
    if Path(name).name != name:
        raise _error(option, f"'{name}' is not the name of a file in {path}, but a path")
    file = _located(path, option) / name
    try:
        return file.read_bytes().decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise _unreadable(option, file, error) from None
    except UnicodeDecodeError:
        raise _error(option, f"{file} is not in UTF-8") from None


def _located(path: str, option: str) -> Path:
    """Also among the files that Spark ships, if it is a name without a folder."""
    return locate(path, f"{option}, in a reference: path")


def _unreadable(option: str, path: Path, error: OSError) -> ConfigError:
    return _error(option, f"{place()} cannot read {path}: {error.strerror}")


_READ = {ENV: _from_environment, FILE: _from_properties, DIR: _from_folder}
