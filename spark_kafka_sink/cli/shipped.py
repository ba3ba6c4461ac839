"""``pykafka-sink jobs``, ``conf`` and ``docs``: where the files are that come with the package.

In an installed package they are in ``spark_kafka_sink/share``; in a checkout, in the repository.
"""

from __future__ import annotations

import argparse
import ast
import difflib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import spark_kafka_sink
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.cli.exit_codes import EXIT_OK
from spark_kafka_sink.cli.output import Examples, add_command, add_json, print_json, print_table


class _Kind(NamedTuple):
    """One kind of files. summary: the file's own first line, from its text."""

    folder: str
    suffix: str
    example: str
    summary: Callable[[str], str]


def _docstring(text: str) -> str:
    return (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]


def _first_comment(text: str) -> str:
    return text.splitlines()[0].removeprefix("#").strip()


JOBS = _Kind("jobs", ".py", "batch_to_kafka", _docstring)
CONF = _Kind("conf", ".conf", "throughput", _first_comment)
DOCS = _Kind("docs", ".md", "troubleshooting", _first_comment)

_JOB_EXAMPLE = """\
spark-submit --properties-file $(pykafka-sink conf throughput) \\
      $(pykafka-sink job batch_to_kafka) --bootstrap-servers broker:9092 \\
      --topic flights --input /data/flights --key dest"""


def add_jobs(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """``jobs``: which there are; and ``job NAME``: the path of one."""
    _add_list(subparsers, JOBS, "the jobs that come with the package, for spark-submit")
    _add_path(
        subparsers,
        JOBS,
        ("job", "the path of a job, for spark-submit"),
        (("run a job", _JOB_EXAMPLE),),
    )


def add_conf(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """``conf``: which there are, or the path of one."""
    _add_list(subparsers, CONF, "properties files to start from; with a name, its path", "NAME")


def add_docs(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """``docs``: which there are, or the path of one."""
    _add_list(subparsers, DOCS, "the documents of this version; with a name, its path", "NAME")


def _add_list(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    kind: _Kind,
    summary: str,
    name_metavar: str | None = None,
) -> None:
    command = f"pykafka-sink {kind.folder}"
    examples = [("all of them", command), ("their folder", f"{command} --where")]
    if name_metavar is not None:
        examples.append(("the path of one", f"{command} {kind.example}"))
    parser = add_command(
        subparsers, kind.folder, summary, f"{summary[0].upper()}{summary[1:]}.", examples
    )
    if name_metavar is not None:
        parser.add_argument("name", metavar=name_metavar, nargs="?", help="print the path of this")
    else:
        parser.set_defaults(name=None)
    parser.add_argument("--where", action="store_true", help="print only the folder")
    add_json(parser)
    parser.set_defaults(command=lambda arguments: _run_list(kind, arguments))


def _add_path(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    kind: _Kind,
    name_and_summary: tuple[str, str],
    examples: Examples,
) -> None:
    name, summary = name_and_summary
    description = f"Print {summary}."
    parser = add_command(subparsers, name, summary, description, examples)
    parser.add_argument("name", metavar="NAME", help="without .py")
    parser.set_defaults(command=lambda arguments: _print_path(kind, arguments.name))


def _run_list(kind: _Kind, arguments: argparse.Namespace) -> int:
    if arguments.where:
        print(folder_of(kind))
        return EXIT_OK
    if arguments.name is not None:
        return _print_path(kind, arguments.name)
    rows = [(name, path_of(kind, name)) for name in names(kind)]
    described = [(name, kind.summary(path.read_text("utf-8")), str(path)) for name, path in rows]
    if arguments.json:
        keys = ("name", "summary", "path")
        print_json({kind.folder: [dict(zip(keys, row)) for row in described]})
    else:
        print_table(("NAME", "WHAT IT IS"), [row[:2] for row in described])
    return EXIT_OK


def _print_path(kind: _Kind, name: str) -> int:
    print(path_of(kind, name))
    return EXIT_OK


def folder_of(kind: _Kind) -> Path:
    """The folder with the files of this kind. Raises ConfigError if there is none."""
    package = Path(spark_kafka_sink.__file__).absolute().parent
    for folder in (package / "share" / kind.folder, package.parent / kind.folder):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"this installation has no {kind.folder}: {package} is neither an installed wheel nor a "
        "checkout. Install the wheel, or take the files from the repository"
    )


def names(kind: _Kind) -> list[str]:
    """Names without suffix; none where there is no such folder."""
    try:
        folder = folder_of(kind)
    except ConfigError:
        return []
    return sorted(path.stem for path in folder.glob(f"*{kind.suffix}"))


def path_of(kind: _Kind, name: str) -> Path:
    """The file of this name. Raises ConfigError, with the nearest name."""
    folder = folder_of(kind)
    wanted = name.removesuffix(kind.suffix)
    known = names(kind)
    for candidate in (wanted, wanted.replace("-", "_"), wanted.replace("_", "-")):
        if candidate in known:
            return folder / f"{candidate}{kind.suffix}"
    near = difflib.get_close_matches(wanted, known, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise ConfigError(f"there is no '{name}' in {folder}. {hint}There are: {', '.join(known)}")
