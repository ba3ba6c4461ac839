"""Write docs/commands.md from the parsers of the command line and of the jobs.

python -m release.commands_document > docs/commands.md
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import ModuleType

from spark_kafka_sink import cli
from spark_kafka_sink.jobs.settings import CONF_PREFIX, JOB_PREFIX, READER_PREFIX, JobArguments
from spark_kafka_sink.tools import command

_HEAD = """\
# Command line and jobs

This page is for operators and for engineers who run the jobs that come with the package. It lists every command, flag,
exit code and job argument. The page is generated from the parsers; do not edit it.

`pykafka-sink COMMAND --help` prints the same texts, and `python -m spark_kafka_sink` is the same program. Results
go to standard output, and messages to standard error.

"""  # noqa: E501

_EXIT_CODES = """\
## Exit codes

`pykafka-sink` ends with one of these codes. Some commands say more below.

| code | meaning |
| --- | --- |
"""

_COMMON = """\
## Flags of several commands

| flag | meaning | commands |
| --- | --- | --- |
"""

_JOBS = """
## Jobs

Run a job with `spark-submit`: `pykafka-sink job NAME` prints its path. Each argument may stand in the properties file
instead; an argument on the command line wins. [Clusters](clusters.md#jobs-and-properties-files) has the whole order.

### Arguments of every job

| argument | in the properties file | meaning |
| --- | --- | --- |
"""  # noqa: E501

_SHARED_BY = 3
"""Commands that must have a flag before the page describes it in one place."""
_JOBS_FOLDER = Path(__file__).resolve().parents[1] / "jobs"
_PROPERTIES = {"--option": f"{CONF_PREFIX}NAME", "--reader-option": f"{READER_PREFIX}NAME"}


def render() -> str:
    """Return the whole document."""
    commands = list(_commands(cli._parser()))
    shared = _shared_flags(commands)
    parts = [_HEAD, _EXIT_CODES, *_exit_codes(), "\n", _COMMON]
    parts += [_shared_row(action, commands) for action in shared.values()]
    for summary, parser in commands:
        parts += _command(summary, parser, shared.keys(), _flags_of_group(parser, commands))
    own = JobArguments("")
    parts += [_JOBS, *_argument_rows(own, ())]
    for path in sorted(_JOBS_FOLDER.glob("*.py")):
        parts += _job(path, own)
    return "".join(parts)


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands and jobs."""
    for _, parser in _commands(cli._parser()):
        yield parser
    for path in sorted(_JOBS_FOLDER.glob("*.py")):
        declared = _module(path).declare_arguments()
        yield declared._parser if isinstance(declared, JobArguments) else declared


# --- commands ------------------------------------------------------------------------------------


def _commands(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield summary and parser of each command, then of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, parser_of_it in action.choices.items():
                yield summaries[name], parser_of_it
                yield from _commands(parser_of_it)


def _flags(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments that a table shows."""
    hidden = (argparse._HelpAction, argparse._VersionAction, argparse._SubParsersAction)
    return [action for action in parser._actions if not isinstance(action, hidden)]


def _key(action: argparse.Action) -> tuple[str, str | None]:
    return _shape(action), action.help


def _shared_flags(
    commands: Iterable[tuple[str, argparse.ArgumentParser]],
) -> dict[tuple[str, str | None], argparse.Action]:
    """Return the flags that several commands have, with the same meaning."""
    actions = [action for _, parser in commands for action in _flags(parser)]
    times = Counter(_key(action) for action in actions if action.option_strings)
    return {_key(one): one for one in actions if times[_key(one)] >= _SHARED_BY}


def _shared_row(
    action: argparse.Action, commands: Iterable[tuple[str, argparse.ArgumentParser]]
) -> str:
    every, users = [], []
    for _, parser in commands:
        if parser._subparsers is None:
            every.append(_group_and_name(parser))
            if any(_key(action) == _key(one) for one in _flags(parser)):
                users.append(every[-1])
    return f"| {_cell(action)} | {_meaning(action)} | {', '.join(_grouped(users, every))} |\n"


def _flags_of_group(
    parser: argparse.ArgumentParser, commands: Iterable[tuple[str, argparse.ArgumentParser]]
) -> set[tuple[str, str | None]]:
    """Return the flags that all commands of the parser's group have; empty without a group."""
    group, _ = _group_and_name(parser)
    flags = [
        {_key(action) for action in _flags(one)}
        for _, one in commands
        if _group_and_name(one)[0] == group and _group_and_name(one)[1]
    ]
    return set.intersection(*flags) if flags else set()


def _group_and_name(parser: argparse.ArgumentParser) -> tuple[str, str]:
    group, _, name = parser.prog.partition(" ")[2].partition(" ")
    return group, name


def _grouped(users: list[tuple[str, str]], every: list[tuple[str, str]]) -> Iterator[str]:
    """Yield ``check``, and ``transactions list`` where not all commands of a group are users."""
    for group in dict.fromkeys(group for group, _ in users):
        names = [name for one, name in users if one == group]
        if names == [name for one, name in every if one == group]:
            yield f"`{group}`"
        else:
            yield f"`{group}` ({', '.join(names)})"


def _command(
    summary: str,
    parser: argparse.ArgumentParser,
    shared: AbstractSet[tuple[str, str | None]],
    of_group: AbstractSet[tuple[str, str | None]],
) -> Iterator[str]:
    """Yield the section of a command. of_group: flags that the whole group has."""
    level = "##" if parser.prog.count(" ") == 1 else "###"
    yield f"\n{level} {parser.prog}\n\n"
    yield _prose(parser.description or summary)
    flags = _flags(parser)
    own = [action for action in flags if _key(action) not in shared]
    others = [f"`{_name(action)}`" for action in flags if _key(action) in shared - of_group]
    if parser._subparsers is not None and shared & of_group:
        every = ", ".join(
            f"`{name.split()[0].rstrip(',')}`" for name, _ in sorted(shared & of_group, key=str)
        )
        yield f"\n[Also](#flags-of-several-commands), for each of these commands: {every}.\n"
    if own:
        yield "\n| argument | meaning |\n| --- | --- |\n"
        yield from (f"| {_cell(action)} | {_meaning(action)} |\n" for action in own)
    if others:
        yield f"\n[Also](#flags-of-several-commands): {', '.join(others)}.\n"
    example = (parser.epilog or "").removeprefix("examples:\n")
    # A group repeats the examples of its commands.
    if example and parser._subparsers is None:
        lines = "\n".join(line.removeprefix("  ") for line in example.splitlines())
        yield f"\n```sh\n{lines}\n```\n"


# --- jobs ----------------------------------------------------------------------------------------


def _job(path: Path, own: JobArguments) -> Iterator[str]:
    module = _module(path)
    yield f"\n### {path.stem}\n\n"
    yield _prose((module.__doc__ or "").split("\n\n")[0])
    declared = module.declare_arguments()
    if isinstance(declared, JobArguments):
        yield "\n| argument | in the properties file | meaning |\n| --- | --- | --- |\n"
        yield from _argument_rows(declared, {_key(one) for one in _flags(own._parser)})
    else:
        yield "\n| argument | meaning |\n| --- | --- |\n"
        yield from (f"| {_cell(one)} | {_meaning(one)} |\n" for one in _flags(declared))
    text = (module.main.__doc__ or "").splitlines()[0]
    yield f"\n{text.replace('Return the exit status', 'Exit status')}\n"


def _argument_rows(arguments: JobArguments, without: Iterable[object]) -> Iterator[str]:
    for action in _flags(arguments._parser):
        if _key(action) in without:
            continue
        name = _name(action)
        # "short for --option topic=…": the option is what a properties file has.
        short_for = re.match(r"short for --option ([\w.]+)=", action.help or "")
        if short_for:
            setting = CONF_PREFIX + short_for[1]
        else:
            setting = _PROPERTIES.get(name) or JOB_PREFIX + name[2:].replace("-", ".")
        yield f"| {_cell(action)} | `{setting}` | {_meaning(action)} |\n"


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"described_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The demo imports parts that stand beside it, and its data classes look for their module.
    sys.path.insert(0, str(path.parent))
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
        del sys.modules[spec.name]
    return module


# --- texts ---------------------------------------------------------------------------------------


def _exit_codes() -> Iterator[str]:
    """Yield a row for each constant ``EXIT_…``, with the text below it."""
    statements = ast.parse(Path(command.__file__).read_text(encoding="utf-8")).body
    for constant, text in zip(statements, statements[1:]):
        name = ast.unparse(constant).partition(" = ")[0]
        if name.startswith("EXIT_"):
            meaning = ast.literal_eval(text.value).rstrip(".")  # type: ignore[attr-defined]
            yield f"| {getattr(command, name)} | {meaning} |\n"


def _name(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


def _shape(action: argparse.Action) -> str:
    """Return ``--topic T``, with its choices, and in brackets if it may be absent."""
    if not action.option_strings:
        name = str(action.metavar or action.dest).upper()
        return f"[{name}]" if action.nargs == "?" else name
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    value = str(action.metavar or action.dest.upper())
    if action.metavar is None and action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if action.nargs == "?":
        value = f"[{value}]"
    return f"{names} {value}{' …' if action.nargs == '+' else ''}"


def _cell(action: argparse.Action) -> str:
    return f"`{_shape(action)}`".replace("|", "\\|")


def _meaning(action: argparse.Action) -> str:
    text = _marked(action.help or "").replace("|", "\\|")
    return f"{text}; required" if action.required and action.option_strings else text


def _prose(text: str) -> str:
    """Return paragraphs: as Markdown, with links to the documents that they name."""
    text = re.sub(r"^exit codes:", "Exit codes:", text, flags=re.MULTILINE)
    paragraphs = (" ".join(part.split()) for part in text.strip().split("\n\n"))
    return "\n\n".join(map(_marked, paragraphs)) + "\n"


def _marked(text: str) -> str:
    text = re.sub(r"`pykafka-sink docs ([\w-]+)`", r"[\1](\1.md)", text)
    text = re.sub(r"(?<![\w`-])(--[a-z][\w-]*(?: [\w.]+=…)?)", r"`\1`", text)
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(render())
