"""References in texts of options: ``${env:NAME}``, ``${file:/path:key}``, ``${dir:/path:file}``.

Here is only how they are written; what they stand for is read in the process that needs it, by
``security/references.py``.

Source: ``ConfigTransformer`` of Kafka.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ENV, FILE, DIR = "env", "file", "dir"
HOW_TO_WRITE = "${env:NAME}, ${file:/path:key} or ${dir:/path:file}"

REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
# Anything else before the first colon cannot be meant as a provider's name: it stays as it is.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class Reference(NamedTuple):
    """provider: ENV, FILE or DIR, or what else is written there. path: None for ENV."""

    provider: str
    path: str | None
    key: str


def reference_of(match: re.Match[str]) -> Reference | None:
    """What a match of REFERENCE is; None for what only looks alike."""
    return Reference(match[1], match[2], match[3]) if _WORD.fullmatch(match[1]) else None


def references_in(text: str) -> list[Reference]:
    """All references, in order."""
    found = (reference_of(match) for match in REFERENCE.finditer(text))
    return [reference for reference in found if reference is not None]


def has_reference(text: str) -> bool:
    """Whether part of the text stands somewhere else."""
    return bool(references_in(text))


def problem_of_references(text: str) -> str | None:
    """What is wrong with the way references are written; None if nothing is.

    Shows nothing of the text: it may hold a secret.
    """
    for reference in references_in(text):
        if reference.provider not in (ENV, FILE, DIR):
            return (
                "it holds a reference of a kind that is not known here: write "
                f"{HOW_TO_WRITE}; a text that holds ${{ itself must be given by reference"
            )
        has_path = bool(reference.path)
        if not reference.key or has_path is (reference.provider == ENV):
            return f"it holds a reference that is not complete: write {HOW_TO_WRITE}"
    return None
