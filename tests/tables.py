"""A table of cases as one test, which tries each row and names all that fail.

To pytest a case costs two milliseconds, with the messages of its workers; most rows take less. For rows that share
nothing and need no fixture of their own: between them nothing is set up. A row that skips skips the table.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest

MOST_SHOWN = 50
"""Rows that fail, of one table, with what they say; the others are counted."""


def each_row(
    names: str | tuple[str, ...], rows: Iterable[Any], ids: Callable[[Any], str] = repr
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As ``pytest.mark.parametrize``, but all rows are one test. ``ids`` names a value of a row."""
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    table = [row if len(arguments) > 1 else (row,) for row in rows]
    assert table, "a table without rows tests nothing"
    assert not any(isinstance(row[0], type(pytest.param(1))) for row in table), "a row has no marks"
    assert all(len(row) == len(arguments) for row in table), (
        f"not {len(arguments)} values in each row"
    )

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def whole(*positional: Any, **others: Any) -> None:
            failed, first = [], None
            for row in table:
                try:
                    test(*positional, **others, **dict(zip(arguments, row)))
                except pytest.skip.Exception:
                    if not failed:
                        raise
                    break
                except (Exception, pytest.fail.Exception) as error:
                    first = first or error
                    failed.append(f"[{'-'.join(map(ids, row))}] {_told(error)}")
            if failed:
                more = f"\nand {len(failed) - MOST_SHOWN} more" * (len(failed) > MOST_SHOWN)
                raise AssertionError(
                    f"{len(failed)} of {len(table)} rows fail; the first is above:\n"
                    + "\n".join(failed[:MOST_SHOWN])
                    + more
                ) from first

        signature = inspect.signature(test)
        kept = [one for name, one in signature.parameters.items() if name not in arguments]
        assert len(kept) == len(signature.parameters) - len(arguments), "no such arguments"
        vars(whole)["__signature__"] = signature.replace(parameters=kept)
        return whole

    return decorate


def _told(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in line {where.lineno} of {where.filename}: {error}"
