"""Resolves references in options, and locates the files that options name.

References and files are read each time, in the process that needs them.

A relative path is searched first in the working directory of the process, where YARN and standalone
clusters place the files of ``--files``. Next is the root folder of ``SparkFiles``, where every
cluster manager places them.

The root folder is found without importing pyspark: a Python process that Spark has started, and the
driver, have already loaded ``pyspark.core.files`` (before Spark 4: ``pyspark.files``) with
``SparkFiles.getRootDirectory()``. Elsewhere (on the command line) there is no such folder.

Source: ``EnvVarConfigProvider``, ``FileConfigProvider``, ``DirectoryConfigProvider`` of Kafka.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.text import Secret
from spark_kafka_sink.config.config_def import (
    DIR,
    ENV,
    FILE,
    REFERENCE,
    read_properties,
    reference_of,
    reference_problem,
    references_in,
)
from spark_kafka_sink.config.security_config import AssertionConfig, OAuthConfig, StoreConfig


class MissingError(ConfigError):
    """A file, a key in it, or a variable that an option names does not exist."""


class MissingCredentialsError(AuthenticationError):
    """A :class:`MissingError` of a login."""


# --- locations of files --------------------------------------------------------------------------

_MODULES_OF_SPARK_FILES = ("pyspark.core.files", "pyspark.files")
_HERE = ("", "localhost")


_FILE_EVERYWHERE = (
    "It must be on the driver and on every executor; or ship it with --files and give its name "
    "without a folder"
)


def find_file(location: str, option: str, advice: str | None = None) -> Path:
    """Return the path of the file ``location``: a path, or a ``file:`` URL.

    advice: for the error, instead of that for files that the driver and every executor need

    Raises ConfigError, naming ``option`` and the searched paths, if the file is missing.
    """
    path = _path_of(location, option)
    if path.is_absolute():
        candidates = [path]
    else:
        candidates = [folder / path for folder in folders_of_relative_paths()]
    for candidate in candidates:
        if _may_exist(candidate):
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise MissingError(
        f"{option}={location}: {process_description()} finds no such file: {looked}. "
        f"{advice or _FILE_EVERYWHERE}",
        code="OPTION-021",
    )


def folders_of_relative_paths() -> tuple[Path, ...]:
    """Return the folders that are searched for relative paths, in order."""
    return (Path.cwd(), *_roots_of_spark_files())


_ABSOLUTE = re.compile(r"(?i)(?:file:)?/")
_ABSOLUTE_URL = re.compile(r"(?i)\s*(?:https?:|(?:file:)?/)")
_FILE_FIELDS = {"location", "file", "private_key_file", "template_file"}
# An escape may hide a name or a path.
_RELATIVE_IN_JAAS = re.compile(
    r"""(?i)\\|(?:\b(?:keytab|ticketcache)|\.location)["']?\s*=(?!\s*["']?(?:file:)?/)"""
)


def may_name_relative_file(config: Any) -> bool:
    """Return True unless all paths of a configuration are absolute.

    config: a dataclass of ``config/security_config.py``. A path or a JAAS text in a reference is
    unknown, and may be relative.
    """
    return any(
        _may_be_relative(field.name, getattr(config, field.name)) for field in fields(config)
    )


def _may_be_relative(name: str, value: Any) -> bool:
    if is_dataclass(value):
        return may_name_relative_file(value)
    text = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(text, str):
        return False
    paths = [reference.path for reference in references_in(text) if reference.path is not None]
    if not all(_ABSOLUTE.match(path) for path in paths):
        return True
    if name == "jaas_config":
        is_reference = REFERENCE.fullmatch(text.strip()) is not None
        return is_reference or _RELATIVE_IN_JAAS.search(text) is not None
    if name == "token_endpoint_url":
        return not _ABSOLUTE_URL.match(text)
    return name in _FILE_FIELDS and not _ABSOLUTE.match(text)


def process_description() -> str:
    """Name this process for messages, because files differ between the driver and its executors."""
    module = sys.modules.get("pyspark.taskcontext")
    in_task = module is not None and module.TaskContext.get() is not None
    return f"{'a Spark task' if in_task else 'this process'} on host {platform.node()}"


def _path_of(location: str, option: str) -> Path:
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme or _may_exist(Path(location)):
        return Path(location)
    if scheme.lower() != "file":
        path = "/" + rest.lstrip("/")
        of_databricks = f"; on Databricks write /dbfs{path}, or a path in /Volumes"
        raise ConfigError(
            f"{option}={location}: files are read from the local disk only: give a path; "
            "ship the file with --files where it is not on every host"
            f"{of_databricks if scheme.lower() == 'dbfs' else ''}",
            code="OPTION-021",
        )
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host not in _HERE:
            raise ConfigError(f"{option}={location}: the URL names another host", code="OPTION-021")
        rest = slash + rest
    return Path(unquote(rest))


def _may_exist(path: Path) -> bool:
    """Return True if the file exists or cannot be checked; opening it then gives the reason."""
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
            # No Spark context, or the JVM has ended: no files were shipped.
            continue
        if root:
            return [Path(root)]
    return []


# --- small files of tokens -----------------------------------------------------------------------

MAX_FILE_BYTES = 1_000_000


@contextmanager
def authentication_errors() -> Iterator[None]:
    """Convert a ConfigError to an AuthenticationError of the same text and code."""
    try:
        yield
    except MissingError as error:
        raise MissingCredentialsError(str(error), code=error.code) from None
    except ConfigError as error:
        raise AuthenticationError(str(error), code=error.code) from None


def read_text(location: str, option: str) -> str:
    """Return the text of a file. Raises AuthenticationError, naming ``option``."""
    with authentication_errors():
        path = find_file(location, option)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise AuthenticationError(
            f"{option}: {location} cannot be read: {error.strerror or type(error).__name__}. It "
            "must be there on every machine that runs the driver or a task",
            code="OPTION-021",
        ) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if len(data) > MAX_FILE_BYTES or not text.strip():
        raise AuthenticationError(
            f"{option}: {location} must hold text in UTF-8, and {MAX_FILE_BYTES} bytes at most",
            code="AUTH-019",
        )
    return text


# --- references ----------------------------------------------------------------------------------

Resolve = Callable[[str, str], str]
"""A text and its option, for errors -> the text with its references resolved."""


def resolve(text: str, option: str, advice: str | None = None) -> str:
    """Return ``text`` with the values of its references, which are not resolved again.

    option: of the text, with ``kafka.``, for errors
    advice: for errors of missing variables and files, instead of that for values that the driver
        and every executor need

    Raises ConfigError, which names the option and the searched place, and shows no value.
    """
    problem = reference_problem(text)
    if problem is not None:
        raise _error(option, problem, _MALFORMED)

    def value_of(match: re.Match[str]) -> str:
        reference = reference_of(match)
        if reference is None:
            return match[0]
        return _READ[reference.provider](reference.path or "", reference.key, option, advice)

    return REFERENCE.sub(value_of, text)


T = TypeVar("T", StoreConfig, OAuthConfig, AssertionConfig)


def resolve_fields(config: T, option_of: Callable[[str], str], resolve: Resolve) -> T:
    """Return ``config`` with the references in its texts and secrets resolved.

    option_of: a field's name -> its option, for errors
    """
    changed: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, str):
            changed[field.name] = resolve(value, option_of(field.name))
        elif isinstance(value, Secret):
            changed[field.name] = Secret(resolve(value.reveal(), option_of(field.name)))
    return replace(config, **changed)


def with_absolute_paths(text: str) -> str:
    """Return ``text`` with the relative paths of its references as those that lead there now.

    A path that leads nowhere becomes the last one that was searched. Raises nothing: what cannot
    be made absolute stays.
    """

    def absolute(match: re.Match[str]) -> str:
        reference = reference_of(match)
        if reference is None or reference.path is None or _ABSOLUTE.match(reference.path):
            return match[0]
        try:
            found = [folder / reference.path for folder in folders_of_relative_paths()]
        except OSError:  # the working directory is gone
            return match[0]
        path = str(next((path for path in found if _may_exist(path)), found[-1]))
        if ":" in path or "}" in path:
            return match[0]
        return f"${{{reference.provider}:{path}:{reference.key}}}"

    return REFERENCE.sub(absolute, text)


_MALFORMED, _UNRESOLVED = "OPTION-005", "AUTH-021"


def _error(option: str, problem: str, code: str = _UNRESOLVED) -> ConfigError:
    return ConfigError(f"{option}: {problem}", code=code)


def _from_environment(_: str, name: str, option: str, advice: str | None) -> str:
    value = os.environ.get(name)
    if value is None:
        everywhere = (
            "The driver and each executor need it: set it where the driver starts, and by "
            f"spark.executorEnv.{name}, or by your platform, for executors"
        )
        problem = f"{process_description()} has no environment variable {name}."
        raise MissingError(f"{option}: {problem} {advice or everywhere}", code=_UNRESOLVED)
    return value


def _from_properties(path: str, key: str, option: str, advice: str | None) -> str:
    file = _located(path, option, advice)
    try:
        found = {name: value for name, value, _ in read_properties(str(file))}
    except OSError as error:
        raise _unreadable(option, file, error) from None
    except ConfigError as error:
        raise _error(option, str(error)) from None
    if key not in found:
        problem = f"{option}: {process_description()} finds no key '{key}' in {file}"
        # An empty file may be one that is being written.
        raise (MissingError if found else ConfigError)(problem, code=_UNRESOLVED)
    return found[key]


def _from_folder(path: str, name: str, option: str, advice: str | None) -> str:
    """Return a file's text without the final line end that editors and ``echo`` add."""
    if Path(name).name != name:
        problem = f"'{name}' is not the name of a file in {path}, but a path"
        raise _error(option, problem, _MALFORMED)
    file = _located(path, option, advice) / name
    try:
        return file.read_bytes().decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise _unreadable(option, file, error) from None
    except UnicodeDecodeError:
        raise _error(option, f"{file} is not in UTF-8", "AUTH-020") from None


def _located(path: str, option: str, advice: str | None) -> Path:
    """Find a file, also among the files that Spark ships if ``path`` has no folder."""
    return find_file(path, f"{option}, in a reference: path", advice)


def _unreadable(option: str, path: Path, error: OSError) -> ConfigError:
    problem = f"{option}: {process_description()} cannot read {path}: {error.strerror}"
    kind = MissingError if isinstance(error, FileNotFoundError) else ConfigError
    return kind(problem, code="OPTION-021")


_READ = {ENV: _from_environment, FILE: _from_properties, DIR: _from_folder}
