"""``buffer.memory``: one arena, cut into pages of equal size that are handed out and taken back.

Pages are given back on top of a stack, so that the ones touched last, which are in the processor's
cache and mapped by the operating system, are used first. Its top is handed out in order of address:
the pages of a batch are neighbours more often than not, which makes them one buffer for CRC and
socket. A page is all there is: no allocation of another size, no fragmentation, and no memory
beyond the arena.

Not synchronised: the accumulator's monitor guards it.

Source: ``BufferPool``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

NO_PAGE = -1
# The part of the stack that is kept in order: Kafka's default buffer.memory. Bounded, so that pages
# out of a larger one do not cost more.
_ORDERED_PAGES = 1024


class BufferPool:
    """Pages of ``page_size`` bytes out of ``memory_bytes``."""

    def __init__(self, memory_bytes: int, page_size: int) -> None:
        self.page_size = page_size
        self.pages_count = memory_bytes // page_size
        self._arena = np.empty(self.pages_count * page_size, np.uint8)
        self.arena_address: int = self._arena.ctypes.data
        self._view = self._arena.data
        # The chain of each batch's pages; the kernel fills it in.
        self.next_page: npt.NDArray[np.int32] = np.full(self.pages_count, NO_PAGE, np.int32)
        # The lowest pages come first, so that a small job touches little memory.
        self._free: list[int] = list(range(self.pages_count - 1, -1, -1))

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def memory_bytes(self) -> int:
        return self.pages_count * self.page_size

    @property
    def used_bytes(self) -> int:
        return (self.pages_count - len(self._free)) * self.page_size

    def take(self, count: int) -> list[int]:
        """``count`` pages, the lowest one last; the caller has checked ``free_count``."""
        top = self._free[-max(count, _ORDERED_PAGES) :]
        top.sort(reverse=True)
        rest, taken = top[: len(top) - count], top[len(top) - count :]
        self._free[-len(top) :] = rest
        return taken

    def give_back(self, pages: Sequence[int]) -> None:
        """Take pages back. Their content is gone."""
        self._free.extend(pages)

    def view(self, page: int, count: int) -> memoryview:
        """The first ``count`` bytes of ``page`` and, beyond it, of its neighbours; writable."""
        start = page * self.page_size
        return self._view[start : start + count]

    def views(self, pages: Sequence[int], size_bytes: int) -> list[memoryview]:
        """The first ``size_bytes`` of a chain of pages; neighbours in memory are one view."""
        views = []
        first, following = pages[0], pages[0] + 1
        for page in pages[1:]:
            if page != following:
                count = (following - first) * self.page_size
                views.append(self.view(first, count))
                size_bytes -= count
                first = page
            following = page + 1
        views.append(self.view(first, size_bytes))
        return views

    def chain(self, first_page: int) -> list[int]:
        """The pages of a batch, from ``first_page`` on."""
        pages = []
        page = first_page
        while page != NO_PAGE:
            pages.append(page)
            page = int(self.next_page[page])
        return pages
