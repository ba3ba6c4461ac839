"""Pages of the arena: handed out once each, neighbours together."""

from __future__ import annotations

import random

import pytest

from spark_kafka_sink.producer.accumulator import BufferPool

PAGE = 64


def test_pages_are_handed_out_once_until_they_are_given_back() -> None:
    pool, rng = BufferPool(3_000 * PAGE, PAGE), random.Random(1)
    held: list[list[int]] = []
    for _ in range(2_000):
        if held and rng.random() < 0.5:
            pool.deallocate(held.pop(rng.randrange(len(held))))
        else:
            held.append(pool.take(min(rng.randrange(40), pool.free_count)))
        taken = [page for pages in held for page in pages]
        assert len(set(taken)) == len(taken)
        assert pool.free_count == pool.pages_count - len(taken)


def test_what_comes_back_in_disorder_is_handed_out_in_order() -> None:
    pool = BufferPool(100 * PAGE, PAGE)
    pages = pool.take(100)
    random.Random(2).shuffle(pages)
    pool.deallocate(pages)
    # A stack: the last one is used first.
    assert pool.take(8) == [7, 6, 5, 4, 3, 2, 1, 0]


def test_of_a_large_arena_the_pages_used_last_come_first() -> None:
    pool = BufferPool(10_000 * PAGE, PAGE)
    low, high = pool.take(5_000), pool.take(2_000)
    pool.deallocate(low)
    pool.deallocate(high)
    assert set(pool.take(32)) <= set(high)


@pytest.mark.parametrize(
    ("pages", "size_bytes", "expected"),
    [
        ([3], 10, [(3, 10)]),
        ([3, 4, 5], 2 * PAGE + 1, [(3, 2 * PAGE + 1)]),
        ([5, 4, 3], 3 * PAGE, [(5, PAGE), (4, PAGE), (3, PAGE)]),
        ([1, 2, 9, 10, 4], 4 * PAGE + 7, [(1, 2 * PAGE), (9, 2 * PAGE), (4, 7)]),
    ],
)
def test_views_join_neighbours(
    pages: list[int], size_bytes: int, expected: list[tuple[int, int]]
) -> None:
    pool = BufferPool(16 * PAGE, PAGE)
    memory = pool.view(0, 16 * PAGE)
    memory[:] = bytes(index % 251 for index in range(16 * PAGE))
    views = pool.views(pages, size_bytes)
    assert [len(view) for view in views] == [count for _, count in expected]
    for view, (page, count) in zip(views, expected):
        assert view == memory[page * PAGE : page * PAGE + count]
