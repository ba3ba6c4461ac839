"""docs/commands.md is what the parsers of the command line and of the jobs say."""

from __future__ import annotations

from pathlib import Path

from release.commands_document import parsers, render

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


def test_the_document_is_up_to_date() -> None:
    command = "python -m release.commands_document > docs/commands.md"
    assert DOCUMENT.read_text(encoding="utf-8") == render(), f"run: {command}"


def test_every_command_and_flag_is_in_it() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    found = [*parsers()]
    assert len(found) > 20
    flags = {flag for parser in found for flag in parser._option_string_actions}
    assert [flag for flag in sorted(flags - {"-h", "--help"}) if f"`{flag}" not in text] == []
    for flag in ("--trigger", "--max-files", "--max-offsets", "--key-columns", "--select"):
        assert f"\n| `{flag} " in text
    commands = [parser.prog for parser in found if parser.prog.startswith("pykafka-sink ")]
    assert [one for one in commands if f"# {one}\n" not in text] == []


def test_each_exit_code_is_in_it() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert all(f"\n| {code} | " in text for code in (0, 1, 2))
    assert text.count("\nExit status: 0 ") == len([*(DOCUMENT.parents[1] / "jobs").glob("*.py")])
