"""What references in options stand for, read anew each time, in the process that needs it.

Source: ``EnvVarConfigProvider``, ``FileConfigProvider``, ``DirectoryConfigProvider`` of Kafka.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.properties import read_properties
from spark_kafka_sink.config.reference_syntax import (
    DIR,
    ENV,
    FILE,
    REFERENCE,
    problem_of_references,
    reference_of,
)
from spark_kafka_sink.security.locations import locate, place


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
