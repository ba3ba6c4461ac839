"""Fenced blocks of the documents."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block. ``name``: document and line, for messages and test ids."""

    document: str
    line: int
    language: str
    text: str

    @property
    def name(self):
        return f"{self.document}:{self.line}"

    @property
    def is_for_connect(self):
        """It needs a client of Spark Connect: evidence/clusters/test_connect.py has one."""
        return "sc://" in self.text or "addArtifacts" in self.text


def blocks(document, language):
    """The blocks of a document in one language; "" is what is typed into a shell, or shown."""
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    return [
        Block(document, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in _BLOCK.finditer(text)
        if found[1] == language
    ]


def documents():
    """Return README.md and the pages under docs/, as paths from the repository.

    Reports for other projects (docs/upstream) have tests of their own.
    """
    found = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    return [str(path.relative_to(REPOSITORY)) for path in found if path.parent.name != "upstream"]


def command_lines(block):
    """The commands of a shell's block, without comments and with continued lines joined."""
    joined = block.text.replace("\\\n", " ")
    lines = (line.split("  #")[0].split("   # ")[0].strip() for line in joined.splitlines())
    return [line.removeprefix("$ ") for line in lines if line and not line.startswith("#")]


def load_documented(name, document, monkeypatch):
    """Let ``name`` be a module of the one block of a document that begins with ``# name.py``."""
    (code,) = (b.text for b in blocks(document, "python") if b.text.startswith(f"# {name}.py"))
    module = types.ModuleType(name)
    exec(compile(code, f"{name}.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, name, module)
