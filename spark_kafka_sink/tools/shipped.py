"""``pykafka-sink jobs``, ``conf``, ``docs``, ``package``, ``explain``: what the package ships.

In an installed package they are in ``spark_kafka_sink/share``; in a checkout, in the repository.
``package`` writes the sink's own modules into a zip file, for ``--py-files``.

``explain`` prints what an error's code means, how to fix the cause, and how to verify. A file of
``codes/`` has the causes of one area. It begins with a title, a paragraph about the whole area, and
how to verify that a cause is gone. A cause follows as below; ``verify:`` may be absent. ``…``
stands for names and numbers, and ``(log)`` before the cause for a WARNING of the log.

    OPTION-004 A required option is missing.
      Option '…' must be specified for writing to Kafka, as host:port.
    fix: Set the option that the message names.

The causes of the area BROKER are the rows of ``base.errors``.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.metadata
import os
import re
import shutil
import tempfile
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import spark_kafka_sink
from spark_kafka_sink.base.errors import (
    ERRORS,
    PREFIX,
    ConfigError,
    KafkaErrorCode,
    advice_for,
    broker_code,
    error_for_code,
    transaction_advice_for,
)
from spark_kafka_sink.record.compiled.library import check_libraries
from spark_kafka_sink.tools.command import (
    EXIT_OK,
    add_command,
    add_json,
    print_json,
    print_table,
    show_table,
)

if TYPE_CHECKING:
    from spark_kafka_sink.tools.command import Subparsers


class _Kind(NamedTuple):
    """One kind of files. summary: returns a file's summary from its text."""

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


def add_jobs(subparsers: Subparsers) -> None:
    """Declare ``jobs``, the list, and ``job NAME``, the path of one."""
    _add_list(subparsers, JOBS, "the jobs that come with the package, for spark-submit")
    summary = "the path of a job, for spark-submit"
    text, examples = f"Print {summary}.", (("run a job", _JOB_EXAMPLE),)
    parser = add_command(subparsers, "job", summary, examples, text)
    parser.add_argument("name", metavar="NAME", help="without .py")
    parser.set_defaults(command=lambda arguments: _print(path_of(JOBS, arguments.name)))


def add_conf(subparsers: Subparsers) -> None:
    """Declare ``conf``: the list, or the path of one file."""
    _add_list(subparsers, CONF, "properties files to start from; with a name, its path")


def add_docs(subparsers: Subparsers) -> None:
    """Declare ``docs``: the list, or one of the documents."""
    _add_list(subparsers, DOCS, "the documents of this version; with a name, its text")


def _add_list(subparsers: Subparsers, kind: _Kind, summary: str) -> None:
    command = f"pykafka-sink {kind.folder}"
    examples = [("all of them", command), ("their folder", f"{command} --where")]
    if kind is DOCS:
        examples.append(("read one", f"{command} {kind.example}"))
        examples.append(("its path", f"{command} {kind.example} --where"))
    elif kind is CONF:
        examples.append(("the path of one", f"{command} {kind.example}"))
    parser = add_command(subparsers, kind.folder, summary, examples)
    if kind is JOBS:
        parser.set_defaults(name=None)
    else:
        what = "print the text of this" if kind is DOCS else "print the path of this"
        parser.add_argument("name", metavar="NAME", nargs="?", help=what)
    where = "print the path instead" if kind is DOCS else "print only the folder"
    parser.add_argument("--where", action="store_true", help=where)
    add_json(parser)
    parser.set_defaults(command=lambda arguments: _run_list(kind, arguments))


def _run_list(kind: _Kind, arguments: argparse.Namespace) -> int:
    if arguments.name is not None:
        path = path_of(kind, arguments.name)
        is_text = kind is DOCS and not arguments.where
        return _print(path.read_text("utf-8"), end="") if is_text else _print(path)
    if arguments.where:
        return _print(folder_of(kind))
    rows = [(name, path_of(kind, name)) for name in names(kind)]
    described = [(name, kind.summary(path.read_text("utf-8")), str(path)) for name, path in rows]
    documents = [dict(zip(("name", "summary", "path"), row)) for row in described]
    columns = ("NAME", "WHAT IT IS")
    return show_table(arguments, {kind.folder: documents}, columns, [row[:2] for row in described])


def _print(what: object, end: str = "\n") -> int:
    print(what, end=end)
    return EXIT_OK


def folder_of(kind: _Kind) -> Path:
    """Return the folder with the files of this kind. Raises ConfigError if none exists."""
    package = Path(spark_kafka_sink.__file__).absolute().parent
    for folder in (package / "share" / kind.folder, package.parent / kind.folder):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"this installation has no {kind.folder}: {package} is neither an installed wheel nor a "
        "checkout. Install the wheel, or take the files from the repository",
        code="TOOL-003",
    )


def names(kind: _Kind) -> list[str]:
    """Return the names without suffix; none if the folder does not exist."""
    try:
        folder = folder_of(kind)
    except ConfigError:
        return []
    return sorted(path.stem for path in folder.glob(f"*{kind.suffix}"))


def path_of(kind: _Kind, name: str) -> Path:
    """Return the file of this name. Raises ConfigError, with the nearest name."""
    folder = folder_of(kind)
    base_name = name.removesuffix(kind.suffix)
    known = names(kind)
    for candidate in (base_name, base_name.replace("-", "_"), base_name.replace("_", "-")):
        if candidate in known:
            return folder / f"{candidate}{kind.suffix}"
    closest = difflib.get_close_matches(base_name, known, 1)
    hint = f"Did you mean {closest[0]}? " if closest else ""
    problem = f"there is no '{name}' in {folder}. {hint}There are: {', '.join(known)}"
    raise ConfigError(problem, code="TOOL-004")


# --- package -------------------------------------------------------------------------------------

_PACKAGE = """\
Write the sink's own modules into a zip file, for Spark's --py-files and for addArtifacts of Spark
Connect.

Python cannot load compiled parts from a zip file. Therefore every node's Python must have the
packages that the command lists. If it does not, ship a packed environment with --archives:
`pykafka-sink docs clusters`.

Call pyspark_kafka_sink.register(spark) once in the session, because Spark does not find such a sink
by itself. The file serves the platforms that the command lists. macOS loads no kernels out of a
zip file: install the wheel there.
"""
_PACKAGE_EXAMPLES = (
    ("the file", "pykafka-sink package --output sink.zip"),
    ("and a job with it, which calls register", "spark-submit --py-files sink.zip my_job.py"),
    ("with Spark Connect", 'spark.addArtifacts("sink.zip", pyfile=True)  # then register(spark)'),
)
# Only a checkout has the sources of the kernels.
_LEFT_OUT = ("share", "__pycache__", "kernels")
_ENTRY = "pyspark_kafka_sink.py"
# The earliest time of a zip file, so that equal modules give equal files.
_TIME = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16


def add_package(subparsers: Subparsers) -> None:
    """Declare the command and its options."""
    summary = "the sink's own modules as a zip file, for --py-files"
    parser = add_command(subparsers, "package", summary, _PACKAGE_EXAMPLES, _PACKAGE)
    parser.add_argument(
        "--output", metavar="FILE", required=True, help="the zip file to write, or to replace"
    )
    add_json(parser)
    parser.set_defaults(command=_run_package)


def _run_package(arguments: argparse.Namespace) -> int:
    output = Path(arguments.output)
    if output.suffix not in (".zip", ".egg"):
        raise ConfigError(
            f"--output {output}: the name must end with .zip, else Spark does not put the file on "
            "the path of its Python processes",
            code="OPTION-003",
        )
    modules, platforms = list(_modules()), check_libraries()
    try:
        _write(output, modules)
    except OSError as error:
        problem = f"--output {output}: cannot be written: {error.strerror}"
        raise ConfigError(problem, code="TOOL-002") from error
    needed = _needed()
    if arguments.json:
        size = output.stat().st_size
        document = {"path": str(output), "modules": len(modules), "bytes": size}
        print_json({**document, "platforms": platforms, "needs": needed})
        return EXIT_OK
    print(f"{output}: {len(modules)} modules of pykafka-sink {spark_kafka_sink.__version__}")
    print(f"it has kernels for {', '.join(platforms)}: the executors must be of these platforms")
    print("macOS loads no kernels out of a zip file: install the wheel there")
    print(f"the Python of driver and executors must have: {', '.join(needed)}")
    print("in the session, before the first write: pyspark_kafka_sink.register(spark)")
    return EXIT_OK


def _modules() -> Iterator[tuple[str, Path]]:
    """Yield each file's name in the zip file and path. Raises ConfigError for a zipped package."""
    package = Path(spark_kafka_sink.__file__).absolute().parent
    entry = package.parent / _ENTRY
    if not entry.is_file():
        raise ConfigError(
            f"{package.parent} has no {_ENTRY}: this is neither an installed wheel nor a checkout. "
            "Run the command where pykafka-sink is installed",
            code="TOOL-003",
        )
    yield _ENTRY, entry
    for path in sorted(package.rglob("*")):
        inner = path.relative_to(package)
        if path.suffix in (".py", ".typed", ".so") and not set(inner.parts) & set(_LEFT_OUT):
            yield (Path(package.name) / inner).as_posix(), path


def _write(output: Path, modules: list[tuple[str, Path]]) -> None:
    """Write all or nothing: an existing file stays until the new file is complete."""
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
    """Return the packages that the sink needs, from its metadata, without extras."""
    try:
        requires = importlib.metadata.requires("pykafka-sink") or []
    except importlib.metadata.PackageNotFoundError:
        return ["the dependencies in pyproject.toml"]
    return [one for one in requires if "extra ==" not in one]


# --- explain -------------------------------------------------------------------------------------

AREAS = (
    *("option", "column", "format", "row", "registry", "topic", "connect", "tls", "auth"),
    *("broker", "delivery", "txn", "deadletter", "hook", "metrics", "spark", "job", "tool"),
    "local",
)
"""Files of ``codes/``, in the order of docs/errors.md."""

IN_TRANSACTION = "In a transaction: "
"""Comes before the part of a fix that is for transactions alone."""
_BROKER = "broker"
_INDENT = " " * 13
_LOG = "(log) "
_CODE = re.compile(r"([A-Z]+)-(\d{3})(?!\d)")
_LINK = re.compile(r"\[([^\]]+)\]\(([\w-]+)\.md[^)]*\)")


class Cause(NamedTuple):
    """One row. code: without ``PKS-``; is_logged: a WARNING has it; texts: Markdown in one line"""

    code: str
    cause: str
    is_logged: bool
    messages: tuple[str, ...]
    fix: str
    verify: str


class Area(NamedTuple):
    """The causes of one file. verify: of causes without their own"""

    name: str
    title: str
    about: str
    verify: str
    causes: tuple[Cause, ...]


def read_areas() -> list[Area]:
    """Return all areas, in the order of AREAS."""
    return [_read_area(name) for name in AREAS]


def _read_area(name: str) -> Area:
    text = (files(__package__) / "codes" / f"{name}.txt").read_text(encoding="utf-8")
    head, *rows = text.strip().split("\n\n")
    title, about, verify = head.split("\n")
    verify = verify.removeprefix("verify: ")
    causes = [_cause(row.split("\n"), verify) for row in rows]
    if name == _BROKER:
        causes = [_broker_cause(error, verify) for error in ERRORS.values() if error.code]
    return Area(name.upper(), title.removeprefix("# "), about, verify, tuple(causes))


def _cause(lines: list[str], verify: str) -> Cause:
    code, _, cause = lines[0].partition(" ")
    messages = tuple(line.strip() for line in lines[1:] if line.startswith("  "))
    fields = dict(line.split(": ", 1) for line in lines[1:] if not line.startswith("  "))
    is_logged = cause.startswith(_LOG)
    fix, verify = fields["fix"], fields.get("verify", verify)
    return Cause(code, cause.removeprefix(_LOG), is_logged, messages, fix, verify)


def _broker_cause(error: KafkaErrorCode, verify: str) -> Cause:
    advice, in_transaction = advice_for(error), transaction_advice_for(error)
    fix = _as_sentence(advice) if advice else ""
    if in_transaction != advice:
        fix += f" {IN_TRANSACTION}{in_transaction}."
    fix = fix.strip() or "The log of the broker that the message names has the reason."
    cause = f"Brokers answer {error.name}."
    return Cause(broker_code(error), cause, False, (str(error),), fix, verify)


def _as_sentence(advice: str) -> str:
    # An option's name keeps its small letters.
    is_name = re.match(r"[\w-]+\.", advice) is not None
    return f"{advice if is_name else advice[0].upper() + advice[1:]}."


def add_explain(subparsers: Subparsers) -> None:
    """Declare ``explain``."""
    summary = "what an error's code means: cause, fix, how to verify"
    examples = (
        ("the code at the end of a message", "pykafka-sink explain PKS-OPTION-004"),
        ("all codes", "pykafka-sink explain"),
    )
    text = (
        "Print message, cause, fix and how to verify, for codes such as PKS-OPTION-004. "
        "Without a code, list all codes."
    )
    parser = add_command(subparsers, "explain", summary, examples, text)
    parser.add_argument(
        "codes", metavar="CODE", nargs="*", help="of an error or a warning; with or without PKS-"
    )
    parser.set_defaults(command=_run_explain)


def _run_explain(arguments: argparse.Namespace) -> int:
    areas = read_areas()
    if not arguments.codes:
        rows = [(PREFIX + one.code, one.cause) for area in areas for one in area.causes]
        print_table(("CODE", "CAUSE"), rows)
        return EXIT_OK
    found = [_find(text, areas) for text in arguments.codes]
    print("\n\n".join("\n".join(_lines(cause)) for cause in found))
    return EXIT_OK


def _find(text: str, areas: list[Area]) -> Cause:
    """Return the cause of a code, which may have other text around it. Raises ConfigError."""
    causes = {cause.code: cause for area in areas for cause in area.causes}
    match = _CODE.search(text.upper())
    code = match[0] if match else text.upper().removeprefix(PREFIX)
    if match and match[0] not in causes and match[1].lower() == _BROKER:
        verify = areas[AREAS.index(_BROKER)].verify
        return _broker_cause(error_for_code(int(match[2])), verify)
    if code not in causes:
        near = difflib.get_close_matches(code, causes, n=1, cutoff=0.6)
        hint = f" Did you mean {PREFIX}{near[0]}?" if near else ""
        problem = f"this version has no code {text}.{hint} pykafka-sink explain lists all codes"
        raise ConfigError(problem, code="TOOL-001")
    return causes[code]


def _lines(cause: Cause) -> Iterator[str]:
    yield PREFIX + cause.code
    width = max(min(shutil.get_terminal_size().columns, 100), 40)
    where = "in the log" if cause.is_logged else "message"
    parts = [(where, one) for one in cause.messages]
    parts += [("cause", cause.cause), ("fix", cause.fix), ("verify", cause.verify)]
    last = ""
    for name, text in parts:
        # A link names the command that prints the page.
        plain = _LINK.sub(r"\1 (pykafka-sink docs \2)", text)
        shown = textwrap.wrap(plain, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
        yield f"  {'' if name == last else name:11}{shown[0].strip()}"
        yield from shown[1:]
        last = name
