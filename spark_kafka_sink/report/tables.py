"""HTML of tables that people can sort, and that a screen reader can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple, Union


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


class Cell(NamedTuple):
    """order: what the table is sorted by; a column of numbers is aligned to the right"""

    shown: str
    order: float


Value = Union[str, Cell]


def text(value: str) -> str:
    """As HTML."""
    return value if isinstance(value, Html) else escape(value)


def table(name: str, caption: str, columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> Html:
    """The first cell of each row is its header."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{_row(row)}</tr>\n" for row in rows)
    return Html(
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="sortable" id="{name}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"
    )


def _row(row: Sequence[Value]) -> str:
    cells = []
    for number, value in enumerate(row):
        tag, scope = ("td", "") if number else ("th", ' scope="row"')
        if isinstance(value, Cell):
            order = f' class="n" data-order="{value.order:.6g}"'
            cells.append(f"<{tag}{scope}{order}>{text(value.shown)}</{tag}>")
        else:
            cells.append(f"<{tag}{scope}>{text(value)}</{tag}>")
    return "".join(cells)
