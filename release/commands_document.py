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
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import ModuleType

from spark_kafka_sink import __main__ as cli
from spark_kafka_sink.jobs.settings import CONF_PREFIX, READER_PREFIX, JobArguments
from spark_kafka_sink.tools import command

_HEAD = """\
# Command line and jobs

For operators, and for engineers who run the jobs of the package: every command, flag, exit code and job argument.
Generated from the parsers; do not edit.

`pykafka-sink COMMAND --help` says more and has more examples. `python -m spark_kafka_sink` is the same program. Results
go to standard output, and messages to standard error.

"""  # noqa: E501

_EXIT_CODES = """\
## Exit codes

| code | meaning |
| --- | --- |
"""

_COMMON = "## Flags of several commands\n\nThe sections below omit these flags.\n"

_JOBS = """
## Jobs

Run a job with `spark-submit`: `pykafka-sink job NAME` prints its path. Arguments may stand in the
[properties file](clusters.md#jobs-and-properties-files) instead, `--max-files` as
`spark.pykafka.job.max.files`.

### Arguments of every job

| argument | in the properties file | meaning |
| --- | --- | --- |
"""

_SHARED_ARGUMENTS = """
### Arguments of several jobs

| argument | meaning | jobs |
| --- | --- | --- |
"""
_GUIDES = {
    "broker": "security.md#a-secured-broker-on-this-machine",
    "transactions": "operating-transactions.md",
    "dead-letters": "dead-letters.md#inspect-and-replay",
    "package": "clusters.md#a-zip-file",
}
"""Pages that explain a command whose help has several paragraphs."""

_SHARED_BY = 2
"""Commands that must have a flag before the page describes it in one place."""
_JOBS_FOLDER = Path(__file__).resolve().parents[1] / "jobs"
_PROPERTIES = {"--option": f"{CONF_PREFIX}NAME", "--reader-option": f"{READER_PREFIX}NAME"}


def render() -> str:
    """Return the whole document."""
    commands = list(_commands(cli._parser()))
    shared = _shared_flags(commands)
    parts = [_HEAD, _EXIT_CODES, *_exit_codes(), "\n", _COMMON]
    for names, actions in _actions_of_users(shared.values(), commands).items():
        parts.append(f"\n{names}:\n\n| flag | meaning |\n| --- | --- |\n")
        parts += [f"| {_cell(action)} | {_meaning(action)} |\n" for action in actions]
    for summary, parser in commands:
        parts += _command(summary, parser, shared.keys())
    own = JobArguments("")
    jobs = {path.stem: _module(path) for path in sorted(_JOBS_FOLDER.glob("*.py"))}
    users = _users_of_arguments(jobs, own)
    parts += [_JOBS, *_argument_rows(own), _SHARED_ARGUMENTS]
    parts += [
        f"| {_cell(action)} | {_meaning(action)} | {', '.join(names)} |\n"
        for action, names in users
        if len(names) > 1
    ]
    for name, module in jobs.items():
        parts += _job(name, module, [one for one, names in users if names == [name]])
    return "".join(parts)


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands and jobs."""
    for _, parser in _commands(cli._parser()):
        yield parser
    for path in sorted(_JOBS_FOLDER.glob("*.py")):
        yield _parser_of(_module(path))


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


def _actions_of_users(
    actions: Iterable[argparse.Action], commands: Iterable[tuple[str, argparse.ArgumentParser]]
) -> dict[str, list[argparse.Action]]:
    """Return flags by the names of the commands that have them."""
    parsers = [parser for _, parser in commands if parser._subparsers is None]
    every = [_group_and_name(parser) for parser in parsers]
    found: dict[str, list[argparse.Action]] = {}
    for action in actions:
        users = [
            _group_and_name(parser)
            for parser in parsers
            if any(_key(action) == _key(one) for one in _flags(parser))
        ]
        found.setdefault(", ".join(_grouped(users, every)), []).append(action)
    return found


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
) -> Iterator[str]:
    """Yield the section of a command: the first paragraph of its help, perhaps an example."""
    level = "##" if parser.prog.count(" ") == 1 else "###"
    yield f"\n{level} {parser.prog}\n\n"
    first, *others = (parser.description or summary).strip().split("\n\n")
    guide = _GUIDES.get(parser.prog.partition(" ")[2])
    yield _prose(first + (f" [Guide]({guide})" if guide else ""))
    is_group = parser._subparsers is not None
    # The codes of a group are those of the program.
    yield from (f"\n{_prose(one)}" for one in others if one.startswith("exit") and not is_group)
    own = [action for action in _flags(parser) if _key(action) not in shared]
    if own:
        yield "\n| argument | meaning |\n| --- | --- |\n"
        yield from (f"| {_cell(action)} | {_meaning(action)} |\n" for action in own)
    example = _first_example(parser.epilog or "")
    # A group repeats the examples of its commands, and the guide of a group has them all.
    group = _GUIDES.get(_group_and_name(parser)[0])
    if not is_group and (guide or not group) and example != f"{parser.prog}\n":
        yield f"\n```sh\n{example}```\n"


def _first_example(epilog: str) -> str:
    """Return the lines of the first example, without the comment above it."""
    lines = [line.strip() for line in epilog.removeprefix("examples:\n").splitlines()]
    ends = [number for number, line in enumerate(lines) if number and line.startswith("#")]
    return "".join(f"{line}\n" for line in lines[1 : min(ends, default=len(lines))] if line)


# --- jobs ----------------------------------------------------------------------------------------


def _users_of_arguments(
    jobs: Mapping[str, ModuleType], own: JobArguments
) -> list[tuple[argparse.Action, list[str]]]:
    """Return each argument that not every job has, with the names of its jobs."""
    of_all = {_key(action) for action in _flags(own._parser)}
    actions: dict[tuple[str, str | None], tuple[argparse.Action, list[str]]] = {}
    for name, module in jobs.items():
        for action in _flags(_parser_of(module)):
            if _key(action) not in of_all:
                actions.setdefault(_key(action), (action, []))[1].append(name)
    return list(actions.values())


def _parser_of(module: ModuleType) -> argparse.ArgumentParser:
    declared = module.declare_arguments()
    parser: argparse.ArgumentParser = getattr(declared, "_parser", declared)
    return parser


def _job(name: str, module: ModuleType, own: list[argparse.Action]) -> Iterator[str]:
    """Yield the section of a job. own: arguments that no other job has."""
    yield f"\n### {name}\n\n"
    yield _prose((module.__doc__ or "").split("\n\n")[0])
    if own:
        yield "\n| argument | meaning |\n| --- | --- |\n"
        yield from (f"| {_cell(one)} | {_meaning(one)} |\n" for one in own)
    text = (module.main.__doc__ or "").splitlines()[0]
    yield f"\n{text.replace('Return the exit status', 'Exit status')}\n"


def _argument_rows(arguments: JobArguments) -> Iterator[str]:
    for action in _flags(arguments._parser):
        name = _name(action)
        # "short for --option topic=…": the option is what a properties file has.
        short_for = re.match(r"short for --option ([\w.]+)=", action.help or "")
        setting = CONF_PREFIX + short_for[1] if short_for else _PROPERTIES[name]
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
