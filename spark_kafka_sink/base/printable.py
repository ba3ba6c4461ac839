"""Text from outside (records, brokers, servers, files of others), as it may be shown."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return ``text`` in one line, each character that is not printable escaped as in Python.

    An escape sequence repaints a terminal, a line feed forges a line of a log, and a character of
    text direction shows another name than there is: ``\x1b[2J``, ``\n``, ``\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
