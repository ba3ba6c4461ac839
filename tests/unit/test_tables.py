"""What a table of cases as one test says of its rows."""

import pytest

from tests.tables import MOST_SHOWN, each_row


def test_every_row_is_tried_and_each_that_fails_is_named():
    tried = []

    @each_row("number", range(6))
    def of_three(number):
        tried.append(number)
        if number == 5:
            with pytest.raises(ValueError):
                pass
        assert number % 3, f"{number} is a multiple"

    with pytest.raises(AssertionError) as raised:
        of_three()
    assert tried == [*range(6)]
    first, *others = str(raised.value).splitlines()
    assert first == "3 of 6 rows fail; the first is above:"
    assert [line[:3] for line in others if line.startswith("[")] == ["[0]", "[3]", "[5]"]
    assert "DID NOT RAISE" in str(raised.value)
    assert "0 is a multiple" in str(raised.value.__cause__)

    @each_row("number", range(MOST_SHOWN + 2))
    def none(number):
        raise ValueError(number)

    with pytest.raises(AssertionError, match="and 2 more$"):
        none()


def test_tables_of_tables():
    seen = []

    @each_row(("a", "b"), [(1, 2), (3, 4)], ids=str)
    @each_row("c", [5, 6])
    def table(outer, a, b, c):
        seen.append((outer, a, b, c))

    table("x")
    assert seen == [("x", 1, 2, 5), ("x", 1, 2, 6), ("x", 3, 4, 5), ("x", 3, 4, 6)]


def checks(a):
    pass


@pytest.mark.parametrize("tmp", ["x"])
@each_row(
    ("names", "rows"),
    [("a", []), ("a, b", [(1, 2), (3,)]), ("other", [1]), ("a", [pytest.param(1)])],
)
def test_a_table_that_does_not_fit_is_refused(names, rows, tmp, tmp_path):
    """And one with fixtures is tried."""
    assert tmp_path.is_dir()
    with pytest.raises(AssertionError):
        each_row(names, rows)(checks)
