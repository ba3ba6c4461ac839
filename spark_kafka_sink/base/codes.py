"""Stable codes of errors and warnings: ``… must be a whole number [PKS-OPTION-002]``.

A code names a cause that a user can act on. It ends the text, so the sentence before it stays as it
is. ``spark_kafka_sink/tools/codes/`` has the table of codes, and only ``pykafka-sink explain`` and
the documentation read it. In the code a code is written without ``PKS-``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable

PREFIX = "PKS-"
_QUOTED = re.compile(r" ?\[PKS-([A-Z]+-\d{3})\]")


def coded(text: str, code: str) -> str:
    """Return ``text`` with exactly one code, at its end.

    A code within ``text`` comes from a quoted error, whose cause is the one to act on, so it
    replaces ``code``. If ``text`` quotes several causes, ``code`` stands for all.
    """
    if f"[{PREFIX}" in text:
        quoted = set(_QUOTED.findall(text))
        if len(quoted) == 1 or not code:
            code = _QUOTED.findall(text)[0] if quoted else code
        text = _QUOTED.sub("", text)
    return f"{text} [{PREFIX}{code}]" if code else text


def joined(texts: Iterable[str]) -> str:
    """Return the texts in one. It has their code only if all have the same one."""
    parts = [*texts]
    whole = ", ".join(parts)
    return whole if len({code_of(part) for part in parts}) == 1 else sentence(whole)


def sentence(text: object) -> str:
    """Return the text, such as that of an error, without codes.

    An error that quotes another one's ``sentence`` keeps its own code.
    """
    return _QUOTED.sub("", str(text))


def code_of(text: object) -> str:
    """Return the code in ``text``, without ``PKS-``; empty if ``text`` has none."""
    match = _QUOTED.search(str(text))
    return match[1] if match else ""


def warn(logger: logging.Logger, code: str, text: str, exc_info: bool = False) -> None:
    """Log a WARNING that ends with its code."""
    logger.warning("%s", coded(text, code), exc_info=exc_info, stacklevel=2)
