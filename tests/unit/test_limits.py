"""Limits: what is asked and answered, and what is reserved."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.secret import Secret
from spark_kafka_sink.limits.ledger import Ledger
from spark_kafka_sink.limits.messages import (
    Granted,
    Paused,
    Refused,
    Reservation,
    read_answer,
    read_reservation,
    split_request,
    write_answer,
    write_request,
)

RATE = 1_000
NS_PER_S = 1_000_000_000
NESTED = b"[" * 60_000


def ask(ledger: Ledger, at_s: float, reservation: Reservation, token: str = "t") -> object:
    line = write_request(token, reservation).rstrip(b"\n")
    return read_answer(ledger.answer(line, int(at_s * NS_PER_S)))


def ledger(held: list[str] | None = None) -> Ledger:
    there = [] if held is None else held
    return Ledger(Secret("t"), lambda path: path in there)


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [Granted(12), Paused(500), Refused("no")])
def test_answers_come_as_they_were_sent(answer: Granted | Paused | Refused) -> None:
    assert read_answer(write_answer(answer)) == answer


def test_requests_come_as_they_were_sent() -> None:
    asked = Reservation("q", 10, 2, 1000, None, "/tmp/held", "unit")
    token, document = split_request(write_request("token", asked))
    assert (token, read_reservation(document)) == ("token", asked)


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b"[]",
        b"{}",
        b'{"granted":1,"more":2}',
        b'{"others":1}',
        b"\xff",
        NESTED,
        b'{"granted":"1"}',
    ],
)
def test_what_others_answer_is_no_answer(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_answer(line)


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1", b"[]", b"", b" ", b"\xff", NESTED, b"u {}", b'{"token":"t"}']
)
def test_without_the_token_nothing_is_read(line: bytes) -> None:
    refused = Refused("the token is of another server")
    assert read_answer(ledger().answer(line, 0)) == refused


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        NESTED,
        b'{"query":"q","bytes":1,"records":1,"more":1}',
        b'{"query":2,"bytes":1,"records":1}',
        b'{"query":"q","bytes":"1","records":1}',
        b'{"query":"q","bytes":true,"records":1}',
        b'{"query":"q","bytes":1,"records":1,"bytes_per_second":0}',
        b'{"query":"q","bytes":1,"records":1,"records_per_second":"1"}',
        b'{"query":"q","bytes":1,"records":1,"pause_path":3}',
        b'{"query":"q","bytes":1,"records":1,"unit":[]}',
    ],
)
def test_what_is_no_request_is_refused(document: bytes) -> None:
    answer = read_answer(ledger().answer(b"t " + document, 0))
    assert isinstance(answer, Refused)
    assert "token" not in answer.reason


def test_an_amount_below_nothing_is_refused() -> None:
    assert isinstance(ask(ledger(), 0, Reservation("q", -5, 1, RATE)), Refused)


# --- ledger ---------------------------------------------------------------------------------------


def test_each_query_has_a_limit_of_its_own() -> None:
    books = ledger()
    assert ask(books, 0, Reservation("a", 500, 1, RATE)) == Granted(500)
    assert ask(books, 0, Reservation("a", 500, 1, RATE)) == Granted(1000)
    assert ask(books, 0, Reservation("b", 500, 1, RATE)) == Granted(500)


def test_the_slower_limit_counts() -> None:
    books = ledger()
    assert ask(books, 0, Reservation("a", 500, 10, RATE, 100)) == Granted(500)
    assert ask(books, 0, Reservation("a", 100, 100, RATE, 100)) == Granted(1100)


def test_a_wrong_token_is_refused_and_costs_nothing() -> None:
    books = ledger()
    asked = Reservation("a", 500, 1, RATE)
    assert ask(books, 0, asked, token="guessed") == Refused("the token is of another server")
    assert ask(books, 0, asked) == Granted(500)


def test_what_is_held_reserves_nothing() -> None:
    held = ["/held"]
    books = ledger(held)
    asked = Reservation("a", 500, 1, RATE, pause_path="/held")
    assert isinstance(ask(books, 0, asked), Paused)
    held.clear()
    assert ask(books, 1, asked) == Granted(500)


def test_a_unit_that_has_begun_is_not_held() -> None:
    held: list[str] = []
    books = ledger(held)
    begun = Reservation("a", 100, 1, RATE, pause_path="/held", unit="1")
    assert isinstance(ask(books, 0, begun), Granted)
    held.append("/held")
    assert isinstance(ask(books, 0, begun), Granted)
    assert isinstance(ask(books, 0, begun._replace(unit="2")), Paused)
    assert isinstance(ask(books, 0, begun._replace(unit=None)), Paused)


def test_a_limit_that_was_corrected_counts_at_once() -> None:
    """What was reserved with the one before is earned with the new one."""
    books = ledger()
    slow = Reservation("a", 20_000, 1, 1)
    assert ask(books, 0, slow) == Granted(20_000_000)
    assert ask(books, 10, slow._replace(bytes_per_second=RATE)) == Granted(39_990)
    # A task of the former start that has not ended yet.
    assert ask(books, 10, slow) == Granted(39_990_000 + 20_000_000)
    assert ask(books, 10, slow._replace(bytes_per_second=RATE)) == Granted(79_990)


def test_queries_that_are_over_are_forgotten() -> None:
    books = ledger()
    for number in range(3_000):
        ask(books, number * 10, Reservation(str(number), 10, 1, RATE))
    assert len(books._buckets) <= 1_000


def reserved(books: Ledger, at_s: float, amount: int, connection: str, **more: int) -> object:
    asked = Reservation("a", amount, 1, RATE, **more)
    line = write_request("t", asked).rstrip(b"\n")
    return read_answer(books.answer(line, int(at_s * NS_PER_S), connection))


def test_what_a_closed_connection_could_not_have_sent_is_given_back() -> None:
    books = ledger()
    assert reserved(books, 0, 2_000, "one") == Granted(2_000)
    books.closed("one", 1 * NS_PER_S)
    assert reserved(books, 1, 2_000, "two") == Granted(1_000), "one second may be made up for"
    books.closed("two", 3 * NS_PER_S)
    assert reserved(books, 3, 1_000, "three") == Granted(0)
    assert reserved(books, 3, 1_000, "three") == Granted(1_000)


def test_what_may_have_been_sent_is_not_given_back() -> None:
    books = ledger()
    assert reserved(books, 0, 2_000, "one") == Granted(2_000)
    books.closed("one", 2 * NS_PER_S)
    assert reserved(books, 2, 2_000, "two") == Granted(1_000 + 1_000)
    books.lost("two")
    books.closed("two", 3 * NS_PER_S)
    assert reserved(books, 3, 1_000, "three") == Granted(2_000), "who is lost may live"


def test_what_is_given_back_between_others_is_for_what_fits() -> None:
    """What was granted behind it keeps its time: nothing is sent at once that was to take longer."""
    books = ledger()
    assert reserved(books, 0, 4_000, "one") == Granted(4_000)
    assert reserved(books, 0, 4_000, "two") == Granted(8_000)
    assert reserved(books, 0, 4_000, "three") == Granted(12_000)
    books.closed("two", 1 * NS_PER_S)
    assert reserved(books, 1, 5_000, "four") == Granted(16_000), "too large"
    assert reserved(books, 1, 3_000, "five") == Granted(6_000)
    assert reserved(books, 1, 1_000, "six") == Granted(7_000)
    assert reserved(books, 1, 1_000, "seven") == Granted(17_000)
    books.closed("four", 2 * NS_PER_S)
    books.closed("seven", 2 * NS_PER_S)
    books.closed("three", 2 * NS_PER_S)
    assert reserved(books, 2, 10_000, "eight") == Granted(8_000 - 2_000 + 10_000)


def test_a_gap_of_former_times_or_another_rate_is_forgotten() -> None:
    books = ledger()
    for name in ("one", "two", "three"):
        reserved(books, 0, 4_000, name)
    books.closed("two", 0)
    assert reserved(books, 8.5, 600, "four") == Granted(4_100), "half a second of it is left"
    assert reserved(books, 8.5, 400, "five") == Granted(0)
    assert reserved(books, 9, 1_000, "five") == Granted(4_600)
    slower = Reservation("a", 1, 1, 2 * RATE)
    ask(books, 9, slower)
    books.closed("five", 9 * NS_PER_S)
    assert isinstance(granted := ask(books, 9, slower._replace(bytes=0)), Granted)
    assert granted.wait_ms > 2_000


def test_both_limits_get_theirs_back() -> None:
    books = ledger()
    assert reserved(books, 0, 1_000, "one", records_per_second=1) == Granted(1_000)
    assert reserved(books, 0, 1_000, "two", records_per_second=1) == Granted(2_000)
    books.closed("two", 0)
    assert reserved(books, 0, 500, "three", records_per_second=1) == Granted(2_000)
    assert reserved(books, 0, 500, "four") == Granted(2_000)
