"""Kernels and their helpers, as they are declared. What compiles them is in ``compiler``.

A kernel is a function of int64 that returns an int64: numbers and addresses of memory. So it is the
same function for numba, for C's calling convention, and for whoever calls it; nothing of Python or
NumPy is known below. What has to come back besides is written to an address.

A process that writes records imports none of it: ``record/compiled`` has the names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KERNELS: dict[str, Callable[..., int]] = {}
"""Every kernel that was imported, by name."""
HELPERS: dict[Callable[..., Any], bool] = {}
"""Every helper that was imported: is it compiled into whoever calls it?"""


def kernel(source: Callable[..., int]) -> Callable[..., int]:
    """Declare a kernel: a function of int64 that returns an int64."""
    assert source.__name__ not in KERNELS, f"two kernels are called {source.__name__}"
    KERNELS[source.__name__] = source
    return source


def inlined(source: Callable[..., Any]) -> Any:
    """Declare a helper of kernels: compiled into whoever calls it."""
    HELPERS[source] = True
    return source


def called(source: Callable[..., Any]) -> Any:
    """Declare a helper that is too large for each place that uses it to have a copy."""
    HELPERS[source] = False
    return source
